"""Real servers and workers on a real database, for tests that kill them."""

from __future__ import annotations

import asyncio
import os
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import httpx

from mainspring.bench.arena import free_port as free_port
from tests.certificates import NOBODY
from tests.processes import forked

T = TypeVar("T")

# Timeouts that end a test that hangs. On a busy machine a process can take 20 s to start.
START = 90.0
SLOW = 60.0


# A job that is sent again after a 503 is answered with 200.
TAKEN = (200, 201)


def with_key(job: dict[str, Any]) -> dict[str, Any]:
    """A job with an idempotency key, which can be sent again."""
    return {"idempotency_key": uuid4().hex, **job}


async def eventually(look: Callable[[], Awaitable[T]], within: float, what: str) -> T:
    """Repeat a check until its result is truthy. The error names what was expected."""
    began = time.monotonic()
    while not (found := await look()):
        waited = time.monotonic() - began
        if waited > within:
            raise AssertionError(f"not within {within:g} s: {what}")
        await asyncio.sleep(min(0.02 + waited / 50, 0.1))  # the looks take CPU from what they wait for
    return found


DEAD = ("Z", "X")  # the states of a process that has ended but is not reaped yet


def process_is_alive(pid: int) -> bool:
    """Whether the process runs. A process that is only waiting to be reaped does not."""
    return process_state(pid) not in DEAD


def process_state(pid: int) -> str:
    """The letter of its state: R, S, T (stopped), ... X if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):  # the process ended before the file was read
        return "X"


def worker_process(launcher: int) -> int:
    """The process that runs the tasks. `launcher` is the pid of `mainspring worker`. Between the two is the parent
    watchdog, which also becomes the parent of orphans."""
    return _first_child(parent_watchdog(launcher))


def parent_watchdog(launcher: int) -> int:
    return _first_child(launcher)


def _first_child(pid: int) -> int:
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


# The commands of tests write to the folders of tests, which only their user may enter.
RUN_AS = ["--run-as", "root"] if os.geteuid() == 0 else []


def processes_of(job_id: str) -> list[int]:
    """The processes of this job's commands that run. What they know as their pids are others, in a namespace."""
    mark = f"MAINSPRING_JOB_ID={job_id}\0".encode()
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and mark in (entry / "environ").read_bytes():
                found.append(int(entry.name))
    return found


