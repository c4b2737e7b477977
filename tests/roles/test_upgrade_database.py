"""The embedded PostgreSQL's data becomes that of another major version, or stays what it was."""

from __future__ import annotations

import asyncio
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from mainspring.domain.errors import Conflict, NotFound, Unavailable
from mainspring.roles.backup import upgrade
from mainspring.roles.backup.archive_id import archive_of, archives_of, begin_archive
from mainspring.roles.backup.repository import Repository
from mainspring.roles.backup.sealed_files import Keys
from mainspring.roles.backup.upgrade import upgrade_database
from mainspring.store.embedded import EmbeddedPostgres
from mainspring.store.embedded.binaries import wheel_bin_folder_of
from mainspring.store.embedded.exchange import UPGRADED_FOLDER_NAME
from mainspring.store.migrate import migrate

OLD = wheel_bin_folder_of(16)
FAST = {"fsync": "off", "shared_buffers": "16MB"}
JOBS = 500
# Killed at the begin of one of its steps.
KILLED = """
import os, signal, sys
from pathlib import Path
from mainspring.roles.backup import upgrade
from mainspring.store.embedded import exchange
def die(*_, **__): os.kill(os.getpid(), signal.SIGKILL)
module, name = sys.argv[2].split(".")
setattr({"upgrade": upgrade, "exchange": exchange}[module], name, die)
upgrade.upgrade_database(Path(sys.argv[1]), settings={'fsync': 'off'})
"""
# Killed while pg_upgrade runs one of its servers.
KILLED_IN_PG_UPGRADE = """
import os, signal, sys, threading, time
from pathlib import Path
from mainspring.roles.backup import upgrade
def watch():
    while not (Path(sys.argv[1]) / ".postgres.upgrading/new/postmaster.pid").exists():
        time.sleep(0.002)
    os.kill(os.getpid(), signal.SIGKILL)
threading.Thread(target=watch, daemon=True).start()
upgrade.upgrade_database(Path(sys.argv[1]), settings={'fsync': 'off'})
"""

pytestmark = [pytest.mark.slow, pytest.mark.skipif(OLD is None, reason="the wheel has no PostgreSQL 16")]


async def _fill(postgres: EmbeddedPostgres) -> None:
    await migrate(postgres.url())
    connection = await asyncpg.connect(postgres.url())
    for number in range(JOBS):
        await connection.execute(
            "select mainspring.submit(jsonb_build_object('task', 'noop', 'name', $1::text))", f"job {number}"
        )
    await connection.close()


def _asked(folder: Path, sql: str, *, bin_folder: Path | None = None) -> Any:
    async def ask(url: str) -> Any:
        connection = await asyncpg.connect(url)
        try:
            return await connection.fetchval(sql)
        finally:
            await connection.close()

    postgres = EmbeddedPostgres(folder, bin_folder=bin_folder, settings=FAST)
    with postgres:
        return asyncio.run(ask(postgres.url()))


@pytest.fixture(scope="module")
def of_16() -> Iterator[Path]:
    """A data folder of PostgreSQL 16, whose server was killed."""
    place = Path(tempfile.mkdtemp(prefix="ms-16-", dir="/tmp"))
    postgres = EmbeddedPostgres(place / "data", bin_folder=OLD, settings=FAST)
    postgres.start()
    asyncio.run(_fill(postgres))
    postgres.stop("immediate")
    yield place / "data"
    shutil.rmtree(place)


@pytest.fixture
def data(of_16: Path) -> Iterator[Path]:
    folder = of_16.with_name("copy")
    subprocess.run(["cp", "-a", str(of_16), str(folder)], check=True)
    yield folder
    shutil.rmtree(folder)


def _is_converted(data: Path) -> None:
    assert (data / "postgres/PG_VERSION").read_text().strip() == "18"
    assert (data / "postgres-16/PG_VERSION").read_text().strip() == "16"
    left = {path.name for path in data.iterdir()} & {".postgres.upgrading", UPGRADED_FOLDER_NAME, "postgres.new"}
    assert left == set()
    assert _asked(data, "select count(*) from mainspring.runs") == JOBS


def test_the_data_is_converted_and_the_old_one_is_kept(data: Path) -> None:
    repository = Repository(data.with_name("backups"), Keys())
    repository.prepare()
    first = begin_archive(data, repository, datetime.now(UTC))
    with pytest.raises(Conflict, match="upgrade-database"):
        EmbeddedPostgres(data).start()
    done = upgrade_database(data, settings=FAST)
    assert (done.before, done.now, done.kept) == (16, 18, data / "postgres-16")
    _is_converted(data)
    assert upgrade_database(data, settings=FAST).kept is None  # there is nothing to do
    assert archive_of(data, repository) is None and archives_of(data, repository) == [first]
    (data / "postgres").rename(data / "postgres-18")  # the way back
    (data / "postgres-16").rename(data / "postgres")
    assert _asked(data, "select count(*) from mainspring.runs", bin_folder=OLD) == JOBS
    shutil.rmtree(repository.folder)


@pytest.mark.long
@pytest.mark.parametrize("step", ["upgrade._run_upgrade", "exchange.kept_folder"])
def test_a_conversion_that_is_killed_is_repeated_or_finished(data: Path, step: str) -> None:
    killed = subprocess.run([sys.executable, "-c", KILLED, str(data), step], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert not (data / "postgres-16").exists()
    if (data / UPGRADED_FOLDER_NAME).exists():
        _asked(data, "select 1")
        _is_converted(data)  # the next start finishes it
    else:
        assert _asked(data, "select count(*) from mainspring.runs", bin_folder=OLD) == JOBS
        upgrade_database(data, settings=FAST)
        _is_converted(data)


@pytest.mark.long
def test_a_kill_between_the_two_names_loses_no_data(data: Path) -> None:
    """The old data has its new name already: the next start must not make an empty database."""
    done = upgrade_database(data, settings=FAST)
    assert done.kept is not None
    (data / "postgres").rename(data / UPGRADED_FOLDER_NAME)
    _asked(data, "select 1")
    _is_converted(data)


@pytest.mark.long
def test_the_server_of_a_killed_pg_upgrade_is_ended(data: Path) -> None:
    killed = subprocess.run([sys.executable, "-c", KILLED_IN_PG_UPGRADE, str(data)], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert (data / ".postgres.upgrading").exists()
    upgrade_database(data, settings=FAST)
    _is_converted(data)


@pytest.mark.long
def test_what_cannot_be_converted_changes_nothing(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotFound):
        upgrade_database(data.with_name("nothing"), settings=FAST)
    with EmbeddedPostgres(data, bin_folder=OLD, settings=FAST), pytest.raises(Conflict, match="already uses"):
        upgrade_database(data, settings=FAST)
    with monkeypatch.context() as patched:
        patched.setattr(upgrade, "wheel_bin_folder_of", lambda _: None)
        with pytest.raises(Unavailable, match="PostgreSQL 16 are needed"):
            upgrade_database(data, settings=FAST)
    (data / "postgres-16").mkdir()
    with pytest.raises(Conflict, match="could not be kept"):
        upgrade_database(data, settings=FAST)
    (data / "postgres-16").rmdir()
    assert _asked(data, "select count(*) from mainspring.runs", bin_folder=OLD) == JOBS
    assert not (data / ".postgres.upgrading").exists()
