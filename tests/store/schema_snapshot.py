"""The schema that the migrations build, as text, so that a change is visible in review.

Renew it with `python -m tests.store.schema_snapshot`, from the folder that contains `tests`.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

import asyncpg

from mainspring.store.embedded import EmbeddedPostgres
from mainspring.store.migrate import migrate

SNAPSHOT = Path(__file__).with_name("schema.snapshot")
RENEWAL = "python -m tests.store.schema_snapshot"

# Day partitions have the names of their days, and are left out: `not relispartition`.
_TABLES = """
select c.oid, c.relname,
       case c.relpersistence when 'u' then 'unlogged ' else '' end as persistence,
       pg_get_partkeydef(c.oid) as partitioned_by,
       (select string_agg(option, ', ' order by option collate "C") from unnest(c.reloptions) as option) as options
from pg_class c
where c.relnamespace = 'mainspring'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition
order by c.relname
"""
_COLUMNS = """
select a.attname, format_type(a.atttypid, a.atttypmod) as type, a.attnotnull,
       case a.attidentity when 'a' then 'always' when 'd' then 'by default' end as generated,
       pg_get_expr(d.adbin, d.adrelid) as fallback
from pg_attribute a
left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
where a.attrelid = $1 and a.attnum > 0 and not a.attisdropped
order by a.attnum
"""
# Contype n, "not null", is a constraint of its own from PostgreSQL 18 on. The column shows it already.
_CONSTRAINTS = """
select conname, pg_get_constraintdef(oid) as definition
from pg_constraint where conrelid = $1 and contype <> 'n' order by conname
"""
_INDEXES = """
select pg_get_indexdef(indexrelid) as definition
from pg_index where indrelid = $1 order by indexrelid::regclass::text collate "C"
"""
_OTHERS = """
select kind, name from (
select case c.relkind when 'S' then 'sequence' when 'v' then 'view' else 'materialized view' end as kind,
       c.relname::text as name
from pg_class c
where c.relnamespace = 'mainspring'::regnamespace and c.relkind in ('S', 'v', 'm')
union all
select 'function', p.oid::regprocedure::text from pg_proc p where p.pronamespace = 'mainspring'::regnamespace
union all
select 'trigger', t.tgname || ' on ' || t.tgrelid::regclass::text
from pg_trigger t join pg_class c on c.oid = t.tgrelid
where c.relnamespace = 'mainspring'::regnamespace and not c.relispartition and not t.tgisinternal
) as other
order by kind collate "C", name collate "C"
"""


async def dump(connection: asyncpg.Connection) -> str:
    """Tables, columns, defaults, constraints and indexes of the schema, in an order that does not change."""
    lines: list[str] = []
    for table in await connection.fetch(_TABLES):
        lines += await _table(connection, table)
    lines += [f"{row['kind']} {row['name']}" for row in await connection.fetch(_OTHERS)]
    return "\n".join(lines) + "\n"


async def _table(connection: asyncpg.Connection, table: asyncpg.Record) -> list[str]:
    head = f"{table['persistence']}table {table['relname']}"
    if table["partitioned_by"]:
        head += f" partition by {table['partitioned_by']}"
    if table["options"]:
        head += f" with ({table['options']})"
    lines = [head]
    lines += [f"    {_column(row)}" for row in await connection.fetch(_COLUMNS, table["oid"])]
    for row in await connection.fetch(_CONSTRAINTS, table["oid"]):
        lines.append(f"    constraint {row['conname']} {row['definition']}")
    lines += [f"    {row['definition']}" for row in await connection.fetch(_INDEXES, table["oid"])]
    return [*lines, ""]


def _column(row: asyncpg.Record) -> str:
    words = [row["attname"], row["type"]]
    if row["attnotnull"]:
        words.append("not null")
    if row["generated"]:
        words.append(f"generated {row['generated']} as identity")
    if row["fallback"] is not None:
        words.append(f"default {row['fallback']}")
    return " ".join(words)


async def _renew(url: str) -> str:
    await migrate(url)
    connection = await asyncpg.connect(url)
    try:
        return await dump(connection)
    finally:
        await connection.close()


def main() -> None:
    with (
        tempfile.TemporaryDirectory(prefix="ms-", dir="/tmp") as folder,
        EmbeddedPostgres(Path(folder) / "data", settings={"fsync": "off", "shared_buffers": "16MB"}) as postgres,
    ):
        SNAPSHOT.write_text(asyncio.run(_renew(postgres.url())), encoding="utf-8")
    sys.stdout.write(f"wrote {SNAPSHOT.name}\n")


if __name__ == "__main__":
    main()
