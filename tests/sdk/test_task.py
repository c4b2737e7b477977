"""Payloads are converted to calls of the function, and calls to payloads."""

from __future__ import annotations

import asyncio
import copy
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any, get_overloads
from uuid import UUID

import pytest

from mainspring import BadPayload, Context, InvalidInput, Mainspring, Task
from mainspring.sdk.tasks.task_options import SUBMIT_OPTIONS, split_options

if TYPE_CHECKING:
    from decimal import Decimal as OnlyForCheckers

DUE = datetime(2026, 11, 15, 9, tzinfo=UTC)
CTX = Context(job_id="report", run_id="r1", attempt=2, scheduled_for=DUE, task="t")


@dataclass
class Item:
    id: UUID
    count: int = 1


def task_of(function: Callable[..., Any]) -> Task[..., Any]:
    return Mainspring().task(function)


def test_values_are_converted_to_the_annotated_types() -> None:
    def order(item: Item, on: date, when: datetime, tags: set[str], by_number: dict[int, str]) -> Any:
        return item, on, when, tags, by_number

    payload = {
        "item": {"id": "00000000-0000-0000-0000-000000000001"},
        "on": "2026-01-02",
        "when": "2026-01-02T03:04:05Z",
        "tags": ["a", "a"],
        "by_number": {"1": "x"},
    }
    expected = (
        Item(UUID(int=1)),
        date(2026, 1, 2),
        datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        {"a"},
        {1: "x"},
    )
    assert task_of(order).bind(payload)() == expected


def test_json_is_bound_straight_to_the_same_call() -> None:
    def order(item: Item, note: str = "none") -> Any:
        return item, note

    raw = b'{"item": {"id": "00000000-0000-0000-0000-000000000001", "count": 3}}'
    assert task_of(order).bind_json(raw)() == (Item(UUID(int=1), 3), "none")


def test_no_payload_is_an_empty_one() -> None:
    def nothing(x: int = 5) -> int:
        return x

    assert task_of(nothing).bind_json(b"null")() == 5
    assert task_of(nothing).bind_json(b"")() == 5


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        ({"cents": "many"}, r"Expected `int`, got `str` - at `\$.cents`"),
        ({}, "missing required field `cents`"),
        ({"cents": 1, "dollars": 2}, "unknown field `dollars`"),
    ],
)
def test_a_payload_that_does_not_fit_is_a_bad_payload(payload: dict[str, Any], words: str) -> None:
    def charge(cents: int) -> None: ...

    with pytest.raises(BadPayload, match=words):
        task_of(charge).bind(payload)


def test_a_payload_that_is_no_object_is_a_bad_payload() -> None:
    def charge(cents: int) -> None: ...

    with pytest.raises(BadPayload):
        task_of(charge).bind_json(b"[1]")


def test_the_context_goes_to_the_parameter_named_ctx_or_annotated_context() -> None:
    def by_name(x: int, ctx: Any) -> Any:
        return x, ctx

    def by_type(where: Context, x: int) -> Any:
        return x, where

    def optional(x: int, where: Context | None = None) -> Any:
        return x, where

    for function in (by_name, by_type, optional):
        assert task_of(function).bind({"x": 1}, CTX)() == (1, CTX)


def test_further_keys_go_to_a_function_that_takes_any() -> None:
    def anything(x: int, **rest: Any) -> Any:
        return x, rest

    assert task_of(anything).bind({"x": 1, "y": [2]}, CTX)() == (1, {"y": [2]})
    assert task_of(anything).bind_json(b'{"x": 1, "y": [2]}', CTX)() == (1, {"y": [2]})


def test_a_type_that_cannot_be_looked_up_gets_the_plain_value() -> None:
    def pay(amount: OnlyForCheckers, cents: int) -> Any:
        return amount, cents

    task = task_of(pay)
    assert task.bind({"amount": "1.5", "cents": 2})() == ("1.5", 2)
    with pytest.raises(BadPayload):
        task.bind({"amount": "1.5", "cents": "x"})


def test_an_async_function_is_bound_to_a_coroutine() -> None:
    async def hello(name: str) -> str:
        return f"hello {name}"

    task = task_of(hello)
    assert task.kind == "async"
    assert asyncio.run(task.bind({"name": "you"})()) == "hello you"


