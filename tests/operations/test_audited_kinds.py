"""Entries of the audit are of kinds that a filter knows."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import mainspring
from mainspring.wire.audit import AUDITED_KINDS, OF_THE_SYSTEM
from tests.sources import parsed

SOURCE = Path(mainspring.__file__).parent
DECIDED_LATER = {"kind": {"tenant", "queue", "user", "session"}, "kind.audited": set[str]()}


def recorded() -> Iterator[ast.expr]:
    """What calls of `record` give as the kind."""
    for path in sorted((SOURCE / "operations").rglob("*.py")):
        text = path.read_text()
        for node in ast.walk(parsed(text)) if "record(" in text else ():
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "record":
                yield node.args[2]


def test_every_kind_that_is_recorded_is_listed() -> None:
    found: set[str] = set()
    for kind in recorded():
        found |= {str(kind.value)} if isinstance(kind, ast.Constant) else DECIDED_LATER[ast.unparse(kind)]
    assert len(found) > 15
    assert found | {"breaker"} == set(AUDITED_KINDS)


def test_what_the_system_decides_is_listed() -> None:
    statements = (SOURCE / "store" / "sql" / "audit.sql").read_text()
    assert sorted(re.findall(r"'mainspring', '([a-z.]+)', '[a-z]+'", statements)) == sorted(OF_THE_SYSTEM)
