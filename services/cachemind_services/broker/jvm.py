"""Starts Kafka's Java classes: the broker, the formatter, the tools."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cachemind_services.broker.data_folder import DataFolder
from cachemind_services.broker.distribution import KafkaDistribution
from cachemind_services.broker.java import JavaRuntime
from cachemind_services.broker.server_config import jvm_options

_GUARD: Final = Path(__file__).with_name("guard.py")
_ORPHAN_GRACE_S: Final = 1.0
"""For a broker whose starter was killed, mostly because the broker did not stop.

Whoever waited for the starter's end must not find the broker behind it.
"""

_FORMAT_TIMEOUT_S: Final = 60


@dataclass(frozen=True, slots=True)
class KafkaJvm:
    """How to run a Java class of Kafka's on one data folder."""

    java: JavaRuntime
    kafka: KafkaDistribution
    folder: DataFolder
    heap_mb: int
    options: tuple[str, ...] = ()

    def command(self, main_class: str, *arguments: str) -> list[str]:
        """Return the command line that runs `main_class`."""
        return [
            str(self.java.path),
            *jvm_options(self.java.feature, self.heap_mb, self.folder.tmp),
            *self.options,
            f"-Dlog4j2.configurationFile={self.folder.log4j}",
            "-cp",
            self.kafka.class_path,
            main_class,
            *arguments,
        ]

    def format_storage(self, cluster_id: str) -> subprocess.CompletedProcess[str]:
        """Run Kafka's StorageTool on the folder and return how it ended."""
        config = str(self.folder.server_properties)
        arguments = ("format", "--ignore-formatted", "-t", cluster_id, "-c", config)
        return subprocess.run(  # noqa: S603 - our own command line
            self.command("kafka.tools.StorageTool", *arguments),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_FORMAT_TIMEOUT_S,
            check=False,
        )

    def spawn_guarded(self, lock_fd: int) -> tuple[subprocess.Popen[bytes], int]:
        """Start the broker under a guard that ends it when we are gone.

        Returns: the guard's process, and the JVM's process id (0: no JVM came up).
        """
        guard = [sys.executable, "-I", "-S", str(_GUARD)]
        process = self._spawn(
            [*guard, str(_ORPHAN_GRACE_S), str(lock_fd), *self._broker()],
            lock_fd,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        if process.stdout is None:
            raise RuntimeError("Popen gave no pipe although one was asked for")
        with process.stdout as out:
            return process, int(out.readline() or 0)

    def spawn_daemon(self, lock_fd: int) -> tuple[subprocess.Popen[bytes], int]:
        """Start the broker as a process that outlives us; return it and its id."""
        process = self._spawn(
            self._broker(),
            lock_fd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        return process, process.pid

    def _broker(self) -> list[str]:
        return self.command("kafka.Kafka", str(self.folder.server_properties))

    def _spawn(
        self, command: Sequence[str], lock_fd: int, *, stdin: int, stdout: int
    ) -> subprocess.Popen[bytes]:
        with self.folder.console_log.open("wb") as console:
            return subprocess.Popen(  # noqa: S603 - our own command line
                command,
                stdin=stdin,
                stdout=stdout,
                stderr=console,
                pass_fds=(lock_fd,),
                cwd=self.folder.root,
                # Ctrl-C in a terminal is for the starter, which then stops us.
                start_new_session=True,
            )
