"""Processes of their own that need not import everything anew.

Imports are most of what a start costs. Python's `forkserver` does them once, and each
process begins as a copy of it, as nobody's child: with memory, threads, connections
and an end of its own.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from tests.freezing import freeze

_SERVER: Final = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(
    [
        "__main__",
        "tests.integration.installation",
        "tests.integration.signer_process",
    ]
)

Main = Callable[[str], int]


class Forked:
    """A process that runs `main(argument)` and exits with what that returns.

    `main` must be found by its name in its module. What it writes is added to the file
    `output`; its environment is this one's, or `environ`.
    """

    def __init__(
        self,
        main: Main,
        argument: str,
        output: Path,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        variables = dict(os.environ if environ is None else environ)
        self._output = output
        self._process = _SERVER.Process(
            target=_run, args=(main, argument, str(output), variables)
        )
        self._process.start()

    def output(self) -> str:
        """Return what it has logged."""
        return self._output.read_text(errors="replace")

    def alive(self) -> bool:
        """Return whether it runs."""
        return self._process.is_alive()

    def cpu_s(self) -> float:
        """Return the seconds of processor that it has used."""
        stat = Path(f"/proc/{self._process.pid}/stat").read_text()
        user, system = stat.rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def died(self, timeout_s: float = 60.0) -> None:
        """Return once it has killed itself at its failpoint."""
        assert self.ended(timeout_s) == -signal.SIGKILL, self.output()

    def ended(self, timeout_s: float = 60.0) -> int:
        """Return its exit code once it ended by itself. Raises: `TimeoutExpired`."""
        self._process.join(timeout_s)
        code = self._process.exitcode
        if code is None:
            raise subprocess.TimeoutExpired(self._process.name, timeout_s)
        return code

    def kill(self) -> None:
        """SIGKILL it."""
        self._process.kill()
        self._process.join()

    def freeze(self) -> None:
        """SIGSTOP it; see `freeze`."""
        assert self._process.pid is not None
        freeze(self._process.pid)

    def thaw(self) -> None:
        """SIGCONT it."""
        self._send(signal.SIGCONT)

    def stop(self, timeout_s: float = 10.0) -> int:
        """SIGTERM it; return the exit code."""
        self._process.terminate()
        return self.ended(timeout_s)

    def close(self) -> None:
        """End it in any case."""
        if self.alive():
            self.kill()

    def _send(self, number: int) -> None:
        assert self._process.pid is not None
        os.kill(self._process.pid, number)


def _run(main: Main, argument: str, output: str, environ: Mapping[str, str]) -> None:
    """Run `main` in the new process."""
    os.environ.clear()
    os.environ.update(environ)
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for standard in (sys.stdout, sys.stderr):
        os.dup2(file, standard.fileno())
    # Python's own way to end would wait for threads that serve nobody any more.
    sys.exit(main(argument))
