"""Shell runs: a clean environment, the end of the output, and nothing left behind."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import uvloop

from mainspring.kernel.texts import error_line
from mainspring.kinds.shell.executor import ShellExecutor
from mainspring.kinds.shell.sandbox.bubblewrap import Bubblewrap, NoSandbox
from mainspring.wire.exchange import RunOrder
from mainspring.wire.execution import Cause, RunSetup
from mainspring.worker.execution.attempt import Attempt, AttemptEnding, OpenLog, Stop, key_of
from mainspring.worker.execution.work_folders import WorkFolders
from mainspring.worker.processes.accounts import CommandAccounts
from mainspring.worker.processes.watchdog_client import WatchdogClient
from tests.eventually import PATIENCE
from tests.operations.waiting import until

from .exchange_server import an_order
from .processes import alive, ended_soon, written
from .sandboxes import sandbox_here
from .sinks import DroppedLog, KeptLog

KILL_GRACE = 0.3
ENVIRON = {
    "PATH": os.environ["PATH"],
    "LC_ALL": "C.UTF-8",
    "MAINSPRING_TOKEN": "a secret",
    "MAINSPRING_DATABASE_URL": "postgresql://u:secret@h/d",
    "AWS_SECRET_ACCESS_KEY": "a secret",
}


@asynccontextmanager
async def an_executor(
    open_log: OpenLog | None = None,
    *,
    confine_all: bool = False,
    sandbox: Bubblewrap | NoSandbox | None = None,
    folders: WorkFolders | None = None,
    isolated: bool = False,
    accounts: CommandAccounts | None = None,
) -> AsyncIterator[ShellExecutor]:
    """`sandbox`: another than that of this machine."""
    watchdog = WatchdogClient()
    watchdog.start()
    try:
        yield ShellExecutor(
            watchdog, kill_grace=KILL_GRACE, environ=ENVIRON, open_log=open_log, folders=folders,
            sandbox=sandbox or sandbox_here(), confine_all=confine_all, isolated=isolated, accounts=accounts,
        )  # fmt: skip
    finally:
        watchdog.stop()


def shell(command: str | list[str], **fields: Any) -> RunOrder:
    return an_order("shell", command=command, **fields)


def ran(
    order: RunOrder,
    meanwhile: Callable[[ShellExecutor, Attempt], Awaitable[None]] | None = None,
    open_log: OpenLog | None = None,
    **fields: Any,
) -> tuple[AttemptEnding, ShellExecutor]:
    """How the order ended, while `meanwhile` did its deed. `fields` are those of the executor."""

    async def run() -> tuple[AttemptEnding, ShellExecutor]:
        async with an_executor(open_log, **fields) as executor:
            attempt = Attempt(order, key_of(order), 0.0)
            running = asyncio.create_task(executor.execute(attempt))
            if meanwhile is not None:
                await meanwhile(executor, attempt)
            async with asyncio.timeout(PATIENCE):
                return await running, executor

    return uvloop.run(run())


async def known_to_run(attempt: Attempt) -> None:
    """A command may write before its start is known here, and one that is stopped until then is killed outright."""
    await until(lambda: attempt.kill is not None)


def stop(attempt: Attempt, why: Stop = Stop.CANCEL) -> None:
    attempt.stopping = why
    assert attempt.on_stop is not None
    attempt.on_stop()


def result(ending: AttemptEnding) -> Any:
    assert ending.result is not None, ending.error
    return msgspec.json.decode(ending.result)


def test_a_command_string_goes_through_the_shell() -> None:
    ending, _ = ran(shell("echo $((6 * 7)); echo oops >&2"))
    assert ending.status == "SUCCESS"
    assert result(ending) == {"exit_code": 0, "output": "42\noops\n"}


def test_a_list_is_run_as_it_stands() -> None:
    ending, _ = ran(shell(["printf", "%s|", "$HOME", "a b"]))
    assert result(ending)["output"] == "$HOME|a b|"


def test_the_exit_code_and_the_end_of_the_output_are_the_error() -> None:
    ending, _ = ran(shell("seq 1 100000; echo the last words >&2; exit 3"))
    assert ending.status == "FAILED"
    assert ending.retry
    assert ending.error is not None
    assert ending.cause == Cause(exit_code=3)
    assert ending.error.startswith("exit code 3: ")
    assert ending.error.endswith("the last words")
    assert len(ending.error) <= 8 * 1024


@pytest.mark.parametrize(
    ("command", "line"),
    [
        ("echo reading; echo no such region >&2; echo cleaning up; exit 3", "exit code 3: no such region"),
        ("echo one >&2; echo two >&2; echo three; kill -9 $$", "killed by SIGKILL: two"),
        ("echo reading; echo no such region; exit 3", "exit code 3: no such region"),
        ("echo reading; echo >&2; exit 3", "exit code 3: reading"),
        ("echo a 2>&1 >&2; echo told > /dev/stderr; echo b > /dev/stdout; exit 3", "exit code 3: told"),
        ("exit 3", "exit code 3"),
    ],
)
def test_the_error_in_one_line_ends_with_the_last_line_of_stderr_or_else_of_the_output(command: str, line: str) -> None:
    ending, _ = ran(shell(command))
    assert ending.error is not None
    assert error_line(ending.error) == line


def test_the_result_has_both_streams_and_the_error_has_only_stderr_if_it_was_written_to() -> None:
    assert result(ran(shell("echo a; echo b >&2; echo c"))[0])["output"] == "a\nb\nc\n"
    assert ran(shell("echo a; echo b >&2; echo c; exit 1"))[0].error == "exit code 1: b"


def test_long_output_is_kept_by_its_end_and_counted() -> None:
    kept = result(ran(shell("seq 1 100000"))[0])
    assert kept["output_bytes"] == sum(len(str(number)) + 1 for number in range(1, 100_001))
    assert len(kept["output"]) == 8 * 1024
    assert kept["output"].endswith("99999\n100000\n")


def test_output_that_is_not_text_does_no_harm() -> None:
    assert result(ran(shell(r"printf 'a\000b\377c'"))[0])["output"] == "a\ufffdb\ufffdc"


def test_a_command_that_is_not_there_fails_and_says_so() -> None:
    ending, _ = ran(shell(["no-such-program-here"]))
    assert ending.error is not None
    assert ending.error.startswith("exit code 127: ")
    assert "no-such-program-here" in ending.error


def test_a_command_that_was_killed_names_the_signal() -> None:
    ending, _ = ran(shell("kill -SEGV $$"))
    assert (ending.error, ending.cause) == ("killed by SIGSEGV", Cause(exit_code=-signal.SIGSEGV))


@pytest.mark.parametrize("command", [None, "", []])
def test_a_shell_run_without_a_command_fails_for_good(command: Any) -> None:
    ending, _ = ran(shell(command))
    assert (ending.status, ending.retry) == ("FAILED", False)


def test_the_environment_has_the_run_and_none_of_the_workers_secrets() -> None:
    order = shell(["env"], job_id="nightly", attempt=2, payload={"region": "eu"})
    environ = dict(line.split("=", 1) for line in result(ran(order)[0])["output"].splitlines())
    environ.pop("PWD", None)  # the shell's own
    environ.pop("_", None)
    assert environ.pop("PATH") == os.environ["PATH"]
    assert environ.pop("TMPDIR").startswith(tempfile.gettempdir())
    assert json.loads(environ.pop("MAINSPRING_PAYLOAD")) == {"region": "eu"}
    assert environ.pop("TRACEPARENT").startswith(f"00-{order.run_id.hex}-")
    assert environ == {
        "LC_ALL": "C.UTF-8",
        "MAINSPRING_JOB_ID": "nightly",
        "MAINSPRING_RUN_ID": str(order.run_id),
        "MAINSPRING_ATTEMPT": "2",
        "MAINSPRING_SCHEDULED_FOR": "2026-11-15T09:00:00Z",
        "MAINSPRING_IDEMPOTENCY_KEY": "nightly/2026-11-15T09:00:00Z",
    }


def test_stdin_is_empty() -> None:
    assert result(ran(shell("wc -c"))[0])["output"].strip() == "0"


def test_a_payload_too_large_for_the_environment_fails_for_good() -> None:
    ending, _ = ran(shell("true", payload={"x": "a" * 130_000}))
    assert (ending.status, ending.retry) == ("FAILED", False)


def test_what_a_command_leaves_behind_dies_with_its_run(tmp_path: Path) -> None:
    ending, _ = ran(shell(f"sleep 60 & echo $! > {tmp_path}/pid; echo done"))
    assert result(ending)["output"] == "done\n"
    assert not alive(int((tmp_path / "pid").read_text()))


def test_a_process_that_left_the_group_dies_with_its_run_too(tmp_path: Path) -> None:
    ending, _ = ran(shell(f"setsid sleep 60 & echo $! > {tmp_path}/pid; echo done"))
    assert result(ending)["output"] == "done\n"
    assert not alive(int((tmp_path / "pid").read_text()))


def test_cancel_is_reported_when_the_whole_group_is_gone(tmp_path: Path) -> None:
    pids: list[int] = []

    async def cancel(_: ShellExecutor, attempt: Attempt) -> None:
        pids.extend(map(int, await written(tmp_path / "pids", 2)))
        stop(attempt)

    order = shell(f"sleep 60 & echo $$ >> {tmp_path}/pids; echo $! >> {tmp_path}/pids; wait")
    ending, _ = ran(order, cancel)
    assert ending.status == "CANCELLED"
    assert not any(map(alive, pids))


def test_a_command_that_ignores_term_is_killed_after_the_grace(tmp_path: Path) -> None:
    async def cancel(_: ShellExecutor, attempt: Attempt) -> None:
        await written(tmp_path / "ready")
        stop(attempt)

    order = shell(f"trap '' TERM; echo $$ > {tmp_path}/ready; while :; do sleep 0.05; done")
    ending, _ = ran(order, cancel)
    assert ending.status == "CANCELLED"
    assert not alive(int((tmp_path / "ready").read_text()))


def test_a_member_that_ends_in_good_order_gets_its_grace_after_the_leader_has_gone(tmp_path: Path) -> None:
    """The shell dies of TERM at once; what it started still saves its work."""

    async def cancel(_: ShellExecutor, attempt: Attempt) -> None:
        await written(tmp_path / "ready")
        await known_to_run(attempt)
        stop(attempt)

    inner = f"trap 'echo saved > {tmp_path}/saved; exit' TERM; echo > {tmp_path}/ready; while :; do sleep 0.02; done"
    ending, _ = ran(shell(["sh", "-c", f'sh -c "{inner}" & wait'], setup=RunSetup(kill_grace=30.0)), cancel)
    assert ending.status == "CANCELLED"
    assert (tmp_path / "saved").read_text() == "saved\n"


def test_a_timeout_is_a_failure_with_the_last_output(tmp_path: Path) -> None:
    async def time_out(_: ShellExecutor, attempt: Attempt) -> None:
        await written(tmp_path / "ready")
        stop(attempt, Stop.TIMEOUT)

    ending, _ = ran(shell(f"echo half way; echo > {tmp_path}/ready; sleep 60", timeout=900.0), time_out)
    assert (ending.status, ending.error) == ("FAILED", "timed out after 15m: half way\n")


def test_a_run_that_is_stopped_while_it_starts_is_killed_at_once() -> None:
    async def stop_at_once(_: ShellExecutor, attempt: Attempt) -> None:
        await asyncio.sleep(0)  # it has asked for the command
        stop(attempt)

    ending, _ = ran(shell("trap '' TERM; sleep 60"), stop_at_once)
    assert ending.status == "CANCELLED"


def test_a_job_may_ask_for_a_grace_of_its_own(tmp_path: Path) -> None:
    """The worker's own is over after 0.3 s; this one takes longer to end in good order."""

    async def cancel(_: ShellExecutor, attempt: Attempt) -> None:
        await written(tmp_path / "ready")
        await known_to_run(attempt)
        stop(attempt)

    inner = f"trap 'sleep 0.5; echo saved > {tmp_path}/saved; exit' TERM; echo > {tmp_path}/ready; "
    order = shell(inner + "while :; do sleep 0.02; done", setup=RunSetup(kill_grace=30.0))
    ending, _ = ran(order, cancel)
    assert ending.status == "CANCELLED"
    assert (tmp_path / "saved").exists()


