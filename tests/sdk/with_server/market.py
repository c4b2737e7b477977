"""An application for a real server. Its tasks run in a worker, so what they shall do is in their payloads."""

from __future__ import annotations

from typing import Any

from mainspring import Context, GiveUp, Mainspring

app = Mainspring("market")


@app.task("market.extract")
def extract(region: str, rows: list[int]) -> dict[str, Any]:
    return {"region": region, "rows": rows}


@app.task("market.resize")
def resize(row: int, place: list[int]) -> int:
    if row < 0:
        raise GiveUp(f"row {row}")
    return row * 10


@app.task("market.load", retries=0)
def load(region: str) -> str:
    if region == "mars":
        raise GiveUp("no disk")
    return f"loaded {region}"


@app.task("market.report")
async def report(counts: dict[str, Any], loaded: str = "not loaded") -> str:
    return f"{counts['succeeded']} of {counts['total']}, {loaded}"


@app.task("market.alarm")
def alarm() -> str:
    return "rang"


@app.task("market.hour")
def hour(ctx: Context) -> int:
    return ctx.scheduled_for.hour


@app.task("market.sync", unique={"by": ["task", "payload.account"], "for": "1h"})
def sync(account: int, n: int = 0) -> int:
    return n


@app.task("market.charge", concurrency={"limit": 1, "key": "payload.account"})
def charge(account: str) -> str:
    return account


@app.task("market.call", circuit_breaker={"failures": 2, "open_for": "1h"}, retries=0)
def call(down: bool = False) -> None:
    if down:
        raise RuntimeError("down")


@app.task("market.work")
def work(number: int) -> int:
    if number == 1:
        raise GiveUp("no")
    return number


@app.task("market.rows")
def rows(rows: Any = None) -> dict[str, Any]:
    return {"rows": 3 if rows is None else rows}


nightly = app.workflow("market-nightly", cron="0 2 * * *", parameters={"region": "eu", "rows": [1, 2, 3]})
extracted = nightly.step(extract, region=nightly.parameter("region"), rows=nightly.parameter("rows"))
resized = nightly.step(resize, row=nightly.item, place=[nightly.index, nightly.total]).map(
    extracted.result["rows"], max_parallel=2, max_failures=1
)
loaded = nightly.step(load, region=extracted.result["region"])
reported = nightly.step(report, counts=resized.result, loaded=loaded.result)
rang = nightly.step(alarm, after=loaded, rule="one_failed")
