"""/v1/applications: what the code of applications declares."""

from __future__ import annotations

from typing import Any

from litestar import Request, put

from mainspring.api.bodies import DeclarationBody
from mainspring.api.services import caller_of, services_of
from mainspring.wire.applications import DeclarationRequest, DeclarationView


@put(
    "/v1/applications/{application:str}",
    dto=DeclarationBody,
    return_dto=None,
    summary="Declare the schedules of an application, as its workers do when they start",
    tags=["jobs"],
    operation="applications.declare",
)
async def declare(request: Request[Any, Any, Any], application: str, data: DeclarationRequest) -> DeclarationView:
    return await services_of(request).declarer.declare(caller_of(request), application, data)
