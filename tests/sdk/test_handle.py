"""Waiting for the end of a run."""

from __future__ import annotations

import asyncio
import warnings
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from mainspring import AsyncClient, Client, Mainspring, RunFailed
from mainspring.kernel.clock import ManualClock
from mainspring.sdk.client.blocking_waits import BlockingWaitWarning
from mainspring.sdk.client.handle import WaitLoop
from mainspring.wire.runs import JobStatus
from tests.sdk.wire_samples import run


def status(run_status: str | None, job_status: str = "SCHEDULED", **changes: Any) -> dict[str, Any]:
    latest = None if run_status is None else run(status=run_status, **changes)
    return {"job_id": "j1", "status": job_status, "latest_run": latest}


def serving(*bodies: dict[str, Any]) -> httpx.MockTransport:
    """Returns these responses one by one, and repeats the last one."""
    left = list(bodies)
    return httpx.MockTransport(lambda _: httpx.Response(200, json=left.pop(0) if len(left) > 1 else left[0]))


def client(*bodies: dict[str, Any]) -> Client:
    return Client("http://127.0.0.1:1", "t", transport=serving(*bodies))


def test_the_looks_come_less_often_and_never_less_than_twice_a_second() -> None:
    watch = WaitLoop("j1", None, ManualClock(datetime(2026, 1, 1, tzinfo=UTC)))
    pauses = [watch.pause() for _ in range(12)]
    assert pauses[0] == 0.02
    assert pauses == sorted(pauses)
    assert pauses[-1] == 0.5


def test_the_last_pause_ends_with_the_time() -> None:
    clock = ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
    watch = WaitLoop("j1", 0.01, clock)
    assert watch.pause() == pytest.approx(0.01)
    clock.advance(0.02)
    queued = msgspec.convert(status("QUEUED", reason="no worker offers task x"), JobStatus)
    with pytest.raises(TimeoutError, match=r"still QUEUED \(no worker offers task x\) after 10ms"):
        watch.ended(queued)


def test_the_result_is_what_the_run_returned() -> None:
    handle = client(status(None), status("QUEUED"), status("SUCCESS", result={"sum": 42})).handle("j1")
    assert handle.result(timeout=30) == {"sum": 42}
    assert handle.status() == "SUCCESS"


@dataclass
class Receipt:
    number: int
    paid: datetime


def test_the_result_of_a_task_has_the_annotated_type() -> None:
    app = Mainspring()

    @app.task
    def pay() -> Receipt:
        return Receipt(7, datetime(2026, 1, 1, tzinfo=UTC))

    @app.task
    def wrong() -> Receipt:
        return "paid"  # type: ignore[return-value]

    paid = status("SUCCESS", result={"number": 7, "paid": "2026-01-01T00:00:00Z"})
    assert client(paid).handle("j1").returning(pay.result_type).result() == pay()
    assert client(status("SUCCESS", result="paid")).handle("j1").returning(wrong.result_type).result() == "paid"


@pytest.mark.parametrize("ending", ["FAILED", "CANCELLED", "SKIPPED"])
def test_any_other_end_is_raised_with_its_words(ending: str) -> None:
    handle = client(status(ending, error_message="it broke")).handle("j1")
    with pytest.raises(RunFailed, match="it broke") as caught:
        handle.result(timeout=30)
    assert caught.value.status == ending
    assert caught.value.run is not None


def test_a_job_cancelled_before_it_ran_is_not_waited_for() -> None:
    with pytest.raises(RunFailed, match="cancelled before it ran"):
        client(status(None, "CANCELLED")).handle("j1").result(timeout=30)


def test_the_time_is_up_while_it_runs() -> None:
    with pytest.raises(TimeoutError, match="still RUNNING"):
        client(status("RUNNING")).handle("j1").result(timeout=0)


def test_a_handle_on_a_run_follows_that_run() -> None:
    handle = client(run(status="RUNNING"), run(status="SUCCESS", result=1)).handle("j1", "r1")
    assert handle.result(timeout=30) == 1


def test_the_async_handle_waits_the_same_way() -> None:
    async def scenario() -> Any:
        transport = serving(status("RUNNING"), status("SUCCESS", result="done"))
        async with AsyncClient("http://127.0.0.1:1", "t", transport=transport) as face:
            return await face.handle("j1").result(timeout=30)

    assert asyncio.run(scenario()) == "done"


def test_waiting_in_a_coroutine_warns_with_the_line_and_the_way_out() -> None:
    handle = client(status("SUCCESS", result=1)).handle("j1")

    async def blocking() -> int:
        return handle.result()  # this line

    lines = Path(__file__).read_text().splitlines()
    with pytest.warns(BlockingWaitWarning, match="submit_async") as found:
        assert asyncio.run(blocking()) == 1
    [warning] = found
    assert warning.filename == __file__ and lines[warning.lineno - 1].endswith("# this line")


def test_waiting_elsewhere_warns_of_nothing() -> None:
    handle = client(status("SUCCESS", result=1)).handle("j1")

    async def in_a_thread() -> int:
        return await asyncio.to_thread(handle.result)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert handle.result() == asyncio.run(in_a_thread()) == 1
