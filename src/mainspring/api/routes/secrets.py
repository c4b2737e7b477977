"""/v1/secrets. No answer has a value."""

from __future__ import annotations

from mainspring.api.answers import LISTS, Answer
from mainspring.api.handlers import delete, get, post, put
from mainspring.api.openapi import request_examples as examples
from mainspring.api.routes.paging import DEFAULT_PAGE, PageLimit, link_header
from mainspring.api.services import caller_of, services_of
from mainspring.api.web import Request, Response
from mainspring.operations.access.permissions import ADMINS, READERS
from mainspring.wire.jobs import Nothing
from mainspring.wire.secrets import RewrappedKeys, SecretList, SecretRequest, SecretView

Http = Request


@get("/v1/secrets", summary="List secrets, without their values", operation="secrets.list", roles=READERS,
     problems=LISTS)  # fmt: skip
async def list_secrets(
    request: Http, cursor: str | None = None, limit: PageLimit = DEFAULT_PAGE
) -> Response[SecretList]:
    """By name. No role can read a value."""
    page = await services_of(request).secrets.secrets(caller_of(request), cursor, limit)
    return Response(page, headers=link_header(request, page.next))


@get("/v1/secrets/{name:str}", summary="Get a secret, without its value", operation="secrets.read", roles=READERS,
     problems=LISTS)  # fmt: skip
async def get_secret(request: Http, name: str) -> SecretView:
    """With the jobs and workflows that name it."""
    return await services_of(request).secrets.secret(caller_of(request), name)


@put(
    "/v1/secrets/{name:str}", summary="Store a secret, or a new version of it", operation="secrets.put", roles=ADMINS,
    examples=examples.SECRETS, problems=("changed_meanwhile", "invalid_secret", "no_master_key"),
    answers={200: Answer("The secret as it is now"), 201: Answer("The new secret")},
)  # fmt: skip
async def put_secret(request: Http, name: str, data: SecretRequest) -> Response[SecretView]:
    """The value has at least 8 bytes, and is never shown again. Attempts that workers get from now on have the new
    value. `queues` and `tasks` are replaced as a whole; without `value` the value stays."""
    services, caller = services_of(request), caller_of(request)
    created = await services.secrets.put(caller, name, data)
    return Response(await services.secrets.secret(caller, name), status_code=201 if created else 200)


@delete("/v1/secrets/{name:str}", status_code=200, summary="Delete a secret", operation="secrets.delete", roles=ADMINS,
        problems=("changed_meanwhile",))  # fmt: skip
async def delete_secret(request: Http, name: str) -> SecretView:
    """Attempts that need it fail from now on, with a reason that names it. Runs that have started keep it. The answer
    is the secret as it was."""
    return await services_of(request).secrets.delete(caller_of(request), name)


@post("/v1/secrets:rotateKey", status_code=200, summary="Encrypt data keys with the newest master key",
      operation="secrets.rotate_key", roles=ADMINS, problems=("no_master_key",))  # fmt: skip
async def rotate_key(request: Http, data: Nothing | None = None) -> RewrappedKeys:
    """The server reads its master keys again. The first of them encrypts the data key of the tenant from now on; if an
    instance administrator asks, those of all tenants. When `left` is 0, the other master keys can be removed."""
    return await services_of(request).secrets.rotate_key(caller_of(request))


HANDLERS = [list_secrets, get_secret, put_secret, delete_secret, rotate_key]
