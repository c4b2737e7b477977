"""What somebody left in an old data folder, whose superuser was open to them, gives them nothing after its conversion.

Needs: nothing.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from mainspring.store.embedded import EmbeddedPostgres
from mainspring.store.embedded.access import ROLE
from tests.store.old_folders import SETTINGS, make_old, single_user

pytestmark = pytest.mark.anyio

IN_THE_CLUSTER = f"""
create role evil superuser createrole replication bypassrls login password 'evil';

create role friend login password 'friend';

create role {ROLE} superuser;

grant pg_execute_server_program to friend with admin option;

grant pg_execute_server_program to {ROLE} granted by friend;

grant evil, postgres to {ROLE};

grant set, alter system on parameter session_preload_libraries to public;

alter database mainspring set session_preload_libraries = '/nonexistent/evil';

alter role all set local_preload_libraries = 'evil';

alter database mainspring set statement_timeout = '1h';

alter system set archive_command = 'touch /tmp/owned';
"""
IN_EACH_DATABASE = """
create function public.pwn() returns void security definer language plpgsql
as $$ begin copy (select 1) to program 'true'; end $$;

create function public.hidden() returns void security definer language plpgsql
as $$ begin copy (select 1) to program 'true'; end $$;

alter extension plpgsql add function public.hidden();

create function information_schema.pwn() returns void security definer language plpgsql
as $$ begin copy (select 1) to program 'true'; end $$;

create function public.ls(text) returns setof text language internal as 'pg_ls_dir_1arg';

grant execute on function pg_catalog.pg_ls_dir(text) to public;

alter function pg_catalog.pg_reload_conf() security definer;

grant execute on function pg_catalog.pg_reload_conf() to public;

update pg_language set lanpltrusted = true where lanname in ('c', 'internal');

create function public.at_ddl() returns event_trigger language plpgsql as $$ begin raise 'planted'; end $$;

create event trigger planted on ddl_command_start execute function public.at_ddl();
"""
# The files are honoured, or the server does not even start.
FILES = """
hba_file = 'evil.conf'
shared_preload_libraries = '/nonexistent/evil'
session_preload_libraries = '/nonexistent/evil'
dynamic_library_path = '/tmp'
data_directory = '/nonexistent'
external_pid_file = '/tmp/planted-in-postgres.pid'
archive_mode = on
listen_addresses = '127.0.0.1'
"""
ATTEMPTS = (
    "select public.pwn()",
    "select public.hidden()",
    "select information_schema.pwn()",
    "select public.ls('.')",
    "select pg_ls_dir('.')",
    "select pg_reload_conf()",
    "create function public.more(text) returns setof text language internal as 'pg_ls_dir_1arg'",
    "set session_preload_libraries = 'evil'",
    "set role evil",
    "set role postgres",
    "set role pg_execute_server_program",
    "copy (select 1) to program 'true'",
)
REFUSED = (asyncpg.InsufficientPrivilegeError, asyncpg.UndefinedFunctionError)


@pytest.fixture
def folder() -> Iterator[Path]:
    parent = Path(tempfile.mkdtemp(prefix="ms-", dir="/tmp"))
    make_old(parent / "data")
    yield parent / "data"
    shutil.rmtree(parent)


def plant(data: Path) -> None:
    single_user(data, "postgres", IN_THE_CLUSTER)
    for database in ("mainspring", "postgres", "template1"):
        single_user(data, database, IN_EACH_DATABASE)
    (data / "evil.conf").write_text("local all all trust\n")
    (data / "evil.conf").chmod(0o644)
    for name in ("postgresql.conf", "postgresql.auto.conf"):
        with (data / name).open("a") as file:
            file.write(FILES if name == "postgresql.conf" else FILES.replace("data_directory", "#"))


async def attack(postgres: EmbeddedPostgres, database: str) -> None:
    connection = await asyncpg.connect(postgres.url(database))
    try:
        for attempt in ATTEMPTS:
            with pytest.raises(REFUSED):
                await connection.execute(attempt)
                pytest.fail(f"{attempt} works in {database}")
        assert await connection.fetchval("select array_agg(evtenabled::text) from pg_event_trigger") == ["D"]
    finally:
        await connection.close()


@pytest.mark.slow
async def test_what_a_superuser_left_behind_does_not_survive_the_conversion(folder: Path) -> None:
    data = folder / "postgres"
    plant(data)
    with EmbeddedPostgres(folder, settings=SETTINGS) as postgres:
        where = f"?host={postgres.socket_folder}&port=5432"
        for login in ("evil:evil", "friend:friend", "postgres:postgres"):
            with pytest.raises(asyncpg.InvalidAuthorizationSpecificationError, match="rejects"):
                await asyncpg.connect(f"postgresql://{login}@/mainspring{where}")
        ours = await asyncpg.connect(postgres.url())
        await ours.execute("create database cloned")
        for database in ("mainspring", "postgres", "template1", "cloned"):
            await attack(postgres, database)
        rights = "rolsuper or rolcreaterole or rolbypassrls"
        assert await ours.fetchval(f"select array_agg(rolname::text) from pg_roles where {rights}") == ["postgres"]
        copies = "select array_agg(rolname::text order by rolname) from pg_roles where rolreplication"
        assert await ours.fetchval(copies) == ["mainspring_backup", "postgres"]
        assert await ours.fetchval("select count(*) from pg_auth_members where member >= 12000") == 0
        assert await ours.fetchval("show statement_timeout") == "1h", "harmless settings stay"
        await ours.close()
        assert not Path("/tmp/planted-in-postgres.pid").exists()
        said = "\n".join(postgres.notices)
        for name in ("'evil', 'friend'", "'hba_file'", "'session_preload_libraries'", "'public.ls(text)'", "'planted'"):
            assert name in said
    assert "evil" not in (data / "postgresql.auto.conf").read_text()
    postgres.access.password_file.unlink()  # so that the conversion is repeated
    with EmbeddedPostgres(folder, settings=SETTINGS) as again:
        told = [notice for notice in again.notices if "disabled" in notice or "rights" in notice]
        assert told == [], "nothing is left to disarm"
