"""What the program asks of AWS, read from its text, against what its roles may do.

Not too little and not too much: the two lists are equal, resource by resource. Source
of the actions that a call needs: AWS, Service Authorization Reference, for S3 and KMS.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import botocore.session  # type: ignore[import-untyped]  # ships no types
import pytest
from botocore import xform_name

ROOT: Final = Path(__file__).parents[2]
LIBRARY: Final = ROOT / "streams" / "cachemind"
ADAPTERS: Final = LIBRARY / "adapters"
ACTIONS: Final[Mapping[str, Sequence[Mapping[str, Any]]]] = json.loads(
    (ROOT / "infra/terraform/modules/service/actions.json").read_text()
)

OBSTORE: Final[Mapping[str, frozenset[str]]] = {
    "list": frozenset({"s3:ListBucket"}),
    "get": frozenset({"s3:GetObject"}),
    "get_range": frozenset({"s3:GetObject"}),
    "head": frozenset({"s3:GetObject"}),
    "put": frozenset({"s3:PutObject"}),
    "delete": frozenset({"s3:DeleteObject"}),
}
S3_API: Final[Mapping[str, str]] = {
    "ListObjectsV2": "s3:ListBucket",
    "GetObjectLockConfiguration": "s3:GetBucketObjectLockConfiguration",
    "GetObject": "s3:GetObject",
    "PutObject": "s3:PutObject",
}
ON_THE_BUCKET: Final = frozenset(
    {"s3:ListBucket", "s3:GetBucketObjectLockConfiguration"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """A role's use of an adapter: on which bucket, or on which keys.

    `functions`: those of them that the role calls, None for all. `files`: what it
    puts is as large as a file, and so goes up in parts. `sealed_by_us`: the bucket's
    objects are encrypted under the storage key.
    """

    adapter: str
    bucket: str = ""
    keys: tuple[str, ...] = ()
    functions: frozenset[str] | None = None
    files: bool = False
    sealed_by_us: bool = False


READING: Final = frozenset({"streams", "names", "read", "_candidates", "_pages"})
SIGNING: Final = ("receipt_keys", "log_keys")
USES: Final[Mapping[str, Sequence[Use]]] = {
    "gateway": (
        Use(
            adapter="snapshot_store", bucket="snapshots", files=True, sealed_by_us=True
        ),
        Use(adapter="data_key_bucket", bucket="data_keys", sealed_by_us=True),
        Use(adapter="wrap_kms", keys=("payload_key",)),
    ),
    "signer": (Use(adapter="key_kms", keys=SIGNING),),
    "sink": (Use(adapter="audit_bucket", bucket="audit"),),
    "auditor": (Use(adapter="audit_bucket", bucket="audit", functions=READING),),
    "ceremony": (Use(adapter="key_kms", keys=("root_key", *SIGNING)),),
}

BESIDES: Final[Mapping[str, frozenset[tuple[str, str]]]] = {
    # The collector of metrics in the same task, which is not our program.
    "gateway": frozenset(
        {
            ("logs:CreateLogStream", "metrics_log"),
            ("logs:PutLogEvents", "metrics_log"),
        }
    ),
    # To compare what is pinned with what KMS has.
    "auditor": frozenset(("kms:GetPublicKey", keys) for keys in ("root_key", *SIGNING)),
}


def test_the_roles_may_do_what_the_program_does_and_nothing_else() -> None:
    assert {role: granted(role) for role in ACTIONS} == {
        role: set().union(*map(needed, uses)) | BESIDES.get(role, frozenset())
        for role, uses in USES.items()
    }


def granted(role: str) -> set[tuple[str, str]]:
    return {
        (action, resource)
        for statement in ACTIONS[role]
        for action in statement["actions"]
        for resource in statement["resources"]
    }


def needed(use: Use) -> set[tuple[str, str]]:
    actions = set(calls(use))
    if use.keys:
        return {(action, key) for action in actions for key in use.keys}
    if use.files:
        actions.add("s3:AbortMultipartUpload")
    pairs = {
        (action, f"{use.bucket}_{'bucket' if action in ON_THE_BUCKET else 'objects'}")
        for action in actions
    }
    if use.sealed_by_us:
        # S3 asks KMS in the name of who calls; a part is decrypted to be joined.
        pairs |= {
            ("kms:Decrypt", "storage_key"),
            ("kms:GenerateDataKey", "storage_key"),
        }
    return pairs


# ---- reading the text ---------------------------------------------------------------


def calls(use: Use) -> Iterator[str]:
    """Yield the action of each call in an adapter's text."""
    tree = ast.parse((ADAPTERS / f"{use.adapter}.py").read_text())
    for function in functions(tree):
        if use.functions is not None and function.name not in use.functions:
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                yield from actions_of(node, node.func)
        if "ObjectLockMode" in ast.unparse(function):
            yield "s3:PutObjectRetention"


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def actions_of(call: ast.Call, called: ast.Attribute) -> Iterator[str]:
    owner, name = ast.unparse(called.value), called.attr
    if owner == "obstore":
        yield from OBSTORE[name]
    elif name == "ask":
        yield f"kms:{api_name('kms', constant(call))}"
    elif owner == "self._client":
        asked = constant(call) if name == "get_paginator" else name
        yield S3_API[api_name("s3", asked)]


def constant(call: ast.Call) -> str:
    [first, *_] = call.args
    assert isinstance(first, ast.Constant), "a call whose name is made at run time"
    return str(first.value)


@cache
def api_name(service: str, method: str) -> str:
    """Return AWS's name of what botocore's clients call `method`."""
    model = botocore.session.get_session().get_service_model(service)
    [name] = [one for one in model.operation_names if xform_name(one) == method]
    return str(name)


# ---- that nothing is overlooked -----------------------------------------------------


def test_every_module_that_can_reach_aws_is_accounted_for() -> None:
    found = {
        path.stem
        for root in (LIBRARY, ROOT / "services" / "cachemind_services")
        for path in root.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for module in imported(node)
        if module.partition(".")[0] in {"boto3", "botocore", "obstore"}
    }
    direct = {use.adapter for uses in USES.values() for use in uses}
    # The client of KMS, which the two adapters of keys ask.
    assert found == (direct - {"key_kms", "wrap_kms"}) | {"kms_calls"}
    assert asking_kms() == {"key_kms", "wrap_kms"}


def imported(node: ast.Import | ast.ImportFrom) -> Sequence[str]:
    if isinstance(node, ast.ImportFrom):
        return [node.module or ""]
    return [alias.name for alias in node.names]


def asking_kms() -> set[str]:
    return {
        path.stem
        for path in ADAPTERS.glob("*.py")
        if "import KmsCalls" in path.read_text()
    }


def test_an_audit_of_sealed_files_calls_what_reads_alone() -> None:
    tree = ast.parse((ADAPTERS / "audit_files_reader.py").read_text())
    asked = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and ast.unparse(node.value) in {"target", "self._target"}
    }
    assert asked
    assert asked <= READING | {"where"}


@pytest.mark.parametrize("role", sorted(ACTIONS))
def test_statements_are_named_once_and_have_no_wildcard(role: str) -> None:
    names = [statement["sid"] for statement in ACTIONS[role]]
    assert len(set(names)) == len(names)
    assert not any("*" in action for action, _ in granted(role))
