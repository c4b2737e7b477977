"""A run that was lost before and would share the worker's process runs without neighbours. One with processes of its
own begins without them if its worker's process had ended, as far as that is possible."""

from __future__ import annotations

from pathlib import Path

import pytest

from mainspring.kinds.http.address_guard import AddressGuard
from mainspring.kinds.http.executor import HttpOnDemand
from mainspring.wire.exchange import RunOrder
from mainspring.worker.execution import quarantine as quarantine
from mainspring.worker.worker import Worker

from .a_worker import against_a_server, ran, release
from .exchange_server import ExchangeServer, an_order


def lost(task: str = "counted", **fields: object) -> RunOrder:
    return an_order(task, losses=1, attempt=2, **fields)


def test_it_waits_for_its_neighbours_and_the_worker_takes_no_others_meanwhile() -> None:
    neighbour = an_order("blocks", payload={"name": "ordinary"})
    lone = lost("blocks", payload={"name": "exclusive"})
    others = [an_order("counted", payload={"name": f"other {number}"}) for number in range(3)]

    async def test(server: ExchangeServer, worker: Worker) -> None:
        server.submit(neighbour)
        await server.until(lambda: ran["ordinary"])
        server.submit(lone)
        await server.until(lambda: worker._runner.quarantine.waiting is not None)
        server.submit(*others)
        await server.until(lambda: server.requests[-1].free == 0 and not ran["exclusive"])
        release["ordinary"].set()
        await server.until(lambda: ran["exclusive"])
        assert neighbour.run_id in server.outcomes  # it was acknowledged before the lone run began
        assert not [name for name in ran if name.startswith("other")]
        assert worker._runner.holding == 1
        release["exclusive"].set()
        await server.until(lambda: server.outcomes.keys() >= {order.run_id for order in (lone, *others)})
        await server.until(lambda: {server.outcomes[o.run_id].status for o in (lone, *others)} == {"SUCCESS"})

    against_a_server(test)


def test_several_run_one_after_the_other_and_all_end() -> None:
    orders = [lost(payload={"name": f"lost {number}"}) for number in range(6)]
    orders += [an_order("counted", payload={"name": f"other {number}"}) for number in range(6)]

    async def test(server: ExchangeServer, _: Worker) -> None:
        server.submit(*orders)
        await server.until(lambda: len(ran) == 12)
        assert set(ran.values()) == {1}

    against_a_server(test)


def test_commands_and_http_calls_have_a_process_of_their_own_or_cannot_end_the_worker() -> None:
    neighbour = an_order("blocks", payload={"name": "ordinary"})
    command = an_order("shell", command="true", losses=1, attempt=2)

    async def test(server: ExchangeServer, _: Worker) -> None:
        server.submit(neighbour)
        await server.until(lambda: ran["ordinary"])
        server.submit(command)
        assert (await server.outcome_of(command)).status == "SUCCESS"
        release["ordinary"].set()

    against_a_server(test)


def test_one_that_waits_is_cancelled_and_handed_back_like_others() -> None:
    neighbour = an_order("blocks", payload={"name": "ordinary"})
    cancelled, returned = lost(payload={"name": "cancelled"}), lost(payload=["returned"])

    async def test(server: ExchangeServer, worker: Worker) -> None:
        server.submit(neighbour)
        await server.until(lambda: ran["ordinary"])
        server.submit(cancelled)
        await server.until(lambda: worker._runner.quarantine.waiting is not None)
        server.cancel(cancelled.run_id)
        outcome = await server.outcome_of(cancelled)
        assert (outcome.status, outcome.unstarted) == ("CANCELLED", True)
        server.submit(returned)
        await server.until(lambda: worker._runner.quarantine.waiting is not None)
        worker.stop()
        assert (await server.outcome_of(returned)).status == "RETURNED"
        release["ordinary"].set()
        assert not ran["cancelled"] and not ran["returned"]

    against_a_server(test)


def crashed(**fields: object) -> RunOrder:
    """A command whose last worker ended while it ran."""
    return an_order("shell", losses=1, attempt=2, alone=True, **fields)


def test_a_command_whose_worker_crashed_waits_for_its_neighbours_and_begins_alone(tmp_path: Path) -> None:
    neighbour = an_order("blocks", payload={"name": "ordinary"})
    began, ends = tmp_path / "began", tmp_path / "ends"
    command = crashed(command=f"touch {began}; until [ -e {ends} ]; do sleep 0.02; done")
    other = an_order("counted", payload={"name": "other"})

    async def test(server: ExchangeServer, worker: Worker) -> None:
        server.submit(neighbour)
        await server.until(lambda: ran["ordinary"])
        server.submit(command)
        await server.until(lambda: worker._runner.quarantine.waiting is not None)
        server.submit(other)
        await server.until(lambda: server.requests[-1].free == 0)
        assert not began.exists()
        release["ordinary"].set()
        await server.until(began.exists)
        assert neighbour.run_id in server.outcomes
        assert (worker._runner.holding, ran["other"]) == (1, 0)
        ends.touch()
        assert (await server.outcome_of(command)).status == "SUCCESS"
        await server.until(lambda: ran["other"])

    against_a_server(test)


def test_it_is_alone_for_a_while_only_and_waits_for_a_while_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quarantine, "MOST_WAIT", 0.3)
    monkeypatch.setattr(quarantine, "ALONE_FOR", 0.3)
    ends = tmp_path / "ends"
    endless = f"until [ -e {ends} ]; do sleep 0.02; done"
    first, second = crashed(command=endless), crashed(command=endless)
    other = an_order("blocks", payload={"name": "ordinary"})

    async def test(server: ExchangeServer, worker: Worker) -> None:
        server.submit(first, second, other)
        await server.until(lambda: ran["ordinary"])  # beside both, which have not ended
        await server.until(lambda: len(worker._runner.active) == 3)
        ends.touch()
        release["ordinary"].set()
        orders = (first, second, other)  # some were handed back before
        await server.until(lambda: server.outcomes.keys() >= {order.run_id for order in orders})
        await server.until(lambda: {server.outcomes[order.run_id].status for order in orders} == {"SUCCESS"})

    against_a_server(test)


def test_http_calls_are_not_kept_apart() -> None:
    """They run in no process but the worker's, and in code of ours."""
    executor = HttpOnDemand(AddressGuard())
    assert (executor.isolates, executor.has_processes) == (True, False)
