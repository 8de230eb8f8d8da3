"""The program's own calls of S3 and KMS, with the policies of the modules in force.

The policies are those of a plan of an example; moto's server asks them at each request,
by real HTTP. Nothing is granted but them, each scenario succeeds, and with any one
action taken away it does not. What moto does not ask for is listed in `NOT_ASKED`, and
is held against the program's text alone (test_actions.py). Policies of keys and buckets
are not enforced by moto; the first are compared with the roles' here, all of them are
asserted in infra/terraform/tests.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

import boto3  # type: ignore[import-untyped]  # ships no types
import pytest
from botocore.exceptions import (  # type: ignore[import-untyped]  # ships no types
    ClientError,
)
from moto.core.authorization import enable_iam_authentication
from moto.kms.responses import KmsResponse

from cachemind.adapters.audit_bucket import AuditBucket, ObjectLock
from cachemind.adapters.audit_files_reader import AuditFilesReader
from cachemind.adapters.clock import SystemClock
from cachemind.adapters.data_key_bucket import DataKeyBucket
from cachemind.adapters.key_kms import KmsKey
from cachemind.adapters.kms_calls import KmsCalls
from cachemind.adapters.snapshot_store import SnapshotStore
from cachemind.adapters.wrap_kms import KmsWrapper
from cachemind.core.kms_uri import KmsUri
from cachemind.errors import CacheError
from cachemind.types import Partition
from tests.contracts.audit_target_contract import NAME
from tests.contracts.data_keys_contract import SHOP, data_key
from tests.infra.terraform import Terraform, resources
from tests.kms import REGION, moto_kms, set_credentials
from tests.sealed_cases import RECEIPTS
from tests.snapshot_cases import BEGAN_NS, Contents, manifest_of, written

pytestmark = pytest.mark.slow

Policy = Mapping[str, Any]
Policies = Mapping[str, Policy]
KEYS: Final = ("root", "receipt-1", "log-1", "payload")
FILES: Contents = {"CURRENT": b"MANIFEST-1\n", "000001.sst": bytes(6_000_000)}
CHANGED: Contents = {"CURRENT": b"MANIFEST-2\n"}
LATER_NS: Final = BEGAN_NS + 10**18

NOT_ASKED: Final = frozenset(
    {
        ("gateway", "s3:AbortMultipartUpload"),  # after a failure only
        ("gateway", "kms:GenerateDataKey"),  # by S3 itself, for an object's key
        ("gateway", "logs:CreateLogStream"),  # by the collector of metrics
        ("gateway", "logs:PutLogEvents"),
        ("sink", "s3:PutObjectRetention"),  # moto asks for s3:PutObject alone
        ("sink", "s3:GetBucketObjectLockConfiguration"),  # asks for s3:ListBucket
    }
)


# ---- the policies of the modules ----------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """The policies of one plan: of roles, and of keys."""

    roles: Policies
    keys: Policies


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Planned:
    terraform = Terraform.copy(tmp_path_factory.mktemp("terraform"))
    terraform.init("small")
    found = resources(
        terraform.test("small", "-verbose", "-filter=tests/protected.tftest.hcl"),
        "for_the_hour_of_keys",
    )
    return Planned(
        roles=by_name(found, "module.service.aws_iam_role_policy.use"),
        keys={
            **by_name(found, "module.keys.aws_kms_key.signing"),
            "payload": json.loads(found["module.keys.aws_kms_key.payload"]["policy"]),
        },
    )


def by_name(found: Mapping[str, Mapping[str, Any]], address: str) -> Policies:
    return {
        where.removeprefix(f'{address}["').removesuffix('"]'): json.loads(it["policy"])
        for where, it in found.items()
        if where.startswith(f"{address}[")
    }


def pairs(policy: Policy) -> Iterator[tuple[str, str]]:
    for statement in policy["Statement"]:
        for action in statement["Action"]:
            for resource in statement["Resource"]:
                yield action, resource


@pytest.mark.parametrize("key", KEYS)
def test_a_key_and_the_roles_agree_on_who_uses_it_for_what(
    planned: Planned, key: str
) -> None:
    # A role needs both: its own policy and the key's, which does not name the account.
    by_roles = {
        (role, action)
        for role, policy in planned.roles.items()
        for action, resource in pairs(policy)
        if resource.endswith(f":key/{key}")
    }
    by_key = {
        (role_of(principal), action)
        for statement in planned.keys[key]["Statement"]
        if statement["Sid"] != "Administrators"
        for principal in statement["Principal"]["AWS"]
        for action in statement["Action"]
    }
    assert by_key == by_roles


def role_of(arn: str) -> str:
    name = arn.rpartition("/")[2]
    return "ceremony" if name == "other" else name


# ---- AWS with these policies --------------------------------------------------------


class Aws:
    """moto's server with the buckets, the keys, and roles under given policies."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.made: dict[str, str] = {}
        s3, kms = self.client("s3"), self.client("kms")
        for bucket in ("snapshots", "data-keys", "audit"):
            s3.create_bucket(
                Bucket=bucket,
                CreateBucketConfiguration={"LocationConstraint": REGION},
                ObjectLockEnabledForBucket=bucket == "audit",
            )
        for key in KEYS:
            kind = (
                {"KeyUsage": "ENCRYPT_DECRYPT"}
                if key == "payload"
                else {"KeyUsage": "SIGN_VERIFY", "KeySpec": "ECC_NIST_P256"}
            )
            self.made[key] = kms.create_key(**kind)["KeyMetadata"]["Arn"]

    def client(self, service: str) -> Any:
        session = boto3.session.Session()
        return session.client(service, region_name=REGION, endpoint_url=self.url)

    def calls(self, key: str) -> KmsCalls:
        return KmsCalls(KmsUri(arn=self.made[key], region=REGION, endpoint=self.url))

    @contextmanager
    def acting(self, role: str, policy: Policy) -> Iterator[None]:
        """Be `role`, which may do what `policy` says and nothing else."""
        iam, sts = self.client("iam"), self.client("sts")
        trust = {"Effect": "Allow", "Principal": "*", "Action": "sts:AssumeRole"}
        arn = iam.create_role(
            RoleName=role, AssumeRolePolicyDocument=json.dumps({"Statement": [trust]})
        )["Role"]["Arn"]
        try:
            iam.put_role_policy(
                RoleName=role, PolicyName="use", PolicyDocument=self._here(policy)
            )
            got = sts.assume_role(RoleArn=arn, RoleSessionName="test")["Credentials"]
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("AWS_ACCESS_KEY_ID", got["AccessKeyId"])
                patch.setenv("AWS_SECRET_ACCESS_KEY", got["SecretAccessKey"])
                patch.setenv("AWS_SESSION_TOKEN", got["SessionToken"])
                # boto3 keeps the credentials that it saw first, in this session.
                patch.setattr(boto3, "DEFAULT_SESSION", None)
                with enable_iam_authentication():
                    yield
        finally:
            for name in iam.list_role_policies(RoleName=role)["PolicyNames"]:
                iam.delete_role_policy(RoleName=role, PolicyName=name)
            iam.delete_role(RoleName=role)

    def _here(self, policy: Policy) -> str:
        text = json.dumps(
            {**policy, "Statement": [*map(deleting, policy["Statement"])]}
        )
        for key, arn in self.made.items():
            text = text.replace(f"arn:aws:kms:{REGION}:111122223333:key/{key}", arn)
        return text


