"""A page that comes back by itself, rows that stay where they are, graphs and calendars that can be used."""

from __future__ import annotations

import re
from typing import Any
from uuid import uuid4

import httpx
from playwright.sync_api import Route, expect

from tests.eventually import PATIENCE
from tests.ui.conftest import Open
from tests.ui.serving import is_loaded
from tests.ui.test_details import ended_run

expect.set_options(timeout=PATIENCE * 1000)


def test_new_rows_push_nothing_down(open_page: Open, server: httpx.Client) -> None:
    run = server.get(f"/v1/runs/{ended_run(server, command='true')}").json()
    rows = [run | {"run_id": str(uuid4())} for _ in range(5)]
    page = open_page("/settings")
    page.route("**/v1/runs?*", lambda route: route.fulfill(json={"runs": rows, "next": None}))
    page.goto("/ui/runs")
    row = page.locator("tbody tr").nth(2)
    row.hover()
    before = row.bounding_box()
    rows.insert(0, run | {"run_id": str(uuid4())})
    expect(page.get_by_role("button", name="1 new")).to_be_visible()
    assert row.bounding_box() == before
    page.unroute_all(behavior="ignoreErrors")


def test_a_large_graph_opens_on_its_first_step_on_a_phone(open_page: Open, server: httpx.Client) -> None:
    name = f"wide-{uuid4().hex[:8]}"
    steps: list[dict[str, Any]] = [{"name": "begin", "command": "true"}]
    steps += [{"name": f"part-{n}", "command": "true", "depends_on": ["begin"]} for n in range(200)]
    server.post("/v1/workflows", json={"workflow_id": name, "schedule": "manual", "steps": steps}).raise_for_status()
    run = server.post(f"/v1/workflows/{name}:runNow", json={}).raise_for_status().json()
    run_id = run.get("workflow_run_id") or run["run_id"]
    page = open_page(f"/workflows/{name}/runs/{run_id}", phone=True)
    graph = page.get_by_role("group", name="Graph of the steps")
    expect(graph.get_by_role("button", name="begin")).to_be_in_viewport()
    server.delete(f"/v1/workflows/{name}").raise_for_status()


def test_a_page_that_was_not_loaded_comes_back_by_itself(open_page: Open) -> None:
    page = open_page("/settings")
    is_loaded(page)
    away = True

    def gone(route: Route) -> None:
        route.abort() if away else route.fallback()

    page.route(re.compile("/assets/UpcomingPage|/v1/|/readyz"), gone)
    page.get_by_role("navigation", name="Pages", exact=True).get_by_role(
        "link", name="Upcoming fires", exact=True
    ).click()
    expect(page).to_have_url(re.compile("/upcoming$"))
    away = False
    expect(page.get_by_role("heading", level=1)).to_have_text("Upcoming fires")
    expect(page.get_by_role("heading", level=2).first).to_contain_text("fires of")
    page.unroute_all(behavior="ignoreErrors")


def test_what_is_not_there_is_not_asked_for_again(open_page: Open) -> None:
    page = open_page(f"/runs/{uuid4()}")
    problem = page.get_by_role("alert")
    expect(problem).to_contain_text("may have been deleted")
    expect(problem).not_to_contain_text("GET /v1")
    expect(page.get_by_role("button", name="Try again")).to_have_count(0)


def test_a_browser_without_its_cookie_asks_to_sign_in(open_page: Open) -> None:
    page = open_page("/queues")
    is_loaded(page)
    page.context.clear_cookies()
    expect(page.get_by_label("Token")).to_be_visible()  # with the next look at what changed


def test_a_cell_of_the_upcoming_fires_opens_and_a_job_is_moved_from_there(
    open_page: Open, server: httpx.Client
) -> None:
    job = f"cell-{uuid4().hex[:8]}"
    server.post("/v1/jobs", json={"job_id": job, "command": "true", "schedule": "7 * * * *"}).raise_for_status()
    page = open_page("/calendar?range=day")
    expect(page).to_have_url(re.compile(r"/ui/upcoming\?range=day$"))  # the old address leads there
    expect(page.get_by_role("note", name="Legend")).to_contain_text("Fires in a cell")
    heads = page.get_by_role("region", name="Heat map").locator("th[scope=row]")
    expect(heads.first).to_have_text(re.compile(r"^\w{3} \d\d:00$"))
    page.get_by_role("region", name="Heat map").get_by_role("link", name=re.compile(r":05$")).first.click()
    page.get_by_role("list", name="Jobs that fire").get_by_role("link", name=f"Move {job}").click()
    expect(page.get_by_label("Cron line")).to_have_value("7 * * * *")
    server.delete(f"/v1/jobs/{job}").raise_for_status()


def test_output_keeps_grounds_underlines_and_all_colours(open_page: Open, server: httpx.Client) -> None:
    text = r"\033[41mground\033[0m \033[4mline\033[0m \033[38;5;208mindexed\033[0m \033[38;2;1;2;3mexact\033[0m\n"
    page = open_page(f"/runs/{ended_run(server, command=['printf', text])}")
    log = page.get_by_role("log")
    expect(log.get_by_text("ground", exact=True)).not_to_have_css("background-color", "rgba(0, 0, 0, 0)")
    expect(log.get_by_text("line", exact=True)).to_have_css("text-decoration-line", "underline")
    expect(log.get_by_text("indexed", exact=True)).to_have_css("color", "rgb(255, 135, 0)")
    expect(log.get_by_text("exact", exact=True)).to_have_css("color", "rgb(1, 2, 3)")


def test_the_preview_of_a_cron_line_stands_beside_it(open_page: Open) -> None:
    page = open_page("/jobs/new")
    page.set_viewport_size({"width": 1440, "height": 900})
    line = page.get_by_label("Cron line")
    line.fill("0 9 * * MON-FRI")
    fires = page.get_by_role("list", name="Next fires")
    expect(fires.get_by_role("listitem").first).to_be_in_viewport()
    beside, field = fires.bounding_box(), line.bounding_box()
    assert beside is not None and field is not None
    assert beside["x"] > field["x"] + field["width"]


def test_a_refusal_marks_every_field_that_is_wrong(open_page: Open) -> None:
    page = open_page("/jobs/new")
    page.get_by_label("Id", exact=True).fill("not an id!")
    page.get_by_label("Command", exact=True).fill("true")
    page.get_by_label("Cron line").fill("0 9 * * *")
    page.get_by_label("Timeout").fill("soon")
    page.get_by_label("Attempts").fill("0")
    page.get_by_role("button", name="Create", exact=True).click()
    for label in ("Id", "Timeout", "Attempts"):
        expect(page.get_by_label(label, exact=True)).to_have_attribute("aria-invalid", "true")
    expect(page.get_by_role("main")).not_to_contain_text("regex")
