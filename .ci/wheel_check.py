"""Check the wheel as a user gets it, beside an application with its own `services`.

1. Build the wheel.
2. It holds every committed file of the three packages, the licence, and nothing else.
3. Install it alone in a clean environment that finds third-party packages (and only
   those) in the development environment, so that nothing heavy is installed twice.
4. Run `wheel_probe.py` there, from inside the application, and `cachemind --help`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tempfile
import venv
import zipfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
PACKAGES: Final = {
    "cachemind": "streams",
    "cachemind_services": "services",
    "cachemind_schemas": "schemas",
}
APPLICATION: Final = ("services", "schemas", "streams", "tests", "infra")
"""Packages that a user's application may well have."""


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    """Return what the command printed; a failure ends the check."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(  # noqa: S603 - our own commands
        [str(part) for part in command],
        cwd=cwd,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"exit code {done.returncode}: {command}\n{done.stdout}")
    return done.stdout


def build(into: Path) -> Path:
    """Return the wheel, built from the tree with the pinned hatchling."""
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "-o", into, ROOT)
    (wheel,) = into.glob("*.whl")
    return wheel


def check_content(wheel: Path) -> None:
    """Compare the wheel with the committed files."""
    held = set(zipfile.ZipFile(wheel).namelist())
    wanted = {
        tracked.removeprefix(f"{root}/")
        for package, root in PACKAGES.items()
        for tracked in run("git", "ls-files", f"{root}/{package}").splitlines()
    }
    missing = sorted(wanted - held)
    foreign = sorted({name.split("/")[0] for name in held} - PACKAGES.keys())
    licences = [name for name in held if name.endswith(".dist-info/licenses/LICENSE")]
    if missing or not licences or len(foreign) != 1:
        raise SystemExit(f"wheel: missing {missing}, top level besides {foreign}")
    write(f"wheel holds all {len(wanted)} committed files and {foreign[0]}\n")


def install(wheel: Path, into: Path) -> Path:
    """Return the Python of a clean environment that has the wheel."""
    venv.create(into, with_pip=False)
    python = into / "bin" / "python"
    run(
        *(sys.executable, "-m", "pip", "--python", python),
        *("install", "--quiet", "--no-deps", "--no-index", wheel),
    )
    # A folder named in a .pth file is searched last, and its own .pth files are not
    # read: so the editable install stays out of sight.
    ours = Path(run(python, "-c", "import site; print(site.getsitepackages()[0])")[:-1])
    (ours / "third_party.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    return python


def application(folder: Path) -> Path:
    """Return the folder of an application whose packages have common names."""
    for name in APPLICATION:
        package = folder / name
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(f"owner = 'application {name}'\n")
    return folder


def write(text: str) -> None:
    """Say how far the check is."""
    sys.stdout.write(text)
    sys.stdout.flush()


def main() -> None:
    """Run the four steps."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wheel = build(folder / "dist")
        check_content(wheel)
        python = install(wheel, folder / "clean")
        user = application(folder / "application")
        probe = ROOT / ".ci" / "wheel_probe.py"
        write(run(python, "-W", "error::ImportWarning", probe, *APPLICATION, cwd=user))
        for program in ("cachemind", "cache-mind"):
            shown = run(python.parent / program, "--help", cwd=user)
            if "usage: cachemind" not in shown:
                raise SystemExit(f"{program} --help printed:\n{shown}")
    write("the installed wheel works beside the application\n")


if __name__ == "__main__":
    main()
