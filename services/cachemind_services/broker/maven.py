"""Jars from a Maven repository through jgo's own resolver.

jgo's `PythonResolver` needs neither Maven nor Java on the machine.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from jgo.constants import MAVEN_CENTRAL_URL
from jgo.maven import Artifact, MavenContext, PythonResolver
from jgo.parse import Coordinate

from cachemind_services.broker.kafka_lock import KafkaLock, LockedJar, sha256_of

KAFKA_VERSION: Final = "4.4.0"

ROOTS: Final = (
    f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}",
    f"org.apache.kafka:kafka-tools:{KAFKA_VERSION}",
    # Kafka logs through slf4j; without a binding of slf4j 1.7 it logs nothing.
    "org.apache.logging.log4j:log4j-slf4j-impl:2.25.5",
)

_HTTP_TIMEOUT_S: Final = 60
_SCOPES: Final = ("compile", "runtime")


class MavenRepository:
    """A Maven repository, and the folder that downloads go to."""

    def __init__(self, scratch: Path, url: str | None = None) -> None:
        self._context = MavenContext(
            resolver=PythonResolver(),
            repo_cache=scratch,
            remote_repos={"central": url or MAVEN_CENTRAL_URL},
            timeout=_HTTP_TIMEOUT_S,
        )

    def download(self, jar: LockedJar) -> Path:
        """Return the path of a fresh download of `jar`, not yet verified.

        Raises: `OSError` (network), `RuntimeError` (not in the repository).
        """
        project = self._context.project(jar.group, jar.artifact)
        return self._download(project.at_version(jar.version).artifact())

    def resolve(self, roots: tuple[str, ...] = ROOTS) -> KafkaLock:
        """Return a new lock of `roots` and all they need, downloading each jar.

        Raises: `OSError` (network), `RuntimeError` (not in the repository).
        """
        wanted = [self._context.create_dependency(_coordinate(root)) for root in roots]
        inputs, transitive = self._context.resolver.resolve(wanted)
        needed = [dep for dep in transitive if dep.scope in _SCOPES]
        jars = [self._locked(dep.artifact) for dep in (*inputs, *needed)]
        return KafkaLock(
            kafka_version=KAFKA_VERSION, roots=tuple(roots), jars=tuple(jars)
        )

    def _locked(self, artifact: Artifact) -> LockedJar:
        path = self._download(artifact)
        return LockedJar(
            group=artifact.groupId,
            artifact=artifact.artifactId,
            version=artifact.version,
            file_name=artifact.filename,
            size_bytes=path.stat().st_size,
            sha256=sha256_of(path),
        )

    def _download(self, artifact: Artifact) -> Path:
        cached = artifact.cached_path
        if cached is not None:
            cached.unlink(missing_ok=True)  # a broken earlier attempt
        path = self._context.resolver.download(artifact)
        if path is None:
            raise RuntimeError(f"{artifact} is not in the repository")
        return path


def _coordinate(text: str) -> Coordinate:
    group, artifact, version = text.split(":")
    # Raw: otherwise jgo takes each root's managed versions for the whole tree, and
    # log4j's manage another kafka-clients.
    return Coordinate(group, artifact, version, scope="compile", raw=True)
