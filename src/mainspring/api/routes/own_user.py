"""/v1/user: the person who calls."""

from __future__ import annotations

from mainspring.api.answers import Answer
from mainspring.api.auth import check_json
from mainspring.api.handlers import get, post
from mainspring.api.openapi import request_examples as examples
from mainspring.api.reach import Reach
from mainspring.api.services import caller_of, services_of
from mainspring.api.session_cookie import check_origin, csrf_token
from mainspring.api.user_cookies import where_from, with_cookies
from mainspring.api.web import Request, Response
from mainspring.domain.errors import NotFound
from mainspring.kernel.ids import parse_uuid
from mainspring.operations.access.permissions import PUBLIC, READERS
from mainspring.wire.access import TokenMade, TokenView
from mainspring.wire.jobs import Nothing
from mainspring.wire.sessions import SignedIn
from mainspring.wire.users import (
    Accepted,
    AcceptRequest,
    OwnUser,
    PasswordRequest,
    PersonalTokenRequest,
    TenantChoice,
)

Http = Request
_MOST_BYTES = 4096
_PASSWORD = ("user_needed", "not_your_password", "passwords_busy", "too_many_attempts")


@post(
    "/v1/user/accept", summary="Accept an invitation, or choose a new password", operation="user.accept", roles=PUBLIC,
    examples=examples.ACCEPTANCES, request_max_body_size=_MOST_BYTES,
    answers={
        201: Answer("The cookie of the session is set.", headers=("Set-Cookie",)),
        200: Answer("What the link is for, if only a preview was wanted."),
    },
    problems=(
        "invalid_link", "signs_in_elsewhere", "weak_password", "wrong_password", "passwords_busy", "too_many_attempts",
    ),
)  # fmt: skip
async def accept_link(request: Http, data: AcceptRequest) -> Response[Accepted]:
    """With the code of the link. A new user chooses a password; a user who has one gives that. A session begins. The
    code is valid for another try after a refusal."""
    headers = dict(request.scope["headers"])
    check_origin(request.scope, headers)
    check_json(headers)
    told, begun = await services_of(request).password_sign_in.accept(data, where_from(request))
    if begun is None:
        return Response(told, status_code=200)
    told.csrf = csrf_token(begun.secret)
    return with_cookies(request, told, begun)


@get(
    "/v1/user",
    summary="Get the person who calls",
    operation="user.read",
    reach=Reach.NONE,
    roles=READERS,
    problems=("user_needed",),
)
async def get_own_user(request: Http) -> OwnUser:
    """With the tenants of the person, and the personal tokens of this one."""
    return await services_of(request).own_account.user(caller_of(request))


@post(
    "/v1/user/password", status_code=200, summary="Change the own password", operation="user.password",
    reach=Reach.NONE, roles=READERS,
    examples=examples.PASSWORDS, problems=("weak_password", "changed_meanwhile", *_PASSWORD),
)  # fmt: skip
async def change_password(request: Http, data: PasswordRequest) -> OwnUser:
    """The other sessions of the person end. Other browsers in which the person has signed in are not known any more."""
    return await services_of(request).own_account.change_password(caller_of(request), data, where_from(request).known)


@post(
    "/v1/user/tenant", summary="Go on in another tenant", operation="user.tenant", reach=Reach.NONE, roles=READERS,
    answers={201: Answer("The cookie of the new session is set; the earlier one has ended.", headers=("Set-Cookie",))},
    problems=("user_needed",), examples=examples.TENANT_CHOICES,
)  # fmt: skip
async def switch_tenant(request: Http, data: TenantChoice) -> Response[SignedIn]:
    """A new session of the same person takes the place of this one, and ends when it would have."""
    begun = await services_of(request).password_sign_in.switch(caller_of(request), data)
    return with_cookies(request, SignedIn(begun.name, begun.role, begun.tenant, csrf_token(begun.secret)), begun)


@post(
    "/v1/user/tokens", summary="Create a personal token", operation="user.create_token", reach=Reach.NONE,
    roles=READERS,
    examples=examples.PERSONAL_TOKENS,
    problems=("invalid_duration", "outside_token", "quota_exceeded", "token_needed", *_PASSWORD),
)  # fmt: skip
async def create_personal_token(request: Http, data: PersonalTokenRequest) -> TokenMade:
    """It ends with the person, and never exceeds the role of the person. The answer has its secret, which is not shown
    again."""
    return await services_of(request).own_account.add_token(caller_of(request), data)


@post(
    "/v1/user/tokens/{token_id:str}/revoke", verb="revoke", status_code=200, summary="Revoke a personal token",
    operation="user.revoke_token", roles=READERS,
)  # fmt: skip
async def revoke_personal_token(request: Http, token_id: str, data: Nothing | None = None) -> TokenView:
    """It is invalid from now on, at every server. Revoking it again changes nothing."""
    found = parse_uuid(token_id)
    if found is None:
        raise NotFound(f"there is no token {token_id!r}", hint="a token_id is a UUID")
    return await services_of(request).own_account.revoke_token(caller_of(request), found)


HANDLERS = [
    accept_link, get_own_user, change_password, switch_tenant, create_personal_token, revoke_personal_token,
]  # fmt: skip
