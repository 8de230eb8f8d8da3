from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from cachemind_services.supervisor import (
    EXIT_USAGE,
    FIRST_DELAY_S,
    LONGEST_DELAY_S,
    Child,
    Supervisor,
    delay_s,
)

IDLE = "import signal,sys,time\nsignal.signal(15,lambda *_:sys.exit(0))\n"


def python(code: str, name: str = "child", rank: int = 0) -> Child:
    return Child(name=name, argv=[sys.executable, "-c", code], rank=rank)


@pytest.mark.parametrize(
    ("failures", "lived", "previous", "expected"),
    [
        pytest.param(1, 0.1, FIRST_DELAY_S, FIRST_DELAY_S, id="first-death"),
        pytest.param(2, 0.1, FIRST_DELAY_S, 2 * FIRST_DELAY_S, id="doubles"),
        pytest.param(9, 0.1, LONGEST_DELAY_S, LONGEST_DELAY_S, id="has-a-ceiling"),
        pytest.param(9, 11.0, LONGEST_DELAY_S, FIRST_DELAY_S, id="steady-starts-anew"),
    ],
)
def test_delay_grows_with_early_deaths(
    failures: int, lived: float, previous: float, expected: float
) -> None:
    assert delay_s(failures, lived, previous) == expected


async def wait_for(path: Path, lines: int) -> None:
    async with asyncio.timeout(20):
        while not path.exists() or len(path.read_text().splitlines()) < lines:
            await asyncio.sleep(0.02)


def noting(path: Path, word: str) -> str:
    return f"open({str(path)!r},'a').write({word!r}+'\\n')\n"


async def test_a_dead_child_is_started_again(tmp_path: Path) -> None:
    notes, stop = tmp_path / "notes", asyncio.Event()
    child = python(noting(notes, "up") + "raise SystemExit(7)")
    running = asyncio.create_task(Supervisor([child]).run(stop))
    await wait_for(notes, 3)
    stop.set()
    assert await running == 0


async def test_ranks_stop_in_order_and_nobody_is_left(tmp_path: Path) -> None:
    notes, stop = tmp_path / "notes", asyncio.Event()

    def child(name: str, rank: int) -> Child:
        code = (
            "import signal,sys,time,pathlib\n"
            f"def end(*_):\n {noting(notes, 'end ' + name)} sys.exit(0)\n"
            "signal.signal(15,end)\n" + noting(notes, "up") + "time.sleep(60)"
        )
        return python(code, name, rank)

    running = asyncio.create_task(
        Supervisor([child("broker", 2), child("fold", 1), child("web", 0)]).run(stop)
    )
    await wait_for(notes, 3)
    stop.set()
    assert await running == 0
    ends = [line for line in notes.read_text().splitlines() if line != "up"]
    assert ends == ["end web", "end fold", "end broker"]


async def test_a_child_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    notes, stop = tmp_path / "notes", asyncio.Event()
    code = "import signal,time\nsignal.signal(15,signal.SIG_IGN)\n"
    stubborn = python(code + noting(notes, "up") + "time.sleep(60)")
    running = asyncio.create_task(Supervisor([stubborn], 0.3).run(stop))
    await wait_for(notes, 1)
    stop.set()
    assert await running == 1


async def test_wrong_settings_of_a_child_end_everything(tmp_path: Path) -> None:
    stop = asyncio.Event()
    children = [
        python(IDLE + "time.sleep(60)", "steady"),
        python(f"raise SystemExit({EXIT_USAGE})", "wrong"),
    ]
    async with asyncio.timeout(20):
        assert await Supervisor(children).run(stop) == EXIT_USAGE


def test_a_child_dies_with_a_supervisor_that_was_killed(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    child = (
        "import os,time\nfrom cachemind_services.process import stop_with_parent\n"
        f"stop_with_parent(os.getppid())\n"
        f"open({str(notes)!r},'w').write(str(os.getpid())+'\\n')\ntime.sleep(60)"
    )
    parent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import subprocess,sys\n"
            f"subprocess.Popen([sys.executable,'-c',{child!r}]).wait()",
        ]
    )
    deadline = time.monotonic() + 20
    while not (notes.exists() and notes.read_text().endswith("\n")):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    pid = int(notes.read_text())
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    while Path(f"/proc/{pid}/stat").exists():
        if Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z":
            break
        assert time.monotonic() < deadline, os.getpid()
        time.sleep(0.02)


async def test_what_a_child_leaves_is_cleaned_up_each_time(tmp_path: Path) -> None:
    ended, stop = 0, asyncio.Event()

    def after() -> None:
        nonlocal ended
        ended += 1

    child = replace(python("raise SystemExit(7)"), after=after)
    running = asyncio.create_task(Supervisor([child]).run(stop))
    async with asyncio.timeout(20):
        while ended < 2:
            await asyncio.sleep(0.02)
    stop.set()
    assert await running == 0
