"""How a Python task's attempt ends."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from mainspring import Context
from mainspring.domain.retry import LONGEST_DELAY
from mainspring.sdk.errors import BadPayload, GiveUp, Retry
from mainspring.worker.execution.attempt import SUCCEEDED
from mainspring.worker.execution.endings import cause_of, ending_of_call, ending_of_error, ending_of_result


def context(**fields: Any) -> Context:
    return Context("job", "run", 1, datetime(2026, 1, 1, tzinfo=UTC), "task", **fields)


class CardDeclined(ValueError):
    class Twice(Exception): ...


def test_nothing_returned_is_plain_success() -> None:
    assert ending_of_call(lambda: None) is SUCCEEDED


def test_a_result_is_kept_as_json() -> None:
    kept = ending_of_call(lambda: {"a": [1]}).result
    assert kept is not None
    assert bytes(kept) == b'{"a":[1]}'


@pytest.mark.parametrize(
    ("result", "words"), [(object(), "cannot be kept as JSON"), ("x" * 70_000, "at most 65536 are kept")]
)
def test_a_result_that_cannot_be_kept_fails_for_good(result: object, words: str) -> None:
    ending = ending_of_result(result)
    assert (ending.status, ending.retry) == ("FAILED", False)
    assert words in (ending.error or "")


def test_an_error_tells_its_class_its_message_and_the_users_frames() -> None:
    def fails() -> None:
        raise CardDeclined("no money")

    ending = ending_of_call(fails)
    assert ending.retry
    lines = (ending.error or "").splitlines()
    assert lines[0] == f"{__name__}.CardDeclined: no money"
    assert __file__ in lines[1]
    assert "endings.py" not in lines[1].replace(__file__, "")


def test_the_cause_names_the_class_and_its_bases_short_and_in_full() -> None:
    assert cause_of(CardDeclined()).errors == ["CardDeclined", f"{__name__}.CardDeclined", "ValueError", "Exception"]
    assert cause_of(CardDeclined.Twice()).errors == ["Twice", f"{__name__}.CardDeclined.Twice", "Exception"]
    assert cause_of(SystemExit(1)).errors == ["SystemExit"]


@pytest.mark.parametrize("delay", ["10m", 600, timedelta(minutes=10)])
def test_a_snooze_ends_the_attempt_and_no_except_exception_stops_it(delay: Any) -> None:
    def polls() -> None:
        try:
            context().snooze(delay)
        except Exception:  # noqa: BLE001 - which does not catch it
            return

    ending = ending_of_call(polls)
    assert (ending.status, ending.snooze, ending.retry_after, ending.retry) == ("FAILED", 600.0, 600.0, True)
    assert (ending.error, ending.cause) == ("snoozed for 10m", None)  # this is what an older server sees


def test_a_snooze_inside_a_task_group_counts_if_nothing_else_went_wrong() -> None:
    async def polls(*others: Any) -> None:
        async with asyncio.TaskGroup() as group:
            for coroutine in (snoozing(), *others):
                group.create_task(coroutine)

    async def snoozing() -> None:
        context().snooze(5)

    async def failing() -> None:
        raise ValueError("no")

    assert ending_of_call(lambda: asyncio.run(polls())).snooze == 5.0
    assert ending_of_call(lambda: asyncio.run(polls(snoozing()))).snooze == 5.0
    assert ending_of_call(lambda: asyncio.run(polls(failing()))).snooze is None


@pytest.mark.parametrize("delay", ["soon", 0, -1, float("nan"), "400d", timedelta(0)])
def test_a_snooze_that_is_no_delay_is_an_error_of_the_task(delay: Any) -> None:
    ending = ending_of_call(lambda: context().snooze(delay))
    assert ending.snooze is None and "snooze" in (ending.error or "")


def test_a_run_that_is_at_most_once_cannot_be_snoozed() -> None:
    ending = ending_of_call(lambda: context(_at_most_once=True).snooze("10m"))
    assert ending.snooze is None
    assert "at most once" in (ending.error or "")


def test_retry_and_give_up_decide_for_themselves() -> None:
    retry = ending_of_error(Retry("rate limited", after=30))
    assert (retry.error, retry.retry, retry.retry_after, retry.cause) == ("Retry: rate limited", True, 30.0, None)
    assert ending_of_error(Retry()).retry_after is None
    give_up = ending_of_error(GiveUp())
    assert (give_up.error, give_up.retry, give_up.cause) == ("GiveUp: the task gave up", False, None)


class Seconds(float):
    """As numpy's are: a float that JSON encoders do not know."""


@pytest.mark.parametrize(
    ("after", "seconds"),
    [
        (Seconds(30), 30.0),
        (Decimal(30), 30.0),
        (True, 1.0),
        (timedelta(minutes=1), 60.0),
        (-5, 0.0),
        (float("inf"), LONGEST_DELAY),
        (10**400, LONGEST_DELAY),
    ],
)
def test_a_delay_is_a_plain_number_whatever_the_task_gave(after: Any, seconds: float) -> None:
    told = ending_of_error(Retry("later", after=after)).retry_after
    assert (told, type(told)) == (seconds, float)
    changed = Retry("later")
    changed.after = after
    assert ending_of_error(changed).retry_after == seconds


@pytest.mark.parametrize("after", ["soon", float("nan"), [1]])
def test_a_delay_that_is_none_is_the_tasks_own_error(after: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        Retry("later", after=after)


class Unspeakable(Retry):
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize("error", [Unspeakable(), SyntaxError("x", ("f", 1, "no number", "text"))])  # type: ignore[arg-type]
def test_an_error_that_cannot_be_told_is_told_by_its_class(error: Exception) -> None:
    ending = ending_of_error(error)
    assert (ending.status, ending.retry) == ("FAILED", True)
    assert (ending.error or "").startswith(f"{type(error).__name__}, whose message cannot be read: ")


def test_the_names_in_a_cause_can_be_put_on_the_wire() -> None:
    odd = type("Odd", (Exception,), {"__module__": "\ud800"})
    assert msgspec.json.encode(cause_of(odd()))


def test_a_payload_that_does_not_fit_fails_for_good() -> None:
    ending = ending_of_error(BadPayload("the payload does not fit"))
    assert (ending.error, ending.retry) == ("the payload does not fit", False)


def test_a_coroutine_from_a_plain_function_is_a_mistake_that_is_named() -> None:
    ending = ending_of_call(lambda: asyncio.sleep(0))
    assert "async def" in (ending.error or "")
    assert not ending.retry


def test_a_task_that_uses_a_context_it_does_not_take_is_told_how() -> None:
    ending = ending_of_call(lambda: ctx.progress(0.5))  # type: ignore[name-defined]  # noqa: F821
    assert ending.error is not None
    assert ending.error.startswith("NameError: name 'ctx' is not defined. The context is a parameter of the task")
