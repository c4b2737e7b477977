"""How much workers may declare, and what becomes of more that is stored already."""

from __future__ import annotations

import json
from typing import Any

import asyncpg
import httpx
import pytest

from mainspring.kernel.ids import DEFAULT_TENANT, uuid7
from mainspring.operations.exchange import worker_registry
from mainspring.operations.signatures import signature_compiler, signature_registry
from mainspring.operations.signatures.signature_registry import MOST_BYTES, SignatureRegistry
from mainspring.store.pool import Store
from mainspring.wire.tasks import OPTIONS_KEYWORD
from tests.api.slices import measured, within_budget

pytestmark = pytest.mark.anyio

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def numbers(count: int, **fields: str) -> dict[str, Any]:
    return {f"p{n}": {"type": "integer", "minimum": n, **fields} for n in range(count)}


def hello(**fields: Any) -> dict[str, Any]:
    said = {"name": "w", "queues": ["default"], "tasks": ["a"], "slots": 1, **fields}
    return {"worker_id": str(uuid7()), "seq": 1, "hello": said}


@pytest.mark.parametrize(
    ("fields", "status", "field"),
    [
        ({"tasks": [f"t{n}" for n in range(5001)]}, 422, "hello.tasks"),
        ({"tasks": ["t" * 1001]}, 422, "hello.tasks"),
        ({"queues": ["q"] * 1001}, 422, "hello.queues"),
        ({"labels": {f"l{n}": "v" for n in range(101)}}, 422, "hello.labels"),
        ({"labels": {"l": "v" * 1001}}, 422, "hello.labels"),
        ({"version": "v" * 1001}, 422, "hello.version"),
        ({"name": "n" * 201}, 422, "hello.name"),
        ({"slots": 100_001}, 422, "hello.slots"),
        ({"lease": -1}, 422, "hello.lease"),
        ({"protocol": 1001}, 422, "hello.protocol"),
        ({"tasks": [f"t{n}" for n in range(1000)], "queues": [f"q{n}" for n in range(201)]}, 422, "hello.queues"),
        ({"tasks": [f"{n:0>900}" for n in range(300)]}, 413, "hello"),
        ({"signatures": {f"t{n}": {} for n in range(5001)}}, 422, "hello.signatures"),
    ],
    ids=[
        "tasks",
        "a task",
        "queues",
        "labels",
        "a label",
        "version",
        "name",
        "slots",
        "lease",
        "protocol",
        "pairs",
        "text",
        "signatures",
    ],
)
async def test_a_hello_that_says_too_much_is_refused(
    api: httpx.AsyncClient, fields: dict[str, Any], status: int, field: str
) -> None:
    answer = await api.post("/v1/exchange", json=hello(**fields))
    assert (answer.status_code, answer.json()["field"]) == (status, field)


async def test_signatures_that_are_too_large_together_are_refused(api: httpx.AsyncClient) -> None:
    signatures = {f"t{n}": {"description": "x" * 200_000} for n in range(11)}
    answer = await api.post("/v1/exchange", json=hello(signatures=signatures))
    assert answer.status_code == 413
    assert answer.json()["field"] in ("hello", "hello.signatures")


async def test_a_tenant_has_only_so_many_workers(api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_registry, "MOST_WORKERS", 2)
    said = [hello() for _ in range(3)]
    answers = [await api.post("/v1/exchange", json=one) for one in (*said, said[0] | {"seq": 2})]
    assert [answer.status_code for answer in answers] == [200, 200, 409, 200]
    assert answers[2].json()["code"] == "too_many_workers"