class Cluster:
    """Servers and workers on one database. It ends every process that it starts."""

    def __init__(self, database_url: str, token: str, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.scheme = "http"
        self.url = f"http://127.0.0.1:{self.port}"
        self._database_url = database_url
        self._token_file = folder / "token"
        self._token_file.write_text(token)
        self._children: list[subprocess.Popen[bytes]] = []
        self._logs: dict[int, Path] = {}
        self._headers = {"Authorization": f"Bearer {token}"}
        self.http = httpx.AsyncClient(base_url=self.url, headers=self._headers, timeout=60, transport=Patient())

    async def use_tls(self, trusted: ssl.SSLContext) -> None:
        """The servers that follow use TLS; call it before the first one."""
        await self.http.aclose()
        self.scheme = "https"
        self.url = f"https://127.0.0.1:{self.port}"
        self.http = httpx.AsyncClient(base_url=self.url, headers=self._headers, timeout=60, transport=Patient(trusted))

    async def server(
        self, port: int | None = None, tree: Path | str | None = None, options: Sequence[str] = ()
    ) -> subprocess.Popen[bytes]:
        """Start a server and wait until it answers. Another `port` makes a second server of the same database. `tree`
        is a folder with the source of another version, or several for PYTHONPATH."""
        port = port or self.port
        arguments = ["server", "--port", str(port), "--data", str(self.folder), *options]
        child = self._start(arguments, {"MAINSPRING_DATABASE_URL": self._database_url, **_source(tree)})

        async def healthy() -> bool:
            assert child.poll() is None, self.said(child)
            return await self._healthy(f"{self.scheme}://127.0.0.1:{port}")

        await eventually(healthy, START, "the server answers")
        return child

    def talk_to(self, port: int) -> None:
        """Send the following requests to the server on this port."""
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.http.base_url = httpx.URL(self.url)

    async def worker(
        self,
        *options: str,
        app: str | None = None,
        slots: int = 4,
        folder: Path | None = None,
        servers: str | None = None,
        program: str | None = None,
        tree: Path | str | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start a worker and wait until it is registered. `folder` is its working directory, `servers` are its servers,
        `program` is a file that is run instead of `python -m mainspring`, `tree` is a folder with the source of another
        version."""
        before = await self._live_workers()
        arguments = ["worker", "--server", servers or self.url, "--token-file", str(self._token_file)]
        arguments += ["--slots", str(slots), *(RUN_AS if tree is None and program is None else ())]
        arguments += [*(["--app", app] if app else []), *options]
        child = self._start(arguments, _source(tree), folder, program)

        async def registered() -> bool:
            assert child.poll() is None, self.said(child)
            return bool(await self._live_workers() - before)

        await eventually(registered, START, "the worker is registered")
        return child

    def connector(self, sources: Path, *options: str) -> subprocess.Popen[bytes]:
        """Start a process that reads sources."""
        arguments = ["connect", "--sources", str(sources), "--server", self.url, "--token-file", str(self._token_file)]
        return self._start([*arguments, *options], {})

    async def submit(self, **fields: Any) -> str:
        answer = await self.http.post("/v1/jobs", json=with_key(fields))
        assert answer.status_code in TAKEN, answer.text
        return str(answer.json()["job_id"])

    async def submit_all(self, jobs: list[dict[str, Any]]) -> list[str]:
        """Submit the jobs as one batch."""
        answer = await self.http.post("/v1/jobs:batch", json=[with_key(job) for job in jobs], timeout=120)
        assert answer.status_code in TAKEN, answer.text
        return list(answer.json()["job_ids"])

    async def latest_run(self, job_id: str) -> dict[str, Any]:
        answer = await self.http.get(f"/v1/jobs/{job_id}/status")
        assert answer.status_code == 200, answer.text
        return answer.json()["latest_run"] or {}

    async def ended(self, job_id: str, within: float = SLOW) -> dict[str, Any]:
        async def look() -> dict[str, Any]:
            run = await self.latest_run(job_id)
            return run if run.get("end_time") else {}

        return await eventually(look, within, f"job {job_id} has ended")

    async def runs(self, job_id: str) -> list[dict[str, Any]]:
        answer = await self.http.get(f"/v1/jobs/{job_id}/runs", params={"limit": 1000})
        assert answer.status_code == 200, answer.text
        return list(answer.json())

    async def close(self) -> None:
        await self.http.aclose()
        for child in self._children:
            if child.poll() is None:
                child.send_signal(signal.SIGKILL)
            child.wait()

    def cli(self, *arguments: str, token_file: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run one command of the CLI to its end."""
        child = [sys.executable, "-m", "mainspring", *arguments, "--url", self.url]
        child += ["--token-file", str(token_file or self._token_file)]
        wide = {**os.environ, "COLUMNS": "500"}  # a table is not folded
        return subprocess.run(child, env=wide, capture_output=True, text=True, timeout=START, check=False)

    def said(self, child: subprocess.Popen[bytes]) -> str:
        """The output of a process so far."""
        return self._logs[child.pid].read_text(errors="replace")

    def _start(
        self,
        arguments: list[str],
        environment: dict[str, str],
        folder: Path | None = None,
        program: str | None = None,
    ) -> subprocess.Popen[bytes]:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("MAINSPRING_")}
        path = self.folder / f"{arguments[0]}-{len(self._children)}.log"
        with path.open("wb") as log:
            if program is None and "PYTHONPATH" not in environment:
                child = forked.start(arguments, log, {**clean, **environment}, folder)
            else:
                child = subprocess.Popen(
                    [sys.executable, *([program] if program else ["-m", "mainspring"]), *arguments],
                    env={**clean, **environment},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd=folder,
                )
        self._logs[child.pid] = path
        self._children.append(child)
        return child

    async def _healthy(self, url: str) -> bool:
        try:
            return (await self.http.get(f"{url}/healthz")).status_code == 200
        except httpx.TransportError:
            return False

    async def _live_workers(self) -> set[str]:
        answer = await self.http.get("/v1/workers")
        return {worker["worker_id"] for worker in answer.json()["workers"] if worker["state"] == "LIVE"}


def _source(tree: Path | str | None) -> dict[str, str]:
    return {} if tree is None else {"PYTHONPATH": str(tree)}


class Patient(httpx.AsyncHTTPTransport):
    """Repeats a request while the server reports that its database is unavailable or that it is overloaded, as every
    client does. On a busy machine both happen. Requests that must not happen twice need a key."""

    def __init__(self, trusted: ssl.SSLContext | None = None) -> None:
        super().__init__(retries=3, verify=trusted or NOBODY)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        deadline = time.monotonic() + SLOW
        while True:
            answer = await super().handle_async_request(request)
            if answer.status_code not in (429, 503) or request.url.path == "/readyz" or time.monotonic() > deadline:
                return answer
            await answer.aclose()
            await asyncio.sleep(0.1)
