"""Each assertion about an example is red once what it asserts is broken.

All at once: the modules are broken in every way of `BROKEN`, in a copy, and every
message of the test files must be among what Terraform says.
"""

from __future__ import annotations

import re
from typing import Final

import pytest

from tests.infra.terraform import SOURCE, Terraform, errors

pytestmark = pytest.mark.slow

FILES: Final = {
    "small": ("protected", "brokers"),
    "bring-your-own-kafka": ("existing",),
}
MESSAGE: Final = re.compile(r'^ *error_message = "(.*)"$', re.MULTILINE)

BROKEN: Final[tuple[tuple[str, str, str], ...]] = (
    # ---- no public access
    (
        "snapshots/main.tf",
        "block_public_acls       = true",
        "block_public_acls = false",
    ),
    ("service/main.tf", "assign_public_ip = false", "assign_public_ip = true"),
    ("network/security.tf", "from_port         = 443", "from_port         = 80"),
    ("network/security.tf", "= each.value.cidr", '= "0.0.0.0/0"'),
    (
        "service/main.tf",
        "enable_execute_command            = false",
        "enable_execute_command = true",
    ),
    ("kafka/main.tf", 'type = "DISABLED"', 'type = "SERVICE_PROVIDED_EIPS"'),
    # ---- at rest
    ("audit/main.tf", 'sse_algorithm = "AES256"', 'sse_algorithm = "aws:kms"'),
    ("snapshots/main.tf", "kms_master_key_id = var.storage_key_arn", ""),
    ("observability/main.tf", "kms_key_id        = var.storage_key_arn", ""),
    ("service/secrets.tf", "kms_key_id              = var.keys.storage", ""),
    ("service/main.tf", '= "1.4.0"', '= "LATEST"'),
    ("keys/bucket.tf", 'status = "Disabled"', 'status = "Enabled"'),
    ("keys/main.tf", "enable_key_rotation     = true", "enable_key_rotation = false"),
    ("kafka/main.tf", "encryption_at_rest_kms_key_arn = var.storage_key_arn", ""),
    # ---- in transit
    (
        "service/main.tf",
        "ELBSecurityPolicy-TLS13-1-2-2021-06",
        "ELBSecurityPolicy-2016-08",
    ),
    (
        "snapshots/main.tf",
        '"aws:SecureTransport" = "false"',
        '"aws:SecureTransport" = "true"',
    ),
    ("service/locals.tf", '"SASL_SSL"', '"SASL_PLAINTEXT"'),
    ("kafka/main.tf", 'client_broker = "TLS"', 'client_broker = "TLS_PLAINTEXT"'),
    # ---- containers
    (
        "service/tasks.tf",
        "readonlyRootFilesystem = true",
        "readonlyRootFilesystem = false",
    ),
    (
        "service/locals.tf",
        'CACHEMIND_PRODUCTION   = "true"',
        'CACHEMIND_PKCS11_PIN = "1"',
    ),
    (
        "service/locals.tf",
        'requests     = { command = ["cachemind", "requests"], settings = {} }',
        "",
    ),
    ("service/tasks.tf", "containerPath = local.home", 'containerPath = "/data"'),
    ("service/tasks.tf", "retries     = 3", "retries = 0"),
    ("service/tasks.tf", "essential     = false", "essential = true"),
    ("service/tasks.tf", 'sink = [local.tell_metrics["sink"]]', "sink = []"),
    ("service/locals.tf", "=> try(what.account, task)", "=> task"),
    # ---- the lock
    ("audit/main.tf", 'mode = "COMPLIANCE"', 'mode = "GOVERNANCE"'),
    (
        "audit/main.tf",
        'versioning_configuration {\n    status = "Enabled"',
        'versioning_configuration {\n    status = "Suspended"',
    ),
    ("service/locals.tf", "= tostring(var.lock_days)", '= "1"'),
    ("audit/main.tf", '"GLACIER_IR"', '"DEEP_ARCHIVE"'),
    ("snapshots/main.tf", "= var.access_log_bucket", '= "elsewhere"'),
    # ---- topics
    (
        "topics/main.tf",
        "topic.settings,",
        'topic.settings, { "cleanup.policy" = "compact" },',
    ),
    ("topics/topics.json", '"min.insync.replicas": "2"', '"min.insync.replicas": "1"'),
    (
        "topics/main.tf",
        "var.partitions : topic.partitions",
        "length(name) : topic.partitions",
    ),
    ("topics/acls.json", '["describe", "describe_configs"]', '["create", "delete"]'),
    ("topics/main.tf", ' if role != "ceremony" || var.key_ceremony', ""),
    (
        "topics/acls.json",
        '"{prefix}.wal", "pattern": "literal", "operations": ["read", "write"]',
        '"{prefix}.dlq", "pattern": "literal", "operations": ["read", "write"]',
    ),
    (
        "topics/acls.json",
        '"{prefix}.audit", "pattern": "literal", "operations": ["read"]',
        '"{prefix}.audit", "pattern": "literal", "operations": ["write"]',
    ),
    (
        "kafka/main.tf",
        '"unclean.leader.election.enable"           = false',
        '"unclean.leader.election.enable" = true',
    ),
    (
        "kafka/outputs.tf",
        "account => secret.arn }",
        'account => secret.arn if account != "auditor" }',
    ),
    (
        "network/security.tf",
        "for_each          = toset(var.kafka.client_cidrs)",
        'for_each = toset(["10.0.0.0/8"])',
    ),
    # ---- grants
    (
        "topics/topics.json",
        '"{prefix}.requests.{namespace}.{role}",\n        "partitions": 1',
        '"{prefix}.requests.{namespace}.{role}",\n        "partitions": 2',
    ),
    (
        "topics/main.tf",
        "local.topics[pair[1]],",
        "local.topics[pair[1]], { settings = {} },",
    ),
    ("topics/main.tf", "pattern    = pair[1].pattern", 'pattern = "literal"'),
    ("topics/outputs.tf", "var.grants == null ? [] : ", ""),
    ("topics/outputs.tf", '"replies", "client"]', '"replies"]'),
    ("service/outputs.tf", 'assignPublicIp = "DISABLED"', 'assignPublicIp = "ENABLED"'),
    # ---- a network that is there
    ("topics/main.tf", "lookup(var.accounts, role, role)", "role"),
    ("service/roles.tf", ", var.kafka.account_secrets_key[*]", ""),
    ("network/outputs.tf", ": aws_security_group.role[role].id]", ": role]"),
    (
        "network/main.tf",
        '= setsubtract(["ecr.api", ',
        '= setunion(["sqs", ',
    ),
    # ---- who may do what
    (
        "keys/main.tf",
        'receipt = concat([var.roles["signer"].arn]',
        'receipt = concat([var.roles["gateway"].arn]',
    ),
    ("keys/main.tf", '"ECC_NIST_P256"', '"ECC_NIST_P384"'),
    ("keys/main.tf", '["kms:Decrypt", "kms:Encrypt"]', '["kms:*"]'),
    (
        "keys/main.tf",
        '"kms:CancelKeyDeletion",',
        '"kms:CancelKeyDeletion", "kms:Sign",',
    ),
    (
        "service/actions.json",
        '"signer": [',
        '"topics": [{"sid": "More", "actions": ["s3:*", "kms:Sign"],'
        ' "resources": ["audit_bucket"]}], "signer": [',
    ),
    (
        "service/actions.json",
        '"resources": ["receipt_keys", "log_keys"]',
        '"resources": ["root_key"]',
    ),
    (
        "service/roles.tf",
        'Action   = ["kms:Decrypt"]',
        'Action = ["kms:Decrypt", "kms:Sign"]',
    ),
    ("service/actions.json", '"s3:PutObjectRetention"', '"s3:DeleteObject"'),
    (
        "service/actions.json",
        '"resources": ["data_keys_objects"]',
        '"resources": ["audit_objects"]',
    ),
    ("audit/main.tf", '"s3:DeleteObjectVersion"', '"s3:DeleteObjectTagging"'),
    (
        "service/actions.json",
        '"sid": "Receipts", "actions": ["s3:GetObject"]',
        '"sid": "Receipts", "actions": ["s3:PutObject"]',
    ),
    (
        "identities/main.tf",
        '"aws:MultiFactorAuthPresent" = "true"',
        '"aws:MultiFactorAuthPresent" = "false"',
    ),
    ("keys/main.tf", "root    = local.ceremony", "root    = []"),
    # ---- what runs, and what is told
    ("service/main.tf", "var.running ? each.value.max : 0", "each.value.max"),
    ("service/main.tf", "ALBRequestCountPerTarget", "ECSServiceAverageCPUUtilization"),
    ("kafka/main.tf", "enabled   = true", "enabled = false"),
    ("service/main.tf", "= local.lags", "= {}"),
    ("service/outputs.tf", "/v1", "/v2"),
    ("observability/main.tf", "fold-lag = {", "fold-late = {"),
    ("observability/main.tf", "-cut-age", "-cut-late"),
)


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Terraform:
    terraform = Terraform.copy(tmp_path_factory.mktemp("terraform"))
    for name, good, bad in BROKEN:
        path = terraform.folder / "modules" / name
        text = path.read_text()
        assert good in text, (name, good)
        path.write_text(text.replace(good, bad))
    return terraform


@pytest.mark.parametrize("example", FILES)
def test_each_assertion_is_red_where_the_modules_are_broken(
    broken: Terraform, example: str
) -> None:
    broken.init(example)
    filters = (f"-filter=tests/{name}.tftest.hcl" for name in FILES[example])
    said = " ".join(errors(broken.test(example, *filters)))
    wanted = {
        message
        for name in FILES[example]
        for message in MESSAGE.findall(
            (SOURCE / f"tests/{name}.tftest.hcl").read_text()
        )
    }
    assert len(wanted) > len(FILES[example])
    assert {message for message in wanted if message not in said} == set(), said


def test_every_file_of_assertions_is_among_them() -> None:
    files = {path.name.partition(".")[0] for path in (SOURCE / "tests").glob("*.hcl")}
    named = {name for names in FILES.values() for name in names}
    assert {name for name in files if not name.startswith("refused")} == named
