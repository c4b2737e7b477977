"""A PostgreSQL that accepts no changes is an outage, not an error of the request or of the server."""

from __future__ import annotations

import asyncpg
import httpx
import pytest

from tests.api.bookkeeping import rows

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(("sqlstate", "said"), [("53100", "disk"), ("25006", "read-only")])
async def test_it_is_answered_with_503_and_the_reason(
    api: httpx.AsyncClient, connection: asyncpg.Connection, sqlstate: str, said: str
) -> None:
    await connection.execute(f"""
        create function mainspring.refuse() returns trigger language plpgsql as
        $$ begin raise exception 'no' using errcode = '{sqlstate}'; end $$;
        create trigger refuse before insert on mainspring.jobs execute function mainspring.refuse();
        create trigger refuse before insert on mainspring.runs execute function mainspring.refuse()""")
    before = await rows(connection)
    for schedule in ("now", "@daily"):
        answer = await api.post("/v1/jobs", json={"command": "true", "schedule": schedule})
        assert (answer.status_code, answer.json()["code"]) == (503, "store_down")
        assert said in answer.json()["detail"] and answer.headers["retry-after"]
    assert await rows(connection) == before | {"lanes": 1}  # a lane is made before its first job, and stays
