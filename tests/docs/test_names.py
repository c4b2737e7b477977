"""A name means one thing, so that who reads it somewhere knows it everywhere."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "src" / "mainspring"
MOST = 10


def test_few_class_names_mean_several_things() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for file in SOURCE.rglob("*.py"):
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(file.relative_to(SOURCE)))
    several = {name: found for name, found in places.items() if len(found) > 1}
    assert len(several) <= MOST, several