def test_cancelled_means_that_every_process_is_gone_whatever_it_did(tmp_path: Path) -> None:
    """One child calls setsid, one ignores TERM, one is a daemon; the command itself floods its output."""
    pids: list[int] = []

    async def cancel(_: ShellExecutor, attempt: Attempt) -> None:
        pids.extend(map(int, await written(tmp_path / "pids", 4)))
        stop(attempt)

    deaf = tmp_path / "deaf"
    deaf.write_text(f"trap '' TERM; echo $$ >> {tmp_path}/pids; while :; do sleep 0.05; done")
    order = shell(f"setsid sh {deaf} & sh {deaf} & (setsid sh {deaf} &) & echo $$ >> {tmp_path}/pids; exec yes")
    ending, _ = ran(order, cancel)
    assert ending.status == "CANCELLED"
    assert len(pids) == 4
    assert not any(map(alive, pids))


def test_kill_all_ends_everything_at_once(tmp_path: Path) -> None:
    async def kill(executor: ShellExecutor, attempt: Attempt) -> None:
        (pid,) = map(int, await written(tmp_path / "ready"))
        await known_to_run(attempt)
        executor.kill_all()
        assert await ended_soon(pid)

    ending, _ = ran(shell(f"trap '' TERM; echo $$ > {tmp_path}/ready; while :; do sleep 0.05; done"), kill)
    assert ending.error == "killed by SIGKILL"


