"""Live data as a small company has it: 65 jobs, three workers, failures of several kinds, a queue that falls behind, a
calendar, a workflow with two versions, and dead letters. `python -m tests.ui.live_data` serves it until Ctrl-C."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from signal import pause
from typing import Any

import httpx

from tests.eventually import PATIENCE, until
from tests.ui.serving import ROOT, serving

TEAMS = ("billing", "mail", "reports", "search", "stock")
NOISE = "print('\\033[32mready\\033[0m'); print('ValueError: no rate for EUR'); raise SystemExit(1)"
STEPS: list[dict[str, Any]] = [
    {"name": "extract", "command": "echo '[1, 2, 3]'"},
    {"name": "check", "command": "sleep 0.3", "depends_on": ["extract"]},
    {"name": "load", "command": "echo no disk space left >&2; exit 3", "retries": 0, "depends_on": ["check"]},
    {"name": "report", "command": "true", "depends_on": ["load"]},
]


@contextmanager
def live(folder: Path) -> Iterator[httpx.Client]:
    """A server with live data and three workers."""
    with serving(folder / "data") as server, _workers(server, folder):
        fill(server)
        yield server


@contextmanager
def _workers(server: httpx.Client, folder: Path) -> Iterator[None]:
    started = []
    try:
        for name, zone in (("worker-eu-1", "eu"), ("worker-us-1", "us")):
            command = [
                sys.executable, "-m", "mainspring", "worker", "start", "--server", str(server.base_url), "--data",
                str(folder / "data"), "--app", "tests.ui.app:app", "--name", name, "--label", f"zone={zone}",
            ]  # fmt: skip
            with (folder / f"{name}.log").open("wb") as log:
                started.append(subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log))
        until(lambda: len(server.get("/v1/workers").json()["workers"]) == 1 + len(started))
        yield
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait(PATIENCE)


def fill(server: httpx.Client) -> None:
    def post(path: str, **body: object) -> dict[str, Any]:
        answer: dict[str, Any] = server.post(path, json=body).raise_for_status().json()
        return answer

    rules = {
        "timezone": "Europe/Berlin",
        "weekdays": ["MON", "TUE", "WED", "THU", "FRI"],
        "holidays": {"country": "DE"},
    }
    server.put("/v1/calendars/de-business", json=rules).raise_for_status()
    post("/v1/queues/behind:pause", reason="the mail service is down until nine")
    server.put("/v1/queues/mail", json={"concurrency": 2}).raise_for_status()
    for number in range(55):
        team = TEAMS[number % len(TEAMS)]
        calendar = {"calendar": "de-business", "timezone": "Europe/Berlin"} if number % 6 == 1 else {}
        post(
            "/v1/jobs", job_id=f"{team}.job-{number:02}", name=f"{team.title()} job {number}",
            command="true" if number % 4 else "exit 1" if number % 8 else NOISE.join(('python3 -c "', '"')), retries=0,
            schedule={"cron": "0 9 * * *" if number % 3 else "*/5 * * * * *", **calendar},
            owner=team, labels={"team": team}, queue="mail" if team == "mail" else "default",
        )  # fmt: skip
    charge = {"task": "shop.charge", "retries": 0, "name": "Charge", "search": ["account"]}
    for number in range(9):
        post("/v1/jobs", **charge, payload={"account": "broken" if number % 3 else "a1", "cents": number})
    monthly = {**charge, "name": "Monthly charge", "job_id": "billing.monthly", "schedule": "0 9 1 * *"}
    post("/v1/jobs", **monthly, payload={"account": "a1", "cents": 1999})
    for number in range(30):
        post("/v1/jobs", job_id=f"waits-{number}", command="true", queue="behind")
    post("/v1/jobs", job_id="talks", task="shop.talk", name="Talk")
    post("/v1/workflows", workflow_id="nightly", schedule="0 2 * * *", steps=STEPS[:2])
    for steps in (STEPS[:3], STEPS):
        server.patch("/v1/workflows/nightly", json={"steps": steps}).raise_for_status()
    for _ in range(3):
        run = post("/v1/workflows/nightly:runNow")["run_id"]
        until(lambda run=run: server.get(f"/v1/workflow-runs/{run}").json()["end_time"] is not None)
    until(lambda: server.get("/v1/insights/overview?w=1h").json()["window"]["totals"]["ended"] > 0)
    until(lambda: bool(server.get("/v1/insights/failures").json()["groups"]))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, live(Path(folder)) as server:
        print(f"{server.base_url}/ui/", server.headers["Authorization"].removeprefix("Bearer "), flush=True)  # noqa: T201
        pause()


if __name__ == "__main__":
    main()
