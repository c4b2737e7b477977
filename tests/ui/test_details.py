"""What pages say in detail: figures that are true, words that name what they are about, links to where one acts."""

from __future__ import annotations

import re
from typing import Any
from uuid import uuid4

import httpx
from playwright.sync_api import Page, Route, expect

from tests.eventually import PATIENCE, until
from tests.ui.conftest import Open
from tests.ui.serving import is_loaded

expect.set_options(timeout=PATIENCE * 1000)
NOW = "2026-11-16T09:00:00Z"


def answered(page: Page, address: str, **changes: Any) -> None:
    """The answers of the server, with other values in some fields."""

    def change(route: Route) -> None:
        route.fulfill(json=route.fetch().json() | changes)

    page.route(address, change)


def ended_run(server: httpx.Client, **job: Any) -> str:
    """The id of a run of this job that has ended."""
    created: str = server.post("/v1/jobs", json=job).raise_for_status().json()["job_id"]
    until(lambda: server.get(f"/v1/runs/{created}").json()["status"] in ("SUCCESS", "FAILED"))
    return created


def test_the_verdict_names_each_problem_once_and_leads_there(open_page: Open) -> None:
    page = open_page("/settings")
    problems = ["3 runs wait in the queue mail, and no worker takes runs from it", "1 worker is lost", "a job is due"]
    text = "3 runs wait in the queue mail, and no worker takes runs from it. (2 more)"
    verdict = {"level": "critical", "text": text, "since": None}
    paused = ["queue slow is paused by ada"]
    answered(page, "**/v1/insights/overview*", verdict=verdict, problems=problems, paused=paused)
    page.goto("/ui/")
    box = page.get_by_label("Verdict")
    expect(box).to_contain_text("1 worker is lost")
    expect(box).not_to_contain_text("more)")
    assert (box.text_content() or "").count("3 runs wait") == 1
    expect(box.get_by_role("link", name="Queue slow")).to_be_visible()
    box.get_by_role("link", name="Queue mail").click()
    expect(page).to_have_url(re.compile(r"/queues\?q=mail$"))
    page.unroute_all(behavior="ignoreErrors")


def test_what_comes_is_in_order_and_has_the_soonest_job(open_page: Open) -> None:
    page = open_page("/settings")

    def fire(at: str, job: str) -> dict[str, str]:
        return {"at": f"2099-01-01T{at}Z", "job_id": job, "name": job, "schedule": "x", "queue": "default"}

    fires = [fire(f"00:00:{second:02}", "often") for second in range(50)]
    fires[10:10] = [fire("00:00:10", "second")]
    fires += [fire("00:01:00", "third"), fire("00:02:00", "often")]
    answered(page, "**/v1/insights/upcoming*", fires=fires)
    rare = {"job_id": "rare", "name": "rare", "next_fire_at": "2099-01-01T09:00:00Z"}
    page.route("**/v1/jobs?*", lambda route: route.fulfill(json={"jobs": [rare], "next": None}))
    page.goto("/ui/")
    names = page.locator("section", has_text="Coming").locator("ol li a")
    expect(names).to_have_text(["often", "second", "third", "rare"])
    page.unroute_all(behavior="ignoreErrors")


def test_the_legend_of_a_chart_has_the_latest_known_figures(open_page: Open) -> None:
    page = open_page("/settings")

    def change(route: Route) -> None:
        body = route.fetch().json()
        body["window"]["series"] |= {
            name: [*values[:-3], 200.0, 160.0, None]
            for name, values in body["window"]["series"].items()
            if name != "at"
        }
        route.fulfill(json=body)

    page.route("**/v1/insights/overview*", change)
    page.goto("/ui/")
    lag = page.locator("figure", has_text="Start lag")
    expect(lag.locator(".u-legend")).to_contain_text("2 min 40 s")
    axis = lag.locator(".u-axis").last.bounding_box()
    assert axis is not None and axis["width"] > 62  # "3 min 20 s" needs them
    page.unroute_all(behavior="ignoreErrors")


