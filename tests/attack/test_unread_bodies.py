"""What proves nothing is refused before its body is read: no route waits for the body of a stranger.

Needs: PostgreSQL, loopback.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from mainspring.api.handlers import routed_handlers
from mainspring.api.routing import public_path
from mainspring.roles.assembly import Assembly
from mainspring.wire.protocol import SECRET_HEADER, WORKER_HEADER
from tests.attack.edge import Edge, an_edge

pytestmark = pytest.mark.anyio

STRANGER = "Host: 127.0.0.1\r\nContent-Type: application/json\r\n"
PROOFS = {
    "no token": "",
    "a wrong token": "Authorization: Bearer ms_wrong\r\n",
    "a wrong secret": f"{WORKER_HEADER}: 0197a6c0-5d1e-7c3a-9d50-2f1f6f0a8b11\r\n{SECRET_HEADER}: wrong\r\n",
    "no worker": f"{WORKER_HEADER}: x\r\n{SECRET_HEADER}: wrong\r\n",
}
# The code or token in the body is the proof, or the signature in the path.
READ = {
    "session.create": 4096, "session.begin": 4096, "session.answer": 16 * 1024, "user.accept": 4096,
    "callbacks.take": 64 * 1024,
}  # fmt: skip


@pytest.fixture
async def edge(assembly: Assembly) -> AsyncIterator[Edge]:
    async with an_edge(assembly) as made:
        yield made


@pytest.mark.parametrize("proof", PROOFS)
async def test_every_route_refuses_a_stranger_without_the_body(assembly: Assembly, edge: Edge, proof: str) -> None:
    asked = set()
    for route, handler in routed_handlers(assembly.app):
        operation = handler.operation
        if handler.method == "GET" and handler.is_public:
            continue
        path = public_path(route, handler).replace("{", "").replace("}", "")
        if operation in READ:
            assert handler.request_max_body_size <= READ[operation]
            continue
        client = await edge.connect()
        client.send(f"{handler.method} {path} HTTP/1.1\r\n{STRANGER}{PROOFS[proof]}Content-Length: 50000\r\n\r\n")
        assert (await client.answer())[0] == 401, (handler.method, path)
        client.writer.transport.abort()
        asked.add(operation)
    assert {"worker.gone", "worker.exchange", "jobs.create_batch", "workflows.validate"} <= asked
