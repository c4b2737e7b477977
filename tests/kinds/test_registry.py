"""The registry of the kinds of task: each kind has all of its parts, and its requests are what they were."""

from __future__ import annotations

import subprocess
import sys

import msgspec
import pytest

from mainspring.domain.errors import InvalidInput
from mainspring.domain.intake.kind_checks import CallChecks, checks_of
from mainspring.kinds.registry import TaskKind, kind_of_task, task_kinds
from tests.domain.requests_as_sent import defined


@pytest.mark.parametrize("kind", task_kinds(), ids=lambda kind: kind.name)
def test_a_kind_has_all_of_its_parts(kind: TaskKind) -> None:
    call, options, checks = kind.part("call"), kind.part("options").OPTIONS, checks_of(kind)
    assert checks.kind is kind and kind_of_task(kind.name) is kind
    assert callable(call.in_words) and callable(kind.part("executor").build)
    assert options.of_a_job[0].name == kind.field and options.call is not None
    none = {option.name: None for option in options.of_a_job}
    assert options.call(none) is None, "without an option there is no call"
    if isinstance(checks, CallChecks):
        assert issubclass(call.CALL_IN, call.CALL)
        assert call.CALL_IN.__struct_config__.forbid_unknown_fields
        assert not call.CALL.__struct_config__.forbid_unknown_fields, "a newer server may have stored more"
        example = msgspec.json.decode(checks.example, type=call.CALL_IN)
        assert isinstance(call.in_words(checks.check(example, kind.field)), str)


@pytest.mark.parametrize(
    ("request_", "field", "detail"),
    [
        ({"command": "true", "http": {"url": "http://a.b"}}, "http", "command and http cannot be combined"),
        ({"command": "true", "task": "http"}, "command", "command goes with the task shell alone"),
        ({"http": {"url": "http://a.b"}, "job_type": "t"}, "http", "http works only with the task http"),
        ({"http": {"url": "http://a.b"}, "payload": {}}, "payload", "http and payload cannot be combined"),
        ({"task": "http"}, "http", "an http task needs a call"),
        ({"task": "shell"}, "command", "a shell task needs a command"),
        ({"http": {"url": "http://a.b"}, "env": {"A": "b"}}, "env", "env has no effect on an http task"),
    ],
)
def test_what_is_wrong_with_a_call_is_said_as_before(request_: dict[str, object], field: str, detail: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        defined(request_)
    assert (refused.value.field, refused.value.detail) == (field, detail)


def test_the_registry_and_the_options_need_the_standard_library_alone() -> None:
    code = """
import sys
from mainspring.kinds.registry import task_kinds
for kind in task_kinds():
    kind.part("options")
found = {name.partition(".")[0] for name in sys.modules}
print(*(found & {"msgspec", "typer", "asyncio", "psycopg", "httpx"}))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == []
