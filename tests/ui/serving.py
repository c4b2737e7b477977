"""A real `mainspring up` and a browser, for the tests and for the screenshots."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from playwright.sync_api import Browser, BrowserContext, Page, ViewportSize, sync_playwright

from tests.eventually import PATIENCE, until

CHROMIUM = shutil.which("chromium-headless-shell") or shutil.which("chromium")  # the first takes a third less CPU time
ROOT = Path(__file__).resolve().parents[2]
WIDE: ViewportSize = {"width": 1280, "height": 900}
PHONE: ViewportSize = {"width": 360, "height": 740}
PAGES = (
    "/", "/jobs", "/jobs/new", "/runs", "/logs", "/workflows", "/approvals", "/approvals?of=everybody", "/events",
    "/sources", "/upcoming", "/calendars",
    "/calendars?create=1", "/failures", "/dead-letters", "/missed", "/audit", "/notifications",
    "/notifications?tab=rules", "/notifications?tab=channels", "/operations", "/operations?tab=backfills",
    "/queues", "/workers", "/limits", "/access", "/secrets", "/docs", "/settings",
)  # fmt: skip


@contextmanager
def serving(data: Path) -> Iterator[httpx.Client]:
    """A server with a worker. The client has the token of the administrator."""
    data.parent.mkdir(parents=True, exist_ok=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        sys.executable, "-m", "mainspring", "up", "--data", str(data), "--port", str(port), "--app", "tests.ui.app:app",
    ]  # fmt: skip
    with data.with_name("up.log").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, stdout=subprocess.DEVNULL, stderr=log
        )
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE) as client:
            until(lambda: _is_ready(client, process))
            client.headers["Authorization"] = f"Bearer {(data / 'admin-token').read_text().strip()}"
            until(lambda: bool(client.get("/v1/workers").json()["workers"]))
            yield client
    finally:
        process.terminate()
        process.wait(PATIENCE)


def _is_ready(client: httpx.Client, process: subprocess.Popen[bytes]) -> bool:
    assert process.poll() is None, "mainspring up has ended"
    try:
        return client.get("/readyz").status_code == 200
    except httpx.TransportError:
        return False


@contextmanager
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        shown = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield shown
        shown.close()


def look(
    shown: Browser, server: httpx.Client, *, phone: bool, dark: bool, size: ViewportSize | None = None
) -> BrowserContext:
    context = shown.new_context(
        viewport=size or (PHONE if phone else WIDE),
        color_scheme="dark" if dark else "light",
        reduced_motion="reduce",  # a mark that turns is painted sixty times a second
        base_url=str(server.base_url),
    )
    context.set_default_timeout(PATIENCE * 1000)
    return context


def sign_in(context: BrowserContext, server: httpx.Client) -> None:
    """Without a page, which takes half a second of CPU time."""
    token = server.headers["Authorization"].removeprefix("Bearer ")
    origin = str(server.base_url).rstrip("/")
    signed_in = context.request.post("/v1/session", data={"token": token}, headers={"Origin": origin})
    assert signed_in.ok, signed_in.text()


def is_loaded(page: Page) -> None:
    page.get_by_role("heading", level=1).wait_for()
    page.locator("main:not(:has([aria-busy=true]))").wait_for()
