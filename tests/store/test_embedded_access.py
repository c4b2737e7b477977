"""Only one role connects to the embedded PostgreSQL, with a password. Data folders of old versions are converted at
their next start, also if the conversion is interrupted."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import asyncpg
import pytest

from mainspring.store.embedded import EmbeddedPostgres
from mainspring.store.embedded.access import HBA, ROLE, Access
from mainspring.store.migrate import migrate
from tests.store.old_folders import SETTINGS, copied, make_old
from tests.store.schema_snapshot import SNAPSHOT, dump
from tests.store.test_embedded import mode_of, query

NOT_OURS = """
select count(*) from (
    select relowner as owner from pg_class where relnamespace::regnamespace::text in ('mainspring', 'shop')
    union all select proowner from pg_proc where pronamespace::regnamespace::text in ('mainspring', 'shop')
    union all select typowner from pg_type where typnamespace::regnamespace::text in ('mainspring', 'shop')
    union all select nspowner from pg_namespace where nspname in ('mainspring', 'shop')
    union all select datdba from pg_database where datname = 'mainspring'
) found where owner <> current_user::regrole
"""
STEPS = ("_close", "_make_passwords", "_make_role", "_disarm", "_take_ownership", "_open")

KILLED = """
import sys, time
from pathlib import Path
from mainspring.kernel import parent_death
from mainspring.store.embedded import EmbeddedPostgres, access
parent_death._libc = None  # like systems on which a child survives its parent
access._OWNER_SQL += "\\n\\nselect pg_sleep(600);"
EmbeddedPostgres(Path(sys.argv[1]), settings={"shared_buffers": "16MB", "fsync": "off"}).start()
"""


class Cut(BaseException):
    """Stands for the end of the process."""


@pytest.fixture(scope="module")
def parent() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="ms-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def old(parent: Path) -> Path:
    make_old(parent / "old")
    return parent / "old"


@pytest.fixture
def folder(old: Path) -> Iterator[Path]:
    """A data folder of an old version. Its parents are closed to others."""
    parent = Path(tempfile.mkdtemp(prefix="ms-", dir="/tmp"))
    yield copied(old, parent / "data")
    shutil.rmtree(parent)


def check_converted(postgres: EmbeddedPostgres) -> None:
    assert query(postgres, NOT_OURS) == 0
    assert query(postgres, "select state::text from shop.orders") == "open"
    assert query(postgres, "insert into shop.orders (state) values ('paid') returning id") == 2
    assert postgres.access.hba_file.read_text() == HBA
    assert mode_of(postgres.access.password_file) == 0o600
    assert postgres.folder.stat().st_uid == os.geteuid()


def refusal(url: str) -> asyncpg.PostgresError:
    async def ask() -> None:
        await (await asyncpg.connect(url)).close()

    with pytest.raises(asyncpg.PostgresError) as caught:
        asyncio.run(ask())
    return caught.value


@pytest.mark.slow
def test_a_folder_of_an_old_version_is_converted_with_all_that_is_in_it(folder: Path) -> None:
    modes = {parent: (parent.stat().st_mode, parent.stat().st_uid) for parent in folder.parents}
    with EmbeddedPostgres(folder, settings=SETTINGS) as postgres:
        check_converted(postgres)

        async def up_to_date() -> str:
            assert await migrate(postgres.url()) == []
            connection = await asyncpg.connect(postgres.url())
            try:
                return await dump(connection)
            finally:
                await connection.close()

        assert asyncio.run(up_to_date()) == SNAPSHOT.read_text(encoding="utf-8")
        password = postgres.access.password_file.read_text()
    assert {parent: (parent.stat().st_mode, parent.stat().st_uid) for parent in folder.parents} == modes
    with EmbeddedPostgres(folder, settings=SETTINGS) as again:
        assert query(again, "select count(*) from shop.orders") == 2
        assert again.access.password_file.read_text() == password


@pytest.mark.slow
def test_a_conversion_that_is_interrupted_before_any_step_is_finished_by_the_next_start(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut(*_: Any) -> Any:
        raise Cut

    for step in STEPS:
        with monkeypatch.context() as patched:
            patched.setattr(Access, step, cut)
            with pytest.raises(Cut):
                EmbeddedPostgres(folder, settings=SETTINGS).start()
        assert not Access(folder, folder / "postgres").is_set_up()
    with EmbeddedPostgres(folder, settings=SETTINGS) as postgres:
        check_converted(postgres)


@pytest.mark.slow
def test_a_conversion_that_is_killed_is_finished_by_the_next_start(folder: Path) -> None:
    holder = subprocess.Popen([sys.executable, "-c", KILLED, str(folder)])
    lock = folder / "postgres/postmaster.pid"
    give_up = time.monotonic() + 60
    while _database_of(lock) != "mainspring":
        assert holder.poll() is None and time.monotonic() < give_up
        time.sleep(0.01)
    holder.kill()
    holder.wait()
    orphan = -int(lock.read_text().split()[0])
    assert Path(f"/proc/{orphan}").exists() or sys.platform != "linux"
    with EmbeddedPostgres(folder, settings=SETTINGS) as postgres:
        check_converted(postgres)


def _database_of(lock: Path) -> str:
    """The database of a PostgreSQL in single-user mode: the last of its arguments."""
    try:
        pid = -int(lock.read_text().split()[0])
        return Path(f"/proc/{pid}/cmdline").read_text().rstrip("\0").rpartition("\0")[2]
    except (OSError, ValueError, IndexError):
        return ""


@pytest.mark.slow
def test_a_new_password_is_made_if_the_file_is_lost_and_loosened_rules_are_tightened(folder: Path) -> None:
    with EmbeddedPostgres(folder, settings=SETTINGS) as postgres:
        first = postgres.access.password_file.read_text()
    postgres.access.password_file.unlink()
    with EmbeddedPostgres(folder, settings=SETTINGS) as postgres:
        assert postgres.access.password_file.read_text() != first
        assert query(postgres, "select 1") == 1
    postgres.access.hba_file.write_text("local all all trust\n")
    with EmbeddedPostgres(folder, settings=SETTINGS) as postgres:
        assert postgres.access.hba_file.read_text() == HBA
        nobody = Path(tempfile.gettempdir()) / "no-such-file"
        url = postgres.url().partition("&passfile=")[0]
        assert "password" in str(refusal(f"{url}&passfile={quote(str(nobody))}"))
        assert isinstance(refusal(url.replace(ROLE, "postgres")), asyncpg.InvalidAuthorizationSpecificationError), (
            "the superuser cannot log in at all"
        )
