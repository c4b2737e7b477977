"""Completes a release in dist/: `python -m tools.release`, which `make release` calls after it has built the wheel.

It writes the statement of provenance (in-toto, SLSA 1) and the checksums of all files, after it has checked that the
source is committed and that the changelog has the version with a date. `--trial` skips these two checks.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tools.shipped import project

ROOT = Path(__file__).resolve().parents[1]
LOCKS = ("requirements.lock", "dashboard/package-lock.json")
SUMS = "SHA256SUMS"
_STATEMENT = "https://in-toto.io/Statement/v1"
_PREDICATE = "https://slsa.dev/provenance/v1"


class NotReady(Exception):
    """Why this cannot be released."""


def heading_of(changelog: str, version: str) -> str:
    """The date of a version in the changelog. Raises NotReady."""
    found = re.search(rf"^## {re.escape(version)} \((.+?)\)$", changelog, re.MULTILINE)
    if found is None:
        raise NotReady(f"CHANGELOG.md has no heading `## {version} (DATE)`")
    if re.fullmatch(r"\d{4}-\d\d-\d\d", found[1]) is None:
        raise NotReady(f"CHANGELOG.md says {version} ({found[1]}): write the date, as in `## {version} (2026-11-19)`")
    return found[1]


def uncommitted(root: Path) -> list[str]:
    said = subprocess.run(
        ["git", "status", "--porcelain"], cwd=root, capture_output=True, text=True, check=True
    ).stdout  # fmt: skip
    return said.splitlines()


def provenance(files: Sequence[Path], root: Path) -> dict[str, Any]:
    """What was built from what. It has no time, so the same source and files give the same statement."""
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True, check=True
    ).stdout.strip()  # fmt: skip
    locks = [{"name": name, "digest": {"sha256": _digest(root / name)}} for name in LOCKS if (root / name).exists()]
    return {
        "_type": _STATEMENT,
        "subject": [{"name": file.name, "digest": {"sha256": _digest(file)}} for file in files],
        "predicateType": _PREDICATE,
        "predicate": {
            "buildDefinition": {
                "buildType": "make release",
                "externalParameters": {"version": project()["version"]},
                "internalParameters": {"python": ".".join(map(str, sys.version_info[:3]))},
                "resolvedDependencies": [{"name": "source", "digest": {"gitCommit": commit}}, *locks],
            },
            "runDetails": {"builder": {"id": "make release"}},
        },
    }


def sums(files: Sequence[Path]) -> str:
    """As sha256sum writes and checks them."""
    return "".join(f"{_digest(file)}  {file.name}\n" for file in sorted(files))


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def complete(folder: Path, root: Path = ROOT, *, trial: bool = False) -> list[Path]:
    """Write provenance and checksums of what is in the folder. Raises NotReady."""
    version = project()["version"]
    if not trial:
        heading_of((root / "CHANGELOG.md").read_text(encoding="utf-8"), version)
        if changed := uncommitted(root):
            raise NotReady(f"{len(changed)} files are not committed, such as {changed[0][3:]}")
    built = sorted([*folder.glob("*.whl"), *folder.glob("*.cdx.json")])
    wheels = [file for file in built if file.suffix == ".whl"]
    if len(wheels) != 1 or f"-{version}-" not in wheels[0].name:
        names = ", ".join(file.name for file in wheels) or "nothing"
        raise NotReady(f"{folder} has {names}, not one wheel of {version}: make wheel")
    if not any(file.name.endswith(".cdx.json") for file in built):
        raise NotReady(f"{folder} has no SBOM: make wheel")
    statement = folder / f"{wheels[0].stem}.intoto.json"
    statement.write_text(json.dumps(provenance(built, root), indent=1) + "\n", encoding="utf-8")
    built.append(statement)
    (folder / SUMS).write_text(sums(built), encoding="utf-8")
    return [*built, folder / SUMS]


def main() -> None:
    try:
        for file in complete(ROOT / "dist", trial="--trial" in sys.argv[1:]):
            print(file.relative_to(ROOT))
    except NotReady as error:
        sys.exit(f"not released: {error}")


if __name__ == "__main__":
    main()
