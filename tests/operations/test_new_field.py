"""A plain field is added in one file: with three more rows in wire/fields.py, everything else knows the new fields."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from mainspring.wire import fields

ROWS = """\
    plain_field("probe_in", DURATION, least=1, most=7 * 86400, help="A made-up duration."),
    plain_field("probe_count", COUNT, least=1, most=9, help="A made-up number."),
    plain_field("probe_word", TEXT, least=1, most=20, help="A made-up line."),
"""
NOTHING = dict.fromkeys((*fields.PLAIN_NAMES, "probe_in", "probe_count", "probe_word"))
VALUES = """\
    probe_in: float | None
    probe_count: int | None
    probe_word: str | None
"""
KEYWORDS = """\
    probe_in: Duration | None
    probe_count: int | None
    probe_word: str | None
"""


def behind(text: str, line: str, addition: str) -> str:
    """`text` with `addition` behind the one line that starts so."""
    before, found, rest = text.partition(line)
    assert found and line not in rest, line
    rest_of_line, _, after = rest.partition("\n")
    return f"{before}{found}{rest_of_line}\n{addition}{after}"


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    text = Path(fields.__file__).read_text(encoding="utf-8")
    last = fields.PLAIN_NAMES[-1]
    text = behind(text, '    Field("job_type", ', ROWS)
    for kind, lines in ((fields.PlainValues, VALUES), (fields.PlainKeywords, KEYWORDS)):
        annotation = kind.__annotations__[last]
        annotation = getattr(annotation, "__forward_arg__", annotation)
        text = behind(text, f"    {last}: {annotation}", lines)
    edited = tmp_path_factory.mktemp("edited") / "fields.py"
    edited.write_text(text, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "tests.operations.new_field", str(edited)],
        capture_output=True, text=True, timeout=120, check=False, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_the_request_and_the_patch_take_them(found: dict[str, Any]) -> None:
    assert found["intake"] == {
        "stored": {"probe_in": 300.0, "probe_count": 3, "probe_word": "a b"},
        "read again": True,
        "changed": NOTHING | {"probe_in": 600.0, "probe_word": "a b"},
        "kept by other changes": True,
        "refused": [
            ["probe_in", "'soon' is not a duration", None],
            ["probe_in", "'8d' is out of range", "at least 1s, at most 1w"],
            ["probe_count", "0 is out of range", "a whole number from 1 to 9"],
            ["probe_word", "probe_word is empty", "1 to 20 characters"],
            ["probe_word", "probe_word is too long", "1 to 20 characters"],
            [
                "probe_word",
                "probe_word contains a control character or half a surrogate pair",
                "one line of plain text",
            ],
        ],
    }


def test_the_sdk_takes_them_and_the_job_shows_them(found: dict[str, Any]) -> None:
    assert found["options_and_keywords"] == {
        "declared": [300.0, "w"],
        "by keyword": [60.0, 2, None],
        "by the task": [300.0, None, "w"],
        "own words win": [1.0, None, "w"],
        "updated": [420.0, 9],
        "back to the task's": 300.0,
        "an option of a task": True,
    }


def test_the_command_line_takes_them(found: dict[str, Any]) -> None:
    assert found["command_line"] == {
        "help": [
            ["--probe-in", "D", "A", "made-up", "duration."],
            ["--probe-count", "N", "A", "made-up", "number."],
            ["--probe-word", "TEXT", "A", "made-up", "line."],
        ],
        "sent": {"probe_in": "90s", "probe_count": 4, "probe_word": "w"},
        "changed": {"probe_count": 5},
        "edited": ["--probe-in", "--probe-count", "--probe-word"],
        "tasks": True,
    }


@pytest.mark.anyio
async def test_the_sql_routine_takes_them(found: dict[str, Any], connection: asyncpg.Connection) -> None:
    await connection.execute(found["routines"])
    given = {"task": "t", "probe_in": "5m", "probe_count": 3, "probe_word": "a b"}
    await connection.fetchval("select mainspring.submit($1)", json.dumps(given))
    [row] = await connection.fetch("delete from mainspring.runs returning spec::text")
    assert json.loads(row["spec"]) == found["intake"]["stored"]
    for name, value in (("probe_in", "soon"), ("probe_in", "8d"), ("probe_count", 0), ("probe_word", "")):
        with pytest.raises(asyncpg.InvalidParameterValueError) as refused:
            await connection.fetchval("select mainspring.submit($1)", json.dumps({"task": "t", name: value}))
        assert refused.value.detail == name


@pytest.mark.anyio
async def test_the_sql_routine_lays_the_tasks_option_under_a_job(
    found: dict[str, Any], connection: asyncpg.Connection
) -> None:
    await connection.execute(found["routines"])
    options = json.dumps({"probe_in": 300.0, "probe_word": "w"})
    filled = await connection.fetchval(
        "select filled from mainspring.intake_options($1, $2)", json.dumps({"task": "t", "probe_word": "own"}), options
    )
    assert json.loads(filled) == {"task": "t", "probe_in": 300.0, "probe_word": "own"}
