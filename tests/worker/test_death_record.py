"""The record of a worker for its parent watchdog: what it says after the worker's death, however that came."""

from __future__ import annotations

import mmap
import os
import signal
import socket
import struct
import time
from uuid import UUID

import pytest

from mainspring.kernel.ids import uuid7
from mainspring.worker.processes import death_notice, death_record
from mainspring.worker.processes.death_record import CAPACITY, DeathRecord, has_stopped, read_record, shared_memory
from mainspring.worker.processes.parent_watchdog import ParentWatchdog

SERVERS = ("http://a:8700", "https://b")


def keys(count: int) -> list[tuple[int, int]]:
    return [(uuid7().int, fence + 1) for fence in range(count)]


def as_told(*told: tuple[int, int]) -> list[list[object]]:
    return [[str(UUID(int=run_id)), fence] for run_id, fence in told]


def test_before_the_first_incarnation_there_is_nothing_to_say() -> None:
    memory = shared_memory()
    DeathRecord(memory, SERVERS)
    assert read_record(memory) is None


def test_a_worker_that_never_spoke_to_a_server_leaves_no_notice() -> None:
    memory = shared_memory()
    record = DeathRecord(memory, SERVERS)
    record.begin_incarnation(uuid7())
    record.withdraw()
    assert read_record(memory) is None


def test_a_process_that_is_killed_leaves_its_record() -> None:
    memory = shared_memory()
    first, second, settled = keys(3)
    worker_id = uuid7()
    if (pid := os.fork()) == 0:
        record = DeathRecord(memory, SERVERS)
        record.begin_incarnation(worker_id)
        for key in (settled, first, second):
            record.record_start(key, held={})
        record.keep_only({first: 1, second: 2})
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    notice = read_record(memory)
    assert notice is not None
    assert len(bytes.fromhex(notice.pop("secret"))) == 32
    assert notice == {"servers": list(SERVERS), "worker_id": str(worker_id), "started": as_told(first, second)}


def test_a_run_that_is_told_twice_stands_once() -> None:
    memory = shared_memory()
    record = DeathRecord(memory)
    record.begin_incarnation(uuid7())
    (key,) = keys(1)
    record.record_start(key, ())
    record.record_start(key, ())
    assert (read_record(memory) or {})["started"] == as_told(key)


def test_a_full_record_drops_what_is_settled() -> None:
    memory = shared_memory()
    record = DeathRecord(memory)
    record.begin_incarnation(uuid7())
    many = keys(CAPACITY + 1)
    held = set(many[-3:])
    for key in many:
        record.record_start(key, held)
    started = (read_record(memory) or {})["started"]
    assert sorted(started) == sorted(as_told(*many[-3:]))


def test_a_record_that_could_not_hold_a_start_does_not_testify_until_the_next_incarnation() -> None:
    memory = shared_memory()
    record = DeathRecord(memory)
    record.begin_incarnation(uuid7())
    many = keys(CAPACITY + 1)
    held = set(many)
    for key in many:
        record.record_start(key, held)
    notice = read_record(memory)
    assert notice is not None
    assert "started" not in notice
    record.begin_incarnation(uuid7())
    assert (read_record(memory) or {})["started"] == []


def test_each_incarnation_has_a_secret_of_its_own_and_no_runs_of_the_one_before() -> None:
    memory = shared_memory()
    record = DeathRecord(memory)
    first = record.begin_incarnation(uuid7())
    record.record_start(*keys(1), ())
    record.record_stopped()
    assert has_stopped(memory)
    second = record.begin_incarnation(uuid7())
    notice = read_record(memory)
    assert notice is not None
    assert first != second == notice["secret"]
    assert notice["started"] == []
    assert not has_stopped(memory)


def test_a_notice_that_does_not_fit_is_not_sent() -> None:
    memory = shared_memory()
    record = DeathRecord(memory, ("http://a" * death_record.CAPACITY,))
    assert record.begin_incarnation(uuid7())
    assert read_record(memory) is None


@pytest.mark.parametrize(("lease", "repeated"), [(0.0, 75.0), (75.0, 150.0), (300.0, 600.0)])
def test_a_notice_is_repeated_for_as_long_as_a_server_may_take_the_worker_for_alive(
    lease: float, repeated: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = repeated_for(lease, None, monkeypatch)
    assert repeated - 30.0 < told <= repeated


def test_a_notice_is_not_repeated_for_long_after_the_death_of_the_supervisor(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, supervisors = socket.socketpair()
    assert repeated_for(75.0, ours.fileno(), monkeypatch) > 100.0
    supervisors.close()  # readable, as the pidfd of a process that has ended
    assert repeated_for(75.0, ours.fileno(), monkeypatch) <= 10.0


def repeated_for(lease: float, supervisor: int | None, monkeypatch: pytest.MonkeyPatch) -> float:
    """For how many seconds the parent watchdog of a worker with this lease repeats the notice."""
    memory, seen = shared_memory(), mmap.mmap(-1, 8)
    record = DeathRecord(memory, SERVERS)
    record.begin_incarnation(uuid7())
    if lease:
        record.record_longest_silence(lease)
    monkeypatch.setattr(death_notice, "send", lambda _notice, _text, until: _note(seen, until() - time.monotonic()))
    if (pid := os.fork()) == 0:
        worker = os.fork() or os._exit(9)
        ParentWatchdog(worker, os.getpid(), socket.socketpair()[0], memory, supervisor).run()
    os.waitpid(pid, 0)
    told: float = struct.unpack("<d", seen[:])[0]
    return told


def _note(seen: mmap.mmap, seconds: float) -> None:
    seen[:] = struct.pack("<d", seconds)
