"""`mainspring task list`: the tasks with their parameters and options."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from .conftest import CannedServer

Call = Callable[..., tuple[int, str, str]]
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "account": {"type": "string"},
        "due": {"type": "string", "format": "date"},
        "limit": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "kind": {"enum": ["a", "b"]},
        "item": {"$ref": "#/$defs/Item"},
        "more": {},
    },
    "required": ["account", "due"],
}


def test_parameters_are_shown_with_their_types_and_optional_ones_in_brackets(server: CannedServer, call: Call) -> None:
    tasks = [
        {"task": "report", "queues": ["default", "heavy"], "workers": 2, "payload_schema": SCHEMA},
        {"task": "shell", "queues": ["default"], "workers": 1, "payload_schema": None},
        {"task": "tick", "queues": ["default"], "workers": 1, "payload_schema": {"type": "object"}},
    ]
    server.says("GET /v1/tasks", {"tasks": tasks})
    code, out, _ = call("tasks")
    words = " ".join(out.split())
    assert code == 0
    for part in ("account: string, due: date,", "[limit: integer or null]", "'a' | 'b'", "[item: Item]", "anything"):
        assert part in words, out
    assert "nothing" in words


def test_options_are_shown_as_one_would_write_them(server: CannedServer, call: Call) -> None:
    rules = [{"error": ["ValueError"], "then": "give_up"}]
    options = {
        "queue": "heavy", "timeout": 300.0, "retry": {"max_attempts": 5, "base": 90.0, "rules": rules},
        "env": {"REGION": "eu"}, "limits": {"memory": 512_000_000},
    }  # fmt: skip
    tasks = [
        {"task": "report", "queues": ["heavy"], "workers": 2, "payload_schema": None, "options": options},
        {"task": "old", "queues": ["default"], "workers": 1, "payload_schema": None},  # an older server says nothing
    ]
    server.says("GET /v1/tasks", {"tasks": tasks})
    code, out, _ = call("tasks")
    words = " ".join(out.split())
    assert code == 0
    for part in ("queue=heavy, timeout=5m, retry.max_attempts=5, retry.base=1m30s,", "env.REGION=eu", "=512MB"):
        assert part in words, out
    assert 'retry.rules=[{"error":["ValueError"],"then":"give_up"}]' in words


def test_json_is_the_servers_message(server: CannedServer, call: Call) -> None:
    options = {"queue": "heavy", "retry": {"max_attempts": 5}}
    task = {"task": "report", "queues": ["default"], "workers": 2, "payload_schema": SCHEMA, "options": options}
    page = {"tasks": [{**task, "left_out": False}]}
    server.says("GET /v1/tasks", page)
    code, out, err = call("tasks", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out) == page


def test_what_a_list_leaves_out_is_said(server: CannedServer, call: Call) -> None:
    task = {"task": "report", "queues": ["default"], "workers": 2, "left_out": True}
    server.says("GET /v1/tasks", {"tasks": [task], "more": True})
    code, out, err = call("tasks")
    assert code == 0 and "too large for a list" in out and "anything" not in out
    assert "more tasks than a list shows" in out + err
