"""`kill -9` of any process of `mainspring up`, `worker` and `worker --reload`, at any moment: what a supervisor has to
restart comes back, and nothing else stays."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from mainspring.kernel.config import TOKEN_FILE_NAME
from tests.processes.cluster import (
    DEAD,
    RUN_AS,
    START,
    Cluster,
    Patient,
    eventually,
    free_port,
    parent_watchdog,
    process_is_alive,
    process_state,
    worker_process,
)
from tests.worker.a_launched_worker import below, children_of

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

# A worker has 5 s to end when its supervisor was killed, a server 15 s, and a death notice that no server takes 10 s.
GONE = 45.0
APP = """
from mainspring import Mainspring
import os, time

app = Mainspring()

@app.task(executor="process")
def held() -> None:
    time.sleep(3600)

@app.on_worker_start
async def maybe_blocks_the_event_loop() -> None:
    while os.path.exists("hang"):
        time.sleep(0.05)
"""


class Tree:
    """A command of ours and everything below it."""

    def __init__(self, arguments: list[str], folder: Path, **variables: str) -> None:
        self.folder = folder
        clean = {name: value for name, value in os.environ.items() if not name.startswith("MAINSPRING_")}
        with (folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "mainspring", *arguments],
                env={**clean, **variables}, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip

    @property
    def pid(self) -> int:
        return self.process.pid

    def named(self, *words: str) -> list[int]:
        """The processes of the tree whose command line has all these words."""
        return [pid for pid in below(self.pid) if all(word in command_line(pid) for word in words)]

    def launchers(self) -> list[int]:
        """`mainspring worker`, or with --reload the child that is restarted."""
        found = [pid for pid in self.named("mainspring", "worker", "--server") if "--reload" not in command_line(pid)]
        return [pid for pid in found if parent_of(pid) not in found]

    def said(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def kill(self) -> list[int]:
        """Kill the process that was started. Returns what was below it, and is to end."""
        pids = below(self.pid)
        self.process.kill()
        self.process.wait()
        return pids


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def parent_of(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def watchdog_of(launcher: int) -> list[int]:
    """The parent watchdog. What a worker tries out at its start is no leader of a session, or another program."""
    return [pid for pid in children_of(launcher) if leads(pid) and command_line(pid) == command_line(launcher)]


def worker_of(launcher: int) -> list[int]:
    return [
        pid
        for watchdog in watchdog_of(launcher)
        for pid in children_of(watchdog)
        if command_line(pid) == command_line(launcher)
    ]


def leads(pid: int) -> bool:
    with suppress(ProcessLookupError):
        return os.getsid(pid) == pid
    return False


async def gone(pids: list[int], folder: Path, within: float = GONE) -> None:
    """All of these have ended, and no other process names the folder."""

    async def look() -> bool:
        return not left(pids, folder)

    try:
        await eventually(look, within, "everything is gone")
    except AssertionError as error:
        shown = [f"{pid} {process_state(pid)} {command_line(pid)}" for pid in left(pids, folder)]
        raise AssertionError("\n".join([str(error), *shown])) from None


def left(pids: list[int], folder: Path) -> list[int]:
    strays = [
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and str(folder) in command_line(int(entry.name))
    ]
    return [pid for pid in {*pids, *strays} if process_is_alive(pid)]


@pytest.fixture
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="ms-tree-", dir="/tmp"))
    (made / "tree_app.py").write_text(APP)
    yield made
    for pid in left([], made):  # of a test that failed
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    shutil.rmtree(made, ignore_errors=True)


def an_up(folder: Path, *options: str) -> tuple[Tree, str]:
    port = free_port()
    place = ["--data", str(folder / "data"), "--port", str(port), "--app", "tree_app:app"]
    return Tree(["up", *place, *RUN_AS, *options], folder), f"http://127.0.0.1:{port}"


async def found(tree: Tree, look: Callable[[], list[int]], what: str) -> int:
    async def once() -> list[int]:
        assert tree.process.poll() is None, tree.said()
        with suppress(FileNotFoundError, IndexError, ProcessLookupError):
            return look()
        return []

    return (await eventually(once, START, what))[0]


class Client:
    """Submits jobs to the server of an `up`."""

    def __init__(self, tree: Tree, url: str) -> None:
        self.tree = tree
        token = (tree.folder / "data" / TOKEN_FILE_NAME).read_text().strip()
        headers = {"Authorization": f"Bearer {token}"}
        self.http = httpx.AsyncClient(base_url=url, headers=headers, timeout=60, transport=Patient())

    async def running(self, **fields: object) -> None:
        """Submit a job; returns when it runs."""
        answer = await eventually(lambda: self._submit(fields), START, "the job is taken")
        job_id = answer["job_id"]

        async def runs() -> bool:
            with suppress(httpx.TransportError):
                status = (await self.http.get(f"/v1/jobs/{job_id}/status")).json()
                return (status["latest_run"] or {}).get("status") == "RUNNING"
            return False

        await eventually(runs, START, "the job runs")

    async def _submit(self, fields: dict[str, object]) -> dict[str, str]:
        with suppress(httpx.TransportError):
            answer = await self.http.post("/v1/jobs", json=fields)
            if answer.status_code < 300:
                return dict(answer.json())
        return {}


@pytest.fixture
async def up(folder: Path) -> AsyncIterator[tuple[Tree, Client]]:
    tree, url = an_up(folder)

    async def ready() -> bool:
        assert tree.process.poll() is None, tree.said()
        return "Mainspring is up" in tree.said()

    await eventually(ready, START, "it is up")
    client = Client(tree, url)
    yield tree, client
    await client.http.aclose()
    if tree.process.poll() is None:
        tree.kill()


async def test_each_process_of_up_comes_back_or_ends_with_the_one_that_was_killed(up: tuple[Tree, Client]) -> None:
    tree, client = up
    await client.running(command="sleep 3600")
    # The server and PostgreSQL: restarted.
    for words in (("mainspring", "server", "--port"), ("bin/postgres", "-D")):
        (victim, *_) = tree.named(*words)
        os.kill(victim, signal.SIGKILL)
        await found(tree, lambda: [pid for pid in tree.named(*words) if pid != victim], f"{words} is back")  # noqa: B023
    # The watchdog: the worker starts another one, and the commands of the first have ended.
    await client.running(command="sleep 3600")
    (watchdog,) = tree.named("watchdog.program")[:1]
    before = [watchdog, *below(watchdog)]
    os.kill(watchdog, signal.SIGKILL)
    await gone_all(before)
    await found(tree, lambda: tree.named("watchdog.program"), "it is back")
    # The worker and the launcher: everything below ends, and the supervisor starts a new one.
    for victim_of in (worker_process, lambda launcher: launcher):
        await client.running(command="sleep 3600")
        await client.running(task="held")
        (launcher,) = tree.launchers()
        before = [launcher, *below(launcher)]
        os.kill(victim_of(launcher), signal.SIGKILL)
        await gone_all(before)
        await found(tree, lambda: [pid for pid in tree.launchers() if pid != launcher], "the worker is back")  # noqa: B023
    # The parent watchdog: the worker goes on. It ends with its launcher.
    await client.running(command="sleep 3600")
    (launcher,) = tree.launchers()
    before = below(launcher)
    os.kill(parent_watchdog(launcher), signal.SIGKILL)
    await client.running(command="sleep 3600")
    os.kill(launcher, signal.SIGKILL)
    await gone_all([*before, launcher])
    # `up` itself: nothing stays.
    await client.running(command="sleep 3600")
    await gone(tree.kill(), tree.folder)


async def gone_all(pids: list[int]) -> None:
    async def look() -> bool:
        return all(process_state(pid) in DEAD for pid in pids)

    await eventually(look, GONE, f"{pids} have ended")


@pytest.mark.parametrize("reload", [False, True])
async def test_an_up_that_is_killed_takes_a_worker_along_that_hangs_in_its_start(folder: Path, reload: bool) -> None:
    (folder / "hang").touch()
    tree, _ = an_up(folder, *(["--reload"] if reload else []))
    launcher = await found(tree, tree.launchers, "the launcher")
    await found(tree, lambda: worker_of(launcher), "the worker")
    await eventually(lambda: _loaded(tree), START, "the worker has loaded its modules")
    await gone(tree.kill(), folder)


async def _loaded(tree: Tree) -> bool:
    """Its log says how commands run, right before the hooks."""
    assert tree.process.poll() is None, tree.said()
    return "commands run as" in tree.said()


MOMENTS: dict[str, Callable[[Tree], list[int]]] = {
    "PostgreSQL": lambda tree: tree.named("bin/postgres", "-D"),
    "server": lambda tree: tree.named("mainspring", "server", "--port"),
    "parent watchdog": lambda tree: watchdog_of(tree.launchers()[0]),
    "watchdog": lambda tree: tree.named("watchdog.program"),
}


async def test_an_up_that_is_killed_while_it_starts_leaves_nothing(folder: Path) -> None:
    for what, look in MOMENTS.items():
        tree, _ = an_up(folder)
        await found(tree, lambda: look(tree), what)  # noqa: B023
        await gone(tree.kill(), folder)


@pytest.mark.parametrize("reload", [False, True])
async def test_each_process_of_a_worker_ends_with_the_one_that_was_killed(
    cluster: Cluster, folder: Path, reload: bool
) -> None:
    """Killed as soon as they exist. Below --reload the worker comes back, until that is killed itself."""
    await cluster.server()
    token = cluster.folder / "token"
    place = ["--server", cluster.url, "--token-file", str(token), "--app", "tree_app:app", *RUN_AS]
    arguments = ["worker", *place, *(["--reload"] if reload else [])]

    def launchers(tree: Tree) -> list[int]:
        return tree.launchers() if reload else [tree.pid]

    victims: dict[str, Callable[[int], list[int]]] = {
        "parent watchdog": watchdog_of,
        "worker": worker_of,
        "launcher": lambda launcher: [launcher] if below(launcher) else [],
    }
    for what, look in victims.items():
        tree = Tree(arguments, folder, MARK=str(folder))
        launcher = await found(tree, lambda: launchers(tree), "the launcher")  # noqa: B023
        victim = await found(tree, lambda: look(launcher), what)  # noqa: B023
        before = below(launcher)
        os.kill(victim, signal.SIGKILL)
        if what != "parent watchdog":
            await gone_all(before)
            if reload:
                launcher = await found(tree, lambda: [pid for pid in launchers(tree) if pid != launcher], "another")  # noqa: B023
            else:
                assert await asyncio.to_thread(tree.process.wait, START) != 0
        await gone([*before, *tree.kill()], folder)
