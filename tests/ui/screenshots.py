"""Writes a picture of every page at 1440, 1024 and 390 pixels, in the light and in the dark.

`/patterns` is there if the page is a development build.

`python -m tests.ui.screenshots [FOLDER] [PARTS OF PATHS]`.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import product
from pathlib import Path

import httpx
from playwright.sync_api import Page, ViewportSize

from tests.eventually import until
from tests.ui.serving import CHROMIUM, PAGES, ROOT, browser, is_loaded, look, serving, sign_in

SIZES: dict[str, ViewportSize] = {
    "1440": {"width": 1440, "height": 900},
    "1024": {"width": 1024, "height": 800},
    "390": {"width": 390, "height": 800},
}

STEPS = [
    {"name": "extract", "command": "echo '[1, 2, 3]'"},
    {"name": "check", "command": "true", "depends_on": ["extract"]},
    {"name": "sum-up", "command": "true", "depends_on": ["extract"], "map": {"range": 12, "max_parallel": 4}},
    {"name": "refuse", "command": "echo no rows >&2; exit 3", "retries": 0, "depends_on": ["check"]},
    {"name": "report", "command": "true", "depends_on": ["sum-up", "refuse"]},
    {"name": "clean", "command": "true", "depends_on": ["report"], "rule": "all_done"},
]
PRINTED = r"printf '\033[32mready\033[0m\n'; seq 1 60; printf '\033[31mfailed: disk full\033[0m\n' >&2; exit 1"


class _Receiver(BaseHTTPRequestHandler):
    """A webhook that takes messages, and refuses those to /refuses."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(403 if self.path == "/refuses" else 204)
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