def test_a_mapped_step_has_no_attempt_of_its_own(open_page: Open, server: httpx.Client) -> None:
    name = f"mapped-{uuid4().hex[:8]}"
    step = {"name": "each", "command": "true", "map": {"range": 2}}
    server.post("/v1/workflows", json={"workflow_id": name, "schedule": "manual", "steps": [step]}).raise_for_status()
    run = server.post(f"/v1/workflows/{name}:runNow", json={}).raise_for_status().json()
    page = open_page(f"/workflows/{name}/runs/{run.get('workflow_run_id') or run['run_id']}?step=each")
    expect(page.get_by_role("heading", level=2, name="each")).to_be_visible()
    expect(page.get_by_role("main")).not_to_contain_text("undefined")
    node = page.get_by_role("group", name="Graph of the steps").get_by_role("button", name="each")
    assert node.get_attribute("aria-label") is None  # its name is what one sees


def test_an_attempt_in_the_strip_took_what_ran_says(open_page: Open, server: httpx.Client) -> None:
    retry = {"max_attempts": 2, "backoff": "constant", "base": 0, "jitter": 0}
    run = ended_run(server, command="exit 1", retry=retry)
    page = open_page("/settings")
    ran = {"state": "RUNNING", "at": "2026-11-16T09:00:00Z", "attempt": 1}
    ended = {"state": "FAILED", "at": "2026-11-16T09:00:00.900Z", "attempt": 1, "duration": 0.316}
    ended["reason"] = "backing off until 2026-11-16T09:00:02Z"
    entries = [ran, ended, ran | {"at": "2026-11-16T09:00:02Z", "attempt": 2}, ended | {"at": NOW, "attempt": 2}]
    page.route(f"**/v1/runs/{run}/timeline*", lambda route: route.fulfill(json=entries))
    page.goto(f"/ui/runs/{run}")
    expect(page.get_by_text("attempt 1: 316 ms")).to_be_visible()
    page.get_by_role("link", name="Timeline").or_(page.get_by_role("tab", name="Timeline")).first.click()
    expect(page.get_by_text("backing off until Mon 16 Nov 09:00:02 UTC").first).to_be_visible()
    page.unroute_all(behavior="ignoreErrors")


def test_a_run_that_goes_on_says_whose_error_it_shows(open_page: Open, server: httpx.Client) -> None:
    run = ended_run(server, command="exit 1", retries=0)
    page = open_page("/settings")
    running = {
        "status": "RUNNING",
        "attempt_number": 2,
        "max_attempts": 4,
        "error_message": "exit code 1",
        "reason": None,
    }
    answered(page, f"**/v1/runs/{run}", **running)
    page.goto(f"/ui/runs/{run}")
    expect(page.get_by_role("region", name="Error of an earlier attempt")).to_contain_text(
        "Attempt 1 of 4 failed. Attempt 2 is running."
    )
    page.unroute_all(behavior="ignoreErrors")


def test_a_one_time_job_is_not_run_by_its_schedule(open_page: Open, server: httpx.Client) -> None:
    job = {"job_id": f"once-{uuid4().hex[:8]}", "command": "true", "schedule": {"at": "2020-01-01T00:00:00Z"}}
    job["misfire"] = {"policy": "all"}
    server.post("/v1/jobs", json=job).raise_for_status()
    runs = f"/v1/jobs/{job['job_id']}/runs"
    until(lambda: bool(server.get(runs).json()))
    page = open_page(f"/runs/{server.get(runs).json()[0]['run_id']}")
    expect(page.get_by_role("main")).to_contain_text(re.compile("by its (time|submission)"))


def test_a_queue_that_nobody_serves_is_not_green(open_page: Open, server: httpx.Client) -> None:
    server.post("/v1/jobs", json={"command": "true", "queue": "unserved"}).raise_for_status()
    page = open_page("/queues?q=unserved")
    expect(page.get_by_role("row", name="unserved")).to_contain_text("No worker")


