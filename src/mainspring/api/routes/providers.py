"""/v1/session/providers: sign in at a provider of OpenID Connect. The page asks where to go, and brings
back the answer."""

from __future__ import annotations

from mainspring.api.answers import Answer
from mainspring.api.auth import check_json
from mainspring.api.handlers import get, post
from mainspring.api.openapi import request_examples as examples
from mainspring.api.services import services_of
from mainspring.api.session_cookie import (
    check_origin,
    csrf_token,
    provider_cookie,
    provider_secret_of,
)
from mainspring.api.user_cookies import where_from, with_cookies
from mainspring.api.web import Request, Response
from mainspring.domain.errors import Forbidden
from mainspring.operations.access.permissions import PUBLIC
from mainspring.operations.people.provider_sign_in import LIFE
from mainspring.wire.providers import ProviderAddress, ProviderAnswer, ProviderChoice, ProviderList
from mainspring.wire.sessions import SignedIn

Http = Request
_BACK = "/ui/signed-in"
_MOST_CHOICE_BYTES = 4096
_MOST_ANSWER_BYTES = 16 * 1024


@get(
    "/v1/session/providers", summary="List where people can sign in", operation="session.providers", roles=PUBLIC,
)  # fmt: skip
async def list_providers(request: Http) -> ProviderList:
    """The providers of OpenID Connect that this server is configured with."""
    return services_of(request).provider_sign_in.providers()


@post(
    "/v1/session/providers", summary="Begin to sign in at a provider", operation="session.begin", roles=PUBLIC,
    examples=examples.PROVIDER_CHOICES, request_max_body_size=_MOST_CHOICE_BYTES,
    answers={201: Answer("The cookie is set, without which the answer is of no use.", headers=("Set-Cookie",))},
    problems=("provider_unavailable",),
)  # fmt: skip
async def create_provider_sign_in(request: Http, data: ProviderChoice) -> Response[ProviderAddress]:
    """The browser goes to the address in the answer. The provider sends it back to `/ui/signed-in`."""
    headers = dict(request.scope["headers"])
    check_origin(request.scope, headers)
    check_json(headers)
    begun = await services_of(request).provider_sign_in.begin(data, _back(request, headers))
    cookie = provider_cookie(request.scope, headers, begun.secret, int(LIFE))
    return Response(ProviderAddress(begun.url), headers={"Set-Cookie": cookie})


@post(
    "/v1/session/providers/answer", summary="Sign in with the answer of a provider", operation="session.answer",
    roles=PUBLIC, examples=examples.PROVIDER_ANSWERS, request_max_body_size=_MOST_ANSWER_BYTES,
    answers={201: Answer("The cookie of the session is set.", headers=("Set-Cookie",))},
    problems=(
        "sign_in_over", "sign_in_refused", "sign_in_disabled", "mail_not_verified", "mail_taken", "no_tenant",
        "changed_meanwhile", "too_many_attempts", "sign_ins_busy", "provider_unavailable",
    ),
)  # fmt: skip
async def accept_provider_answer(request: Http, data: ProviderAnswer) -> Response[SignedIn]:
    """Only in the browser that began it, within ten minutes, and once. A person who comes for the first time becomes a
    user; groups at the provider give roles, as the server is configured."""
    headers = dict(request.scope["headers"])
    check_origin(request.scope, headers)
    check_json(headers)
    secret = provider_secret_of(request.scope, headers)
    back = _back(request, headers)
    begun = await services_of(request).provider_sign_in.finish(data, secret, back, where_from(request))
    told = SignedIn(begun.name, begun.role, begun.tenant, csrf_token(begun.secret))
    return with_cookies(request, told, begun)


def _back(request: Http, headers: dict[bytes, bytes]) -> str:
    """The address of the page to which the provider sends the browser. It must be registered there."""
    if (base := services_of(request).page_url) is not None:
        return f"{base.rstrip('/')}{_BACK}"
    origin = headers.get(b"origin")
    if origin is None:
        raise Forbidden(
            "signing in at a provider is for browsers", code="wrong_origin", field="Origin",
            hint="use the page of this server",
        )  # fmt: skip
    return f"{origin.decode('latin-1')}{_BACK}"  # check_origin has compared it with the Host


HANDLERS = [list_providers, create_provider_sign_in, accept_provider_answer]
