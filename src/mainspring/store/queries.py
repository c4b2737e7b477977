"""Named SQL: `-- name: x` starts a query in sql/*.sql; the comment lines after it say why, and what guards it."""

from __future__ import annotations

import re
from functools import lru_cache
from importlib.resources import files

_NAME = re.compile(r"^-- name: (\w+)\s*$")


@lru_cache(maxsize=32)
def load(file: str) -> dict[str, str]:
    """All queries of sql/<file>.sql by name."""
    text = (files("mainspring.store") / "sql" / f"{file}.sql").read_text(encoding="utf-8")
    queries: dict[str, list[str]] = {}
    current: list[str] | None = None
    for line in text.splitlines():
        if found := _NAME.match(line):
            name = found.group(1)
            if name in queries:
                raise ValueError(f"{file}.sql has two queries called {name}")
            current = queries.setdefault(name, [])
        elif current is not None and not line.startswith("--"):
            current.append(line)
    return {name: "\n".join(lines).strip().rstrip(";") for name, lines in queries.items()}