def test_calling_a_task_calls_the_function() -> None:
    def add(a: int, b: int = 1) -> int:
        """Adds."""
        return a + b

    task = task_of(add)
    assert task(1, b=2) == 3
    assert (task.kind, task.name, task.__doc__) == ("thread", "add", "Adds.")


def test_arguments_become_the_payload_and_options_the_job() -> None:
    def charge(account: str, cents: int = 1) -> None: ...

    task: Task[..., Any] = Mainspring().task("billing.charge", queue="heavy", timeout="5m", retries=2)(charge)
    assert task.options(priority="high").fields("a1", cents=5) == {
        "task": "billing.charge",
        "payload": {"account": "a1", "cents": 5},
        "queue": "heavy",
        "timeout": "5m",
        "retries": 2,
        "priority": "high",
    }
    assert task.options(queue="light", retry={"max_attempts": 1}).fields("a1") == {
        "task": "billing.charge",
        "payload": {"account": "a1"},
        "queue": "light",
        "timeout": "5m",
        "retry": {"max_attempts": 1},
    }


def test_a_parameter_of_the_function_wins_over_an_option_of_that_name() -> None:
    def greet(name: str) -> None: ...

    _, options, payload = split_options({"name": "you", "at": "2026-01-01T00:00:00Z"}, task_of(greet).parameters)
    assert (options, payload) == ({"at": "2026-01-01T00:00:00Z"}, {"name": "you"})


def test_type_checkers_know_every_option_that_submit_takes() -> None:
    for method in (Task.submit, Task.submit_async):
        *_, widest = get_overloads(method)
        assert inspect.signature(widest).parameters.keys() - {"self", "args", "params"} == SUBMIT_OPTIONS


def test_a_misspelt_parameter_is_named_with_the_nearest() -> None:
    def charge(account: str) -> None: ...

    with pytest.raises(InvalidInput, match="no parameter acount") as caught:
        task_of(charge).payload_of((), {"acount": "a1"})
    assert (caught.value.field, caught.value.hint) == ("payload.acount", "did you mean account?")


def test_a_missing_parameter_is_named_before_anything_is_sent() -> None:
    def charge(account: str, ctx: Context) -> None: ...

    with pytest.raises(InvalidInput, match="needs the parameter account"):
        task_of(charge).payload_of((), {})


def test_functions_that_a_payload_cannot_call_are_refused_when_they_are_registered() -> None:
    def positional(a: int, /) -> None: ...

    def several(*a: int) -> None: ...

    def yields() -> Any:
        yield 1

    for function in (positional, several, yields):
        with pytest.raises(TypeError):
            task_of(function)


def test_the_idempotency_key_is_the_job_and_the_fire_time() -> None:
    assert CTX.idempotency_key == "report/2026-11-15T09:00:00Z"


def test_cancelling_raises_the_flag_and_wakes_a_waiting_thread_task() -> None:
    ctx = Context(job_id="j", run_id="r", attempt=1, scheduled_for=DUE, task="t")
    assert not ctx.cancelled and not ctx.wait_for_cancel(0)
    ctx.cancel()
    assert ctx.cancelled and ctx.wait_for_cancel(10)


def test_a_call_without_the_context_says_where_one_comes_from() -> None:
    app = Mainspring()

    @app.task
    def pay(ctx: Context, cents: int) -> int:
        return cents

    @app.task
    def deep(cents: int) -> int:
        return pay.function(cents=cents)  # type: ignore[call-arg,no-any-return]

    with pytest.raises(TypeError, match=r"pay\(\) needs ctx, the context that a worker gives it"):
        pay(cents=3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"pay\(\) needs ctx, the context that a worker gives it"):
        pay(3)  # type: ignore[call-arg,arg-type]
    with pytest.raises(TypeError, match="unexpected keyword argument"):
        pay(cent=3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'ctx'"):
        deep(3)


@pytest.mark.parametrize("name", ["delay", "apply_async", "send", "enqueue"])
def test_what_other_libraries_call_submit_is_told(name: str) -> None:
    task = Mainspring().task("pay", delay="5m")(lambda cents: None)
    with pytest.raises(AttributeError, match=rf"the task pay has no {name}: write pay.submit\(...\)"):
        getattr(task, name)
    with pytest.raises(AttributeError, match=r"the task pay has no nope\Z"):
        getattr(task, "nope")  # noqa: B009 - mypy sees that there is none
    assert not hasattr(copy.copy(task), "nope")
