"""/schema/openapi.json. A file only: The dashboard shows it
at /docs."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from mainspring.api.handlers import get
from mainspring.api.http_application import HttpApplication
from mainspring.api.openapi.document import document
from mainspring.api.reach import Reach
from mainspring.api.web import Request, Response
from mainspring.operations.access.permissions import READERS


@get(
    ["/schema/openapi.json", "/schema"],
    summary="This document",
    operation="schema.read",
    reach=Reach.NONE,
    roles=READERS,
)
async def get_openapi(request: Request) -> Response[dict[str, Any]]:
    """OpenAPI 3.1. `make clients` generates clients from it."""
    return Response(await asyncio.to_thread(_encoded, request.app))


def _encoded(app: HttpApplication) -> bytes:
    """Building it takes 0.1 s, once for each process."""
    return msgspec.json.encode(document(app))
