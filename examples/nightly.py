"""A workflow of five steps, and its tasks.

Start it from the root of the repository:

    mainspring up --app examples.nightly:app

Use it from a second terminal in the same folder:

    mainspring workflow run nightly --watch
    mainspring workflow run nightly region=us days=7 --watch
    mainspring workflow show nightly

The file nightly.yaml beside this one has the same steps as a workflow in YAML:

    mainspring workflow apply examples/nightly.yaml
    mainspring workflow run nightly-yaml --watch
"""

from __future__ import annotations

from typing import TypedDict

from mainspring import GiveUp, Mainspring

app = Mainspring("nightly-example")


class Orders(TypedDict):
    region: str
    days: list[int]


@app.task("shop.extract")
def extract(region: str, days: int) -> Orders:
    """Which days there are to sum up."""
    if not region.islower():
        raise GiveUp(f"{region!r} is not a region: use eu or us")
    return {"region": region, "days": list(range(1, days + 1))}


@app.task("shop.sum_up", retries=2)
def sum_up(region: str, day: int) -> int:
    """The revenue of a day, in cents. It runs once for each day."""
    return 1000 * day + (7 if region == "us" else 0)


@app.task("shop.check")
async def check(region: str) -> bool:
    """Runs beside the sums."""
    return region in ("eu", "us")


@app.task("shop.report")
def report(region: str, sums: list[int], checked: bool) -> str:
    return f"{region}: {sum(sums)} cents on {len(sums)} days" + ("" if checked else ", unchecked")


@app.task("shop.tidy")
def tidy() -> None:
    """Runs whatever became of the sums."""


nightly = app.workflow(
    "nightly", cron="0 2 * * *", timezone="Europe/Berlin", timeout="1h", parameters={"region": "eu", "days": 3}
)

orders = nightly.step(extract, region=nightly.parameter("region"), days=nightly.parameter("days"))
sums = nightly.step(sum_up, region=orders.result["region"], day=nightly.item).map(
    orders.result["days"], max_parallel=10, max_failures=0
)
checked = nightly.step(check, region=orders.result["region"])
reported = nightly.step(report, region=orders.result["region"], sums=sums.result["results"], checked=checked.result)
[sums, checked] >> nightly.step(tidy, rule="all_done")


if __name__ == "__main__":
    run = nightly.run(region="us")
    print(f"workflow run {run.run_id}")
    print(run.result(reported, timeout=30))