def deleting(statement: Policy) -> Policy:
    """Add the buckets to what is deleted from.

    For the request that deletes many objects moto asks for that, where S3 asks for each
    object. Source: AWS, DeleteObjects, permissions.
    """
    if "s3:DeleteObject" not in statement["Action"]:
        return statement
    buckets = [one.removesuffix("/*") for one in statement["Resource"]]
    return {**statement, "Resource": [*statement["Resource"], *buckets]}


@pytest.fixture(scope="module")
def aws() -> Iterator[Aws]:
    with pytest.MonkeyPatch.context() as patch, moto_kms() as url:
        set_credentials(patch)
        patch.setenv("AWS_REGION", REGION)
        patch.setenv("AWS_DEFAULT_REGION", REGION)
        patch.setenv("AWS_ALLOW_HTTP", "true")
        patch.setenv("AWS_ENDPOINT", url)
        patch.setenv("AWS_ENDPOINT_URL", url)
        # moto would ask for every key at once: its own place to say which one it is.
        patch.setattr(KmsResponse, "_determine_resource", key_asked_for, raising=False)
        yield Aws(url)


def key_asked_for(response: KmsResponse) -> str:
    asked = json.loads(response.body)
    return str(asked.get("KeyId", "*"))


# ---- what each role does ------------------------------------------------------------