def test_no_descriptor_stays_open() -> None:
    async def run() -> tuple[int, int]:
        async with an_executor() as executor:

            async def once() -> int:
                order = shell("echo hello")
                await executor.execute(Attempt(order, key_of(order), 0.0))
                return len(os.listdir("/proc/self/fd"))

            first = await once()
            for _ in range(5):
                last = await once()
            return first, last

    first, last = uvloop.run(run())
    assert last <= first


# -- output


async def the_ending(executor: ShellExecutor, order: RunOrder) -> AttemptEnding:
    async with asyncio.timeout(PATIENCE):
        return await executor.execute(Attempt(order, key_of(order), 0.0))


def test_all_output_goes_to_the_log_in_order_and_is_there_when_the_attempt_ends() -> None:
    async def run() -> None:
        log = KeptLog()
        async with an_executor(log.open) as executor:
            ending = await the_ending(executor, shell("for i in 1 2 3; do echo out $i; echo err $i >&2; done; exit 1"))
        assert ending.status == "FAILED"
        assert log.data.decode().split("\n")[:4] == ["out 1", "err 1", "out 2", "err 2"]
        assert (log.opened, log.finished) == (1, True)

    uvloop.run(run())


def test_a_run_that_prints_nothing_opens_no_log() -> None:
    async def run() -> None:
        log = KeptLog()
        async with an_executor(log.open) as executor:
            assert (await the_ending(executor, shell("true"))).status == "SUCCESS"
        assert log.opened == 0

    uvloop.run(run())


