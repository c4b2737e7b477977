"""Fourteen daily tasks in the browser: `python -m tests.ui.daily_tasks` does them with live data and prints the clicks,
from the overview on and besides typing. It fails if one takes more than four."""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import httpx
from playwright.sync_api import Locator, Page, expect

from tests.ui.live_data import live
from tests.ui.serving import CHROMIUM, browser, is_loaded, look, sign_in

MOST = 4
expect.set_options(timeout=20_000)


class Person:
    """Somebody with a mouse, who starts at the overview."""

    def __init__(self, page: Page, server: httpx.Client) -> None:
        self.page = page
        self.server = server
        self.clicks = 0

    def click(self, what: Locator) -> None:
        self.clicks += 1
        what.first.click()

    def button(self, name: str) -> None:
        self.click(self.page.get_by_role("button", name=name))

    def link(self, name: str) -> None:
        self.click(self.page.get_by_role("link", name=name))

    def confirm(self, name: str) -> None:
        self.click(self.page.locator("dialog").get_by_role("button", name=name, exact=True))
        expect(self.page.locator("dialog")).to_have_count(0)

    def place(self, name: str) -> None:
        """A page of the side bar."""
        self.click(self.page.get_by_role("link", name=name, exact=True))
        expect(self.page.get_by_role("heading", level=1, name=name)).to_be_visible()

    def sees(self, text: str) -> None:
        expect(self.page.locator("main").get_by_text(text).first).to_be_visible()


def _failed_run(one: Person) -> None:
    one.click(one.page.locator("main").get_by_role("link", name="ValueError: there is no account"))
    one.click(one.page.get_by_role("link", name="…"))


def why_it_failed(one: Person) -> None:
    _failed_run(one)
    one.sees("there is no account")


def retry_it(one: Person) -> None:
    _failed_run(one)
    one.button("Replay")
    one.confirm("Replay")


def retry_all_of_a_task(one: Person) -> None:
    one.click(one.page.locator("main").get_by_role("link", name="ValueError: there is no account"))
    one.button("Replay")
    one.click(one.page.locator("dialog").get_by_role("button", name="Replay "))


def cancel_a_run(one: Person) -> None:
    one.click(one.page.get_by_role("link", name="Runs that run now"))
    one.click(one.page.get_by_role("row", name="Talk").get_by_role("link", name="…"))
    one.button("Cancel")
    one.confirm("Cancel the run")


def pause_a_job(one: Person) -> None:
    one.place("Jobs")
    one.link("Stock job 54")
    one.button("Pause")
    one.confirm("Pause")


def pause_a_queue(one: Person) -> None:
    one.place("Queues")
    one.button("Pause default")
    one.page.get_by_label("Reason").fill("the disk is full")
    one.confirm("Pause the queue")


def change_a_cron(one: Person) -> None:
    one.place("Jobs")
    one.link("Search job 53")
    one.link("Edit")
    one.page.get_by_label("Cron line").fill("30 7 * * MON-FRI")
    expect(one.page.get_by_role("list", name="Next fires")).to_contain_text("07:30")
    one.button("Save")
    expect(one.page).to_have_url(re.compile("/jobs/search.job-53$"))


def run_with_other_parameters(one: Person) -> None:
    one.place("Jobs")
    one.link("Monthly charge")
    one.button("Run now")
    one.page.get_by_label("account").fill("a2")
    one.confirm("Run now")


def find_by_label_id_and_payload(one: Person) -> None:
    one.page.keyboard.press("Control+k")
    one.page.keyboard.type("reports.job-07")
    expect(one.page.get_by_role("option", name="Reports job 7").first).to_be_visible()
    one.page.keyboard.press("Escape")
    one.place("Runs")
    one.page.get_by_label("Label, key=value").fill("team=billing")
    expect(one.page.get_by_text("Billing job").first).to_be_visible()
    one.page.get_by_label("Label, key=value").fill("")
    one.page.get_by_label("Payload, key=value").fill("account=a1")
    expect(one.page.get_by_role("row", name="Charge").first).to_be_visible()


def drain_a_worker(one: Person) -> None:
    one.place("Workers")
    one.link("worker-us-1")
    one.sees("Running now")
    one.button("Drain")
    one.confirm("Drain the worker")


def rerun_from_the_failed_step(one: Person) -> None:
    one.place("Workflows")
    one.click(one.page.get_by_role("row", name="nightly").get_by_role("link", name="Failed"))
    one.sees("no disk space left")
    one.button("Rerun from load")
    one.confirm("Rerun")


def move_a_job_from_a_pile_up(one: Person) -> None:
    one.place("Upcoming fires")
    one.click(one.page.get_by_role("link", name="fires from").filter(has_text="+"))
    one.click(one.page.get_by_role("link", name="Move"))
    one.page.get_by_label("Cron line").fill("H 9 * * *")
    expect(one.page.get_by_role("list", name="Next fires")).to_be_visible()
    one.button("Save")


def which_queue_is_behind(one: Person) -> None:
    one.place("Queues")
    one.link("behind")
    one.sees("the mail service is down until nine")


def edit_and_replay_a_dead_letter(one: Person) -> None:
    one.place("Dead letters")
    one.click(one.page.locator("main").get_by_role("link", name="ValueError: there is no account"))
    one.click(one.page.get_by_role("button", name="Replay Charge"))
    one.page.locator("dialog").get_by_label("account").fill("a1")
    one.confirm("Replay")


def create_a_job(one: Person) -> None:
    one.place("Jobs")
    one.link("Create a job")
    one.page.get_by_label("Command").fill("echo hello")
    one.button("Create")


TASKS: list[tuple[str, Callable[[Person], None]]] = [
    ("Why did last night's job fail?", why_it_failed),
    ("Retry it", retry_it),
    ("Retry all of a task", retry_all_of_a_task),
    ("Cancel a run", cancel_a_run),
    ("Pause a job", pause_a_job),
    ("Change a cron line and see its fires", change_a_cron),
    ("Run now with other parameters", run_with_other_parameters),
    ("Find by id, label and payload", find_by_label_id_and_payload),
    ("What does this worker do? Drain it", drain_a_worker),
    ("Which step failed? Rerun from it", rerun_from_the_failed_step),
    ("Find a pile-up and move a job", move_a_job_from_a_pile_up),
    ("Which queue is behind, and why?", which_queue_is_behind),
    ("Edit and replay a dead letter", edit_and_replay_a_dead_letter),
    ("Create a job", create_a_job),
    ("Pause a queue", pause_a_queue),
]


def done(page: Page, server: httpx.Client, wanted: str = "") -> list[tuple[str, int]]:
    """The clicks of each task."""
    found = []
    for name, task in TASKS:
        if wanted not in task.__name__:
            continue
        page.goto("/ui/")
        is_loaded(page)
        person = Person(page, server)
        task(person)
        found.append((name, person.clicks))
    return found


def main() -> None:
    if CHROMIUM is None:
        sys.exit("chromium is not installed")
    with tempfile.TemporaryDirectory() as folder, live(Path(folder)) as server, browser() as shown:
        context = look(shown, server, phone=False, dark=False, size={"width": 1440, "height": 900})
        context.set_default_timeout(20_000)
        sign_in(context, server)
        table = done(context.new_page(), server)
        context.close()
    print("| task | clicks |\n| --- | ---: |")  # noqa: T201
    print("\n".join(f"| {name} | {clicks} |" for name, clicks in table))  # noqa: T201
    if any(clicks > MOST for _, clicks in table):
        sys.exit(f"a task takes more than {MOST} clicks")


if __name__ == "__main__":
    main()
