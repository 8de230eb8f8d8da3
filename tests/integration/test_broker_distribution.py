"""Fetching, verifying and repairing jars, against a Maven repository on loopback."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from cachemind_services.broker.distribution import KafkaDistribution
from cachemind_services.broker.errors import JarCorrupt, KafkaNotFetched
from cachemind_services.broker.kafka_lock import KafkaLock, LockedJar, committed_lock
from cachemind_services.broker.maven import KAFKA_VERSION, ROOTS, MavenRepository

GROUP = "org.example"


class Repository:
    """A folder laid out as a Maven repository, served over HTTP."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.requests: list[str] = []
        requests = self.requests

        class Handler(SimpleHTTPRequestHandler):
            def __init__(self, *args: Any, **kwargs: Any) -> None:
                super().__init__(*args, directory=str(folder), **kwargs)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                requests.append(self.path)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def add(self, artifact: str, content: bytes, needs: tuple[str, ...] = ()) -> None:
        base = self.folder / "org" / "example" / artifact / "1.0"
        base.mkdir(parents=True, exist_ok=True)
        (base / f"{artifact}-1.0.jar").write_bytes(content)
        wanted = "".join(
            f"<dependency><groupId>{GROUP}</groupId><artifactId>{need}</artifactId>"
            "<version>1.0</version></dependency>"
            for need in needs
        )
        (base / f"{artifact}-1.0.pom").write_text(
            "<project><modelVersion>4.0.0</modelVersion>"
            f"<groupId>{GROUP}</groupId><artifactId>{artifact}</artifactId>"
            f"<version>1.0</version><dependencies>{wanted}</dependencies></project>"
        )

    def jars_served(self) -> list[str]:
        return [path for path in self.requests if path.endswith(".jar")]


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[Repository]:
    (tmp_path / "repository").mkdir()
    served = Repository(tmp_path / "repository")
    served.add("first", b"one", needs=("second",))
    served.add("second", b"two")
    yield served
    served.close()


def locked(artifact: str, content: bytes) -> LockedJar:
    return LockedJar(
        group=GROUP,
        artifact=artifact,
        version="1.0",
        file_name=f"{artifact}-1.0.jar",
        size_bytes=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
    )


LOCK = KafkaLock(
    kafka_version="9.9",
    roots=(f"{GROUP}:first:1.0",),
    jars=(locked("first", b"one"), locked("second", b"two")),
)


def ensure(
    cache: Path, repository: Repository, *, repair: bool = False
) -> KafkaDistribution:
    return KafkaDistribution.ensure(
        cache, lock=LOCK, repository_url=repository.url, repair=repair
    )


def test_a_fetch_brings_exactly_the_locked_jars(
    tmp_path: Path, repository: Repository
) -> None:
    kafka = ensure(tmp_path / "cache", repository)
    paths = [Path(path) for path in kafka.class_path.split(os.pathsep)]
    assert [path.read_bytes() for path in paths] == [b"one", b"two"]
    assert list((tmp_path / "cache" / "kafka").glob("partial-*")) == []


def test_once_fetched_no_network_is_needed(
    tmp_path: Path, repository: Repository
) -> None:
    ensure(tmp_path / "cache", repository)
    repository.requests.clear()
    ensure(tmp_path / "cache", repository)
    assert repository.requests == []


def test_a_changed_jar_is_refused_by_name(
    tmp_path: Path, repository: Repository
) -> None:
    kafka = ensure(tmp_path / "cache", repository)
    (kafka.folder / "second-1.0.jar").write_bytes(b"twO")
    with pytest.raises(JarCorrupt, match=r"second-1\.0\.jar.*fetch --repair") as caught:
        ensure(tmp_path / "cache", repository)
    assert caught.value.path == kafka.folder / "second-1.0.jar"


def test_repair_replaces_only_the_changed_jar(
    tmp_path: Path, repository: Repository
) -> None:
    kafka = ensure(tmp_path / "cache", repository)
    (kafka.folder / "second-1.0.jar").write_bytes(b"other size")
    repository.requests.clear()
    ensure(tmp_path / "cache", repository, repair=True)
    assert (kafka.folder / "second-1.0.jar").read_bytes() == b"two"
    assert repository.jars_served() == ["/org/example/second/1.0/second-1.0.jar"]


def test_a_repository_that_serves_another_jar_is_refused_by_name(
    tmp_path: Path, repository: Repository
) -> None:
    repository.add("second", b"evil")
    with pytest.raises(JarCorrupt) as caught:
        ensure(tmp_path / "cache", repository)
    assert caught.value.path.name == "second-1.0.jar"
    assert not (tmp_path / "cache" / "kafka" / "9.9" / "second-1.0.jar").exists()


def test_no_network_says_how_many_jars_are_missing(
    tmp_path: Path, repository: Repository
) -> None:
    kafka = ensure(tmp_path / "cache", repository)
    (kafka.folder / "second-1.0.jar").unlink()
    with pytest.raises(KafkaNotFetched, match="first start needs network") as caught:
        KafkaDistribution.ensure(
            tmp_path / "cache", lock=LOCK, repository_url="http://127.0.0.1:1"
        )
    assert (caught.value.missing, caught.value.total) == (1, 2)


def test_a_fetch_that_broke_off_goes_on_where_it_stopped(
    tmp_path: Path, repository: Repository
) -> None:
    repository.add("second", b"tw")
    with pytest.raises(JarCorrupt):
        ensure(tmp_path / "cache", repository)
    repository.add("second", b"two")
    repository.requests.clear()
    ensure(tmp_path / "cache", repository)
    assert repository.jars_served() == ["/org/example/second/1.0/second-1.0.jar"]


def test_without_network_nothing_can_be_fetched(tmp_path: Path) -> None:
    with pytest.raises(KafkaNotFetched) as caught:
        KafkaDistribution.ensure(
            tmp_path, lock=LOCK, repository_url="http://127.0.0.1:1"
        )
    assert caught.value.missing == 2


def test_fetchers_at_the_same_time_fetch_each_jar_once(
    tmp_path: Path, repository: Repository
) -> None:
    threads = [
        threading.Thread(target=ensure, args=(tmp_path / "cache", repository))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(repository.jars_served()) == 2


def test_the_lock_is_made_without_maven_or_java(
    tmp_path: Path, repository: Repository
) -> None:
    program = (
        "import sys; from pathlib import Path;"
        "from cachemind_services.broker.maven import MavenRepository as M;"
        "lock = M(Path(sys.argv[1]), sys.argv[2]).resolve((sys.argv[3],));"
        "print(*(jar.file_name for jar in lock.jars))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path, repository.url, LOCK.roots[0]],
        env={"PATH": "/nonexistent", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["first-1.0.jar", "second-1.0.jar"]


def test_resolving_pins_size_and_checksum(
    tmp_path: Path, repository: Repository
) -> None:
    resolved = MavenRepository(tmp_path, repository.url).resolve(LOCK.roots)
    assert resolved.jars == LOCK.jars


def test_the_committed_lock_is_of_the_pinned_version() -> None:
    lock = committed_lock()
    assert lock.kafka_version == KAFKA_VERSION
    assert lock.roots == ROOTS
    names = [jar.file_name for jar in lock.jars]
    assert len(set(names)) == len(names)
    kafka = [jar for jar in lock.jars if jar.group == "org.apache.kafka"]
    assert {jar.version for jar in kafka} == {KAFKA_VERSION}
    assert any(jar.artifact == "log4j-slf4j-impl" for jar in lock.jars)


def test_a_lock_survives_being_written() -> None:
    assert KafkaLock.from_json(LOCK.to_json()) == LOCK
