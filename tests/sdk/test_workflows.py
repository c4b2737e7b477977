"""A workflow built in Python: what becomes of arrows, results and options, and what is refused at once."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from mainspring import InvalidInput, Mainspring, Workflow

app = Mainspring("building")


@dataclass
class Box:
    rows: Any


@app.task("etl.extract", queue="heavy", retries=3, unique={"by": ["task"]})
def extract(region: str = "eu") -> dict[str, Any]:
    return {"rows": [region]}


@app.task
def load(rows: Any, name: str = "") -> int:
    return len(rows)


@pytest.fixture
def wf() -> Workflow:
    return Workflow("nightly", cron="0 2 * * *", timezone="Europe/Berlin", timeout="2h", parameters={"region": "eu"})


def steps_of(wf: Workflow) -> dict[str, dict[str, Any]]:
    return {step.pop("name"): step for step in wf.definition()["steps"]}


def test_results_arrows_and_options_become_the_definition(wf: Workflow) -> None:
    first = wf.step(extract, region=wf.parameter("region"))
    second = wf.step(load, rows=Box(first.result["rows"]["a"][0]), name="a parameter of the task", rule=None)
    other = wf.add("other", command="true", retries=0)
    end = wf.add("end", http={"url": "https://example.com"}, rule="all_done", on_upstream_failure="fail")
    assert (first >> [second, other] >> end) is end
    assert [other] >> end is end
    definition = wf.definition()
    assert definition["schedule"] == {"cron": "0 2 * * *", "timezone": "Europe/Berlin"}
    assert (definition["workflow_id"], definition["timeout"], definition["parameters"]) == (
        "nightly", "2h", {"region": "eu"},
    )  # fmt: skip
    assert steps_of(wf) == {
        "extract": {
            "task": "etl.extract", "queue": "heavy", "retries": 3, "payload": {"region": {"$parameter": "region"}},
        },
        "load": {
            "task": "load", "depends_on": ["extract"],
            "payload": {
                "rows": {"rows": {"$from": "extract", "path": "rows.a.0"}}, "name": "a parameter of the task",
            },
        },
        "other": {"command": "true", "retries": 0, "depends_on": ["extract"]},
        "end": {
            "http": {"url": "https://example.com"}, "rule": "all_done", "on_upstream_failure": "fail",
            "depends_on": ["load", "other"],
        },
    }  # fmt: skip
    wf.check()


def test_mapped_steps_and_literals(wf: Workflow) -> None:
    first = wf.step(extract)
    mapped = wf.step(load.options(timeout="5m"), [wf.item["id"], wf.index, wf.total, {"$x": 1}])
    mapped.map(first.result["rows"], max_parallel=5, max_failures=0)
    steps = steps_of(wf)
    assert steps["load"] == {
        "task": "load", "timeout": "5m", "depends_on": ["extract"],
        "payload": {"rows": [{"$item": "id"}, {"$index": True}, {"$total": True}, {"$literal": {"$x": 1}}]},
        "map": {"over": {"$from": "extract", "path": "rows"}, "max_parallel": 5, "max_failures": 0},
    }  # fmt: skip
    assert first.mapped is False and mapped.mapped is True
    wf.check()


def test_steps_that_wait(wf: Workflow) -> None:
    first = wf.step(extract)
    nap = wf.sleep("nap", timedelta(minutes=5), after=first)
    wf.sleep("until", until=first.result["at"])
    gate = wf.approval(
        "gate", "release", by=["role:operator"], fields={"version": {"type": "string"}},
        details={"rows": first.result["rows"]}, timeout="2d", on_timeout="skip", after=nap,
    )  # fmt: skip
    wf.add("ship", task="ship", payload={"version": gate.result["fields"]["version"]})
    wf.wait_for_event("paid", "order.paid", key=first.result["id"], since=timedelta(minutes=1), timeout="2d", after=nap)
    steps = steps_of(wf)
    assert steps["nap"] == {"sleep": 300.0, "depends_on": ["extract"]}
    assert steps["until"] == {"sleep": {"until": {"$from": "extract", "path": "at"}}, "depends_on": ["extract"]}
    assert steps["gate"] == {
        "wait": {
            "approval": "release", "by": ["role:operator"], "fields": {"version": {"type": "string"}},
            "details": {"rows": {"$from": "extract", "path": "rows"}}, "timeout": "2d", "on_timeout": "skip",
        },
        "depends_on": ["extract", "nap"],
    }  # fmt: skip
    assert steps["paid"]["wait"] == {
        "event": "order.paid", "key": {"$from": "extract", "path": "id"}, "since": 60.0, "timeout": "2d",
    }  # fmt: skip
    assert steps["ship"]["payload"] == {"version": {"$from": "gate", "path": "fields.version"}}
    wf.check()
    with pytest.raises(ValueError, match="a duration, or until="):
        wf.sleep("neither")


def test_what_is_wrong_is_refused_at_once(wf: Workflow) -> None:
    first = wf.step(extract)
    with pytest.raises(ValueError, match="has a step extract already"):
        wf.step(extract)
    with pytest.raises(InvalidInput, match="no parameter regoin"):
        wf.step(extract, regoin="eu")  # type: ignore[call-overload]
    with pytest.raises(InvalidInput, match="needs the parameter rows"):
        wf.step(load)  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="no parameter day"):
        wf.parameter("day")
    with pytest.raises(InvalidInput, match="job_id is not an option of a step"):
        wf.step(load.options(job_id="x"), rows=1)
    with pytest.raises(ValueError, match="belongs to another workflow"):
        first >> Workflow("other").add("x", command="true")
    with pytest.raises(ValueError, match="not of <workflow other"):
        Workflow("other").step(load, rows=first.result)
    with pytest.raises(ValueError, match="one of over, range and workers"):
        first.map([1], range=3)
    with pytest.raises(ValueError, match="not the name of a step"):
        wf.add("a b", command="true")
    with pytest.raises(ValueError, match="corn: not an option"):
        Workflow("x", corn="@daily")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"use app\.workflow"):
        wf.step()(lambda: None)
    with pytest.raises(InvalidInput, match="cannot contain a reference"):
        wf.add("literal", task="t", payload={"a": {"$x": first.result}})
    assert list(wf.steps) == ["extract"]


@pytest.mark.parametrize(
    "use",
    [
        bool, list, len, str.format, "{}".format, lambda value: f"{value}", lambda value: value == 1,
        lambda value: value != [], lambda value: value[-1], lambda value: 1 in value, lambda value: value > 0,
    ],
)  # fmt: skip
def test_a_reference_is_not_a_value_yet(wf: Workflow, use: Any) -> None:
    with pytest.raises(TypeError):
        use(wf.step(extract).result["rows"])
    with pytest.raises(TypeError, match="cannot be taken apart"):
        wf.parameter("region")["a"]


def test_a_cycle_is_spelled_out_by_check(wf: Workflow) -> None:
    a, b = wf.add("a", command="true"), wf.add("b", command="true")
    a >> b >> a
    with pytest.raises(ValueError, match="a > b > a"):
        wf.check()


def test_an_id_is_a_workflow_or_a_schedule_of_an_application() -> None:
    own = Mainspring("own")
    own.workflow("nightly", queue="slow").add("x", command="true", queue="fast")
    assert own.queues == ["default", "slow", "fast"] and own.declares
    with pytest.raises(ValueError, match="exists already"):
        own.workflow("nightly")
    with pytest.raises(ValueError, match="already exists"):
        own.every("1m", job_id="nightly")(own.task("other")(lambda: None))
