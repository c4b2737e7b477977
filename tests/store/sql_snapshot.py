"""Every complete statement, with constants and fragments filled in, so that a change is visible in review.

Renew it with `python -m tests.store.sql_snapshot`, from the folder that contains `tests`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import mainspring.store
from mainspring.store.queries import load

SNAPSHOT = Path(__file__).with_name("sql.snapshot")
RENEWAL = "python -m tests.store.sql_snapshot"
FOLDER = Path(mainspring.store.__file__).parent / "sql"


def dump() -> str:
    """The statements of all files in their order, each under its file and name."""
    files = sorted(file.stem for file in FOLDER.glob("*.sql") if file.stem != "fragments")
    return "\n".join(f"-- {file}: {name}\n{sql}\n" for file in files for name, sql in load(file).items())


def main() -> None:
    SNAPSHOT.write_text(dump(), encoding="utf-8")
    sys.stdout.write(f"wrote {SNAPSHOT.name}\n")


if __name__ == "__main__":
    main()
