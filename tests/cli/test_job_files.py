"""Job files: what is read, what is refused with its line, what is written, and the schema for editors."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainspring.cli.job_files.file_reader import read_job_files
from mainspring.cli.job_files.file_writer import job_file_text
from mainspring.cli.job_files.variables import escaped, filled_text
from mainspring.domain.errors import InvalidInput

from .conftest import CannedServer

Call = Callable[..., tuple[int, str, str]]
JOBS = """\
owner: billing
include: [more/*.yaml]
variables: {region: eu, zone: Europe/Berlin, retries: 3}
environments:
  production: {region: us, retries: 9}
jobs:
  report-${{ region }}:
    schedule: {cron: "0 9 * * *", timezone: "${{ zone }}"}
    command: echo ${HOME} $${{ left alone }} ${{ region }}
    retries: ${{ retries }}
"""
CALENDARS = "calendars:\n  office:\n    weekdays: [MON]\n"
TOML = """\
owner = "billing"

[jobs.sweep]
every = "1m"
task = "sweep"

[jobs."a.b"]
task = "t"
schedule.cron = "@daily"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "jobs.yaml").write_text(JOBS)
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "calendars.yaml").write_text(CALENDARS)
    return tmp_path


def read(path: Path, **options: Any) -> dict[str, Any]:
    found = read_job_files([str(path)], **options)
    return {f"{one.kind}/{one.id}": one.body for one in found.entries}


def test_includes_variables_and_environments(folder: Path) -> None:
    found = read(folder / "jobs.yaml")
    assert found["jobs/report-eu"] == {
        "schedule": {"cron": "0 9 * * *", "timezone": "Europe/Berlin"},
        "command": "echo ${HOME} ${{ left alone }} eu",
        "retries": 3,
    }
    assert found["calendars/office"] == {"weekdays": ["MON"]}
    assert read(folder / "jobs.yaml", environment="production")["jobs/report-us"]["retries"] == 9
    given = {"region": "asia"}
    assert "jobs/report-asia" in read(folder / "jobs.yaml", environment="production", given=given)


@pytest.mark.parametrize(
    ("text", "detail", "hint"),
    [
        ("owner: a\njbos: {}\n", "line 2: jbos is unknown", "did you mean 'jobs'?"),
        ("owner: a\njobs:\n  x: 1\n", "line 3: jobs.x is not a mapping", None),
        ("owner: a\njobs:\n  x: {command: '${{ regoin }}'}\nvariables: {region: eu}\n",
         "line 3: there is no variable regoin", "did you mean 'region'?"),
        ("owner: a\njobs:\n  x: {command: '${{ region }}'}\nvariables: {region: }\n",
         "line 3: the variable region has no value", "give it with --env or --set"),
        ("owner: a\njobs:\n  x: {command: 'a ${{'}\n", "line 3: ${{ is not closed", "write $${{"),
        ("jobs: {}\n", "line 1: the files have no owner", "owner: billing"),
        ("owner: a\n---\nowner: b\n", "line 3: the owner is b here and a in", None),
        ("owner: a\njobs: {x: {}}\n---\njobs: {x: {}}\n", "line 4: jobs.x is also in", None),
        ("owner: a\ninclude: nothing.yaml\n", "line 2: include: no file is called nothing.yaml", None),
        ("owner: a\njobs:\n  x: {}\n  x: {}\n", "line 4: x occurs twice", None),
        ("", "have nothing", None),
        ("owner: a\njobs:\n  - job_id: x\n", "line 2: jobs is not a mapping", "write jobs: {nightly: {...}}"),
    ],
)  # fmt: skip
def test_what_is_wrong_has_its_line(tmp_path: Path, text: str, detail: str, hint: str | None) -> None:
    path = tmp_path / "jobs.yaml"
    path.write_text(text)
    with pytest.raises(InvalidInput) as refused:
        read(path)
    assert detail in refused.value.detail
    if hint is not None:
        assert hint in (refused.value.hint or "")


def test_the_form_is_shown_as_the_kind_of_file_writes_it(tmp_path: Path) -> None:
    path = tmp_path / "jobs.toml"
    for text, hint in (("[jobs.a]\n", 'write owner = "billing"'), ("owner = 'a'\njobs = 1\n", "write [jobs.nightly]")):
        path.write_text(text)
        with pytest.raises(InvalidInput) as refused:
            read(path)
        assert refused.value.hint == hint


def test_an_unknown_environment_or_variable_names_the_nearest(folder: Path) -> None:
    with pytest.raises(InvalidInput) as refused:
        read(folder / "jobs.yaml", environment="prodution")
    assert refused.value.hint == "did you mean 'production'?"
    with pytest.raises(InvalidInput) as refused:
        read(folder / "jobs.yaml", given={"regin": "x"})
    assert refused.value.hint == "did you mean 'region'?"


def test_toml_has_lines_too(tmp_path: Path, server: CannedServer, call: Call) -> None:
    path = tmp_path / "jobs.toml"
    path.write_text(TOML)
    assert read(path)["jobs/a.b"] == {"task": "t", "schedule": {"cron": "@daily"}}
    problem = {"field": "objects[1].schedule.cron", "code": "x", "detail": "no", "hint": "yes", "index": 1}
    server.says(
        "POST /v1/files:apply",
        {"type": "", "title": "", "status": 422, "code": "invalid_batch", "detail": "no", "errors": [problem]},
        status=422,
    )
    code, _, err = call("apply", str(path))
    assert code == 2
    assert f"{path}:9: jobs.a.b.schedule.cron: no (yes)" in err
    assert "nothing was changed" in err


def answer(*changes: dict[str, Any], applied: bool = False, left: tuple[Any, ...] = ()) -> dict[str, Any]:
    return {"owner": "billing", "applied": applied, "digest": "d", "changes": changes, "left": left, "warnings": []}


CHANGES = (
    {"kind": "jobs", "id": "a", "action": "create"},
    {"kind": "jobs", "id": "b", "action": "change", "fields": [
        {"field": "retry", "before": {"base": 1.0, "cap": 2.0}, "after": {"base": 5.0, "cap": 2.0}},
        {"field": "command", "before": "true", "after": None},
    ]},
    {"kind": "calendars", "id": "c", "action": "unchanged"},
)  # fmt: skip


def test_a_plan_exits_with_2_if_something_would_change(folder: Path, server: CannedServer, call: Call) -> None:
    server.says("POST /v1/files:plan", answer(*CHANGES), answer(CHANGES[2]))
    code, out, _ = call("apply", str(folder / "jobs.yaml"), "--plan", "--env", "production")
    assert code == 2
    assert out.splitlines() == [
        "+ job a",
        "~ job b",
        "    retry.base: 1.0 -> 5.0",
        '    command: "true" -> none',
        "1 to create, 1 to change, 1 unchanged",
    ]
    sent = server.asked[-1][2]
    assert sent["owner"] == "billing"
    assert [one["source"] for one in sent["objects"]] == [
        f"{folder}/jobs.yaml:7", f"{folder}/more/calendars.yaml:2",
    ]  # fmt: skip
    assert call("apply", str(folder / "jobs.yaml"), "--plan")[0] == 0
    (folder / "jobs.yaml").write_text("jobs: {}")
    assert call("apply", str(folder / "jobs.yaml"), "--plan")[0] == 1  # not the code of a difference


def test_prune_says_what_it_cancels_and_asks(folder: Path, server: CannedServer, call: Call) -> None:
    removal = {"kind": "jobs", "id": "old", "action": "remove", "live_runs": ["r1", "r2"]}
    server.says("POST /v1/files:plan", answer(removal))
    server.says("POST /v1/files:apply", answer(removal, applied=True))
    code, out, err = call("apply", str(folder), "--prune")
    assert (code, out) == (2, "")
    assert "- job old  cancels 2 live runs: r1, r2" in err and "nobody can be asked" in err
    assert [asked[0] for asked in server.asked] == ["POST /v1/files:plan"]
    assert call("apply", str(folder), "--prune", "--yes")[:2] == (
        0,
        "- job old  cancels 2 live runs: r1, r2\n1 removed\n",
    )
    assert server.asked[-1][2]["prune"] is True


def test_what_the_files_no_longer_have_is_said(folder: Path, server: CannedServer, call: Call) -> None:
    left = ({"kind": "jobs", "id": "old", "action": "remove"},)
    server.says("POST /v1/files:apply", answer(CHANGES[2], applied=True, left=left))
    assert "! job old is no longer in the files; --prune removes it" in call("apply", str(folder))[1]


def test_an_export_is_a_file(tmp_path: Path, server: CannedServer, call: Call) -> None:
    body = {"schedule": {"cron": "0 9 * * *"}, "command": "echo ${{ x }}\necho 2\n", "env": {"A": "08", "B": "1e5"}}
    objects = [
        {"kind": "jobs", "id": "no", "body": body},
        {"kind": "jobs", "id": "theirs", "body": {}, "owner": "shop"},
        {"kind": "jobs", "id": "coded", "body": {}, "declared_by": "app"},
    ]
    server.says("POST /v1/files:export", {"objects": objects, "next": None})
    path = tmp_path / "out.yaml"
    code, _, err = call("export", "--kind", "jobs", "-o", str(path))
    assert code == 0
    assert read(path) == {"jobs/no": body}
    assert "left out: job theirs: the files of shop own it" in err
    assert "left out: job coded: the code of the application app declares it" in err


SECRETS = """\
owner: billing
secrets:
  db-password:
    value: {env: DB_PASSWORD}
  api-key: {value: {file: key.txt}, queues: [mails]}
  by-hand: {tasks: [charge]}
channels:
  chat: {kind: slack, webhook_url: {env: CHAT_URL}}
"""


def test_values_of_secrets_come_from_the_environment_or_a_file(
    tmp_path: Path, server: CannedServer, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, key = tmp_path / "jobs.yaml", tmp_path / "key.txt"
    path.write_text(SECRETS)
    key.write_text("key of the API\n")
    server.says("POST /v1/files:apply", answer(applied=True))
    monkeypatch.setenv("CHAT_URL", "https://chat.example/hook")
    code, _, err = call("apply", str(path))
    assert code == 2 and "line 4: the environment has no DB_PASSWORD" in err and server.asked == []
    monkeypatch.setenv("DB_PASSWORD", "correct horse")
    assert call("apply", str(path))[0] == 0
    assert {one["id"]: one["body"] for one in server.asked[-1][2]["objects"]} == {
        "db-password": {"value": "correct horse"}, "api-key": {"value": "key of the API", "queues": ["mails"]},
        "by-hand": {"tasks": ["charge"]}, "chat": {"kind": "slack", "webhook_url": "https://chat.example/hook"},
    }  # fmt: skip
    for wrong, detail in (
        ("value: hunter2 in the file", "value is secret, and a job file does not have it"),
        ("value: {vault: a}", "value.vault is unknown"), ("value: {file: none.txt}", "none.txt cannot be read"),
    ):  # fmt: skip
        path.write_text(f"owner: billing\nsecrets:\n  db-password:\n    {wrong}\n")
        code, out, err = call("apply", str(path))
        assert code == 2 and f"line 4: {detail}" in err.replace(f"{tmp_path}/", "") and "hunter2" not in out + err


TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), max_size=12) | st.sampled_from(
    [
        "no",
        "1e5",
        "08",
        "~",
        "2026-01-01",
        "${{ a }}",
        "$${{",
        "a: b",
        "# x",
        "- x",
        "|",
        "two\nlines",
        "  x ",
        "'",
        '"',
    ]
)
VALUES = st.recursive(
    TEXTS | st.booleans() | st.integers(-(10**9), 10**9) | st.floats(allow_nan=False, allow_infinity=False) | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=40)
@given(st.dictionaries(TEXTS.filter(bool), st.dictionaries(TEXTS, VALUES, max_size=3), min_size=1, max_size=2))
def test_what_is_written_reads_back_the_same(tmp_path_factory: Any, jobs: dict[str, Any]) -> None:
    path = tmp_path_factory.getbasetemp() / "written.yaml"
    path.write_text(job_file_text("billing", {"jobs": jobs}), encoding="utf-8")
    assert read(path) == {f"jobs/{name}": body for name, body in jobs.items()}


@given(TEXTS)
def test_a_text_is_escaped(text: str) -> None:
    assert filled_text(escaped(text), {}) == text


def test_the_schema_checks_files(call: Call, folder: Path) -> None:
    code, out, _ = call("schema")
    assert code == 0
    schema = json.loads(out)
    jsonschema.Draft7Validator.check_schema(schema)
    check = jsonschema.Draft7Validator(schema)
    good: dict[str, Any] = {
        "owner": "a",
        "variables": {"n": 3},
        "jobs": {"x": {"schedule": {"cron": "@daily"}, "command": "true", "retries": "${{ n }}", "payload": [1]}},
        "workflows": {"w": {"steps": [{"name": "s", "task": "t"}]}},
        "calendars": {"c": {"weekdays": ["MON"]}},
        "limits": {"q": {"concurrency": 3, "rate": "5/m"}},
        "channels": {"c": {"kind": "slack", "webhook_url": {"env": "SLACK_URL"}}},
        "rules": {"r": {"on": ["failure"], "to": ["c"], "group_wait": "10s"}},
        "secrets": {"s": {"value": {"file": "s.txt"}, "queues": ["q"]}, "t": {}},
        "quotas": {"acme": {"tokens": 5}},
    }
    assert list(check.iter_errors(good)) == []
    for wrong in (
        {"jobs": {"x": {"comand": "true"}}}, {"jobs": {"x": {"job_id": "y"}}}, {"limits": {"q": {"paused": True}}},
        {"jobs": {"x": {"priority": "urgent"}}}, {"jbos": {}}, {"workflows": {"w": {}}},
        {"secrets": {"s": {"value": "hunter2"}}}, {"channels": {"c": {"kind": "slack", "webhook_url": "https://x"}}},
        {"secrets": {"s": {"value": {"env": "A", "file": "b"}}}}, {"quotas": {"acme": {"tokes": 1}}},
    ):  # fmt: skip
        assert list(check.iter_errors(wrong)), wrong
