"""The embedded PostgreSQL keeps its data after stops and crashes, and is the only user of its folder."""

from __future__ import annotations

import asyncio
import os
import select
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from mainspring.domain.errors import Conflict, InvalidInput, Unavailable
from mainspring.store.embedded import EmbeddedPostgres, runs_on

SMALL = {"shared_buffers": "16MB"}

HOLDER = """
import sys, time
from pathlib import Path
from mainspring.kernel import parent_death
from mainspring.store.embedded import EmbeddedPostgres

pytestmark = pytest.mark.slow
if sys.argv[2] == "orphans":  # like systems on which a child survives its parent
    parent_death._libc = None
postgres = EmbeddedPostgres(Path(sys.argv[1]), settings={"shared_buffers": "16MB"})
postgres.start()
print(postgres.pid, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short path: pytest's folders are too deep for a socket."""
    parent = Path(tempfile.mkdtemp(prefix="ms-", dir="/tmp"))
    yield parent / "data"
    shutil.rmtree(parent)


@pytest.fixture(scope="module")
def running() -> Iterator[EmbeddedPostgres]:
    parent = Path(tempfile.mkdtemp(prefix="ms-", dir="/tmp"))
    with EmbeddedPostgres(parent / "data", settings={**SMALL, "work_mem": "7MB"}) as postgres:
        yield postgres
    shutil.rmtree(parent)


def query(postgres: EmbeddedPostgres, *statements: str) -> Any:
    """Run the statements one after the other. Return the first value of the last result."""

    async def ask() -> Any:
        connection = await asyncpg.connect(postgres.url())
        try:
            return [await connection.fetchval(statement) for statement in statements][-1]
        finally:
            await connection.close()

    return asyncio.run(ask())


def wait_until_gone(pid: int) -> bool:
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], 60.0)[0])
    finally:
        os.close(descriptor)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def start_holder(folder: Path, kind: str) -> tuple[subprocess.Popen[str], int]:
    """Another process that runs a PostgreSQL on the folder, and that PostgreSQL's pid."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder), kind], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    return holder, int(holder.stdout.readline())


def kill_holder(holder: subprocess.Popen[str]) -> None:
    holder.kill()
    holder.communicate()


def test_what_is_written_is_there_after_a_stop_and_a_second_start(folder: Path) -> None:
    postgres = EmbeddedPostgres(folder, settings=SMALL)
    postgres.start()
    query(postgres, "create table kept (n int)", "insert into kept values (42)")
    postgres.stop()
    assert not postgres.alive()
    with EmbeddedPostgres(folder, settings=SMALL) as again:
        assert query(again, "select n from kept") == 42


def test_what_is_committed_survives_kill_9_of_postgres(folder: Path) -> None:
    with EmbeddedPostgres(folder, settings=SMALL) as postgres:
        url = postgres.url()
        query(postgres, "create table kept (n int)", "insert into kept values (42)")
        assert postgres.pid is not None
        os.kill(postgres.pid, signal.SIGKILL)
        assert wait_until_gone(postgres.pid)
        assert not postgres.alive()
        postgres.start()
        assert postgres.url() == url
        assert query(postgres, "select n from kept") == 42


def test_writes_are_durable_and_connections_are_local(running: EmbeddedPostgres) -> None:
    for name in ("fsync", "synchronous_commit", "full_page_writes"):
        assert query(running, f"show {name}") == "on"
    assert query(running, "show listen_addresses") == ""
    assert query(running, "select datcollate from pg_database where datname = 'mainspring'") == "C"
    assert query(running, "show server_encoding") == "UTF8"


def test_given_settings_win_over_the_tuned_ones(running: EmbeddedPostgres) -> None:
    assert query(running, "show work_mem") == "7MB"
    assert query(running, "show shared_buffers") == "16MB"


def test_the_folder_and_everything_that_leads_to_the_database_is_private(running: EmbeddedPostgres) -> None:
    assert mode_of(running.folder) == 0o700
    assert mode_of(running.data) == 0o700
    assert mode_of(running.socket_folder) == 0o700
    assert mode_of(running.log_file) == 0o600
    assert mode_of(running.access.password_file) == 0o600


def test_postgres_is_out_of_reach_of_the_terminals_ctrl_c(running: EmbeddedPostgres) -> None:
    assert running.pid is not None
    assert os.getsid(running.pid) != os.getsid(0)


def test_a_second_one_on_the_same_folder_is_refused_in_plain_words(running: EmbeddedPostgres) -> None:
    with pytest.raises(Conflict) as refusal:
        EmbeddedPostgres(running.folder).start()
    assert refusal.value.code == "already_running"
    assert refusal.value.detail == (
        f"Mainspring already uses {running.folder} (process {os.getpid()}). "
        "Stop it first, or choose another folder with --data."
    )
    assert query(running, "select 1") == 1


def test_data_of_another_major_version_is_refused_with_the_way_out(folder: Path) -> None:
    (folder / "postgres").mkdir(parents=True)
    (folder / "postgres/PG_VERSION").write_text("16\n")
    postgres = EmbeddedPostgres(folder)
    with pytest.raises(Conflict) as refusal:
        postgres.start()
    assert refusal.value.code == "postgres_major"
    for word in ("PostgreSQL 16", "--postgres-bin", "upgrade-database"):
        assert word in refusal.value.detail
    assert not postgres.lock.held


def test_a_folder_with_other_things_in_it_is_left_alone(folder: Path) -> None:
    folder.mkdir(mode=0o755)
    (folder / "thesis.txt").write_text("chapter one")
    before = folder.stat()
    with pytest.raises(InvalidInput, match="not Mainspring's"):
        EmbeddedPostgres(folder).start()
    after = folder.stat()
    assert (after.st_mode, after.st_uid) == (before.st_mode, before.st_uid)
    assert [path.name for path in folder.iterdir()] == ["thesis.txt"]


def test_a_start_that_fails_says_what_postgres_said(folder: Path) -> None:
    postgres = EmbeddedPostgres(folder, settings={"shared_buffers": "plenty"})
    with pytest.raises(Unavailable, match=r'invalid value for parameter "shared_buffers": "plenty"'):
        postgres.start()
    assert not postgres.alive()
    assert not postgres.lock.held


def test_a_path_too_long_for_a_socket_gets_a_short_private_one(folder: Path) -> None:
    postgres = EmbeddedPostgres(folder / "so-long" / ("x" * 90), settings=SMALL)
    with postgres:
        short = postgres.socket_folder
        assert short.parent == Path("/tmp")
        assert mode_of(short) == 0o700
        assert query(postgres, "select 1") == 1
    assert not short.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a child with its parent")
def test_postgres_ends_when_its_parent_is_killed(folder: Path) -> None:
    holder, pid = start_holder(folder, "ends with its parent")
    assert runs_on(pid, folder / "postgres")
    kill_holder(holder)
    assert wait_until_gone(pid)


def test_an_orphan_of_a_killed_parent_is_ended_before_a_new_start(folder: Path) -> None:
    holder, orphan = start_holder(folder, "orphans")
    kill_holder(holder)
    assert runs_on(orphan, folder / "postgres")
    with EmbeddedPostgres(folder, settings=SMALL) as postgres:
        assert postgres.pid != orphan
        assert not runs_on(orphan, folder / "postgres")
        assert query(postgres, "select 1") == 1