def test_reading_pauses_while_the_log_is_full() -> None:
    async def run() -> None:
        log = KeptLog()
        log.most = 1
        async with an_executor(log.open) as executor:
            running = asyncio.create_task(the_ending(executor, shell("head -c 3000000 /dev/zero")))
            await log.waited_for.wait()
            held = len(log.data)
            assert held < 1_000_000
            log.most = float("inf")
            log.has_room.set()
            assert (await running).status == "SUCCESS"
            assert len(log.data) == 3_000_000

    uvloop.run(run())


def test_a_run_can_be_cancelled_while_its_log_is_full() -> None:
    async def run() -> None:
        log = KeptLog()
        log.most = 1
        async with an_executor(log.open) as executor:
            order = shell("trap '' TERM; yes")
            attempt = Attempt(order, key_of(order), 0.0)
            running = asyncio.create_task(executor.execute(attempt))
            await log.waited_for.wait()
            stop(attempt)
            async with asyncio.timeout(PATIENCE):
                assert (await running).status == "CANCELLED"
            assert log.finished

    uvloop.run(run())


def test_a_flood_of_output_leaves_the_memory_flat() -> None:
    async def run() -> None:
        log = DroppedLog()
        async with an_executor(log.open) as executor:
            await the_ending(executor, shell("head -c 1000000 /dev/zero"))
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            await the_ending(executor, shell("head -c 100000000 /dev/zero"))
            assert log.size == 101_000_000
            assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 8 * 1024

    uvloop.run(run())
