"""Hints of the server name commands, not calls."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

import mainspring
from mainspring.api.app import app_without_a_server
from mainspring.api.openapi.document import document
from mainspring.cli import hints
from mainspring.cli.commands import COMMANDS, NOUNS, load_noun
from mainspring.cli.hints import OTHER_COMMANDS, command_of, in_commands
from tests.sdk.wire_samples import problem
from tests.sources import parsed

from .conftest import CannedServer

SOURCE = Path(mainspring.__file__).parent
SERVER = ("api", "domain", "operations", "store", "wire", "scheduler", "upkeep", "kernel")
CALL = re.compile(
    r"\b(?:GET|POST|PUT|PATCH|DELETE) /|\b(?:PUT|PATCH)\b|/v1/|(?:^|[\s(]):[a-z]+[A-Za-z]*\b|\bLink header\b|\bBearer\b"
)
# Texts that name a call and that no command can cause, or that no command replaces.
ALLOWED = {
    "GET /schema/openapi.json lists every route": "for those who send requests themselves",
    "send the field csrf of GET /v1/session": "for pages",
}


@cache
def texts() -> frozenset[str]:
    """The texts of the server, with x for what is filled in."""
    return frozenset(_texts())


def _texts() -> Iterator[str]:
    for package in SERVER:
        for path in sorted((SOURCE / package).rglob("*.py")):
            if path.parent == SOURCE / "api" / "openapi":  # what it says is for those who send requests themselves
                continue
            tree = parsed(path.read_text())
            skipped = set()
            for node in ast.walk(tree):
                skipped |= {id(inner) for outer in _not_shown(node) for inner in ast.walk(outer)}
            for node in ast.walk(tree):
                if id(node) in skipped:
                    continue
                if isinstance(node, ast.JoinedStr):
                    skipped |= {id(inner) for inner in ast.walk(node)}
                    yield "".join(part.value if isinstance(part, ast.Constant) else "x" for part in node.values)
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield node.value


def _not_shown(node: ast.AST) -> list[ast.AST]:
    """Docstrings and decorators."""
    found: list[ast.AST] = list(getattr(node, "decorator_list", []))
    body = getattr(node, "body", None)
    if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
        found.append(body[0])
    return found


@pytest.mark.slow
def test_every_hint_of_the_server_names_commands() -> None:
    named = {text for text in texts() if " " in text and "\r\n" not in text and CALL.search(text)}
    assert len(named) > 10
    left = {in_commands(text) for text in named if CALL.search(in_commands(text))}
    assert left - set(ALLOWED) == set()
    assert set(ALLOWED) - left == set()


# The routes for which there is no command.
WITHOUT_A_COMMAND = {
    "GET /healthz": "for probes",
    "GET /metrics": "for Prometheus",
    "GET /readyz": "for probes",
    "GET /schema/openapi.json": "for generators of clients",
    "POST /v1/callbacks/{}": "for services that steps have called",
    "DELETE /v1/session": "for browsers",
    "GET /v1/session": "for browsers",
    "GET /v1/session/providers": "for browsers",
    "POST /v1/session": "for browsers",
    "POST /v1/session/providers": "for browsers",
    "POST /v1/session/providers/answer": "for browsers",
    "GET /v1/user": "for browsers",
    "POST /v1/user/accept": "for browsers",
    "POST /v1/user/password": "for browsers",
    "POST /v1/user/tenant": "for browsers",
    "POST /v1/user/tokens": "for browsers",
    "POST /v1/user/tokens/{}:revoke": "for browsers",
    "GET /v1/ids": "commands find short ids with it",
    "GET /v1/jobs/{}/missed": "for clients",
    "GET /v1/jobs/{}/series": "for the dashboard",
    "GET /v1/jobs/{}/timeline": "for the dashboard",
    "GET /v1/missed-fires": "for the dashboard",
    "GET /v1/nodes": "for the dashboard",
    "GET /v1/search": "for the dashboard",
    "GET /v1/stream": "for clients and the dashboard",
    "POST /v1/events:batch": "for clients",
    "POST /v1/sources/{}:take": "for connectors",
    "POST /v1/jobs:batch": "for clients",
    "POST /v1/jobs:validate": "for clients",
    "PUT /v1/applications/{}": "workers declare what their code has",
    "POST /v1/exchange": "for workers",
    "POST /v1/exchange/gone": "for workers",
    "POST /v1/exchange/logs": "for workers",
}


def routes() -> set[str]:
    """The routes of the handlers, as the OpenAPI document has them, with {} for an id."""
    paths = document(app_without_a_server())["paths"]
    return {
        f"{method.upper()} {re.sub(r'{[^}]*}', '{}', path)}" for path, methods in paths.items() for method in methods
    }


def commands() -> set[str]:
    return {f"{noun} {verb.name}" for noun in NOUNS for verb in load_noun(noun).listed} | set(COMMANDS)


def command_for(route: str) -> str | None:
    method, _, path = route.partition(" ")
    return command_of(method, path)


def test_every_route_of_a_handler_has_a_command_or_is_left_out_for_a_reason() -> None:
    assert len(routes()) > 100
    found = {route: command_for(route) for route in routes()}
    assert {route for route, command in found.items() if command is None} == WITHOUT_A_COMMAND.keys()
    named = {re.split(r" (?:--|{)", command)[0] for command in found.values() if command is not None}
    assert named <= commands()


def test_the_table_of_other_commands_has_only_routes_and_only_what_does_not_follow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert OTHER_COMMANDS.keys() <= routes()
    listed = dict(OTHER_COMMANDS)
    monkeypatch.setattr(hints, "OTHER_COMMANDS", {})
    assert [route for route, command in listed.items() if command_for(route) == command] == []


def test_a_verb_alone_is_the_command_of_a_route_with_this_verb() -> None:
    verbs = {route.rpartition(":")[2] for route in routes() if ":" in route}
    assert len(verbs) > 15
    for verb in verbs:
        meant = {command_for(route) for route in routes() if route.endswith(f":{verb}")} - {None}
        words = {f"use `mainspring {command.partition(' {}')[0]}`" for command in meant if command is not None}
        assert in_commands(f"use :{verb}") in (words or {f"use :{verb}"}), verb


def test_every_call_in_a_text_of_the_server_is_a_route() -> None:
    call = re.compile(r"\b(GET|POST|PUT|PATCH|DELETE) (/v1/[^\s,;)`'?]*[^\s,;.)`'?])")
    named = {(text, *found) for text in texts() for found in call.findall(text)}
    assert len(named) > 10
    known = [re.compile(re.escape(route).replace(r"\{\}", "[^/:]+") + r"\Z") for route in routes()]
    for text, method, path in named:
        assert any(route.match(f"{method} {path}") for route in known), text


@pytest.mark.parametrize(
    ("hint", "words"),
    [
        ("see GET /v1/runs", "see `mainspring run list`"),
        (
            "a server elsewhere is named by url= or MAINSPRING_URL",
            "a server elsewhere is named by --url or MAINSPRING_URL",
        ),
        (
            'expected a later time; for a fire now: "schedule": "now", or :runNow',
            "expected a later time; for a run now: `mainspring job run`",
        ),
        ("use POST /v1/jobs/x:resume", "use `mainspring job resume x`"),
        ("use `POST /v1/jobs/x:resume`.", "use `mainspring job resume x`."),
        ("(GET /v1/jobs/{job_id}), or not", "(`mainspring job show JOB_ID`), or not"),
        ("see GET /v1/jobs?status=paused", "see `mainspring job list --status paused`"),
        ("POST /v1/jobs/a%20b:runNow, or wait", "`mainspring job run 'a b'`, or wait"),
        ("run it with :runNow, or submit a new one", "run it with `mainspring job run`, or submit a new one"),
        ("PATCH /v1/jobs/x", "`mainspring job edit x`"),
        ("change it with PATCH, or wait", "change it with `mainspring job edit`, or wait"),
        ("GET /metrics", "GET /metrics"),
        ("give `job`, or `since` with a recent time", "give --job, or --since with a recent time"),
        ("12:30 or retry: later", "12:30 or retry: later"),
        (
            'give delay ("delay": "30s") or schedule_time, or use keep or replace',
            "give --in 30s or --at, or use keep or replace",
        ),
    ],
)
def test_a_hint_in_commands(hint: str, words: str) -> None:
    assert in_commands(hint) == words


def test_an_error_shows_the_command_and_json_the_servers_words(
    server: CannedServer, call: Callable[..., tuple[int, str, str]]
) -> None:
    refusal = problem(409, "job_cancelled", "job 'x' is CANCELLED", hint="resume it with POST /v1/jobs/x:resume")
    server.says("POST /v1/jobs/x:pause", refusal, status=409)
    assert call("pause", "x")[2] == "error: job 'x' is CANCELLED\nhint: resume it with `mainspring job resume x`\n"
    assert "POST /v1/jobs/x:resume" in call("pause", "x", "--json")[2]
