"""What the dashboard costs in a browser: `python -m tests.ui.speed` prints how many bytes the overview loads cold, when
its first figures are there, and the longest task while a list of 10,000 workers is scrolled from part to part."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import Browser, Page

from tests.ui.serving import browser, is_loaded, look, serving, sign_in

ROWS = 10_000
LONG_TASKS = (
    "new PerformanceObserver(list => (window.tasks ??= []).push(...list.getEntries().map(one => one.duration)))"
)
WATCH = f"{LONG_TASKS}.observe({{type: 'longtask', buffered: true}})"
SCROLL = """async () => {
  window.tasks = [];
  for (let turn = 0; turn < 120; turn++) {
    window.scrollBy(0, 120);
    const next = [...document.querySelectorAll('button')].find(one => one.textContent.startsWith('Next'));
    if (turn % 60 === 59) next?.click();
    await new Promise(requestAnimationFrame);
  }
  await new Promise(done => setTimeout(done, 300));
  return Math.max(0, ...window.tasks);
}"""


def opened(shown: Browser, server: httpx.Client) -> Page:
    context = look(shown, server, phone=False, dark=False)
    sign_in(context, server)
    page = context.new_page()
    page.add_init_script(WATCH)
    return page


def cold_overview(shown: Browser, server: httpx.Client) -> tuple[int, float]:
    """Bytes over the network, of each address once, and milliseconds until the first figures."""
    page = opened(shown, server)
    session = page.context.new_cdp_session(page)
    session.send("Network.enable")
    address: dict[str, str] = {}
    loaded: dict[str, float] = {}

    def ended(event: dict[str, Any]) -> None:  # what is asked for again later is no part of a cold load
        loaded.setdefault(address.get(event["requestId"], ""), event["encodedDataLength"])

    session.on("Network.responseReceived", lambda one: address.update({one["requestId"]: one["response"]["url"]}))
    session.on("Network.loadingFinished", ended)
    page.goto("/ui/")
    page.get_by_text("Busy slots").wait_for()
    shown_at = page.evaluate("performance.now()")
    is_loaded(page)
    page.context.close()
    return int(sum(loaded.values())), float(shown_at)


def longest_task(shown: Browser, server: httpx.Client) -> float:
    """Milliseconds, while somebody scrolls."""
    page = opened(shown, server)
    worker: dict[str, Any] = server.get("/v1/workers").json()["workers"][0]
    rows = [worker | {"worker_id": f"w{number}", "name": f"worker-{number}"} for number in range(ROWS)]
    page.route("**/v1/workers*", lambda route: route.fulfill(json={"workers": rows}))
    page.goto("/ui/workers")
    page.get_by_role("row").nth(100).wait_for()
    found = float(page.evaluate(SCROLL))
    page.unroute_all(behavior="ignoreErrors")
    page.context.close()
    return found


def main() -> None:
    with tempfile.TemporaryDirectory() as data, serving(Path(data) / "data") as server, browser() as shown:
        size, first = cold_overview(shown, server)
        print(f"cold overview: {size / 1000:.0f} kB, first figures after {first:.0f} ms")  # noqa: T201
        print(f"longest task while a list of {ROWS:,} rows scrolls: {longest_task(shown, server):.0f} ms")  # noqa: T201


if __name__ == "__main__":
    main()
