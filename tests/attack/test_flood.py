"""A small part of the drill (`python -m tests.attack.flood_drill`): the requests of a tenant that make the most work.
The drill measures how late the exchanges of others are; this test asks for what holds on any machine.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mainspring.api.app import app_without_a_server
from tests.attack.flood_drill import a_drill, floods, role_for
from tests.attack.largest_bodies import HEAVY, routes

FLOODS = {
    ("POST", "/v1/workflows:validate"): "wide",
    ("POST", "/v1/jobs:batch"): "batch",
    ("POST", "/v1/exchange"): "outcomes",
}
MEMORY = 400  # MiB that a server may have more than before


def test_the_drill_floods_every_route_as_every_role_and_fills_every_field_somewhere() -> None:
    short, every = list(floods(10_000)), list(floods(10_000, every=True))
    assert len(short) < len(every) / 2
    for covered in (_roles_of_routes, _fields):
        assert covered(short) == covered(every)


def _roles_of_routes(chosen: list[Any]) -> set[tuple[str, str, str]]:
    return {(route.method, route.path, role) for route, _, _, roles in chosen for role in roles.split(", ")}


def _fields(chosen: list[Any]) -> set[str]:
    return {".".join(name.split(".")[-2:]) for _, name, _, _ in chosen}


@pytest.mark.anyio
@pytest.mark.slow
@pytest.mark.parametrize(("size", "times"), [(2_000_000, 8), pytest.param(12_500_000, 32, marks=pytest.mark.long)])
async def test_a_flood_of_large_requests_ends_no_lease_of_another_tenant_and_its_memory_is_given_back(
    database_url: str, tmp_path: Path, size: int, times: int
) -> None:
    known = {(route.method, route.path): route for route in routes(app_without_a_server())}
    async with a_drill(database_url, tmp_path) as drill:
        before = drill.memory()
        for called, name in FLOODS.items():
            route = known[called]
            body = HEAVY[route.operation][name](min(size, route.most or size) - 1000)
            flood = await drill.flood(route, name, body, role_for(route), times)
            answers = flood.answers.statuses
            assert not answers.get(0) and not answers.get(-1), str(flood)
            assert all(status < 500 for status in answers), str(flood)
        assert drill.memory() - before < MEMORY