def test_all_workflows_are_shown_unless_a_state_is_chosen(open_page: Open, server: httpx.Client) -> None:
    name = f"one-off-{uuid4().hex[:8]}"
    step = {"name": "a", "command": "true"}
    server.post("/v1/workflows", json={"workflow_id": name, "schedule": "manual", "steps": [step]}).raise_for_status()
    server.delete(f"/v1/workflows/{name}").raise_for_status()
    page = open_page(f"/workflows?q={name}")
    expect(page.get_by_role("row", name=name)).to_contain_text("Cancelled")


def test_dead_letters_are_grouped_as_failures_are_whatever_page_is_shown(open_page: Open, server: httpx.Client) -> None:
    task = f"t.{uuid4().hex[:8]}"
    page = open_page("/settings")
    letter = {
        "run_id": "r", "job_id": "j", "name": "j", "task": task, "queue": "default", "attempts": 1, "died_at": NOW,
        "scheduled_for": NOW, "payload": None, "etag": "1", "reason": "",
    }  # fmt: skip
    errors = [f"HTTP 500 from https://a.example/{n}?id={n}" for n in range(3)] + ["no such file /tmp/x"]
    letters = [letter | {"run_id": f"r{n}", "error_message": error} for n, error in enumerate(errors)]

    def answer(route: Route) -> None:
        shown = letters[3:] if "cursor=" in route.request.url else letters
        route.fulfill(json={"dead_letters": shown, "next": None})

    page.route("**/v1/dead-letters?*", answer)
    page.goto("/ui/dead-letters?after=second")
    groups = page.get_by_role("table", name="Dead letters by error")
    expect(groups.get_by_role("row")).to_have_count(3)
    expect(groups.get_by_role("row").nth(1)).to_contain_text("3")
    page.unroute_all(behavior="ignoreErrors")


def test_a_limit_can_be_set_on_a_phone(open_page: Open, server: httpx.Client) -> None:
    body = {"command": "true", "schedule": "manual", "concurrency": {"limit": 3}, "job_id": f"l-{uuid4().hex[:8]}"}
    server.post("/v1/jobs", json=body).raise_for_status()
    page = open_page("/limits", phone=True)
    expect(page.get_by_role("button", name="Set").first).to_be_visible()


def test_cancel_says_that_it_ends_the_job(open_page: Open, server: httpx.Client) -> None:
    body = {"job_id": f"c-{uuid4().hex[:8]}", "command": "true", "schedule": "@yearly"}
    server.post("/v1/jobs", json=body).raise_for_status()
    page = open_page(f"/jobs/{body['job_id']}")
    page.get_by_role("button", name="Cancel for good").click()
    expect(page.get_by_role("dialog")).to_contain_text("cannot be resumed")


def test_no_two_navigations_have_one_name_and_bars_are_wide_enough(open_page: Open, server: httpx.Client) -> None:
    job = f"bars-{uuid4().hex[:8]}"
    server.post("/v1/jobs", json={"job_id": job, "command": "true", "schedule": "manual", "overlap": "allow"})
    for _ in range(3):
        server.post(f"/v1/jobs/{job}:runNow", json={}).raise_for_status()
    page = open_page("/settings")
    runs = server.get(f"/v1/jobs/{job}/runs?view=row").json()
    many = [runs[0] | {"run_id": str(uuid4())} for _ in range(100)]
    page.route(
        f"**/v1/jobs/{job}/runs*", lambda route: route.fulfill(json=many, headers={"Link": '</x?cursor=c>; rel="next"'})
    )
    page.goto(f"/ui/jobs/{job}")
    is_loaded(page)
    bars = page.get_by_role("list", name="The last")
    expect(bars).to_be_visible()
    widths = bars.locator("a").evaluate_all("bars => bars.map(bar => bar.getBoundingClientRect().width)")
    assert min(widths) >= 24
    names = page.locator("nav").evaluate_all("navs => navs.map(nav => nav.getAttribute('aria-label'))")
    assert len(names) == len(set(names))
    page.unroute_all(behavior="ignoreErrors")
