"""What Python tasks print, log and leave to be cleaned up, on the loop and in threads."""

# ruff: noqa: T201 - tasks that print are what is tested

from __future__ import annotations

import asyncio
import io
import logging
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvloop

from mainspring.sdk.app.app import Mainspring
from mainspring.sdk.tasks.context import Context
from mainspring.wire.exchange import RunOrder
from mainspring.wire.execution import ResourceLimits, RunSetup
from mainspring.worker.exchange.server_client import ServerClient
from mainspring.worker.execution.attempt import Attempt, AttemptEnding, Stop, key_of
from mainspring.worker.execution.runner import Runner
from mainspring.worker.executors.python.executor import PythonExecutor
from mainspring.worker.incarnation import Incarnation
from mainspring.worker.output.capture import captured_streams
from mainspring.worker.output.log_shipper import LogShipper
from tests.eventually import PATIENCE

from .exchange_server import an_order
from .log_server import LogServer
from .test_log_shipper import WORKER

app = Mainspring()
logger = logging.getLogger("tests.shop")


@app.task
async def noop() -> None: ...


@app.task
async def says(word: str, times: int) -> None:
    for number in range(times):
        print(word, number)
        await asyncio.sleep(0)
        print(word, "error", number, file=sys.stderr)


@app.task
def says_in_thread(word: str, times: int) -> None:
    for number in range(times):
        print(word, number)
        print(word, "error", number, file=sys.stderr)


@app.task
async def has_helpers() -> None:
    async def helper(number: int) -> None:
        await asyncio.sleep(0)
        print("helper", number)

    await asyncio.gather(helper(1), asyncio.to_thread(print, "in another thread"))


@app.task
async def logs_records(ctx: Context) -> None:
    logger.debug("too much detail")
    logger.info("charged %s", "you")
    logger.warning("twice")
    logging.getLogger("tests.own").warning("by a handler of its own")
    ctx.log("a", 1, sep="-")


@app.task
async def writes_bytes() -> None:
    sys.stdout.buffer.write(b"\xffraw\n")
    sys.stdout.writelines(["a\n", "b\n"])
    sys.stdout.flush()
    assert not sys.stdout.isatty()


@app.task
async def leaves_things(ctx: Context, how: str) -> None:
    async def close(name: str) -> None:
        await asyncio.sleep(0)
        print("closed", name)

    ctx.add_cleanup(print, "last")
    ctx.add_cleanup(_fails)
    ctx.add_cleanup(close, "the file")
    if how == "sleep":
        await asyncio.sleep(60)
    if how == "raise":
        raise ValueError("no")


def _fails() -> None:
    raise RuntimeError("the clean-up broke")


@app.task
def leaves_things_in_thread(ctx: Context, how: str) -> None:
    async def close() -> None: ...

    ctx.add_cleanup(print, "last")
    ctx.add_cleanup(close)
    ctx.add_cleanup(_fails)
    if how == "sleep":
        ctx.wait_for_cancel(30)
    if how == "raise":
        raise ValueError("no")


@app.task
async def tells_progress(ctx: Context) -> None:
    ctx.progress(0.5, "half")


@app.task
def floods(lines: int) -> None:
    for _ in range(lines):
        print("x" * 999)


