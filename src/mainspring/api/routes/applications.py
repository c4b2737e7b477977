"""/v1/applications: what the code of applications declares."""

from __future__ import annotations

from mainspring.api.answers import Answer
from mainspring.api.bodies import decode_declaration
from mainspring.api.handlers import put
from mainspring.api.openapi import request_examples as examples
from mainspring.api.services import caller_of, services_of
from mainspring.api.web import Request
from mainspring.operations.access.permissions import ADMINS
from mainspring.wire.applications import DeclarationRequest, DeclarationView


@put(
    "/v1/applications/{application:str}",
    decode=decode_declaration,
    summary="Declare the schedules of an application, as its workers do when they start",
    operation="applications.declare",
    roles=ADMINS,
    answers={200: Answer("What the server recorded, and what it paused and resumed.")},
    problems=("changed_meanwhile",),
    examples=examples.DECLARATIONS,
)
async def declare_schedules(request: Request, application: str, data: DeclarationRequest) -> DeclarationView:
    """Finds schedules that the application declared earlier and no longer declares. With `prune` these are paused."""
    return await services_of(request).declarer.declare(caller_of(request), application, data)