def gateway(aws: Aws, folder: Path) -> None:
    """Ship, list, fetch, replace and remove snapshots; keep and destroy data keys."""
    store = SnapshotStore("s3://snapshots/cache")
    first, second = manifest_of(1, FILES), manifest_of(2, CHANGED)
    for manifest, content in ((first, FILES), (second, CHANGED)):
        here = folder / manifest.snapshot_id
        written(here, content)
        store.ship(manifest, partial(partition_below, here))
    assert len(store.list().snapshots) == 2
    store.fetch(first, first.partitions[0].partition, folder / "fetched")
    store.remove(first)
    assert store.sweep(LATER_NS, timedelta()) == 2
    store.remove(second)

    keys = DataKeyBucket("s3://data-keys/cache")
    with closing(KmsWrapper(aws.calls("payload"))) as wrapper:
        wrapped = wrapper.wrap(bytes(32), b"shop")
        assert wrapper.unwrap(wrapped, b"shop") == bytes(32)
    key = data_key()
    assert keys.create(key)
    assert not keys.create(key)
    assert list(keys.keys(SHOP)) == [key]
    keys.destroy(key.destroyed(7))


def partition_below(folder: Path, partition: Partition) -> Path:
    return folder / str(partition)


def signer(aws: Aws, folder: Path) -> None:
    """Open the keys of receipts and cuts, which signs once with each."""
    for key in ("receipt-1", "log-1"):
        with closing(KmsKey(aws.calls(key))) as opened:
            opened.sign(b"a receipt")


def ceremony(aws: Aws, folder: Path) -> None:
    """Open the root key as well."""
    signer(aws, folder)
    with closing(KmsKey(aws.calls("root"))) as opened:
        opened.sign(b"a key")


def sink(aws: Aws, folder: Path) -> None:
    """Seal a file, find it taken by the same bytes, and read it back."""
    target = audit_bucket(folder)
    target.require_lock()
    for _ in range(2):
        scratch = target.begin(RECEIPTS)
        try:
            scratch.append(b"receipts")
            scratch.seal(NAME)
        finally:
            scratch.discard()
    assert target.streams() == ([RECEIPTS], [])
    assert target.names(RECEIPTS) == {NAME: 8}
    assert target.read(RECEIPTS, NAME) == b"receipts"


def audit_bucket(folder: Path) -> AuditBucket:
    lock = ObjectLock(mode="compliance", days=1)
    return AuditBucket("s3://audit/log", SystemClock(), lock, folder / "spool")


def auditor(aws: Aws, folder: Path) -> None:
    """Read what was sealed, and fetch the public keys."""
    reader = AuditFilesReader(AuditBucket("s3://audit/log", SystemClock()))
    assert reader.partitions() == [RECEIPTS.partition]
    assert audit_bucket(folder).read(RECEIPTS, NAME) == b"receipts"
    kms = aws.client("kms")
    for key in ("root", "receipt-1", "log-1"):
        kms.get_public_key(KeyId=aws.made[key])


Scenario = Callable[[Aws, Path], None]
SCENARIOS: Final[Mapping[str, Scenario]] = {
    "gateway": gateway,
    "signer": signer,
    "ceremony": ceremony,
    "sink": sink,
    "auditor": auditor,
}
"""In this order: the auditor reads what the sink has sealed."""


