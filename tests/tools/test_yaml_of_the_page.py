"""The dashboard reads YAML as the command line does, or refuses it with the line; what it writes is read the same."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from mainspring.cli.workflow_file import read_yaml
from mainspring.domain.errors import InvalidInput

HERE = Path(__file__).resolve().parent
DASHBOARD = HERE.parents[1] / "dashboard"
WORDS = (
    "", "on", "no", "true", "null", "2026-01-01", "12:30", "1e3", "0x1f", "007", "+5", ".5", "- a", "a: b", "a #b",
    "# c", "~", "echo 'x' && y", "one\ntwo\n", "  lead\nx\n", "\n\nx", "x\n\n\ny\n\n",
    "trail ", "a\n  b\nc", "9" * 20,
    "=", "<<", "---", "...", "%a", "@x", "key:", "http://x.y/z?a=b",
    '"', "'", "\\", "|", "\x07", "\u2028", "\U0001f600",
)  # fmt: skip
NAMES = ("a", "b-c", "depends_on", "on", "a b", "x.y", "007", "null", "-x", "?y", "k:", 'q"', "#h", "a#b", "", "@a")
SEED, MANY = 20261119, 300
REFUSED = {
    "steps:\n  - name: a\n   command: x\n": 3,
    "a: 1\na: 2\n": 2,
    "a:\n\tb: 1\n": 2,
    "a: &x 1\nb: *x\n": 1,
    "a: one\n  two\n": 2,
    "a: b: c\n": 1,
    "a: [1,\n  2\n": 3,
    "a: 1\n---\nb: 2\n": 2,
    'a: "\\q"\n': 1,
}
HEREDOC = """steps:
- name: a  # first
  command: |
    echo '#1'

    done
  depends_on: []
- {name: b, map: {range: 12}}
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        shutil.which("node") is None or not (DASHBOARD / "node_modules").is_dir(),
        reason="needs Node.js",
    ),
]


def page(texts: list[str], values: list[Any]) -> tuple[list[dict[str, Any]], list[str]]:
    """What the dashboard makes of texts that it reads and of values that it writes."""
    command = ["node", str(HERE / "yaml_of_the_page.mjs"), str(DASHBOARD)]
    given = json.dumps({"texts": texts, "values": values})
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    return answer["texts"], answer["values"]


def command_line(text: str) -> Any:
    try:
        [(value, _)] = read_yaml("file", text, "a mapping")
    except (InvalidInput, ValueError):
        return None
    return value


class Dumper(yaml.SafeDumper):  # type: ignore[misc]  # yaml has no types
    def ignore_aliases(self, data: Any) -> bool:
        return True


def value_of(chance: random.Random, depth: int = 0) -> Any:
    kind = chance.random()
    if depth > 3 or kind < 0.55:
        return chance.choice((None, True, -3, 1.5, 1e21)) if kind < 0.15 else chance.choice(WORDS)
    if kind < 0.75:
        return [value_of(chance, depth + 1) for _ in range(chance.randrange(4))]
    return {chance.choice(NAMES): value_of(chance, depth + 1) for _ in range(chance.randrange(4))}


def changed(chance: random.Random, text: str) -> str:
    at = chance.randrange(len(text))
    return text[:at] + chance.choice(" :-#'\"\n|>[]{},a&*") + text[at + chance.randrange(2) :]


def test_no_text_means_something_else_than_to_the_command_line() -> None:
    chance = random.Random(SEED)
    values = [{chance.choice(NAMES): value_of(chance) for _ in range(4)} for _ in range(MANY)]
    flows = (None, True, False)
    texts = [
        yaml.dump(one, Dumper=Dumper, width=10**9, default_flow_style=chance.choice(flows), allow_unicode=True)
        for one in values
    ]
    texts += [changed(chance, text) for text in texts]
    read, written = page(texts, values)
    same = [found for found in zip(texts, read, strict=True) if "value" in found[1]]
    assert len(same) > MANY / 2
    for text, found in same:
        meant = command_line(text)
        assert meant is None or meant == found["value"], text
    for value, text in zip(values, written, strict=True):
        assert command_line(text) == value, text


def test_what_is_refused_names_its_line_and_values_have_theirs() -> None:
    read, _ = page([*REFUSED, HEREDOC, '{"steps": [\n{"name": "a"},\n{"name": "b"}]}'], [])
    assert [one.get("line") for one in read[: len(REFUSED)]] == list(REFUSED.values())
    assert read[-2]["value"] == command_line(HEREDOC)
    lines = read[-2]["lines"]
    assert (lines["steps[0].depends_on"], lines["steps[1]"], lines["steps[1].map.range"]) == (7, 8, 8)
    assert read[-1]["lines"]["steps[1].name"] == 3
