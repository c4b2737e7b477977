"""Mistakes of a real application. What type checkers find has the comment `found`: tests/sdk/test_typing.py."""

from __future__ import annotations

from typing import Any

from mainspring import Context, Mainspring

app = Mainspring("backoffice")


@app.task("orders.charge")
def charge(order: str, cents: int) -> dict[str, int]:
    return {order: cents}


@app.task("orders.print")
def label(order: str) -> None: ...


@app.task("orders.first", priority="urgent")  # found
def soon(order: str) -> None: ...


@app.task("orders.pay", delivery="exactly_once")  # found
def pay(order: str) -> None: ...


@app.task("orders.ship", retry={"max_attemps": 5})  # found
def ship(order: str) -> None: ...


@app.task("orders.mail", retry={"backoff": "quadratic"})  # found
def mail(order: str) -> None: ...


@app.task("orders.sync", concurrency={"limit": 1, "keys": "payload.order"})  # found
def sync(order: str) -> None: ...


@app.task("orders.index", unique={"by": ["payload.order"], "fore": "1m"})  # found
def index(order: str) -> None: ...


@app.task("orders.rate", rate_limit={"rate": "5/s", "brust": 3})  # found
def rated(order: str) -> None: ...


@app.task("orders.guard", circuit_breaker={"failure": 3})  # found
def guarded(order: str) -> None: ...


@app.task("orders.slow", timout="5m")  # found
def slow(order: str) -> None: ...


@app.task("orders.limits", limits={"memroy": "1GB"})  # found
def limited(order: str) -> None: ...


@app.cron("0 3 * * *", overlap="wait")  # found
def nightly() -> None: ...


@app.cron("0 4 * * *", misfire={"policy": "never"})  # found
def later() -> None: ...


@app.every("15m", outside="before")  # found
def poll() -> None: ...


charge.submit(order="a", cent=3)  # found
charge.submit(order="a", cents="3")  # found
charge.submit(order="a")  # found
charge.submit(order="a", cents=3, priority="hihg")  # found
charge.submit(order="a", cents=3, dely="5m")  # found
charge.options(delivery="once").submit(order="a", cents=3)  # found
charge.options(unique={"by": "order", "else": "drop"}).submit(order="a", cents=3)  # found
charge.submit(order="a", cents=3).result().upper()  # found
charge(order="a")  # found

flow = app.workflow("orders")
first = flow.step(charge, order="a", cents=1)
flow.step(label, order=first.result["total"])  # found
if first.result:  # a reference is always true: Step.result raises when the workflow is built
    flow.step(label, order="a")


label.schedule("0 3 * * *", order="a")
label.schedule("15m", timezone="Europe/Berlin", order="a")


def right(ctx: Context, options: dict[str, Any]) -> None:
    charge.options(retry={"max_attempts": 3, "rules": [{"error": "ValueError", "then": "give_up"}]})
    charge.options(concurrency=[{"limit": 1, "key": "payload.order"}, {"limit": 10}], priority=3)
    charge.options(unique={"by": ["payload.order"], "for": "1m", "else": "later", "while": ["scheduled"]})
    charge.options(misfire={"policy": "once", "grace": 60}, dst={"gap": "skip"}, delivery="at_most_once")
