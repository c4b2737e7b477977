"""What type checkers accept. tests/sdk/test_typing.py checks this file with mypy in strict mode."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, assert_type

from mainspring import AsyncClient, AsyncHandle, Client, Context, Handle, Mainspring, Task

app = Mainspring()


@app.task("billing.charge", queue="heavy", timeout="5m")
async def charge(account: str, cents: int, ctx: Context) -> dict[str, int]:
    return {account: cents}


@app.cron("0 9 * * MON-FRI", timezone="Europe/Berlin")
@app.task
def report() -> None: ...


handle = charge.submit(account="a1", cents=1000, priority="high")
print(handle.result(timeout=30))  # noqa: T201 - the example of the README
assert_type(handle, Handle[dict[str, int]])


@app.task
def greet(name: str, times: int = 1) -> str:
    return name * times


@app.task("greet.async", retries=2)
async def greet_async(name: str, times: int = 1) -> str:
    return name * times


@app.task
def refund(ctx: Context, account: str, cents: int) -> int:
    return cents


@app.task("refund.async")
async def refund_async(ctx: Context, account: str, cents: int) -> int:
    return cents


@app.every("15m")
def poll() -> int:
    return 1


@app.every("15m")
async def poll_async(ctx: Context) -> int:
    return ctx.attempt


@app.task
def optional(account: str, *, ctx: Context | None = None) -> int:
    return 1


@app.task
def fetch(url: str, timeout: float) -> bytes:
    return b""


@app.task
def anything(value: object, **more: Any) -> list[int]:
    return []


@dataclass
class Order:
    id: int


@app.task
def store(order: Order) -> Order:
    return order


assert_type(greet.submit("you"), Handle[str])
assert_type(greet.submit("you", times=2).result(), str)
assert_type(greet.submit(name="you", times=2, priority="high").result(), str)
assert_type(greet.submit(name="you", at="5m", idempotency_key="k").result(), str)
assert_type(greet.submit(name="you", at=timedelta(minutes=5)).result(), str)
assert_type(greet.submit(name="you", at=datetime(2026, 12, 31, tzinfo=UTC)).result(), str)
assert_type(greet.submit(name="you", delay="5m", queue="q").result(), str)
assert_type(greet.submit(name="you", delay=300, timeout=timedelta(hours=1), retries=2).result(), str)
assert_type(greet.submit(name="you", cron="@daily", timezone="Europe/Berlin", job_id="j").result(), str)
assert_type(greet.submit(name="you", every=timedelta(minutes=1)).result(), str)
assert_type(greet_async.submit(name="you", delay=timedelta(minutes=5)).result(), str)
assert_type(greet.options(delay="5m", name="a job", owner="me").submit(name="you").result(), str)
assert_type(greet.options(delay="5m").submit("you"), Handle[str])
assert_type(refund.submit(account="a1", cents=1).result(), int)
assert_type(refund.submit(account="a1", cents=1, at="5m", name="a job").result(), int)
assert_type(refund_async.submit(account="a1", cents=1, priority=3).result(), int)
assert_type(refund_async.options(priority=3).submit(account="a1", cents=1).result(), int)
assert_type(report.submit(), Handle[None])
assert_type(report.submit(at="5m"), Handle[None])
assert_type(poll.submit().result(), int)
assert_type(poll_async.submit(priority="low").result(), int)
assert_type(optional.submit(account="a1", priority="low").result(), int)
assert_type(fetch.submit(url="u", timeout=3.0), Handle[bytes])
assert_type(fetch.options(timeout="5m").submit(url="u", timeout=3.0), Handle[bytes])
assert_type(anything.submit(value=3, other=4, at="5m").result(), list[int])
assert_type(store.submit(order=Order(1)).result(), Order)

assert_type(greet("you"), str)
assert_type(refund(Context("j", "r", 1, datetime.now(UTC), "t"), "a1", 3), int)
assert_type(refund(ctx=Context("j", "r", 1, datetime.now(UTC), "t"), account="a1", cents=3), int)
any_task: Task[..., Any] = greet
one_task: Task[[str], int]


async def main(client: AsyncClient) -> None:
    assert_type(await greet.submit_async(name="you", delay="5m"), AsyncHandle[str])
    assert_type(await (await greet_async.submit_async("you")).result(), str)
    assert_type(await greet_async("you"), str)
    assert_type(await refund_async(Context("j", "r", 1, datetime.now(UTC), "t"), "a1", 3), int)
    await client.submit(task="t", at=timedelta(minutes=5), payload={"a": 1})
    await client.submit(task="t", delay="5m")
    await client.add_job("t", timedelta(minutes=5), {"a": 1})
    await client.add_job("t", "5m")
    await client.submit_batch([greet.options(at="5m").fields(name="you"), {"task": "t", "delay": timedelta(seconds=5)}])


def blocking(client: Client) -> None:
    client.submit(task="t", at="5m")
    client.submit(task="t", at=datetime.now(UTC), name="a job")
    client.submit(task="t", delay=timedelta(minutes=5))
    client.add_job("t", datetime.now(UTC), {"a": 1})
    client.add_job("t", timedelta(minutes=5))
    client.submit_batch([greet.options(delay="5m").fields(name="you"), {"task": "t", "at": "5m"}])


flow = app.workflow("flow", cron="@daily", parameters={"who": "you"})
greeted = flow.step(greet, name=flow.parameter("who"), times=2)
assert_type(greeted.result, str)
refunded = flow.step(refund, account=greeted.result, cents=flow.parameter("cents", 100), after=greeted, rule="all_done")
mapped = flow.step(refund.options(queue="heavy"), account="a1", cents=flow.item).map([1, 2, 3], max_parallel=2)
assert_type(mapped.result["results"], list[int])
assert_type(mapped.result["total"], int)
greeted >> [refunded, mapped] >> flow.add("end", command="echo end")


@flow.step(total=mapped.result["total"])
def summed(total: int) -> float:
    return float(total)


assert_type(summed.result, float)
assert_type(flow.run(who="me").result(refunded), int)


@app.task
def maker(ctx: Context) -> int:
    assert_type(ctx.submit(greet, name="you"), Handle[str])
    return len(ctx.submit(greet.options(priority="high"), "you", times=3).result())
