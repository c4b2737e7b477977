"""No job file holds up the loop for more than 100 ms of CPU time, whatever it has."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest

from mainspring.roles.assembly import Assembly
from tests.api.slices import Slices, ask, listening, measured, request, within_budget

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

RULE = "FREQ=MINUTELY;BYSECOND=0,1,2,3,4,5,6,7,8,9;BYSETPOS=-1,-2,3;INTERVAL="
JOBS: dict[str, Callable[[int], dict[str, Any]]] = {
    "rules": lambda n: {
        "task": "t",
        "schedule": {"rrule": f"{RULE}{n + 1}", "timezone": "Australia/Lord_Howe", "jitter": "1s"},
    },
    "leap days": lambda n: {"task": "t", "schedule": f"{n % 60} {n // 60} 29 2 {n % 7}"},
    "new paths": lambda n: {
        "schedule": "@daily",
        "http": {"url": "https://example.com/", "success": {"json": f"$.a{uuid4().hex}" + ".a" * 450}},
    },
}


@pytest.fixture
async def port(assembly: Assembly) -> AsyncIterator[int]:
    async with listening(assembly) as listened:
        await ask(listened, request("GET", "/v1/jobs"))
        yield listened


@pytest.fixture
def slices() -> Iterator[Slices]:
    with measured() as found:
        yield found


@pytest.mark.parametrize("name", JOBS)
async def test_a_file_of_many_jobs_that_take_long(port: int, slices: Slices, name: str) -> None:
    def objects() -> list[dict[str, Any]]:
        return [{"kind": "jobs", "id": f"j{n}", "body": JOBS[name](n)} for n in range(40)]

    assert (await _send(port, slices, "plan", objects))[0] == 200
    assert (await _send(port, slices, "export", lambda: None))[0] == 200


async def test_a_file_with_a_large_workflow(port: int, slices: Slices) -> None:
    """It is stored, found to be as it is, changed, read and removed."""

    def objects(count: int, **fields: Any) -> Callable[[], list[dict[str, Any]]]:
        names = [f"s{number}" for number in range(count)]
        steps = [{"name": name, "task": "t", "depends_on": names[:number]} for number, name in enumerate(names)]
        return lambda: [{"kind": "workflows", "id": "w", "body": {"steps": steps, **fields}}]

    for wanted, action, fields in (
        (objects(300), "create", []),
        (objects(300), "unchanged", []),
        (objects(3, description="one", parameters={"a": 1}), "change", ["description", "parameters", "steps"]),
        (objects(300, description="two", parameters={"a": 1}), "change", ["description", "steps"]),
    ):
        status, answer = await _send(port, slices, "apply", wanted, tries=1)
        assert status == 200, answer
        [done] = answer["changes"]
        assert (done["action"], sorted(one["field"] for one in done.get("fields", []))) == (action, fields)
    [steps] = [one for one in done["fields"] if one["field"] == "steps"]
    assert (len(steps["before"]), len(steps["after"])) == (3, 300)
    assert steps["after"][299] == {"name": "s299", "task": "t", "depends_on": [f"s{n}" for n in range(299)]}
    status, answer = await _send(port, slices, "export", lambda: None, kind="workflows")
    assert answer["objects"][0]["body"]["steps"] == steps["after"]
    assert (await _send(port, slices, "apply", list, tries=1))[1]["changes"][0]["action"] == "remove"


async def test_the_largest_workflow_that_goes_into_a_file(port: int, slices: Slices) -> None:
    names = [f"s{number}" for number in range(1000)]
    steps = [{"name": name, "task": "t", "depends_on": names[:number]} for number, name in enumerate(names)]
    objects = [{"kind": "workflows", "id": "w", "body": {"steps": steps}}]
    status, answer = await _send(port, slices, "plan", objects.copy)
    assert status == 200, answer


async def test_what_is_wrong_in_a_large_workflow_of_a_file_is_told_with_its_place(port: int, slices: Slices) -> None:
    steps = [{"name": f"s{number}", "task": "t", "description": "d" * 500} for number in range(300)]
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"steps": [*steps, {"name": "z", "task": "t", "depends_on": ["s9", "nobody"]}]}, "steps[300].depends_on[1]"),
        ({"steps": [*steps, {"name": "z", "tusk": "t"}]}, "steps[300].tusk"),
        ({"steps": steps, "workflow_id": "v"}, "workflow_id"),
        ({"steps": steps, "schedule": "0 25 * * *"}, "schedule"),
    ]
    good = {"kind": "jobs", "id": "j", "body": {"task": "t"}}
    for body, field in wrong:
        bad = {"kind": "workflows", "id": "w", "body": body}
        status, answer = await _send(port, slices, "plan", [good, bad].copy)
        assert (status, [one["field"] for one in answer["errors"]]) == (422, [f"objects[1].{field}"])


async def test_an_object_of_a_file_is_not_larger_than_a_request_for_it(port: int, slices: Slices) -> None:
    large = {"kind": "jobs", "id": "j", "body": {"task": "t", "description": "d" * 1024 * 1024}}
    status, answer = await _send(port, slices, "plan", lambda: [large])
    [error] = answer["errors"]
    assert (status, error["field"], error["code"]) == (422, "objects[0]", "payload_too_large")


async def test_a_chain_of_jobs_of_a_file_is_put_in_order(port: int, slices: Slices) -> None:
    def objects() -> list[dict[str, Any]]:
        bodies = [{"task": "t", "schedule": {"after": [f"j{n + 1}"]}} for n in range(29)]
        return [{"kind": "jobs", "id": f"j{n}", "body": body} for n, body in enumerate([*bodies, {"task": "t"}])]

    status, answer = await _send(port, slices, "plan", objects)
    assert status == 200, answer
    assert [one["id"] for one in answer["changes"]] == [f"j{n}" for n in range(29, -1, -1)]


async def _send(
    port: int, slices: Slices, verb: str, objects: Callable[[], Any], tries: int = 3, kind: str = "jobs"
) -> tuple[int, Any]:
    """Each try has objects of its own: what is known already takes less long."""

    async def send() -> tuple[int, bytes]:
        made = objects()
        body = {"kind": kind} if made is None else {"owner": "o", "objects": made, "prune": True}
        pieces = request("POST", f"/v1/files:{verb}", json.dumps(body).encode())
        return await ask(port, pieces)

    status, answer = await within_budget(slices, send, f"files:{verb}", tries)
    assert status < 500, answer
    return status, json.loads(answer)
