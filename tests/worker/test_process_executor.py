"""Process tasks: what a run does to its interpreter hurts nobody else, and nothing of it is left when it has ended."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
from pathlib import Path
from typing import Any

import pytest

from mainspring.kernel.clock import ManualClock
from mainspring.sdk.app.app import Mainspring
from mainspring.wire.execution import Cause, ResourceLimits, RunSetup
from mainspring.worker.execution.attempt import Stop
from mainspring.worker.executors.process.executor import ProcessExecutor, children_environment
from mainspring.worker.processes.watchdog.resource_limits import LOOK_EVERY
from mainspring.worker.processes.watchdog_client import WatchdogClient

from .a_process_executor import KILL_GRACE, Executor, SlowSink, an_attempt, result, stop, with_an_executor
from .processes import alive, ended_soon, written

ENVIRON = {"PATH": "/bin", "LC_ALL": "C.UTF-8"}
# For runs that end in good order when they are asked to, however slow the machine.
UNHURRIED = RunSetup(kill_grace=30.0)


def test_functions_of_both_kinds_run_in_one_child_that_is_not_the_worker() -> None:
    async def test(executor: Executor) -> None:
        pids = {await executor.result(task) for task in ("pid", "async_pid", "pid", "async_pid")}
        assert len(pids) == 1
        assert os.getpid() not in pids

    with_an_executor(test)


def test_parameters_are_typed_and_the_context_is_the_runs() -> None:
    async def test(executor: Executor) -> None:
        payload = {"day": "2026-11-15", "offset": 10}
        assert await executor.result("weekday", payload, job_id="nightly", attempt=3) == {
            "weekday": 16,
            "key": "nightly/2026-11-15T09:00:00Z",
            "attempt": 3,
            "task": "weekday",
        }
        ending = await executor.run("weekday", {"day": "tomorrow"})
        assert (ending.status, ending.retry) == ("FAILED", False)
        assert "the payload does not match weekday" in (ending.error or "")

    with_an_executor(test)


def test_a_run_that_ends_its_process_fails_alone(tmp_path: Path) -> None:
    async def test(executor: Executor) -> None:
        attempt, other = executor.begin("awaits", {"path": f"{tmp_path}/log"}, setup=UNHURRIED)
        await written(tmp_path / "log")
        ending = await executor.run("exits", {"code": 1})
        assert ending.error == "the task's process ended with exit code 1: last words"
        assert (ending.status, ending.retry, ending.cause) == ("FAILED", True, Cause(exit_code=1))
        assert await executor.result("pid")
        assert not other.done()
        stop(attempt)
        assert (await other).status == "CANCELLED"

    with_an_executor(test, slots=2)


def test_a_crash_names_the_signal_and_shows_where_it_was() -> None:
    async def test(executor: Executor) -> None:
        ending = await executor.run("crashes")
        assert ending.error is not None
        assert ending.error.startswith("the task's process ended with SIGSEGV: ")
        assert "process_app.py" in ending.error
        assert ending.cause == Cause(exit_code=-signal.SIGSEGV)

    with_an_executor(test)


def test_what_a_task_raises_says_what_follows() -> None:
    async def test(executor: Executor) -> None:
        error = await executor.run("raises", {"how": "here"})
        assert error.error is not None
        assert error.error.startswith("FileNotFoundError: here\n  File ")
        assert "interpreter.py" not in error.error
        assert error.cause == Cause(errors=["FileNotFoundError", "OSError", "Exception"])
        retry = await executor.run("raises", {"how": "Retry"})
        assert (retry.error, retry.retry, retry.retry_after) == ("Retry: rate limited", True, 30.0)
        give_up = await executor.run("raises", {"how": "GiveUp"})
        assert (give_up.error, give_up.retry) == ("GiveUp: no such account", False)

    with_an_executor(test)


def test_a_run_may_ask_to_come_back_later() -> None:
    async def test(executor: Executor) -> None:
        for task in ("snoozes", "snoozes_on_a_loop"):
            ending = await executor.run(task)
            assert (ending.status, ending.snooze, ending.retry_after) == ("FAILED", 600.0, 600.0)
        once = await executor.run("snoozes_on_a_loop", at_most_once=True)
        assert once.snooze is None and "delivered at most once" in (once.error or "")
        back = await executor.run("snoozes_on_a_loop", attempt=2, max_attempts=5, snoozes=1)
        assert back.result is not None and bytes(back.result) == b"[2,5,1]"

    with_an_executor(test)


def test_the_environment_is_clean_but_for_what_the_job_names() -> None:
    async def test(executor: Executor) -> None:
        first = await executor.result("surroundings", setup=RunSetup(env={"REGION": "eu"}))
        assert first["env"] == {**ENVIRON, "REGION": "eu"}
        assert first["own"]
        assert (await executor.result("surroundings"))["env"] == ENVIRON

    with_an_executor(test, environ={**ENVIRON, "MAINSPRING_TOKEN": "secret", "AWS_SECRET_ACCESS_KEY": "secret"})


def test_settings_that_the_application_needs_can_be_passed_on() -> None:
    environ = {**ENVIRON, "MAINSPRING_PASS_ENV": "STRIPE_KEY, UNSET", "STRIPE_KEY": "k", "OTHER": "o"}
    assert children_environment(environ) == {**ENVIRON, "STRIPE_KEY": "k"}


def test_what_a_run_changes_the_next_one_does_not_see() -> None:
    async def test(executor: Executor) -> None:
        before = await executor.result("surroundings")
        mess = await executor.result("makes_a_mess")
        after = await executor.result("surroundings")
        assert mess["files"] == after["files"] == []
        assert before == after

    with_an_executor(test)


@pytest.mark.parametrize("after", ["pid", "exits", "leaves_a_thread"])
def test_the_folder_is_empty_between_runs_and_goes_with_the_child(after: str) -> None:
    async def test(executor: Executor) -> None:
        folder = Path((await executor.result("makes_a_mess"))["folder"])
        assert not folder.exists()
        await executor.run(after, {"code": 1} if after == "exits" else None)
        assert folder.exists() == (after == "pid")
        assert not folder.exists() or not os.listdir(folder)

    with_an_executor(test)


def test_cancel_runs_finally_and_the_cleanups_of_a_function(tmp_path: Path) -> None:
    async def test(executor: Executor) -> None:
        pid = await executor.result("pid")
        attempt, running = executor.begin("waits", {"path": f"{tmp_path}/log"}, setup=UNHURRIED)
        await written(tmp_path / "log")
        stop(attempt)
        assert (await running).status == "CANCELLED"
        assert await written(tmp_path / "log", 4) == ["begun", "finally True", "last added", "first added"]
        assert await executor.result("pid") == pid  # a run that heeds costs nobody an interpreter

    with_an_executor(test)


def test_cancel_cancels_a_coroutine(tmp_path: Path) -> None:
    async def test(executor: Executor) -> None:
        attempt, running = executor.begin("awaits", {"path": f"{tmp_path}/log"}, setup=UNHURRIED)
        await written(tmp_path / "log")
        stop(attempt)
        assert (await running).status == "CANCELLED"
        assert await written(tmp_path / "log", 3) == ["begun", "finally True", "cleaned up"]
        assert await executor.result("async_pid")

    with_an_executor(test)


def test_cleanups_run_after_a_failure_and_one_that_fails_is_in_the_log(tmp_path: Path) -> None:
    async def test(executor: Executor) -> None:
        attempt, running = executor.begin("fails_and_cleans_up", {"path": f"{tmp_path}/log"})
        assert ((await running).error or "").startswith("ValueError: in vain")
        assert await written(tmp_path / "log") == ["cleaned up"]
        log: Any = attempt.log
        assert b"ZeroDivisionError" in log.data

    with_an_executor(test)


def test_a_loop_without_end_is_interrupted(tmp_path: Path) -> None:
    async def test(executor: Executor) -> None:
        attempt, running = executor.begin("spins", {"path": f"{tmp_path}/pid"}, timeout=5.0)
        await written(tmp_path / "pid")
        stop(attempt, Stop.TIMEOUT)
        ending = await running
        assert (ending.status, ending.error) == ("FAILED", "timed out after 5s")

    with_an_executor(test)


@pytest.mark.parametrize("grace", [None, 0.1])
def test_a_blocked_interpreter_is_killed_after_the_grace(tmp_path: Path, grace: float | None) -> None:
    clock = ManualClock()

    async def test(executor: Executor) -> None:
        setup = RunSetup(kill_grace=grace)
        attempt, running = executor.begin("holds_the_interpreter", {"path": f"{tmp_path}/pid"}, setup=setup)
        (pid,) = map(int, await written(tmp_path / "pid"))
        stop(attempt, Stop.TIMEOUT)
        clock.advance((grace or KILL_GRACE) - 0.01)
        assert not running.done() and alive(pid)
        clock.advance(0.01)
        assert (await running).status == "FAILED"
        assert not alive(pid)
        assert await executor.result("pid") != pid

    with_an_executor(test, clock=clock)


def test_a_run_that_is_stopped_while_it_waits_for_a_child_never_begins(tmp_path: Path) -> None:
    async def test(executor: Executor) -> None:
        attempt, running = executor.begin("spins", {"path": f"{tmp_path}/pid"})
        await asyncio.sleep(0)
        stop(attempt)
        assert (await running).status == "CANCELLED"
        assert await executor.result("pid")
        assert not (tmp_path / "pid").exists()

    with_an_executor(test)


def test_a_request_that_comes_with_the_run_is_heeded(tmp_path: Path) -> None:
    async def test(executor: Executor) -> None:
        await executor.run("pid")
        attempt, running = executor.begin("waits", {"path": f"{tmp_path}/log"})
        await asyncio.sleep(0)  # the child has been sent the run, and has hardly heard of it
        stop(attempt)
        assert (await running).status == "CANCELLED"
        assert await executor.result("pid")

    with_an_executor(test)


def test_kill_all_ends_everything_at_once(tmp_path: Path) -> None:
    async def test(executor: Executor) -> None:
        attempt, running = executor.begin("holds_the_interpreter", {"path": f"{tmp_path}/pid"})
        (pid,) = map(int, await written(tmp_path / "pid"))
        attempt.fenced = True
        executor.kill_all()
        assert await ended_soon(pid)
        await running

    with_an_executor(test)


def test_a_process_that_a_run_leaves_behind_is_gone_when_the_run_has_ended(tmp_path: Path) -> None:
    async def test(executor: Executor) -> None:
        before = await executor.result("pid")
        ending = await executor.run("leaves_a_process", {"path": f"{tmp_path}/pid"})
        assert ending.status == "SUCCESS", ending.error
        assert not alive(int((tmp_path / "pid").read_text()))
        assert await executor.result("pid") != before

    with_an_executor(test)


def test_an_interpreter_with_a_thread_left_in_it_is_not_used_again() -> None:
    async def test(executor: Executor) -> None:
        pid = await executor.result("leaves_a_thread")
        assert not alive(pid)
        assert await executor.result("pid") != pid

    with_an_executor(test)


def test_what_a_coroutine_leaves_in_its_loop_is_ended_with_it() -> None:
    async def test(executor: Executor) -> None:
        pid = await executor.result("leaves_loose_ends")
        assert await executor.result("leaves_loose_ends") == pid
        assert await executor.result("async_pid") == pid

    with_an_executor(test)


def test_a_task_may_fork_and_use_processes_of_its_own() -> None:
    async def test(executor: Executor) -> None:
        assert await executor.result("forks") == "the task"
        assert await executor.result("maps_in_processes") == [1, 2, 3]

    with_an_executor(test)


def test_a_process_that_a_task_has_just_forked_can_be_ended() -> None:
    async def test(executor: Executor) -> None:
        assert await executor.result("ends_forks_at_once", {"count": 100}) == [signal.SIGTERM]

    with_an_executor(test)


def test_progress_and_all_that_is_printed_come_in_order() -> None:
    async def test(executor: Executor) -> None:
        attempt, running = executor.begin("talks")
        result(await running)
        log: Any = attempt.log
        assert log.data == b"one\ntwo\nthree 3\nfour\nno end of line"
        assert log.finished
        assert executor.progress == [(0.5, "half way"), (1.0, None)]
        silent = an_attempt("pid")
        result(await executor.execute(silent))
        assert silent.log is None

    with_an_executor(test)


def test_a_run_that_prints_much_waits_for_the_log() -> None:
    async def test(executor: Executor) -> None:
        attempt, running = executor.begin("prints", {"lines": 5000})
        result(await running)
        log: Any = attempt.log
        lines = log.data.decode().splitlines()
        assert [int(line.split()[0]) for line in lines] == list(range(5000))
        assert log.most < 1_000_000

    with_an_executor(test)


def test_memory_is_limited_for_the_run_alone() -> None:
    async def test(executor: Executor) -> None:
        limited = RunSetup(limits=ResourceLimits(memory=100_000_000))
        ending = await executor.run("takes", {"size": 300_000_000}, setup=limited)
        assert (ending.error or "").startswith("memory limit of 100MB: MemoryError")
        assert await executor.result("takes", {"size": 50_000_000}, setup=limited) == 50_000_000
        assert await executor.result("takes", {"size": 300_000_000}) == 300_000_000

    with_an_executor(test)


def test_open_files_are_limited_for_the_run_alone() -> None:
    async def test(executor: Executor) -> None:
        ending = await executor.run("opens_files", setup=RunSetup(limits=ResourceLimits(files=50)))
        assert "Too many open files" in (ending.error or "")
        assert await executor.result("opens_files") == 100

    with_an_executor(test)


def test_cpu_time_is_limited(tmp_path: Path) -> None:
    async def test(executor: Executor) -> None:
        ending = await executor.run(
            "spins", {"path": f"{tmp_path}/pid"}, setup=RunSetup(limits=ResourceLimits(cpu=0.3))
        )
        assert ending.error == "CPU limit of 300ms exceeded"
        assert await executor.result("pid")

    with_an_executor(test)


def test_disk_space_is_limited_for_the_run_alone() -> None:
    async def test(executor: Executor) -> None:
        limited = RunSetup(limits=ResourceLimits(disk=1_000_000))
        assert (await executor.run("fills_its_folder", {"files": 20}, setup=limited)).error == (
            "disk limit of 1MB exceeded"
        )
        assert await executor.result("pid")

    with_an_executor(test)


def test_a_child_is_replaced_after_so_many_runs() -> None:
    async def test(executor: Executor) -> None:
        pids = [await executor.result("pid") for _ in range(6)]
        assert pids[0] == pids[1] == pids[2] != pids[3]
        assert pids[3] == pids[4] == pids[5]
        assert await ended_soon(pids[0])

    with_an_executor(test, runs_each=3)


def test_an_idle_child_that_dies_is_replaced() -> None:
    async def test(executor: Executor) -> None:
        pid = await executor.result("pid")
        os.kill(pid, signal.SIGKILL)
        assert await ended_soon(pid)
        assert await executor.result("pid") != pid

    with_an_executor(test)


@pytest.mark.parametrize("size", [10, 2_000_000])
def test_a_run_that_its_child_did_not_live_to_read_goes_to_another(size: int) -> None:
    async def test(executor: Executor) -> None:
        pid = await executor.result("pid")
        os.kill(pid, signal.SIGSTOP)
        attempt, running = executor.begin("echoes", {"text": "x" * size})
        for _ in range(10):  # it is in the child's socket, and nobody reads it
            await asyncio.sleep(0)
        os.kill(pid, signal.SIGKILL)
        assert result(await running) == size
        assert attempt.stopping is None

    with_an_executor(test)


def test_a_run_that_finds_no_living_child_goes_back_to_the_server() -> None:
    async def test(executor: Executor) -> None:
        executor.children_die_young()
        assert (await executor.run("pid")).status == "RETURNED"

    with_an_executor(test)


def test_a_run_that_has_begun_is_never_given_to_another_child(tmp_path: Path) -> None:
    async def test(executor: Executor) -> None:
        _, running = executor.begin("holds_the_interpreter", {"path": f"{tmp_path}/pid"})
        (pid,) = map(int, await written(tmp_path / "pid"))
        os.kill(pid, signal.SIGKILL)
        assert (await running).error == "the task's process ended with SIGKILL"

    with_an_executor(test)


def test_a_cancel_that_comes_while_the_log_is_stored_does_not_hit_the_next_run(tmp_path: Path) -> None:
    clock = ManualClock()

    async def test(executor: Executor) -> None:
        attempt, running = executor.begin("prints", {"lines": 1})
        attempt.log = sink = SlowSink()
        await sink.finishing.wait()
        following, other = executor.begin("spins", {"path": f"{tmp_path}/pid"})
        await written(tmp_path / "pid")
        attempt.stopping = Stop.CANCEL
        if attempt.on_stop is not None:
            attempt.on_stop()
        assert clock.next_timer is None, "nothing is to be killed"
        assert not other.done()
        sink.stored.set()
        await running
        stop(following)
        assert (await other).status == "CANCELLED"

    with_an_executor(test, clock=clock)


@pytest.mark.slow
def test_a_breach_as_a_run_ends_costs_the_child_and_not_the_next_run() -> None:
    async def test(executor: Executor) -> None:
        tight = RunSetup(limits=ResourceLimits(cpu=0.02))
        for _ in range(10):
            await executor.run("burns", {"seconds": LOOK_EVERY}, setup=tight)
            assert await executor.result("pid")

    with_an_executor(test)


def test_no_descriptors_left_means_a_failed_run_and_nothing_left_behind() -> None:
    async def test(executor: Executor) -> None:
        before = len(os.listdir("/proc/self/fd"))
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        for spare in range(6):
            lowest = os.dup(0)
            os.close(lowest)
            resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + spare, limits[1]))
            try:
                ending = await executor.run("pid")
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            if ending.status == "SUCCESS":
                break
            assert "could not be started" in (ending.error or "")
            assert len(os.listdir("/proc/self/fd")) == before
        assert spare > 1
        assert await executor.result("pid")

    with_an_executor(test)


def test_a_sandbox_is_refused() -> None:
    async def test(executor: Executor) -> None:
        ending = await executor.run("pid", setup=RunSetup(sandbox="bubblewrap"))
        assert (ending.status, ending.retry) == ("FAILED", False)

    with_an_executor(test)


@pytest.mark.parametrize(
    ("app", "words"),
    [
        ("no_such_module_here:app", "cannot load the application: app: cannot import no_such_module_here"),
        ("tests.worker.process_app:nothing", "has no 'nothing'"),
    ],
)
def test_an_application_that_a_child_cannot_load_fails_the_run_with_the_reason(app: str, words: str) -> None:
    async def test(executor: Executor) -> None:
        ending = await executor.run("pid")
        assert words in (ending.error or "")

    with_an_executor(test, app=app)


def test_an_application_without_a_name_is_refused() -> None:
    app = Mainspring()
    app.task("x", executor="process")(lambda: None)
    with pytest.raises(ValueError, match="module:attribute"):
        ProcessExecutor(app.tasks, 1, app=None, watchdog=WatchdogClient(), kill_grace=1.0)
