"""Intake of workflows: what each field becomes, and what is refused, by the field that is wrong."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from mainspring.domain.errors import InvalidInput, MainspringError
from mainspring.domain.intake.declaration import TaskDeclaration, defined, read_declaration
from mainspring.domain.intake.rerun import with_payload
from mainspring.domain.intake.workflows import (
    WorkflowSource,
    define_workflow,
    join_steps,
    read_step,
    request_of_step,
    run_parameters,
)
from mainspring.domain.job import Priority
from mainspring.domain.workflows.definition import (
    FromStep,
    StepMap,
    WorkflowDefinition,
    definition_from_text,
    definition_to_text,
)
from mainspring.domain.workflows.flow import WORKFLOW_TASK
from mainspring.wire.jobs import JobRequest
from mainspring.wire.workflows import MAX_MEMBERS, StepIn, WorkflowRequest

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def request(**fields: Any) -> WorkflowRequest:
    fields.setdefault("steps", [{"name": "a", "task": "t"}])
    return msgspec.json.decode(msgspec.json.encode(fields), type=WorkflowRequest)


def read(known: dict[str, TaskDeclaration] | None = None, **fields: Any) -> WorkflowDefinition:
    given = request(**fields)
    source = WorkflowSource(given.steps, given.queue, given.priority)
    found = [
        read_step(index, step, request_of_step(step, source), NOW, known or {}, given.parameters or {})
        for index, step in enumerate(given.steps)
    ]
    return join_steps(given.steps, found)


def step(name: str, *parents: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "task": "t", "depends_on": list(parents), **fields}


def test_a_workflow_is_a_job_and_its_timeout_that_of_a_whole_run() -> None:
    job = define_workflow(
        request(
            workflow_id="nightly", schedule={"cron": "0 2 * * *"}, misfire="all", timeout="2h", parameters={"a": 1},
            overlap="queue", owner="bi",
        ),
        NOW,
    )  # fmt: skip
    assert (job.task, job.job_id, job.payload) == (WORKFLOW_TASK, "nightly", '{"a":1}')
    assert (job.spec.run_timeout, job.spec.misfire.policy, job.spec.owner, job.spec.workflow) == (7200, "all", "bi", 1)
    assert define_workflow(request(), NOW).schedule.kind == "MANUAL"


def test_steps_take_the_fields_of_jobs_and_what_they_lack_from_the_workflow() -> None:
    definition = read(
        queue="etl",
        priority="high",
        parameters={"region": "eu"},
        steps=[
            step("extract", payload={"region": {"$parameter": "region"}}, retries=5, timeout="10m"),
            step("left", "extract", queue="other"),
            step("right", "extract"),
            {"name": "report", "command": "make", "depends_on": ["right", "left"], "rule": "ALL_DONE",
             "on_upstream_failure": "fail", "payload": {"rows": {"$from": "extract", "path": "rows"}}},
        ],
    )  # fmt: skip
    extract, left, right, report = definition.steps
    assert (extract.queue, extract.priority, extract.spec.retry.max_attempts) == ("etl", Priority.HIGH, 6)
    assert (left.queue, right.queue, report.task, report.spec.command) == ("other", "etl", "shell", "make")
    assert (report.rule, report.on_upstream_failure, report.refers) == ("all_done", "fail", True)
    assert report.payload == '{"rows":{"$from":"extract","path":"rows"}}'
    assert definition.joins == [[0], [1, 2]]
    assert [one.waits_for for one in definition.steps] == [None, 0, 0, 1]
    assert definition.last == [3]
    assert definition_from_text(definition_to_text(definition)) == definition
    assert extract.job().payload == extract.payload


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"over": [1, {"a": 2}]}, StepMap(items='[1,{"a":2}]', total=2)),
        ({"over": {"$from": "first", "path": "rows"}}, StepMap(source=FromStep("first", "rows"))),
        ({"range": 5}, StepMap(range=(0, 5, 1))),
        ({"range": [10, 0, -2], "max_failures": 0}, StepMap(range=(10, 0, -2), max_failures=0)),
        ({"workers": {}, "max_parallel": 7}, StepMap(workers={}, max_parallel=7)),
    ],
)
def test_a_map_says_what_its_members_are(given: dict[str, Any], found: StepMap) -> None:
    steps = [step("first"), step("second", "first", map=given, payload={"i": {"$index": True}, "n": {"$total": True}})]
    assert read(steps=steps).steps[1].map == found


DEEP: Any = json.loads("[" * 101 + "]" * 101)
BAD_STEPS: list[tuple[list[dict[str, Any]], str, str]] = [
    ([], "steps", "invalid_input"),
    ([step("a"), step("a")], "steps[1].name", "duplicate_step"),
    ([step("a", "b")], "steps[0].depends_on[0]", "unknown_step"),
    ([step("a"), step("b", "a", "a")], "steps[1].depends_on[1]", "duplicate_step"),
    ([step("a", "c"), step("b", "a"), step("c", "b")], "steps[0].depends_on", "cycle"),
    ([step("a", "a")], "steps[0].depends_on", "cycle"),
    ([step("a"), step("b", payload={"x": {"$from": "a"}})], "steps[1].payload.x", "not_upstream"),
    ([step("a", payload={"x": [{"$from": "z"}]})], "steps[0].payload.x[0]", "unknown_step"),
    ([step("a", payload={"x": {"$parameter": "p"}})], "steps[0].payload.x", "unknown_parameter"),
    ([step("a", payload={"x": {"$item": ""}})], "steps[0].payload.x", "invalid_reference"),
    ([step("a", payload={"x": {"$eval": "1"}})], "steps[0].payload.x", "invalid_reference"),
    ([step("a", map={"workers": {}}, payload={"x": {"$item": ""}})], "steps[0].payload.x", "invalid_reference"),
    ([step("a", map={"over": {"$from": "b"}}), step("b")], "steps[0].map.over", "not_upstream"),
    ([step("a", map={})], "steps[0].map", "invalid_input"),
    ([step("a", map={"range": 1, "workers": {}})], "steps[0].map", "invalid_input"),
    ([step("a", map={"range": [1, 2, 0]})], "steps[0].map.range", "invalid_input"),
    ([step("a", map={"range": MAX_MEMBERS + 1})], "steps[0].map.range", "invalid_input"),
    ([step("a", map={"over": {"$parameter": "p"}})], "steps[0].map.over", "unknown_parameter"),
    ([step("a", map={"over": [1, {"$from": "b"}]}), step("b")], "steps[0].map.over[1]", "invalid_reference"),
    ([step("a", map={"workers": {"$parameter": "p"}})], "steps[0].map.workers.$parameter", "invalid_reference"),
    ([step("a", map={"over": 3})], "steps[0].map.over", "invalid_input"),
    ([step("a", map={"range": 1, "max_parallel": 0})], "steps[0].map.max_parallel", "invalid_input"),
    ([step("a", map={"workers": {"": "x"}})], "steps[0].map.workers", "invalid_input"),
    ([step("a"), step("b", "a", rule="some")], "steps[1].rule", "invalid_input"),
    ([step("a", rule="one_failed")], "steps[0].rule", "invalid_input"),
    ([step("a", on_upstream_failure="fail")], "steps[0].on_upstream_failure", "invalid_input"),
    ([step("a", timeout="soon")], "steps[0].timeout", "invalid_duration"),
    ([step("a"), step("b", command="x")], "steps[1].command", "invalid_input"),
    (
        [{"name": "a", "task": "shell", "payload": {"command": {"$parameter": "p"}}}],
        "steps[0].command",
        "invalid_input",
    ),
    ([step("a", payload=[1])], "steps[0].payload", "invalid_input"),
    ([step("a", map={"over": [1, DEEP]})], "steps[0].map.over", "invalid_input"),
    ([step("a", payload={"x": [{"$literal": DEEP}]})], "steps[0].payload.x[0]", "invalid_input"),
    ([{"name": "a", "task": WORKFLOW_TASK}], "steps[0].task", "invalid_input"),
]


@pytest.mark.parametrize(("steps", "field", "code"), BAD_STEPS, ids=[f"{one[1]} {one[2]}" for one in BAD_STEPS])
def test_a_wrong_step_is_refused_by_the_field_that_is_wrong(steps: list[dict[str, Any]], field: str, code: str) -> None:
    with pytest.raises(MainspringError) as caught:
        if not steps:
            join_steps([], [])
        read(steps=steps, parameters={"other": 1} if code == "unknown_parameter" else {"p": 1})
    assert (caught.value.field, caught.value.code) == (field, code)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"timeout": "soon"}, "timeout"),
        ({"workflow_id": ".."}, "workflow_id"),
        ({"misfire": "often"}, "misfire.policy"),
        ({"parameters": {"x": "y" * 300_000}}, "parameters"),
        ({"parameters": {"x": DEEP}}, "parameters.x"),
        ({"schedule": "0 2 *"}, "schedule"),
    ],
)
def test_a_wrong_field_of_the_workflow_is_named_as_the_workflow_names_it(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(MainspringError) as caught:
        define_workflow(request(**fields), NOW)
    assert caught.value.field == field


def test_the_signature_of_a_task_is_checked_where_values_are_known() -> None:
    schema = {
        "type": "object",
        "properties": {"rows": {"type": "array"}, "size": {"type": "integer"}},
        "required": ["rows", "size"],
        "additionalProperties": False,
    }
    declaration = read_declaration("t", schema)
    assert declaration is not None
    known = {"t": declaration}
    late = {"$from": "first", "path": "rows"}
    steps = [{"name": "first", "command": "x"}, step("second", "first", payload={"rows": late, "size": 1})]
    assert read(known, steps=steps).steps[1].refers
    wrong = (
        ({"rows": late, "size": 1, "sise": 2}, "sise"),
        ({"rows": [], "size": "x"}, "size"),
        ({"rows": late, "size": "x"}, "size"),
        ({"rows": [], "size": 1, "sise": late}, "sise"),
        ({"rows": late, "size": 1, "sise": [late]}, "sise"),
        ({"rows": late}, "size"),
    )
    for payload, field in wrong:
        with pytest.raises(InvalidInput) as caught:
            read(known, steps=[steps[0], step("second", "first", payload=payload)])
        assert caught.value.field == f"steps[1].payload.{field}"


def test_values_of_a_run_go_to_parameters_that_exist() -> None:
    assert run_parameters({"a": 1, "b": 2}, {"b": 3}) == {"a": 1, "b": 3}
    with pytest.raises(InvalidInput, match="no parameter 'c'"):
        run_parameters({"a": 1}, {"c": 3})


def test_the_payload_of_a_manual_run_has_values_for_parameters() -> None:
    stored = define_workflow(request(parameters={"region": "eu", "days": 1}), NOW)
    assert with_payload(stored, msgspec.Raw(b'{"days": 2}'), NOW).payload == '{"region":"eu","days":2}'
    assert with_payload(stored, msgspec.Raw(b"{}"), NOW).payload == stored.payload
    with pytest.raises(InvalidInput, match="no parameter 'day'") as caught:
        with_payload(stored, msgspec.Raw(b'{"day": 2}'), NOW)
    assert (caught.value.field, caught.value.hint) == ("payload.day", "it has region, days")


def test_the_task_of_workflows_is_reserved() -> None:
    with pytest.raises(InvalidInput, match="reserved for workflows"):
        defined(JobRequest(task=WORKFLOW_TASK), NOW, {})


def test_a_step_has_every_field_of_a_job_but_those_of_when_and_which() -> None:
    left_out = {
        "job_id", "schedule", "schedule_type", "schedule_time", "cron_expression", "cron", "timezone", "delay",
        "misfire", "overlap", "idempotency_key", "unique", "declared_by", "dependencies", "notify",
        "search",
    }  # fmt: skip
    own = {"map", "sleep", "wait", "workflow", "parameters", "callback"}
    assert set(StepIn.__struct_fields__) - own == set(JobRequest.__struct_fields__) - left_out


CALL = {
    "url": "https://example.com/hook",
    "body": {"rows": {"$from": "a", "path": "rows"}, "as": {"$literal": {"$x": 1}}},
}


def test_a_call_with_references_becomes_a_payload() -> None:
    """It is resolved like one, and workers prefer it to the call of the spec."""
    found = read(steps=[step("a"), {"name": "b", "http": CALL, "depends_on": ["a"]}]).steps[1]
    assert (found.task, found.refers, json.loads(found.payload or "")) == ("http", True, CALL)
    plain = {"url": "https://example.com/hook", "body": {"a": 1}, "success": {"json": "$.accepted"}}
    found = read(steps=[{"name": "b", "http": plain}]).steps[0]
    assert (found.task, found.refers, found.payload) == ("http", False, None)


@pytest.mark.parametrize(
    ("call", "field"),
    [
        ({"body": {"rows": {"$from": "nothing"}}}, "steps[1].http.body.rows"),
        ({"body": {"$parameter": "nothing"}}, "steps[1].http.body"),
        ({"body": {"$set": 1}}, "steps[1].http.body"),
        ({"body": {"$from": "a"}, "method": "GET"}, "steps[1].http.body"),
        ({"body": {"$from": "a"}, "headers": {"$x": "1"}}, "steps[1].http.headers"),
        ({"headers": {"$from": "a"}}, "steps[1].http.headers.$from"),
    ],
)
def test_a_wrong_reference_in_a_call_is_refused_by_its_place(call: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read(steps=[step("a"), {"name": "b", "http": {"url": "https://example.com", **call}, "depends_on": ["a"]}])
    assert caught.value.field == field


def test_results_are_refused_in_the_call_of_a_job_after_jobs() -> None:
    body = {"http": CALL, "depends_on": ["a"]}
    with pytest.raises(InvalidInput) as caught:
        defined(msgspec.json.decode(msgspec.json.encode(body), type=JobRequest), NOW, {})
    assert (caught.value.code, caught.value.field) == ("invalid_reference", "http.body.rows")
