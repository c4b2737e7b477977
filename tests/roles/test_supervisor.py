"""The supervisor restarts children that end, stops them in order and in time, and takes them along when it is
killed."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import pytest

from mainspring.roles.supervisor import Program, RestartBackoff, Supervisor
from mainspring.store.embedded import EmbeddedPostgres
from tests.eventually import PATIENCE

QUICK = RestartBackoff(first=0.01, longest=0.05)

# A child that writes "<name> began <pid>", and "<name> ended" when it is asked to stop.
CHILD = """
import os, signal, sys
name, fifo, manner = sys.argv[1:]
story = os.open(fifo, os.O_WRONLY)
def ended(*_):
    os.write(story, f"{name} ended\\n".encode())
    if manner == "obedient":
        os._exit(0)
signal.signal(signal.SIGTERM, ended)
os.write(story, f"{name} began {os.getpid()}\\n".encode())
while True:
    signal.pause()
"""

# A child that loads, and then waits until it is released. It also says what its own children would inherit.
HELD = """
import os, sys
from mainspring.kernel.held_start import wait_until_released
story = os.open(sys.argv[1], os.O_WRONLY)
os.write(story, f"loaded {os.getpid()}\\n".encode())
wait_until_released()
os.write(story, f"released {'MAINSPRING_HELD_START' in os.environ}\\n".encode())
os._exit(1)
"""

SUPERVISOR = """
import asyncio, os, sys
from mainspring.roles.supervisor import Program, Supervisor
async def supervise():
    Supervisor().start(Program("child", tuple(sys.argv[1:]), dict(os.environ)))
    await asyncio.Event().wait()
asyncio.run(supervise())
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    parent = Path(tempfile.mkdtemp(prefix="ms-", dir="/tmp"))
    yield parent
    shutil.rmtree(parent)


@asynccontextmanager
async def story_at(fifo: Path) -> AsyncIterator[asyncio.StreamReader]:
    """The lines that the children write."""
    os.mkfifo(fifo)
    reader = asyncio.StreamReader()
    file = os.fdopen(os.open(fifo, os.O_RDWR | os.O_NONBLOCK), "rb", buffering=0)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), file
    )
    try:
        async with asyncio.timeout(PATIENCE):
            yield reader
    finally:
        transport.close()


async def line_of(story: asyncio.StreamReader) -> list[str]:
    return (await story.readline()).decode().split()


def let_seconds_pass(seconds: float) -> None:
    """Wait on the clock of the event loop."""
    loop = asyncio.get_running_loop()
    loop_time = loop.time
    loop.time = lambda: loop_time() + seconds  # type: ignore[method-assign]


def child_argv(name: str, fifo: Path, manner: str = "obedient") -> tuple[str, ...]:
    return (sys.executable, "-S", "-c", CHILD, name, str(fifo), manner)


def program(name: str, fifo: Path, manner: str = "obedient", grace: float = 30.0) -> Program:
    return Program(name, child_argv(name, fifo, manner), dict(os.environ), grace)


def test_a_child_that_dies_is_started_again(folder: Path) -> None:
    async def scenario() -> None:
        async with story_at(folder / "story") as story:
            supervisor = Supervisor(backoff=QUICK)
            supervisor.start(program("server", folder / "story"))
            _, _, first = await line_of(story)
            os.kill(int(first), signal.SIGKILL)
            name, event, second = await line_of(story)
            assert (name, event) == ("server", "began")
            assert first != second
            while supervisor.pid("server") != int(second):  # the child can write before the supervisor knows its pid
                await asyncio.sleep(0)
            await supervisor.stop()
            assert supervisor.pid("server") is None

    asyncio.run(scenario())


def test_one_that_may_exit_is_not_started_again_when_it_ends_with_0(folder: Path) -> None:
    async def scenario() -> None:
        async with story_at(folder / "story") as story:
            supervisor = Supervisor(backoff=QUICK)
            for name, may_exit in (("server", False), ("worker", True)):
                supervisor.start(Program(name, child_argv(name, folder / "story"), dict(os.environ), 30.0, may_exit))
                _, _, pid = await line_of(story)
                os.kill(int(pid), signal.SIGTERM)
                assert await line_of(story) == [name, "ended"]
                if not may_exit:
                    assert (await line_of(story))[:2] == [name, "began"]
            while supervisor.pid("worker") is not None:
                await asyncio.sleep(0)
            await supervisor.stop()
            assert await line_of(story) == ["server", "ended"], "the worker has not come back"

    asyncio.run(scenario())


def test_a_program_that_cannot_be_started_is_tried_again_and_can_be_stopped() -> None:
    async def scenario() -> None:
        supervisor = Supervisor(backoff=RestartBackoff(first=60.0, longest=60.0))
        supervisor.start(Program("server", ("/nonexistent/program",), {}))
        await asyncio.sleep(0)
        async with asyncio.timeout(PATIENCE):
            await supervisor.stop()

    asyncio.run(scenario())


