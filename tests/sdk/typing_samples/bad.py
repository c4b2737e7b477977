"""What type checkers refuse: every line with the comment `refused`. tests/sdk/test_typing.py compares."""

from __future__ import annotations

from typing import assert_type

from mainspring import Client, Context, Mainspring

app = Mainspring()


@app.task
def greet(name: str, times: int = 1) -> str:
    return name * times


@app.task("greet.async", retries=2)
async def greet_async(name: str) -> str:
    return name


@app.task
def refund(ctx: Context, account: str, cents: int) -> int:
    return cents


@app.every("15m")
@app.task("poll.async")
async def poll_async(ctx: Context) -> int:
    return ctx.attempt


@app.cron("@daily")
def report(day: str = "today") -> None: ...


greet.submit(nme=3)  # refused
greet.submit()  # refused
greet.submit(name=3)  # refused
greet.submit("you", "many")  # refused
greet.submit(nme="you", priority="high")  # refused
greet.submit(name="you", prority="high")  # refused
greet.submit(name="you", priority=[1])  # refused
greet.submit(name="you", at=300)  # refused
greet.submit(name="you", owner="me")  # refused
greet.options(at="5m").submit(nme="you")  # refused
greet.options(att="5m")  # refused
greet.options(at="5m").fields(nme="you")  # refused
greet_async.submit(nme="you")  # refused
greet_async.submit(nme="you", at="5m")  # refused
refund.submit(acount="a1", cents=1)  # refused
refund.submit(acount="a1", cents=1, priority="high")  # refused
refund.submit(account="a1", cents="1")  # refused
refund.submit(ctx=None, account="a1", cents=1)  # refused
poll_async.submit(x=3)  # refused
report.submit(dya="today")  # refused
greet(nme="you")  # refused
greet.schedule("@daily", nme="you")  # refused
greet.schedule("@daily")  # refused
greet.submit(name="you", if_exists="ignore")  # refused
app.calendar("berlin", holiday={"country": "DE"})  # refused
app.limit("mails", concurency=3)  # refused
refund("a1", 1)  # refused
assert_type(greet.submit(name="you").result(), int)  # refused


async def main() -> None:
    await greet.submit_async(nme="you")  # refused
    await greet.submit_async(nme="you", delay="5m")  # refused
    (await greet.submit_async(name="you")).result().upper()  # refused


def blocking(client: Client) -> None:
    client.submit(task="t", att="5m")  # refused
    client.submit(task="t", at=300)  # refused
    client.add_job("t", 300)  # refused


def workflows(ctx: Context) -> None:
    app.workflow("other", corn="@daily")  # refused
    flow = app.workflow("flow")  # pyright does not know the type of a call that it refuses
    flow.step(greet, nme="you")  # refused
    flow.step(greet, name="you", rule="sometimes")  # refused
    flow.step(refund, account="a1", cents=flow.step(greet, name="you").result)  # refused
    flow.step(greet, name="you") >> 3  # refused
    ctx.submit(greet, nme="you")  # refused
