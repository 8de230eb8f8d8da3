"""`cachemind audit verify` on the sealed files in a bucket."""

from __future__ import annotations

import json
from collections.abc import Iterator

import boto3  # type: ignore[import-untyped]  # ships no types
import pytest
from moto.server import ThreadedMotoServer

from cachemind.adapters.audit_bucket import AuditBucket
from cachemind.adapters.clock import SystemClock
from cachemind_services.cli.main import main
from tests.unit.test_audit_verify_files import seal
from tests.vectors.make_audit_dump import KEYS, build

URL = "s3://verified/audit"


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "never-shown",
    }.items():
        monkeypatch.setenv(name, value)
    boto3.client("s3").create_bucket(Bucket="verified")
    yield
    server.stop()


@pytest.mark.usefixtures("s3")
def test_sealed_files_in_a_bucket_are_verified(
    capsys: pytest.CaptureFixture[str],
) -> None:
    dump = build()
    seal(AuditBucket(URL, SystemClock()), dump)
    code = main(["audit", "verify", "--files", URL, "--keys", str(KEYS), "--json"])
    told = json.loads(capsys.readouterr().out)
    assert (code, told["outcome"], told["findings"]) == (0, "ok", [])
    counts = [one["receipts"] for one in told["summary"]["partitions"]]
    assert counts == [len(values) for values in dump.receipts]
