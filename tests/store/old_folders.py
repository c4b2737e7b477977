"""Data folders as earlier versions left them: everybody is trusted, and everything belongs to the superuser."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

from mainspring.store.embedded import EmbeddedPostgres
from mainspring.store.embedded.access import BACKUP_ROLE, ROLE
from mainspring.store.embedded.binaries import wheel_bin_folder
from mainspring.store.embedded.folder import account_for_root
from mainspring.store.embedded.programs import Programs
from mainspring.store.migrate import migrate

SETTINGS = {"shared_buffers": "16MB", "fsync": "off"}
TRUST = "local all all trust\nhost all all 127.0.0.1/32 reject\n"
# Objects of every kind, by somebody who used the same database.
OF_THE_USER = """
create schema shop;

create type shop.state as enum ('open', 'paid');

create domain shop.cents as int check (value >= 0);

create type shop.money as (amount shop.cents, currency text);

create table shop.orders (id serial primary key, n int generated always as identity, state shop.state);

create table shop.days (day date) partition by range (day);

create table shop.day_1 partition of shop.days for values from ('2026-01-01') to ('2026-01-02');

create view shop.open as select * from shop.orders where state = 'open';

create materialized view shop.counted as select count(*) from shop.orders;

create sequence shop."Odd Numbers" increment 2;

create function shop.total(int) returns int language sql as 'select $1';

create procedure shop.close() language sql as 'select 1';

insert into shop.orders (state) values ('open');
"""
_BACK = f"reassign owned by {ROLE} to postgres;\n\ndrop owned by {ROLE};\n\n"


def single_user(data: Path, database: str, sql: str) -> str:
    programs = Programs(wheel_bin_folder().resolve(), account_for_root([]), "off")
    return drive(programs.single_user(data, database, sql))


def drive(steps: Generator[None, None, Any]) -> Any:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value
        time.sleep(0.005)


def make_old(folder: Path) -> None:
    """A migrated database of an old version, with objects of its user."""
    with EmbeddedPostgres(folder, settings=SETTINGS) as postgres:
        asyncio.run(migrate(postgres.url()))
    single_user(
        postgres.data, "mainspring", OF_THE_USER + "\n" + _BACK + "alter database mainspring owner to postgres;"
    )
    single_user(postgres.data, "postgres", f"drop role {ROLE};\n\ndrop role {BACKUP_ROLE};")
    postgres.access.hba_file.write_text(TRUST)
    postgres.access.password_file.unlink()
    postgres.access.backup_password_file.unlink()
    if (account := account_for_root([])) is not None:
        account.own(folder)


def copied(old: Path, folder: Path) -> Path:
    """A copy with its owners and modes."""
    subprocess.run(["cp", "-a", str(old), str(folder)], check=True)
    return folder
