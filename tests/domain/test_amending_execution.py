"""A patch of fields for executors changes only the fields that it contains. null resets a field."""

from __future__ import annotations

from typing import Any

import pytest

from mainspring.domain.errors import MainspringError
from mainspring.domain.job import DEFAULT_SPEC
from mainspring.domain.retry import RetryRule
from mainspring.kinds.http.call import HttpCall
from mainspring.wire.execution import ResourceLimits, RunSetup
from tests.domain.requests_as_sent import amended, defined
from tests.domain.test_amending import BERLIN, changes

URL = "https://example.com/hook"
SHELL = {
    "job_id": "build",
    "command": "make",
    **BERLIN,
    "env": {"A": "1"},
    "limits": {"memory": "1GB", "cpu": "1m"},
    "sandbox": "bubblewrap",
    "kill_grace": "3s",
    "run_timeout": "2h",
    "required_labels": {"gpu": "yes"},
    "retry": {"rules": [{"exit_code": 2, "then": "give_up"}]},
}
SETUP = RunSetup(env={"A": "1"}, limits=ResourceLimits(10**9, 60.0), sandbox="bubblewrap", kill_grace=3.0)
HTTP = {
    "job_id": "hook",
    "http": {"url": URL, "body": {"a": 1}, "headers": {"X": "1"}, "success": {"json": "$.ok", "equals": None}},
    **BERLIN,
    "limits": {"output": "1MB"},
}
IN_PAYLOAD = {"job_id": "hook", "task": "http", "payload": {"url": URL}, **BERLIN}


def setup(**fields: Any) -> dict[str, Any]:
    return {"spec.setup": RunSetup(**{**{name: getattr(SETUP, name) for name in SETUP.__struct_fields__}, **fields})}


@pytest.mark.parametrize(
    ("patch", "changed"),
    [
        ({"queue": "light"}, {"queue": "light"}),
        ({"command": "make all"}, {"spec.command": "make all"}),
        ({"env": {"B": "2"}}, setup(env={"B": "2"})),
        ({"env": None}, setup(env=None)),
        ({"env": {}}, setup(env=None)),
        ({"limits": {"cpu": "2m"}}, setup(limits=ResourceLimits(10**9, 120.0))),
        ({"limits": {"output": "1k"}}, setup(limits=ResourceLimits(10**9, 60.0, output=1000))),
        ({"limits": None}, setup(limits=None)),
        ({"limits": {}}, {}),
        ({"sandbox": "none"}, setup(sandbox=None)),
        ({"sandbox": None}, setup(sandbox=None)),
        ({"kill_grace": 7}, setup(kill_grace=7.0)),
        ({"kill_grace": None}, setup(kill_grace=None)),
        ({"run_timeout": "3h"}, {"spec.run_timeout": 10800.0}),
        ({"run_timeout": None}, {"spec.run_timeout": None}),
        ({"required_labels": {"zone": "a"}}, {"required_labels": {"zone": "a"}}),
        ({"required_labels": None}, {"required_labels": None}),
        ({"required_labels": {}}, {"required_labels": None}),
        ({"env": None, "limits": None, "sandbox": None, "kill_grace": None}, {"spec.setup": None}),
    ],
    ids=str,
)
def test_each_field_changes_alone(patch: dict[str, Any], changed: dict[str, Any]) -> None:
    stored = defined(SHELL)
    assert stored.spec.setup == SETUP
    assert changes(stored, amended(stored, patch)) == changed


def test_rules_stay_change_and_go() -> None:
    stored = defined(SHELL)
    assert amended(stored, {"retries": 1}).spec.retry.rules == stored.spec.retry.rules
    assert amended(stored, {"retry": {"base": "9s"}}).spec.retry.rules == stored.spec.retry.rules
    other = {"retry": {"rules": [{"http_status": "5xx", "then": "retry", "after": "1m"}]}}
    changed = amended(stored, other)
    assert changed.spec.retry.rules == [RetryRule("retry", http_statuses=["5xx"], after=60.0)]
    assert amended(changed, other) == changed
    for nothing in ({"retry": {"rules": []}}, {"retry": None}):
        assert amended(stored, nothing).spec.retry.rules == []


