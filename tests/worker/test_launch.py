"""The three processes of a worker: any of them can die or be stopped, and signals reach the worker once."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from .a_launched_worker import Launched, below, with_a_launched_worker
from .exchange_server import ExchangeServer, an_order
from .processes import alive, ended_soon, written

pytestmark = pytest.mark.slow

HELD = "trap '' TERM; while :; do sleep 0.05; done"


def left_behind(server: ExchangeServer, pids: list[int]) -> list[int]:
    """Those of `pids` that are alive when a notice arrives. The list is filled then."""
    found: list[int] = []
    server.on_notice = lambda: found.extend(pid for pid in pids if alive(pid))
    return found


@pytest.mark.parametrize("victim", ["launcher", "worker"])
def test_kill_9_is_told_to_the_server_when_everything_is_gone(victim: str, tmp_path: Path) -> None:
    async def test(server: ExchangeServer, launched: Launched) -> None:
        server.submit(
            an_order("leaves_processes_behind", payload={"path": f"{tmp_path}/pids"}),
            an_order("shell", command=f"(echo $$; setsid sh -c 'echo $$; {HELD}') >> {tmp_path}/pids; {HELD}"),
        )
        pids = [int(line) for line in await written(tmp_path / "pids", 4)]
        pids.append(launched.worker)
        assert all(alive(pid) for pid in pids)
        pids += below(launched.worker)  # some of them last only a moment
        found = left_behind(server, pids)
        os.kill(launched.pid if victim == "launcher" else launched.worker, signal.SIGKILL)
        await server.until(lambda: server.notices)
        assert found == []
        (notice,) = server.notices
        assert (notice.worker_id, notice.secret) == next(iter(server.secrets.items()))
        assert notice.exit == "killed by SIGKILL"
        # No run kills the launcher; one may have killed the worker, or let memory run out.
        assert notice.cause == ("killed" if victim == "launcher" else "crashed")
        assert await launched.process.wait() == -signal.SIGKILL
        assert await ended_soon(launched.parent_watchdog)

    with_a_launched_worker(tmp_path, test)


@pytest.mark.parametrize(
    ("task", "payload", "code", "words"),
    [
        ("exits", {"code": 3}, 3, "exit status 3"),
        ("exits", {"code": 0}, 0, "exit status 0"),
        ("crashes", None, -signal.SIGSEGV, "killed by SIGSEGV"),
    ],
)
def test_a_task_that_ends_its_process_is_told_with_the_reason(
    task: str, payload: object, code: int, words: str, tmp_path: Path
) -> None:
    async def test(server: ExchangeServer, launched: Launched) -> None:
        server.submit(an_order(task, payload=payload))
        await server.until(lambda: server.notices)
        assert (server.notices[0].exit, server.notices[0].cause) == (words, "crashed")
        assert await launched.process.wait() == code

    with_a_launched_worker(tmp_path, test)


def test_a_worker_that_ends_in_order_says_so_too(tmp_path: Path) -> None:
    async def test(server: ExchangeServer, launched: Launched) -> None:
        launched.process.terminate()
        assert await launched.process.wait() == 0
        await server.until(lambda: server.notices)
        assert (server.notices[0].exit, server.notices[0].cause) == ("exit status 0", None)
        assert [request.stopped for request in server.requests][-1]
        assert await ended_soon(launched.parent_watchdog)

    with_a_launched_worker(tmp_path, test)


def test_a_launcher_that_is_stopped_stops_the_worker_and_nothing_else(tmp_path: Path) -> None:
    async def test(server: ExchangeServer, launched: Launched) -> None:
        server.submit(an_order("shell", command=f"while :; do echo x >> {tmp_path}/ticks; sleep 0.05; done"))
        await written(tmp_path / "ticks")
        os.kill(launched.pid, signal.SIGSTOP)
        await launched.until_state("T")
        ticks = len(await written(tmp_path / "ticks"))
        await written(tmp_path / "ticks", ticks + 3)
        os.kill(launched.pid, signal.SIGCONT)
        await launched.until_state("S", "R")
        before = len(server.requests)
        await server.until(lambda: len(server.requests) > before)

    with_a_launched_worker(tmp_path, test)


def test_a_worker_that_dies_while_its_launcher_is_stopped_ends_the_launcher(tmp_path: Path) -> None:
    async def test(server: ExchangeServer, launched: Launched) -> None:
        os.kill(launched.pid, signal.SIGSTOP)
        await launched.until_state("T")
        os.kill(launched.worker, signal.SIGKILL)
        assert await launched.process.wait() == -signal.SIGKILL
        assert [notice.cause for notice in server.notices] == [None]

    with_a_launched_worker(tmp_path, test)


def test_without_its_parent_watchdog_a_worker_goes_on_and_sends_no_notice(tmp_path: Path) -> None:
    async def test(server: ExchangeServer, launched: Launched) -> None:
        os.kill(launched.parent_watchdog, signal.SIGKILL)
        assert await ended_soon(launched.parent_watchdog)
        order = an_order("noop")
        server.submit(order)
        assert (await server.outcome_of(order)).status == "SUCCESS"
        launched.process.terminate()
        assert await launched.process.wait() == 0
        assert server.requests[-1].stopped
        assert server.notices == []

    with_a_launched_worker(tmp_path, test)


def test_a_launcher_that_is_killed_after_the_parent_watchdog_takes_the_worker_along(tmp_path: Path) -> None:
    async def test(server: ExchangeServer, launched: Launched) -> None:
        server.submit(an_order("shell", command=f"echo $$ > {tmp_path}/pid; {HELD}"))
        (pid,) = map(int, await written(tmp_path / "pid"))
        os.kill(launched.parent_watchdog, signal.SIGKILL)
        assert await ended_soon(launched.parent_watchdog)
        launched.process.kill()
        assert await ended_soon(launched.worker)
        assert await ended_soon(pid)

    with_a_launched_worker(tmp_path, test)


def test_a_worker_that_dies_after_its_parent_watchdog_ends_the_launcher_in_the_same_way(tmp_path: Path) -> None:
    async def test(server: ExchangeServer, launched: Launched) -> None:
        server.submit(an_order("leaves_processes_behind", payload={"path": f"{tmp_path}/pids"}))
        pids = [int(line) for line in await written(tmp_path / "pids", 2)]
        os.kill(launched.parent_watchdog, signal.SIGKILL)
        assert await ended_soon(launched.parent_watchdog)
        os.kill(launched.worker, signal.SIGKILL)
        assert await launched.process.wait() == -signal.SIGKILL
        for pid in pids:
            assert await ended_soon(pid)

    with_a_launched_worker(tmp_path, test)


def test_a_signal_to_all_processes_drains_and_does_not_hurry(tmp_path: Path) -> None:
    """systemd and pkill signal all of them at once."""

    async def test(server: ExchangeServer, launched: Launched) -> None:
        order = an_order("shell", command=f"echo x > {tmp_path}/began; until [ -e {tmp_path}/go ]; do sleep 0.02; done")
        server.submit(order)
        await written(tmp_path / "began")
        for pid in (launched.worker, launched.parent_watchdog, launched.pid):
            os.kill(pid, signal.SIGTERM)
        await server.until(lambda: server.requests[-1].draining)
        before = len(server.requests)
        await server.until(lambda: len(server.requests) > before + 3)
        (tmp_path / "go").touch()
        assert (await server.outcome_of(order)).status == "SUCCESS"
        assert await launched.process.wait() == 0

    with_a_launched_worker(tmp_path, test)


@pytest.mark.parametrize("whom", ["launcher", "worker"])
def test_a_second_term_ends_the_runs(whom: str, tmp_path: Path) -> None:
    async def test(server: ExchangeServer, launched: Launched) -> None:
        order = an_order("shell", command=f"echo x > {tmp_path}/began; {HELD}")
        server.submit(order)
        await written(tmp_path / "began")
        pid = launched.pid if whom == "launcher" else launched.worker
        os.kill(pid, signal.SIGTERM)
        await server.until(lambda: server.requests[-1].draining)
        os.kill(pid, signal.SIGTERM)
        assert (await server.outcome_of(order)).status == "FAILED"
        assert await launched.process.wait() == 0

    with_a_launched_worker(tmp_path, test)


@pytest.mark.parametrize("victim", ["launcher", "worker"])
def test_a_worker_that_is_killed_while_it_drains_is_excused(victim: str, tmp_path: Path) -> None:
    """A deployment asks first, and kills after a while."""

    async def test(server: ExchangeServer, launched: Launched) -> None:
        server.submit(an_order("shell", command=f"echo x > {tmp_path}/began; {HELD}"))
        await written(tmp_path / "began")
        os.kill(launched.pid, signal.SIGTERM)
        await server.until(lambda: server.requests[-1].draining)
        os.kill(launched.pid if victim == "launcher" else launched.worker, signal.SIGKILL)
        await server.until(lambda: server.notices)
        assert server.notices[0].cause is None

    with_a_launched_worker(tmp_path, test)


def test_a_server_that_does_not_know_the_cause_gets_the_notice_without(tmp_path: Path) -> None:
    async def test(server: ExchangeServer, launched: Launched) -> None:
        server.notice_answers.append(422)
        os.kill(launched.worker, signal.SIGKILL)
        await server.until(lambda: len(server.notices) == 2)
        assert [notice.cause for notice in server.notices] == ["crashed", None]

    with_a_launched_worker(tmp_path, test)


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1])
def test_other_signals_reach_the_worker_and_end_both_as_before(number: signal.Signals, tmp_path: Path) -> None:
    async def test(server: ExchangeServer, launched: Launched) -> None:
        os.kill(launched.pid, number)
        assert await launched.process.wait() == -number
        await server.until(lambda: server.notices)
        assert (server.notices[0].exit, server.notices[0].cause) == (f"killed by {number.name}", None)

    with_a_launched_worker(tmp_path, test)


def test_ctrl_c_reaches_the_worker_only_through_the_launcher(tmp_path: Path) -> None:
    async def test(_server: ExchangeServer, launched: Launched) -> None:
        assert os.getpgid(launched.worker) == launched.worker
        assert os.getsid(launched.parent_watchdog) == launched.parent_watchdog
        os.killpg(launched.pid, signal.SIGINT)
        assert await launched.process.wait() == 0

    with_a_launched_worker(tmp_path, test, start_new_session=True)


@pytest.mark.slow
def test_a_server_that_is_away_at_the_death_gets_the_notice_when_it_is_back(tmp_path: Path) -> None:
    async def test(server: ExchangeServer, launched: Launched) -> None:
        port = int(server.url.rpartition(":")[2])
        await server.__aexit__()
        os.kill(launched.worker, signal.SIGKILL)
        assert await launched.process.wait() == -signal.SIGKILL, "it does not wait for the servers"
        assert await launched.said() is not None, "and keeps no output open"

        async def hang_up(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.close()
            dead.close()
            await server.listen(port)

        dead = await asyncio.start_server(hang_up, "127.0.0.1", port)
        await server.until(lambda: server.notices)
        assert await ended_soon(launched.parent_watchdog)

    with_a_launched_worker(tmp_path, test)


def test_a_notice_is_repeated_until_a_server_takes_it_and_no_longer(tmp_path: Path) -> None:
    async def test(server: ExchangeServer, launched: Launched) -> None:
        server.notice_answers.extend([503, 429, 200])
        os.kill(launched.worker, signal.SIGKILL)
        await server.until(lambda: len(server.notices) == 3)
        assert server.notices[0] == server.notices[1] == server.notices[2]
        assert await ended_soon(launched.parent_watchdog)
        assert len(server.notices) == 3

    with_a_launched_worker(tmp_path, test)


@pytest.mark.parametrize("status", [403, 404])
def test_a_refused_notice_is_not_repeated(status: int, tmp_path: Path) -> None:
    async def test(server: ExchangeServer, launched: Launched) -> None:
        server.notice_answers.extend([status])
        os.kill(launched.worker, signal.SIGKILL)
        assert await ended_soon(launched.parent_watchdog)
        assert len(server.notices) == 1

    with_a_launched_worker(tmp_path, test)


def test_while_a_server_is_away_term_ends_the_parent_watchdog(tmp_path: Path) -> None:
    async def test(server: ExchangeServer, launched: Launched) -> None:
        await server.__aexit__()
        os.kill(launched.worker, signal.SIGKILL)
        await launched.process.wait()
        assert alive(launched.parent_watchdog)
        os.kill(launched.parent_watchdog, signal.SIGTERM)
        assert await ended_soon(launched.parent_watchdog)

    with_a_launched_worker(tmp_path, test)


def test_the_notice_names_the_exclusive_runs_that_had_started_and_no_others(tmp_path: Path) -> None:
    async def test(server: ExchangeServer, launched: Launched) -> None:
        settled = an_order("noop", exclusive=True)
        server.submit(settled)
        await server.outcome_of(settled)
        ordinary = an_order("sleeps", payload={"path": f"{tmp_path}/pids"})
        started = an_order("sleeps", payload={"path": f"{tmp_path}/pids"}, exclusive=True, fence=7)
        server.submit(ordinary, started)
        await written(tmp_path / "pids", 2)
        waiting = an_order("sleeps", payload={"path": f"{tmp_path}/pids"}, exclusive=True)
        server.submit(waiting)
        before = len(server.requests)
        await server.until(lambda: len(server.requests) > before + 3)  # two turns of the housekeeping
        os.kill(launched.worker, signal.SIGKILL)
        await server.until(lambda: server.notices)
        assert server.notices[0].started == [(started.run_id, 7)]

    with_a_launched_worker(tmp_path, test, slots=2)


def test_a_parent_watchdog_that_was_stopped_still_knows_what_had_started(tmp_path: Path) -> None:
    async def test(server: ExchangeServer, launched: Launched) -> None:
        os.kill(launched.parent_watchdog, signal.SIGSTOP)
        started = an_order("sleeps", payload={"path": f"{tmp_path}/pids"}, exclusive=True)
        server.submit(started)
        await written(tmp_path / "pids")
        os.kill(launched.worker, signal.SIGKILL)
        os.kill(launched.parent_watchdog, signal.SIGCONT)
        await server.until(lambda: server.notices)
        assert server.notices[0].started == [(started.run_id, 1)]

    with_a_launched_worker(tmp_path, test)


def test_a_worker_holds_no_run_before_the_server_knows_it(tmp_path: Path) -> None:
    async def test(server: ExchangeServer, launched: Launched) -> None:
        await server.until(lambda: any(request.free for request in server.requests))
        first = server.requests[0]
        assert first.hello is not None and first.free == 0
        assert server.secrets[first.worker_id], "it proves the first request too"

    with_a_launched_worker(tmp_path, test)


def test_each_incarnation_has_a_secret_of_its_own_and_the_last_one_is_given_notice_of(tmp_path: Path) -> None:
    async def test(server: ExchangeServer, launched: Launched) -> None:
        first = server.incarnations[-1]
        server.faults.append("fenced")

        await server.until(lambda: len(server.secrets) == 2)
        os.kill(launched.worker, signal.SIGKILL)
        await server.until(lambda: server.notices)
        secrets = [server.secrets[first], server.secrets[server.incarnations[-1]]]
        assert all(secrets) and secrets[0] != secrets[1]
        assert (server.notices[0].worker_id, server.notices[0].secret) == (server.incarnations[-1], secrets[1])

    with_a_launched_worker(tmp_path, test)
