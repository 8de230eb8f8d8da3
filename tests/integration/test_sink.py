"""The sink on a real broker, as a process that is stopped, killed and starved."""

from __future__ import annotations

import random
import subprocess
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread

import boto3  # type: ignore[import-untyped]  # ships no types
import pytest
from moto.server import ThreadedMotoServer

from cachemind.adapters.audit_bucket import AuditBucket
from cachemind.adapters.clock import SystemClock
from cachemind.agents.sink import EXIT_NO_PROGRESS
from cachemind_services.broker import EmbeddedBroker
from tests.integration.sink_host import DIED, SinkHost

pytestmark = pytest.mark.broker

MakeHost = Callable[..., SinkHost]
SLOWLY = {"CACHEMIND_SINK_FILE_S": "3600"}
STEPS = [
    "partial-begun",
    "block-written",
    *(
        f"{step}{suffix}"
        for suffix in (".avro", ".json")
        for step in ("partial-synced", "linked", "sealed")
    ),
]
OFTEN = ("linked.avro",)


@pytest.fixture
def make_host(
    broker: EmbeddedBroker, topic_prefix: str, tmp_path: Path
) -> Iterator[MakeHost]:
    made: list[SinkHost] = []

    def make(folder: Path | None = None, **settings: str) -> SinkHost:
        host = SinkHost(
            broker.bootstrap_servers,
            topic_prefix,
            folder or tmp_path / "log",
            tmp_path / "sink.log",
            settings,
        )
        made.append(host)
        return host

    yield make
    for host in made:
        host.kill_all()


def test_receipts_and_cuts_are_sealed_as_they_come(make_host: MakeHost) -> None:
    host = make_host()
    host.sign(300)
    process = host.start()
    host.wait_until_sealed()
    host.sign(5)
    host.wait_until_sealed()
    host.stop(process)


def test_on_sigterm_what_is_open_is_sealed(make_host: MakeHost) -> None:
    host = make_host(**SLOWLY)
    host.sign(600)  # more than a block
    process = host.start()
    host.wait_until(lambda: len(list(host.folder.glob("receipts/*/*.partial"))) == 2)
    host.sign(20)
    host.stop(process)
    assert host.sealed() == host.written
    assert not list(host.folder.rglob("*.partial"))


@pytest.mark.parametrize(
    "step",
    [
        step if step in OFTEN else pytest.param(step, marks=pytest.mark.slow)
        for step in STEPS
    ],
)
def test_killed_at_a_step_the_next_sink_loses_and_repeats_nothing(
    make_host: MakeHost, step: str
) -> None:
    host = make_host()
    host.sign(50)
    assert host.start(step).wait(60) == DIED, host.said()
    host.sign(3)
    process = host.start()
    host.wait_until_sealed()
    host.stop(process)
    assert not list(host.folder.rglob("*.partial"))


def test_two_sinks_share_the_partitions(make_host: MakeHost) -> None:
    host = make_host()
    host.sign(100)
    first, second = host.start(), host.start()
    host.wait_until_sealed()
    first.kill()
    host.sign(30)
    host.wait_until_sealed()
    host.stop(second)


def test_on_a_full_disk_it_stands_says_so_once_and_goes_on_by_itself(
    make_host: MakeHost, small_disk: Path
) -> None:
    host = make_host(small_disk / "log")
    host.sign(2_500)
    process = host.start()
    host.wait_until(lambda: "No space left on device" in host.said())
    host.sign(10)
    assert process.poll() is None
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    host.wait_until_sealed()
    host.stop(process)
    assert host.said().count("is not sealed") == 1
    assert "target-away no more: files are sealed again" in host.said()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    mount = tmp_path / "small"
    mount.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(mount)],
        capture_output=True,
    )
    if done.returncode != 0:
        pytest.skip("a tmpfs cannot be mounted here")
    yield mount
    subprocess.run(["umount", "-l", str(mount)], check=True)


def test_into_a_bucket_with_a_lock(
    make_host: MakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    address, port = server.get_host_and_port()
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://{address}:{port}",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
    }.items():
        monkeypatch.setenv(name, value)
    bucket = f"b{uuid.uuid4().hex[:12]}"
    client = boto3.client("s3")
    url = f"s3://{bucket}/audit"
    host = make_host(
        CACHEMIND_SINK_URL=url,
        CACHEMIND_SINK_RETENTION_DAYS="7",
    )
    host.sign(20)
    client.create_bucket(Bucket=bucket, ObjectLockEnabledForBucket=True)
    process = host.start()
    host.wait_until_sealed(AuditBucket(url, SystemClock()))
    host.stop(process)
    for item in client.list_objects_v2(Bucket=bucket)["Contents"]:
        head = client.head_object(Bucket=bucket, Key=item["Key"])
        assert head["ObjectLockMode"] == "COMPLIANCE", item["Key"]
    server.stop()


class _Trickle(BaseHTTPRequestHandler):
    """Answers a byte at a time, and comes to no end before it is told."""

    def do_GET(self) -> None:
        with suppress(ConnectionError):
            self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Endless: ")
            while not _TRICKLED.wait(0.2):
                self.wfile.write(b"a")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 # its name
        """Keep the test's output clean."""


_TRICKLED = Event()


@pytest.mark.slow
def test_a_target_whose_answer_never_ends_ends_the_sink_to_start_again(
    make_host: MakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Trickle) as server:
        serving = Thread(target=server.serve_forever, args=(0.01,))
        serving.start()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        host = make_host(
            CACHEMIND_SINK_URL="s3://bucket/audit", CACHEMIND_WATCHDOG_S="1"
        )
        host.sign(5)
        assert host.start().wait(90) == EXIT_NO_PROGRESS, host.said()
        _TRICKLED.set()
        server.shutdown()
        serving.join()
    assert "a step of the sink has not ended for 5 s" in host.said()


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_killed_many_times_under_load_it_loses_and_repeats_nothing(
    make_host: MakeHost,
) -> None:
    host = make_host(CACHEMIND_SINK_FILE_BYTES=str(2**16))
    choice = random.Random(5)
    for _ in range(40):
        host.sign(choice.randrange(1, 400))
        process = host.start(choice.choice(["", *STEPS]))
        try:
            process.wait(choice.uniform(3, 9))
        except subprocess.TimeoutExpired:
            process.kill()
        process.wait(10)
    process = host.start()
    host.wait_until_sealed()
    host.stop(process)