def test_a_call_stays_and_is_replaced_as_a_whole() -> None:
    stored = defined(HTTP)
    assert changes(stored, amended(stored, {"timeout": 5})) == {"spec.timeout": 5.0}
    for same in ({"task": "http"}, {"http": HTTP["http"]}, {"task": "http", "payload": None}):
        assert amended(stored, same) == stored
    changed = amended(stored, {"http": {"url": "http://other.example"}})
    assert changes(stored, changed) == {
        "spec.setup": RunSetup(http=HttpCall("http://other.example", "GET"), limits=ResourceLimits(output=10**6))
    }


def test_a_call_in_the_payload_changes_with_the_payload() -> None:
    stored = defined(IN_PAYLOAD)
    assert changes(stored, amended(stored, {"queue": "light"})) == {"queue": "light"}
    assert amended(stored, {"task": "http"}) == stored
    changed = amended(stored, {"payload": {"url": f"{URL}/2", "body": 1}})
    assert changed.spec.setup == RunSetup(http=HttpCall(f"{URL}/2", "POST", body=1))


def test_a_call_moves_from_the_payload_to_its_own_field_and_back() -> None:
    stored = defined(IN_PAYLOAD)
    changed = amended(stored, {"http": {"url": f"{URL}/2"}})
    assert (changed.payload, changed.spec.setup) == (None, RunSetup(http=HttpCall(f"{URL}/2", "GET")))
    assert amended(changed, {"task": "http", "payload": {"url": URL}}) == stored


def test_one_kind_becomes_another() -> None:
    stored = defined(HTTP)
    shell = amended(stored, {"command": "make"})
    assert (shell.task, shell.spec.command) == ("shell", "make")
    assert shell.spec.setup == RunSetup(limits=ResourceLimits(output=10**6))
    plain = amended(stored, {"task": "other", "limits": None})
    assert (plain.task, plain.spec) == ("other", DEFAULT_SPEC)
    call = amended(shell, {"http": {"url": URL}})
    assert (call.task, call.spec.command) == ("http", None)


@pytest.mark.parametrize(
    ("stored", "patch", "field"),
    [
        (SHELL, {"http": {"url": URL}}, "env"),
        (SHELL, {"http": {"url": URL}, "env": None, "sandbox": None, "kill_grace": None}, "limits.memory"),
        (SHELL, {"task": "http"}, "http"),
        (SHELL, {"limits": {"memory": 1}}, "limits.memory"),
        (SHELL, {"env": {"MAINSPRING_X": ""}}, "env.MAINSPRING_X"),
        (SHELL, {"retry": {"rules": [{"error": "A"}]}}, "retry.rules[0].then"),
        (SHELL, {"required_labels": {"a": ""}}, "required_labels"),
        (SHELL, {"command": "a", "http": {"url": URL}}, "http"),
        (HTTP, {"env": {"A": "1"}}, "env"),
        (HTTP, {"limits": {"cpu": 1}}, "limits.cpu"),
        (HTTP, {"payload": {"a": 1}}, "payload"),
        (HTTP, {"http": {"url": "nowhere"}}, "http.url"),
        (HTTP, {"http": {"url": URL, "success": {"json": "ok"}}}, "http.success.json"),
        (IN_PAYLOAD, {"payload": None}, "http"),
        (IN_PAYLOAD, {"payload": {"url": ""}}, "payload.url"),
        (IN_PAYLOAD, {"http": {"url": URL}, "payload": {"url": URL}}, "payload"),
    ],
    ids=str,
)
def test_a_bad_change_is_refused_like_a_bad_creation(stored: dict[str, Any], patch: dict[str, Any], field: str) -> None:
    with pytest.raises(MainspringError) as refused:
        amended(defined(stored), patch)
    assert refused.value.field == field