class Scene:
    """A runner with the real executor, shipper and capture, and a server that keeps the logs."""

    def __init__(self, server: LogServer, shipper: LogShipper) -> None:
        self.server = server
        self.endings: dict[Any, AttemptEnding] = {}
        self.progress: list[tuple[Any, float | None, str | None]] = []
        self.changed = asyncio.Event()
        executor = PythonExecutor(app.tasks, 16, open_log=shipper.open, note_progress=self._note)
        self.runner = Runner(16, [executor], kill_grace=30.0, report=self._report, notify=self._tell)

    def _note(self, attempt: Attempt, fraction: float | None, message: str | None) -> None:
        self.progress.append((attempt.order.run_id, fraction, message))

    def _report(self, attempt: Attempt, ending: AttemptEnding) -> None:
        self.endings[attempt.order.run_id] = ending

    def _tell(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()

    def take(self, *orders: RunOrder) -> list[Attempt]:
        attempts = [Attempt(order, key_of(order), time.monotonic()) for order in orders]
        self.runner.take(attempts)
        return attempts

    async def ending(self, order: RunOrder) -> AttemptEnding:
        async with asyncio.timeout(PATIENCE):
            while order.run_id not in self.endings:
                await self.changed.wait()
        return self.endings[order.run_id]

    async def log_of(self, order: RunOrder) -> str:
        await self.ending(order)
        return self.server.logs[order.run_id, order.fence].decode("utf-8", "backslashreplace")


def on_a_scene(test: Callable[[Scene], Awaitable[None]]) -> None:
    async def run() -> None:
        async with asyncio.timeout(PATIENCE), LogServer() as server:
            shipper = LogShipper(ServerClient(server.url, "secret", timeout=20.0))
            shipper.speaks_for(lambda: Incarnation(WORKER, ""))
            try:
                with captured_streams(shipper.open):
                    await test(Scene(server, shipper))
            finally:
                await shipper.close()

    before = sys.stdout, sys.stderr
    uvloop.run(run())
    assert (sys.stdout, sys.stderr) == before


def printed(task: str, payload: object = None, **fields: Any) -> str:
    found = []

    async def test(scene: Scene) -> None:
        order = an_order(task, payload=payload, **fields)
        scene.take(order)
        found.append(await scene.log_of(order))

    on_a_scene(test)
    return found[0]


def test_what_runs_at_the_same_time_does_not_mix(capsys: pytest.CaptureFixture[str]) -> None:
    async def test(scene: Scene) -> None:
        orders = [
            an_order(task, payload={"word": f"{task}-{number}", "times": 50})
            for number in range(4)
            for task in ("says", "says_in_thread")
        ]
        scene.take(*orders)
        for number in range(4):
            for index, task in enumerate(("says", "says_in_thread")):
                word = f"{task}-{number}"
                expected = "".join(f"{word} {n}\n{word} error {n}\n" for n in range(50))
                assert await scene.log_of(orders[number * 2 + index]) == expected
        print("ours")

    on_a_scene(test)
    assert capsys.readouterr() == ("ours\n", "")


def test_helpers_of_a_task_print_into_its_log() -> None:
    assert sorted(printed("has_helpers").splitlines()) == ["helper 1", "in another thread"]


def test_bytes_and_lines_are_captured_too() -> None:
    assert printed("writes_bytes") == "\\xffraw\na\nb\n"


def test_log_records_from_information_on_are_in_the_log_once() -> None:
    own = logging.getLogger("tests.own")
    handler = logging.StreamHandler(sys.stderr)
    own.addHandler(handler)
    own.propagate = False
    root, quiet = logging.getLogger(), io.StringIO()
    level, on_stderr = root.level, logging.StreamHandler(sys.stderr)
    root.addHandler(on_stderr)
    elsewhere = logging.StreamHandler(quiet)
    root.addHandler(elsewhere)
    try:
        assert printed("logs_records") == "charged you\ntwice\nby a handler of its own\na-1\n"
        assert root.level == level
        assert (handler.stream, on_stderr.stream) == (sys.stderr, sys.stderr)
    finally:
        own.removeHandler(handler)
        root.removeHandler(on_stderr)
        root.removeHandler(elsewhere)


def test_outside_a_run_information_is_as_quiet_as_before(capsys: pytest.CaptureFixture[str]) -> None:
    root, handler = logging.getLogger(), logging.StreamHandler(sys.stderr)
    level = root.level
    root.setLevel(logging.WARNING)
    root.addHandler(handler)

    async def test(_scene: Scene) -> None:
        logger.info("nobody asked")
        logger.warning("this one")

    try:
        on_a_scene(test)
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
    assert capsys.readouterr().err == "this one\n"


def test_a_run_that_prints_nothing_makes_no_request_and_opens_nothing() -> None:
    async def test(scene: Scene) -> None:
        orders = [an_order("noop") for _ in range(50)] + [an_order("tells_progress") for _ in range(5)]
        attempts = scene.take(*orders)
        for order in orders:
            assert (await scene.ending(order)).status == "SUCCESS"
        assert scene.server.requests == 0
        assert all(attempt.log is None for attempt in attempts)
        assert scene.progress == [(order.run_id, 0.5, "half") for order in orders[50:]]

    on_a_scene(test)


@pytest.mark.parametrize(("how", "status"), [("return", "SUCCESS"), ("raise", "FAILED"), ("sleep", "CANCELLED")])
@pytest.mark.parametrize("task", ["leaves_things", "leaves_things_in_thread"])
def test_clean_ups_run_last_added_first_however_it_ends(task: str, how: str, status: str) -> None:
    async def test(scene: Scene) -> None:
        order = an_order(task, payload={"how": how})
        (attempt,) = scene.take(order)
        if how == "sleep":
            async with asyncio.timeout(PATIENCE):
                while attempt not in scene.runner.active:
                    await scene.changed.wait()
            scene.runner.stop(attempt, Stop.CANCEL)
        text = await scene.log_of(order)
        assert scene.endings[order.run_id].status == status
        lines = [line for line in text.splitlines() if not line.startswith(" ") and "Traceback" not in line]
        if task == "leaves_things":
            assert lines == ["closed the file", "RuntimeError: the clean-up broke", "last"]
        else:
            assert lines[0] == "RuntimeError: the clean-up broke"
            assert "only an async task" in lines[1]
            assert lines[2:] == ["last"]

    on_a_scene(test)


def test_a_clean_up_runs_after_a_timeout() -> None:
    async def test(scene: Scene) -> None:
        order = an_order("leaves_things", payload={"how": "sleep"}, timeout=0.05)
        scene.take(order)
        assert (await scene.log_of(order)).endswith("last\n")
        assert "timed out" in (scene.endings[order.run_id].error or "")

    on_a_scene(test)


def test_a_thread_that_floods_is_kept_waiting_and_loses_nothing() -> None:
    text = printed("floods", {"lines": 20_000}, setup=RunSetup(limits=ResourceLimits(output=100_000_000)))
    assert len(text) == 20_000_000


@pytest.mark.parametrize("task", ["says", "says_in_thread"])
@pytest.mark.parametrize(
    ("setup", "name"),
    [
        (RunSetup(env={"A": "b"}), "env"),
        (RunSetup(limits=ResourceLimits(memory=1)), "limits.memory"),
        (RunSetup(limits=ResourceLimits(cpu=1.0)), "limits.cpu"),
        (RunSetup(limits=ResourceLimits(processes=1)), "limits.processes"),
        (RunSetup(limits=ResourceLimits(files=1)), "limits.files"),
        (RunSetup(limits=ResourceLimits(disk=1)), "limits.disk"),
        (RunSetup(sandbox="bubblewrap"), "sandbox"),
    ],
)
def test_a_setting_that_needs_a_process_fails_for_good(task: str, setup: RunSetup, name: str) -> None:
    async def test(scene: Scene) -> None:
        order = an_order(task, payload={"word": "a", "times": 1}, setup=setup)
        scene.take(order)
        ending = await scene.ending(order)
        assert (ending.status, ending.retry) == ("FAILED", False)
        kinds = "shell commands" if name == "sandbox" else "shell and process tasks"
        assert (ending.error or "").startswith(f"{name} has an effect only on {kinds}")

    on_a_scene(test)


def test_a_cap_and_a_grace_are_fine() -> None:
    setup = RunSetup(limits=ResourceLimits(output=3), kill_grace=1.0)
    assert printed("says", {"word": "a", "times": 1}, setup=setup) == "a 0"
