"""What a newcomer types wrong is answered in the words of the command line, and nothing passes in silence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mainspring.cli.error_report import report
from mainspring.cli.json_text import object_in
from mainspring.domain.errors import InvalidInput

from .conftest import CannedServer, Shown

Call = Callable[..., Shown]
NOON = "2026-11-19T12:00:00Z"
NOT_IN_JSON = "JSON has no comments, no trailing commas and no single quotes"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"a": 1,}', "--payload is not JSON: trailing comma in object (column 9)"),
        ("{'a': 1}", "--payload is not JSON: object keys must be strings (column 2)"),
        ('{\n  "é": 1,\n  // x\n}', "--payload is not JSON: object keys must be strings (line 3, column 3)"),
        ('{"a": 1', "--payload is not JSON: Input data was truncated"),
    ],
)
def test_json_says_where_it_is_wrong(text: str, said: str) -> None:
    with pytest.raises(InvalidInput) as error:
        object_in(text, "--payload", "payload", '{"a": 1}')
    assert (error.value.detail, error.value.hint) == (said, f"such as '{{\"a\": 1}}'; {NOT_IN_JSON}")


@pytest.mark.parametrize(("text", "kind"), [("[1]", "a list"), ('"x"', "a text"), ("5", "a number"), ("null", "null")])
def test_json_that_is_no_object_says_what_it_is(text: str, kind: str) -> None:
    with pytest.raises(InvalidInput, match=f"x.json is {kind}, not a JSON object"):
        object_in(text, "x.json", "file")


@pytest.mark.parametrize(
    ("field", "detail", "typed", "said"),
    [
        ("timeout_wait", "'soon' is not a duration", ["--timeout-wait", "soon"], "--timeout-wait: 'soon' is not"),
        ("headers", "'A' is not key:value", ["--header", "A"], "--header: 'A' is not key:value"),
        ("app", "app: cannot import x", ["--app", "x:app"], "--app: cannot import x"),
        ("app", "app: cannot import x", [], "app: cannot import x"),
    ],
)
def test_an_error_names_the_option_once(
    capsys: pytest.CaptureFixture[str], field: str, detail: str, typed: list[str], said: str
) -> None:
    report(InvalidInput(detail, field=field), as_json=False, typed=typed)
    assert capsys.readouterr().err.startswith(f"error: {said}")


def test_methods_are_no_commands(capsys: pytest.CaptureFixture[str]) -> None:
    report(InvalidInput("'FETCH' is not a method", expected="GET, PUT, PATCH, DELETE"), as_json=False)
    assert capsys.readouterr().err.endswith("hint: expected GET, PUT, PATCH, DELETE\n")


def test_files_with_settings_say_where_they_are_wrong(call: Call, tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    file.write_text('{\n  "kind": "slack",\n}')
    for noun in ("channel", "calendar"):
        code, _, err = call(noun, "set", "x", "--file", str(file))
        assert code == 2 and f"{file} is not JSON: trailing comma in object (line 3, column 1)" in err, err


def task(name: str) -> dict[str, Any]:
    return {"task": name, "workers": 1, "queues": ["default"]}


def test_an_empty_list_of_a_task_names_the_one_that_may_be_meant(server: CannedServer, call: Call) -> None:
    server.says("GET /v1/runs", {"runs": [], "next": None})
    server.says("GET /v1/jobs", {"jobs": [], "next": None})
    server.says("GET /v1/tasks", {"tasks": [task("hello")], "more": False})
    assert "no runs of task helo; did you mean 'hello'?" in call("run", "list", "--task", "helo")[2]
    far = call("job", "list", "--task", "zzz")[2]
    assert "no jobs of task zzz; workers offer those of: mainspring task list" in far
    for known in ("hello", "shell"):
        assert call("run", "list", "--task", known)[2] == f"no runs of task {known}\n"
    server.says("GET /v1/tasks", {"type": "", "title": "", "status": 403, "code": "no", "detail": "no"}, status=403)
    assert call("run", "list", "--task", "helo")[2] == "no runs of task helo\n"


def test_a_calendar_without_rules_is_told(server: CannedServer, call: Call) -> None:
    stored = {"name": "x", "version": 1, "created_at": NOON, "updated_at": NOON}
    server.says("PUT /v1/calendars/x", stored)
    assert "calendar x has no rules and holds back no fire" in call("calendar", "set", "x")[2]
    server.says("PUT /v1/calendars/x", {**stored, "weekdays": ["MON"]})
    assert call("calendar", "set", "x", "--weekdays", "MON")[2] == ""


def test_an_empty_secret_says_where_the_value_comes_from(
    server: CannedServer, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "empty"
    file.write_text("\n")
    code, _, err = call("secret", "set", "db", "--file", str(file))
    assert (code, err) == (2, "error: the value is empty\nhint: type it, pipe it, or give --file\n")
    assert server.asked == []