@contextmanager
def receiving() -> Iterator[str]:
    """The address of a webhook."""
    receiver = ThreadingHTTPServer(("127.0.0.1", 0), _Receiver)
    threading.Thread(target=receiver.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{receiver.server_port}"
    receiver.shutdown()
    receiver.server_close()


def tell(server: httpx.Client, receiver: str) -> None:
    """Channels and rules, before anything fails."""
    for name, path in (("oncall", "/takes"), ("ticket-system-of-the-whole-company", "/refuses")):
        body = {"kind": "webhook", "url": receiver + path, "secret": "s", "description": "tells whoever is on call"}
        server.put(f"/v1/channels/{name}", json=body).raise_for_status()
    mail = {"kind": "mail", "host": "smtp.example.com", "from": "jobs@example.com", "to": ["team@example.com"]}
    server.put("/v1/channels/mail", json={**mail, "log_lines": 5}).raise_for_status()
    everybody = ["oncall", "ticket-system-of-the-whole-company"]
    fails = {"on": ["failure", "every_failure", "recovered"], "to": everybody, "group_wait": 0}
    server.put("/v1/rules/all-failures", json=fails).raise_for_status()
    night = {"from": "22:00", "to": "07:00", "days": ["SAT", "SUN"], "timezone": "Europe/Berlin"}
    slow = {"on": ["deadline_missed", "started_late", "ran_too_long"], "to": ["mail"], "queue": "reports"}
    more = {"quiet": night, "escalate": {"after": "30m", "to": ["oncall"]}}
    server.put("/v1/rules/slow-reports", json={**slow, **more}).raise_for_status()
    server.post("/v1/rules/slow-reports:mute", json={"for": "2h"}).raise_for_status()


def furnish(server: httpx.Client) -> list[str]:
    """Jobs of all kinds, failures, a workflow run, queues and limits. Returns the paths of single things."""

    def create(**fields: object) -> str:
        created: str = server.post("/v1/jobs", json=fields).raise_for_status().json()["job_id"]
        return created

    server.post("/v1/queues/mail:pause", json={"reason": "the mail service is down until nine"})
    charge = {"task": "shop.charge", "retries": 0}
    create(
        job_id="tick", name="Tick", command="echo tick", schedule="*/2 * * * * *", owner="ada", labels={"team": "core"}
    )
    create(job_id="billing.monthly", **charge, payload={"account": "a1", "cents": 1999}, schedule="0 9 1 * *")
    create(
        job_id="reports.daily", name="Daily report for everybody in the company", command="true",
        schedule={"cron": "0 9 * * MON-FRI", "timezone": "Europe/Berlin"}, owner="grace", queue="reports",
        description="Sums up what was sold, and mails it.", labels={"team": "sales", "tier": "gold"},
    )  # fmt: skip
    rules = {
        "weekdays": ["MON", "TUE", "WED", "THU", "FRI"],
        "holidays": {"country": "DE"},
        "timezone": "Europe/Berlin",
    }
    server.put("/v1/calendars/business-days", json=rules).raise_for_status()
    create(job_id="cleanup", command="true", schedule={"every": "1h"})
    create(job_id="import.night", command="true", schedule="H 2 * * *")
    server.post("/v1/jobs/cleanup:pause", json={})
    waiting = create(command="true", queue="mail", name="Mail for Ada")
    failed = create(command=PRINTED, retries=0, name="Fill the disk")
    for number in range(12):
        create(**charge, payload={"account": "broken" if number % 3 else "a1", "cents": number}, name="Charge")
    talking = create(task="shop.talk", name="Talk")
    retried = create(
        command="python3 -c 'print(sum(range(9_000_000)))'; exit 1",
        name="Sum up",
        retry={"max_attempts": 3, "base": "10ms"},
    )
    create(
        job_id="often",
        command="true",
        schedule={"cron": "* * * * * *"},
        misfire={"policy": "skip"},
        name="Every second",
    )
    server.post("/v1/workflows", json={"workflow_id": "nightly", "schedule": "0 2 * * *", "steps": STEPS[:3]})
    server.patch("/v1/workflows/nightly", json={"steps": STEPS}).raise_for_status()
    for _ in range(3):
        run = server.post("/v1/workflows/nightly:runNow", json={}).raise_for_status().json()["run_id"]
        until(lambda run=run: server.get(f"/v1/workflow-runs/{run}").json()["end_time"] is not None)
    paths = [
        "/jobs/tick", "/jobs/tick?tab=definition", "/jobs/tick?tab=missed", "/jobs/new?edit=reports.daily",
        f"/runs/{failed}", f"/runs/{failed}?tab=timeline", f"/runs/{failed}?tab=data", f"/runs/{waiting}",
        f"/runs/{talking}", "/workflows/nightly", "/workflows/nightly?view=grid",
        "/workflows/nightly?view=definition&step=check", "/workflows/nightly?view=edit",
        "/workflows/nightly?view=versions", "/workflows/nightly?view=trend", "/calendars/business-days",
        "/calendars/business-days?edit=1", "/patterns", "/jobs/tick?tab=why", "/queues/mail", "/queues/default",
        f"/workers/{server.get('/v1/workers').json()['workers'][0]['worker_id']}",
        f"/workflows/nightly/runs/{run}", f"/workflows/nightly/runs/{run}?view=gantt",
        f"/workflows/nightly/runs/{run}?view=list", f"/workflows/nightly/runs/{run}?step=refuse", "/nowhere",
        f"/runs/{retried}?tab=timeline", *act(server),
    ]  # fmt: skip
    until(lambda: server.get(f"/v1/runs/{failed}").json()["status"] == "FAILED")
    until(lambda: server.get(f"/v1/runs/{retried}").json()["status"] == "FAILED")
    until(lambda: server.get("/v1/insights/overview?w=1h").json()["window"]["totals"]["ended"] > 0)
    until(lambda: bool(server.get("/v1/insights/failures").json()["groups"]))
    until(lambda: bool(server.get("/v1/notifications").json()["notifications"]))
    return [*paths, "/logs?text=ready", "/logs?text=nowhere", "/jobs?health=failing", "/jobs?columns=health"]


def act(server: httpx.Client) -> list[str]:
    """A verb on many that one of them refuses, missed fires and a backfill. Returns their paths."""
    server.post("/v1/jobs", json={"job_id": "old", "command": "true", "schedule": "@daily"}).raise_for_status()
    server.delete("/v1/jobs/old").raise_for_status()
    chosen = {"verb": "pause", "ids": ["often", "import.night", "old"], "expected": 3}
    operation = server.post("/v1/jobs:act", json=chosen).raise_for_status().json()["id"]
    until(lambda: server.get(f"/v1/operations/{operation}").json()["ended_at"] is not None)
    paused_at = server.get("/v1/jobs/often").json()["updated_at"]
    # A job that fires each second has missed some when one that fires every other second has fired three times.
    until(lambda: sum(run["scheduled_for"] > paused_at for run in server.get("/v1/jobs/tick/runs").json()) > 2)
    server.post("/v1/jobs/often:resume", json={}).raise_for_status()
    until(lambda: bool(server.get("/v1/missed-fires", params={"job": "often"}).json()["missed"]))
    missed = server.get("/v1/missed-fires", params={"job": "often"}).json()["missed"][-1]
    fires = {"from": missed["first"], "to": server.get("/v1/jobs/often").json()["updated_at"]}
    assert paused_at <= missed["last"]
    backfill = server.post("/v1/jobs/often:backfill", json=fires).raise_for_status().json()["id"]
    return [f"/operations?op={operation}", f"/operations?tab=backfills&backfill={backfill}"]


def shoot(page: Page, path: str, folder: Path) -> None:
    page.goto("/ui" + path)
    if path == "/patterns":  # something there loads for ever
        page.get_by_role("heading", level=1).wait_for()
    else:
        is_loaded(page)
    if "new?edit=" in path:  # the schedule is explained a moment later
        page.get_by_role("list", name="Next fires").wait_for()
    size = page.viewport_size
    assert size is not None
    # As tall as the page, so that what stays at the edge of the window does not cover its middle.
    tall = max(size["height"], page.evaluate("document.documentElement.scrollHeight"))
    page.set_viewport_size({"width": size["width"], "height": tall})
    name = path.strip("/").replace("/", "-").replace("?", "-").replace("=", "-").replace("&", "-") or "overview"
    page.screenshot(path=folder / f"{name}.png")
    page.set_viewport_size(size)


def main() -> None:
    if CHROMIUM is None:
        sys.exit("chromium is not installed")
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "screenshots"
    parts = sys.argv[2:] or [""]
    os.environ["MAINSPRING_NOTIFY_ALLOW"] = "127.0.0.1"
    with (
        tempfile.TemporaryDirectory() as data,
        receiving() as receiver,
        serving(Path(data) / "data") as server,
        browser() as shown,
    ):
        tell(server, receiver)
        paths = [path for path in (*PAGES, *furnish(server)) if any(part in path for part in parts)]
        for (width, size), dark in product(SIZES.items(), (False, True)):
            name = f"{width}-dark" if dark else width
            (folder / name).mkdir(parents=True, exist_ok=True)
            context = look(shown, server, phone=width == "390", dark=dark, size=size)
            sign_in(context, server)
            page = context.new_page()
            for path in paths:
                shoot(page, path, folder / name)
            context.close()


if __name__ == "__main__":
    main()