def test_children_end_one_after_the_other_last_started_first(folder: Path) -> None:
    async def scenario() -> None:
        async with story_at(folder / "story") as story:
            supervisor = Supervisor()
            for name in ("server", "worker"):
                supervisor.start(program(name, folder / "story"))
                assert (await line_of(story))[:2] == [name, "began"]
            await supervisor.stop()
            assert [await line_of(story), await line_of(story)] == [["worker", "ended"], ["server", "ended"]]

    asyncio.run(scenario())


def test_a_child_that_will_not_end_is_killed_after_its_grace(folder: Path) -> None:
    async def scenario() -> None:
        async with story_at(folder / "story") as story:
            supervisor = Supervisor()
            supervisor.start(program("worker", folder / "story", "stubborn", grace=30.0))
            _, _, pid = await line_of(story)
            stop = asyncio.create_task(supervisor.stop())
            assert await line_of(story) == ["worker", "ended"]  # it was asked, and stays
            assert not stop.done()
            let_seconds_pass(31.0)
            await stop
            with pytest.raises(ProcessLookupError):
                os.kill(int(pid), 0)

    asyncio.run(scenario())


def test_kill_during_the_stop_does_not_wait_for_the_grace(folder: Path) -> None:
    async def scenario() -> None:
        async with story_at(folder / "story") as story:
            supervisor = Supervisor()
            for name in ("server", "worker"):
                supervisor.start(program(name, folder / "story", "stubborn", grace=600.0))
                await line_of(story)
            stop = asyncio.create_task(supervisor.stop())
            assert await line_of(story) == ["worker", "ended"]  # it was asked, and stays
            assert not stop.done()
            supervisor.kill()
            await stop

    asyncio.run(scenario())


def test_children_are_out_of_reach_of_the_terminals_ctrl_c(folder: Path) -> None:
    async def scenario() -> None:
        async with story_at(folder / "story") as story:
            supervisor = Supervisor()
            supervisor.start(program("server", folder / "story"))
            _, _, pid = await line_of(story)
            assert os.getsid(int(pid)) == int(pid)
            await supervisor.stop()

    asyncio.run(scenario())


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ties a child's life to its parent's")
def test_children_are_asked_to_end_when_the_supervisor_is_killed(folder: Path) -> None:
    async def scenario() -> None:
        async with story_at(folder / "story") as story:
            supervising = subprocess.Popen([sys.executable, "-c", SUPERVISOR, *child_argv("server", folder / "story")])
            assert (await line_of(story))[:2] == ["server", "began"]
            supervising.kill()
            supervising.wait()
            assert await line_of(story) == ["server", "ended"]

    asyncio.run(scenario())


def test_postgres_that_dies_is_started_again_at_the_same_address_and_stopped_at_the_end(folder: Path) -> None:
    async def scenario() -> None:
        postgres = EmbeddedPostgres(folder / "data", settings={"shared_buffers": "16MB"})
        postgres.start()
        first = postgres.pid
        supervisor = Supervisor(backoff=QUICK, watch_every=0.01)
        supervisor.watch(postgres)
        assert first is not None
        os.kill(first, signal.SIGKILL)
        async with asyncio.timeout(PATIENCE):
            connection = await connected(postgres, not_from=first)
        await connection.close()
        await supervisor.stop()
        assert not postgres.alive()
        assert not postgres.lock.held

    async def connected(postgres: EmbeddedPostgres, not_from: int) -> asyncpg.Connection:
        while True:
            try:
                connection = await asyncpg.connect(postgres.url())
                if postgres.pid not in (None, not_from):
                    return connection
                await connection.close()
            except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
                pass
            await asyncio.sleep(0.02)

    asyncio.run(scenario())


def test_restart_delays_double_up_to_the_longest() -> None:
    assert [RestartBackoff().after(deaths) for deaths in (1, 2, 3, 5, 6, 1000)] == [0.2, 0.4, 0.8, 3.2, 5.0, 5.0]


@pytest.mark.anyio
async def test_a_held_program_loads_and_goes_on_when_it_is_released_and_is_not_held_again(folder: Path) -> None:
    supervisor = Supervisor(backoff=QUICK)
    async with story_at(folder / "story") as story:
        program = Program("held", (sys.executable, "-c", HELD, str(folder / "story")), dict(os.environ))
        supervisor.start(program, held=True)
        word, pid = await line_of(story)
        assert word == "loaded"
        while supervisor.pid("held") != int(pid):  # the child can write before the supervisor knows its pid
            await asyncio.sleep(0)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(story.readline(), 0.2)
        supervisor.release("held")
        assert await line_of(story) == ["released", "False"]
        assert (await line_of(story))[0] == "loaded"  # it has ended, and was started again
        assert await line_of(story) == ["released", "False"]
        await supervisor.stop()


@pytest.mark.anyio
async def test_a_held_program_ends_with_the_supervisor(folder: Path) -> None:
    supervisor = Supervisor(backoff=QUICK)
    async with story_at(folder / "story") as story:
        program = Program("held", (sys.executable, "-c", HELD, str(folder / "story")), dict(os.environ))
        supervisor.start(program, held=True)
        assert (await line_of(story))[0] == "loaded"
        async with asyncio.timeout(PATIENCE):
            await supervisor.stop()
        assert supervisor.pid("held") is None
