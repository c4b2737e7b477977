"""A real PgBouncer before the PostgreSQL of the tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from mainspring.bench.pgbouncer import PROGRAM, PgBouncer
from mainspring.store.database import Database, Pooling
from mainspring.store.embedded import EmbeddedPostgres

needs_pgbouncer = pytest.mark.skipif(PROGRAM is None, reason="pgbouncer is not installed: apt-get install pgbouncer")


@contextmanager
def a_pgbouncer(postgres: EmbeddedPostgres, mode: Pooling, **settings: str) -> Iterator[PgBouncer]:
    """Each transaction gets the session that was idle for longest, so that they change often in transaction mode."""
    bouncer = PgBouncer(postgres, pool_mode=mode.value, server_round_robin="1", **settings)
    try:
        yield bouncer
    finally:
        bouncer.stop()


def through(bouncer: PgBouncer, url: str, mode: Pooling, *, direct: bool = False) -> Database:
    return Database(bouncer.url(url), url if direct else None, mode)
