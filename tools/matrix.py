"""`make matrix`: the tests on each supported Python and PostgreSQL that this machine has.

Each Python has an environment of its own in `.venv/matrix`, with the versions of requirements.lock.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tools.shipped import LOCK, ROOT

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
POSTGRES = (15, 16, 17, 18)
BINARIES = "MAINSPRING_TEST_POSTGRES_BIN"
_ENVIRONMENTS = ROOT / ".venv" / "matrix"
_DEBIAN = Path("/usr/lib/postgresql")


def python_of(version: str) -> Path | None:
    """The interpreter of this version: on the PATH, or one of pyenv's."""
    places = [shutil.which(f"python{version}"), *sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))]
    return next((Path(place) for place in places if place and _is(Path(place), version)), None)


def _is(program: Path, version: str) -> bool:
    code = "import sys; print(*sys.version_info[:2], sep='.')"
    done = subprocess.run([program, "-c", code], capture_output=True, text=True, check=False)
    return done.stdout.strip() == version


def binaries_of(major: int) -> Path | None:
    """The programs of this PostgreSQL: those of the wheel, or Debian's."""
    if major == wheel_major():
        return wheel_binaries()
    folder = _DEBIAN / str(major) / "bin"
    return folder if (folder / "postgres").exists() else None


def wheel_binaries() -> Path:
    from mainspring.store.embedded.binaries import wheel_bin_folder

    return wheel_bin_folder()


def wheel_major() -> int:
    from mainspring.store.embedded.binaries import binary_major

    return binary_major(wheel_binaries())


def environment(version: str, python: Path) -> Path:
    """The interpreter of an environment with everything that the tests need."""
    folder = _ENVIRONMENTS / version
    own, stamp = folder / "bin" / "python", folder / ".installed"
    if stamp.exists() and stamp.stat().st_mtime >= max(LOCK.stat().st_mtime, (ROOT / "pyproject.toml").stat().st_mtime):
        return own
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([python, "-m", "venv", folder], check=True)
    pip = [own, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--require-hashes", "--requirement", LOCK], check=True)
    skipped = os.environ | {"MAINSPRING_PAGE": "skip"}
    subprocess.run([*pip, "--no-deps", "--no-build-isolation", "--editable", ROOT], check=True, env=skipped)
    stamp.touch()
    return own


def cells(tests: Sequence[str]) -> Iterator[tuple[str, str]]:
    """What was looked at, and how it went: each Python with the PostgreSQL of the wheel, and each other PostgreSQL with
    this Python."""
    for version in PYTHONS:
        python = python_of(version)
        if python is None:
            yield f"Python {version}", "not installed"
            continue
        try:
            own = environment(version, python)
            subprocess.run([own, "-m", "tools.old_server"], cwd=ROOT, check=True)
        except subprocess.CalledProcessError as error:
            yield f"Python {version}", f"cannot be installed: exit code {error.returncode}"
            continue
        yield f"Python {version}, PostgreSQL {wheel_major()}", _run(own, tests, {})
    for major in POSTGRES:
        folder = binaries_of(major)
        if folder is None:
            yield f"PostgreSQL {major}", "not installed"
        elif major != wheel_major():
            name = f"Python {sys.version_info.major}.{sys.version_info.minor}, PostgreSQL {major}"
            yield name, _run(Path(sys.executable), tests, {BINARIES: str(folder)})


def _run(python: Path, tests: Sequence[str], variables: dict[str, str]) -> str:
    done = subprocess.run(
        [python, "-m", "pytest", *tests], cwd=ROOT, env=os.environ | variables, stdout=subprocess.PIPE, text=True,
        check=False,
    )  # fmt: skip
    last = next(
        (line for line in reversed(done.stdout.splitlines()) if re.search(r"\d+ (passed|failed|error)", line)), ""
    )
    if done.returncode:
        sys.stderr.write(done.stdout)
    return f"{'passed' if done.returncode == 0 else 'FAILED'}: {last or f'exit code {done.returncode}'}"


def main(tests: Sequence[str]) -> int:
    failed = False
    for name, result in cells(tests):
        print(f"{name:32} {result}", flush=True)
        failed |= result.startswith("FAILED")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
