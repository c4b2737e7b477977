"""FEATURES 8.6: a request that the document allows gets an answer that the document shows, and never a 5xx. One that it
does not allow is refused."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from schemathesis.generation import GenerationMode

from tests.api.schema_fuzz import EXAMPLES, Asked, Scene, check, load, operations_by_tag, requests_of, send, set_up

pytestmark = pytest.mark.anyio


@pytest.fixture
async def scene(api: httpx.AsyncClient) -> Scene:
    return await set_up(api)


def asking(operations: list[Any], mode: GenerationMode) -> Any:
    """A test that asks these operations."""

    @settings(max_examples=EXAMPLES * len(operations), suppress_health_check=list(HealthCheck))
    @given(asked=requests_of(operations, mode))
    async def ask(api: httpx.AsyncClient, scene: Scene, asked: Asked) -> None:
        answer = await send(api, scene, asked)
        if answer is not None:
            check(asked.case, answer, mode)

    return ask


for tag, operations in operations_by_tag(load()).items():
    name = tag.replace(" ", "_")
    globals()[f"test_{name}_as_allowed"] = asking(operations, GenerationMode.POSITIVE)
    takers = [operation for operation in operations if operation.body or operation.query or operation.path_parameters]
    if takers:
        globals()[f"test_{name}_as_not_allowed"] = asking(takers, GenerationMode.NEGATIVE)
