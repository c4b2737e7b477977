"""FEATURES 8.6: a request that the document allows gets an answer that the document shows, and never a 5xx. One that it
does not allow is refused."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from schemathesis.generation import GenerationMode

from tests.api.schema_fuzz import (
    EXAMPLES,
    Asked,
    Scene,
    check,
    examples_of,
    load,
    operations_by_tag,
    path_of,
    requests_of,
    send,
    set_up,
)

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

# Examples that only a certain state accepts: an ended run that was not repeated, a dead letter, the worker itself,
# a master key, a person who has accepted the invitation and is signed in, a browser, a step that waits for a callback.
NEEDS_MORE = {
    "/v1/runs/{run_id}:retry": (409,),
    "/v1/dead-letters/{run_id}:replay": (404, 409),
    "/v1/approvals/{run_id}:approve": (409,),
    "/v1/approvals/{run_id}:reject": (409,),
    "/v1/callbacks/{token}": (404,),
    "/v1/sources/{name}:take": (409,),  # an offset that is stored already
    "/v1/workflow-runs/{run_id}:cancel": (404,),
    "/v1/workflow-runs/{run_id}:rerun": (404,),
    "/v1/exchange/gone": (401,),
    "/v1/session": (401,),
    "/v1/session/providers": (403,),
    "/v1/session/providers/answer": (403,),
    "/v1/secrets/{name}": (409,),
    "/v1/user/accept": (401,),
    "/v1/user/password": (403,),
    "/v1/user/tenant": (403,),
    "/v1/user/tokens": (403,),
    "/v1/users/{user}:role": (409,),
    "/v1/users/{user}:enable": (403,),
    "/v1/users/{user}:reset": (403, 409),
    "/v1/exchange/logs": (409, 403),
}


@pytest.fixture
async def scene(api: httpx.AsyncClient) -> Scene:
    return await set_up(api)


async def test_the_examples_of_the_document_are_accepted(api: httpx.AsyncClient, scene: Scene) -> None:
    sent = 0
    for operation in (one for operations in operations_by_tag(load()).values() for one in operations):
        for body in examples_of(operation):
            answer = await api.request(operation.method, path_of(operation, scene), json=body)
            assert answer.is_success or answer.status_code in NEEDS_MORE.get(operation.path, ()), answer.text
            sent += 1
    assert sent > 15


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
