"""Type checkers know the parameters and the result of a submission: mypy accepts and refuses what it should.

Pyright agrees on every line. npm installs it in the version of tests/sdk/pyright.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from mypy import api

pytestmark = pytest.mark.slow

SAMPLES = Path(__file__).parent / "typing_samples"
NAMES = ("good.py", "bad.py", "planted.py")
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def refused_lines() -> dict[str, set[int]]:
    """For each sample, the lines that mypy refuses. One call checks all of them."""
    files = [str(SAMPLES / name) for name in NAMES]
    cache = str(ROOT / ".mypy_cache" / "samples")
    options = ["--strict", "--config-file=", "--python-version=3.11", "--cache-dir", cache]
    limit = sys.getrecursionlimit()
    try:
        output, trouble, _ = api.run([*options, *files])
    finally:
        sys.setrecursionlimit(limit)  # mypy raises it, and tests of nested bodies that follow would see that
    assert not trouble
    found: dict[str, set[int]] = {name: set() for name in NAMES}
    for path, line in re.findall(r"^(.+?):(\d+): error:", output, re.MULTILINE):
        found[Path(path).name].add(int(line))
    return found


def test_what_is_right_is_accepted(refused_lines: dict[str, set[int]]) -> None:
    assert refused_lines["good.py"] == set()


def test_what_is_wrong_is_refused_line_by_line(refused_lines: dict[str, set[int]]) -> None:
    lines = (SAMPLES / "bad.py").read_text().splitlines()
    assert refused_lines["bad.py"] == {n for n, line in enumerate(lines, 1) if line.endswith("# refused")}


def test_of_24_planted_mistakes_23_are_found(refused_lines: dict[str, set[int]]) -> None:
    """The one that is left is a condition on a result that is not known yet."""
    lines = (SAMPLES / "planted.py").read_text().splitlines()
    found = {n for n, line in enumerate(lines, 1) if line.endswith("# found")}
    assert refused_lines["planted.py"] == found
    assert len(found) == 23


@pytest.mark.slow
def test_pyright_finds_the_same(tmp_path: Path) -> None:
    npm = shutil.which("npm")
    for name in ("package.json", "package-lock.json"):
        shutil.copy(ROOT / "tests" / "sdk" / "pyright" / name, tmp_path)
    if (
        npm is None
        or subprocess.run(
            [npm, "ci", "--no-audit", "--no-fund", "--loglevel=error"], cwd=tmp_path, capture_output=True, check=False
        ).returncode
    ):
        pytest.skip("npm cannot install pyright here")
    program = [tmp_path / "node_modules" / ".bin" / "pyright", "--pythonpath", sys.executable, "--outputjson"]
    done = subprocess.run([*program, SAMPLES], cwd=ROOT, capture_output=True, text=True, check=False)
    refused: dict[str, set[int]] = {name: set() for name in NAMES}
    for one in json.loads(done.stdout)["generalDiagnostics"]:
        if one["severity"] == "error":
            refused[Path(one["file"]).name].add(one["range"]["start"]["line"] + 1)
    for name, mark in zip(NAMES, ("# accepted", "# refused", "# found"), strict=True):
        lines = (SAMPLES / name).read_text().splitlines()
        assert refused[name] == {n for n, line in enumerate(lines, 1) if line.endswith(mark)}, name
