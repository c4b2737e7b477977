"""`make release`: provenance and checksums name what was built, and what is not ready is refused."""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path

import pytest

from mainspring import __version__
from tools.release import NotReady, complete, heading_of


@pytest.fixture
def source(tmp_path: Path) -> Path:
    root = tmp_path / "source"
    (root / "dist").mkdir(parents=True)
    (root / "CHANGELOG.md").write_text(f"# Changelog\n\n## {__version__} (2026-11-19)\n")
    (root / "requirements.lock").write_text("a==1\n")
    (root / ".gitignore").write_text("dist/\n")
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "a"]):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@example.com", *words], cwd=root, check=True)
    (root / "dist" / f"mainspring-{__version__}-py3-none-any.whl").write_bytes(b"wheel")
    (root / "dist" / f"mainspring-{__version__}.cdx.json").write_text("{}")
    return root


def test_everything_that_is_built_has_a_checksum_and_a_statement(source: Path) -> None:
    files = complete(source / "dist", source)
    assert complete(source / "dist", source) == files  # again: the same
    sums = dict(line.split("  ")[::-1] for line in (source / "dist" / "SHA256SUMS").read_text().splitlines())
    assert sums == {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files if file.name != "SHA256SUMS"
    }
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=source / "dist", check=True)
    [statement] = [json.loads(file.read_text()) for file in files if file.name.endswith(".intoto.json")]
    subjects = {one["name"]: one["digest"]["sha256"] for one in statement["subject"]}
    assert subjects.items() <= sums.items() and len(subjects) == 2
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=source, capture_output=True, text=True, check=True).stdout
    dependencies = statement["predicate"]["buildDefinition"]["resolvedDependencies"]
    assert dependencies[0]["digest"] == {"gitCommit": commit.strip()}
    assert [one["name"] for one in dependencies[1:]] == ["requirements.lock"]


def test_what_is_not_ready_is_refused(source: Path) -> None:
    (source / "new.py").write_text("")
    with pytest.raises(NotReady, match=r"not committed, such as new\.py"):
        complete(source / "dist", source)
    complete(source / "dist", source, trial=True)
    next((source / "dist").glob("*.whl")).rename(source / "dist" / "mainspring-0.0.1-py3-none-any.whl")
    with pytest.raises(NotReady, match="not one wheel of"):
        complete(source / "dist", source, trial=True)
    with pytest.raises(NotReady, match="write the date"):
        heading_of("## 1.0.0 (not released yet)\n", "1.0.0")
    with pytest.raises(NotReady, match="no heading"):
        heading_of("## 1.0.0 (2026-01-01)\n", "1.1.0")