@pytest.mark.parametrize("bound", ["MOST_TASKS", "MOST_BYTES"])
async def test_what_earlier_workers_declared_is_bounded_too(
    api: httpx.AsyncClient, connection: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    """One hello after the other, each with other tasks. The newest stay."""
    monkeypatch.setattr(signature_registry, bound, 4 if bound == "MOST_TASKS" else 4 * len(json.dumps(SCHEMA)))
    for number in range(0, 10, 2):
        tasks = [f"t{number}", f"t{number + 1}"]
        said = hello(tasks=tasks, signatures=dict.fromkeys(tasks, SCHEMA))
        assert (await api.post("/v1/exchange", json=said)).status_code == 200
    stored = await connection.fetch("select task from mainspring.task_signatures order by task")
    assert {"t8", "t9"} <= {row["task"] for row in stored} and 4 <= len(stored) <= 6
    refused = await api.post("/v1/jobs", json={"task": "t9", "payload": {"n": "text"}})
    assert refused.json()["code"] == "bad_payload"


async def test_what_is_stored_beyond_the_bound_is_skipped_with_a_line(
    connection: asyncpg.Connection, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[dict[str, Any]] = []
    monkeypatch.setattr(signature_registry.log, "warning", lambda _, **fields: lines.append(fields), raising=False)
    filler = "x" * 200_000
    for number in range(MOST_BYTES // 200_000 + 2):
        schema = {**SCHEMA, "description": filler if number else ""}
        await connection.execute(
            "insert into mainspring.task_signatures (tenant_id, task, schema, registered_at) "
            "values ($1, $2, $3, now() - $4 * interval '1 minute')",
            DEFAULT_TENANT, f"t{number}", json.dumps(schema), number,
        )  # fmt: skip
    registry = SignatureRegistry(store)
    await registry.run_once()
    known = registry.known(DEFAULT_TENANT)
    assert "t0" in known and len(known) == MOST_BYTES // 200_000 + 1
    assert [line["task"] for line in lines] == [f"t{MOST_BYTES // 200_000 + 1}"]
    assert await registry.run_once() == 0  # it is not read again
    await connection.execute("delete from mainspring.task_signatures where task <> 't0'")
    await registry.run_once()
    assert list(registry.known(DEFAULT_TENANT)) == ["t0"]


async def test_the_same_hello_is_compiled_once(api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    compile_one = signature_compiler._compiled
    monkeypatch.setattr(
        signature_compiler, "_compiled", lambda task, text: compiled.append(task) or compile_one(task, text)
    )
    for _ in range(3):
        assert (await api.post("/v1/exchange", json=hello(signatures={"a": SCHEMA}))).status_code == 200
    assert compiled == ["a"]
    refused = await api.post("/v1/jobs", json={"task": "a", "payload": {"n": "text"}})
    assert refused.json()["code"] == "bad_payload"


@pytest.mark.slow
async def test_34_mb_that_an_older_version_stored_are_loaded_in_slices(
    connection: asyncpg.Connection, store: Store
) -> None:
    part = {"type": "object", "properties": numbers(250, description=190 * "p")}
    schema = json.dumps({"type": "object", "properties": dict.fromkeys("abcd", part)})
    await connection.execute(
        "insert into mainspring.task_signatures (tenant_id, task, schema, registered_at) "
        "select $1, 't' || n, $2::json, now() from generate_series(1, 150) as n",
        DEFAULT_TENANT, schema,
    )  # fmt: skip
    with measured() as slices:

        async def load() -> SignatureRegistry:
            registry = SignatureRegistry(store)
            await registry.run_once()
            return registry

        registry = await within_budget(slices, load, "150 signatures at a restart")
    assert len(registry.known(DEFAULT_TENANT)) == MOST_BYTES // len(schema)
    assert len(schema) * 150 > 34_000_000


@pytest.mark.parametrize("nested", [False, True])
async def test_a_task_has_at_most_256_parameters(api: httpx.AsyncClient, nested: bool) -> None:
    def schema(count: int) -> dict[str, Any]:
        plain = {"type": "object", "properties": numbers(count)}
        return {"type": "object", "properties": {"default": {"type": "array", "items": plain}}} if nested else plain

    refused = await api.post("/v1/exchange", json=hello(signatures={"a": schema(257)}))
    assert (refused.status_code, refused.json()["field"]) == (422, "hello.signatures")
    assert "'a' has 257 parameters" in refused.json()["detail"] and refused.json()["expected"] == "at most 256"
    assert "one dict or list" in refused.json()["hint"]
    assert (await api.get("/v1/tasks")).json()["tasks"] == []
    assert (await api.post("/v1/exchange", json=hello(signatures={"a": schema(256)}))).status_code == 200
    wrong = {"default": [{"p0": "text"}]} if nested else {"p0": "text"}
    assert (await api.post("/v1/jobs", json={"task": "a", "payload": wrong})).json()["code"] == "bad_payload"


async def test_more_parameters_that_an_older_version_stored_are_not_compiled(
    connection: asyncpg.Connection, store: Store
) -> None:
    schema = {"type": "object", "properties": numbers(5500), OPTIONS_KEYWORD: {"queue": "heavy"}}
    await connection.execute(
        "insert into mainspring.task_signatures (tenant_id, task, schema, registered_at) values ($1, 'a', $2, now())",
        DEFAULT_TENANT, json.dumps(schema),
    )  # fmt: skip
    with measured() as slices:

        async def load() -> SignatureRegistry:
            registry = SignatureRegistry(store)
            await registry.run_once()
            return registry

        registry = await within_budget(slices, load, "a task with 5,500 parameters")
    declaration = registry.known(DEFAULT_TENANT)["a"]
    assert declaration.signature is None and declaration.options is not None
    assert declaration.options.queue == "heavy"
