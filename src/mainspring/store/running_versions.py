"""Which versions run on a database. Every server and scheduler has a session that asks again and again whether
PostgreSQL answers. The text of its question says which schema the process knows, and other sessions can read it."""

from __future__ import annotations

import re
from functools import lru_cache
from importlib.resources import files

import asyncpg

PULSE = "pulse"  # the application of the session
_KNOWS = re.compile(r"/\* knows schema (\d+) \*/")
_FILE = re.compile(r"(\d{4})_\w+\.sql$")
_SESSIONS = """
select coalesce(host(a.client_addr), 'this machine') as host, a.query
from pg_stat_activity a
where a.datname = current_database() and a.application_name = $1 and a.query is not null
"""


@lru_cache(maxsize=1)
def newest_known() -> int:
    """The newest migration of this version."""
    names = (file.name for file in (files("mainspring.store") / "migrations").iterdir())
    return max(int(found.group(1)) for name in names if (found := _FILE.match(name)))


def question() -> str:
    """Whether PostgreSQL is a standby, for example an old primary after a failover."""
    return f"select pg_is_in_recovery() /* knows schema {newest_known()} */"


async def older_than(connection: asyncpg.Connection, version: int) -> list[str]:
    """The hosts of processes that do not know this migration."""
    rows = await connection.fetch(_SESSIONS, f"mainspring {PULSE}")
    return sorted(row["host"] for row in rows if _known_to(row["query"]) < version)


def _known_to(query: str) -> int:
    found = _KNOWS.search(query)
    return 0 if found is None else int(found.group(1))