def test_every_role_with_a_policy_has_a_scenario(planned: Planned) -> None:
    assert set(planned.roles) == set(SCENARIOS)


@pytest.mark.parametrize("role", SCENARIOS)
def test_what_a_role_is_for_it_may_do(
    aws: Aws, planned: Planned, role: str, tmp_path: Path
) -> None:
    with aws.acting(role, planned.roles[role]):
        SCENARIOS[role](aws, tmp_path)


@pytest.mark.parametrize("role", SCENARIOS)
def test_without_any_one_action_it_may_not(
    aws: Aws, planned: Planned, role: str, tmp_path: Path
) -> None:
    policy = planned.roles[role]
    actions = sorted({action for action, _ in pairs(policy)})
    asked = [action for action in actions if (role, action) not in NOT_ASKED]
    assert asked
    for number, action in enumerate(asked):
        folder = tmp_path / str(number)
        folder.mkdir()
        with (
            aws.acting(role, without(policy, action)),
            pytest.raises((CacheError, ClientError)),
        ):
            SCENARIOS[role](aws, folder)


def without(policy: Policy, action: str) -> Policy:
    return {
        **policy,
        "Statement": [
            {**one, "Action": left}
            for one in policy["Statement"]
            if (left := [it for it in one["Action"] if it != action])
        ],
    }


# ---- what a role must never do ------------------------------------------------------

Attempt = Callable[[Aws], object]


def put(bucket: str) -> Attempt:
    return lambda aws: aws.client("s3").put_object(Bucket=bucket, Key="k", Body=b"x")


def get(bucket: str) -> Attempt:
    return lambda aws: aws.client("s3").get_object(Bucket=bucket, Key="k")


def delete(bucket: str) -> Attempt:
    return lambda aws: aws.client("s3").delete_object(Bucket=bucket, Key="k")


def listing(bucket: str) -> Attempt:
    return lambda aws: aws.client("s3").list_objects_v2(Bucket=bucket)


def signing(key: str) -> Attempt:
    return lambda aws: aws.client("kms").sign(
        KeyId=aws.made[key], Message=b"x", SigningAlgorithm="ECDSA_SHA_256"
    )


def decrypting(key: str) -> Attempt:
    return lambda aws: aws.client("kms").decrypt(
        KeyId=aws.made[key], CiphertextBlob=b"x"
    )


FORBIDDEN: Final[Mapping[str, Sequence[Attempt]]] = {
    "gateway": (
        *(get("audit"), put("audit"), delete("audit"), listing("audit")),
        *(delete("data-keys"), signing("receipt-1"), signing("log-1"), signing("root")),
    ),
    "signer": (
        *(get("audit"), put("audit"), delete("audit"), get("snapshots")),
        *(get("data-keys"), signing("root"), decrypting("payload")),
    ),
    "sink": (
        *(delete("audit"), get("snapshots"), put("snapshots"), get("data-keys")),
        *(signing("receipt-1"), signing("log-1"), decrypting("payload")),
    ),
    "auditor": (
        *(put("audit"), delete("audit"), get("snapshots"), get("data-keys")),
        *(listing("snapshots"), listing("data-keys"), decrypting("payload")),
        *(signing("receipt-1"), signing("log-1"), signing("root")),
    ),
    "ceremony": (get("audit"), put("audit"), get("data-keys"), decrypting("payload")),
}


@pytest.mark.parametrize("role", FORBIDDEN)
def test_what_a_role_is_not_for_it_may_not_do(
    aws: Aws, planned: Planned, role: str
) -> None:
    with aws.acting(role, planned.roles[role]):
        for attempt in FORBIDDEN[role]:
            with pytest.raises(ClientError) as caught:
                attempt(aws)
            code = caught.value.response["Error"]["Code"]
            # The number alone where moto forgets to say so in words.
            assert code in {"AccessDenied", "AccessDeniedException", "403"}
