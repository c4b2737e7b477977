"""/v1/session and /v1/sessions: sessions of browsers. The cookie has the secret, and no script can read it."""

from __future__ import annotations

from mainspring.api.answers import Answer
from mainspring.api.auth import check_json, client_of
from mainspring.api.handlers import delete, get, operations_of_role, post
from mainspring.api.openapi import request_examples as examples
from mainspring.api.reach import Reach
from mainspring.api.services import caller_of, services_of
from mainspring.api.session_cookie import check_origin, clear_cookie, csrf_token, secret_of, set_cookie
from mainspring.api.user_cookies import where_from, with_cookies
from mainspring.api.web import Request, Response
from mainspring.domain.errors import NotFound, Unauthorized
from mainspring.kernel.ids import parse_uuid
from mainspring.operations.access.permissions import ADMINS, PUBLIC, READERS
from mainspring.wire.jobs import Nothing
from mainspring.wire.sessions import OpenSession, SessionList, SessionView, SignedIn, SignInLink, SignInRequest

Http = Request
_MOST_BYTES = 4096


@post(
    "/v1/session", summary="Sign in: begin a session of a browser",
    operation="session.create", roles=PUBLIC, examples=examples.SIGN_INS, request_max_body_size=_MOST_BYTES,
    answers={
        201: Answer("The cookie of the session is set.", headers=("Set-Cookie",)),
        200: Answer("As whom the code or the token signs in, if only a preview was wanted."),
    },
    problems=(
        "invalid_link", "invalid_token", "worker_token", "signed_in", "wrong_password", "no_tenant", "passwords_busy",
        "too_many_attempts",
    ),
)  # fmt: skip
async def create_session(request: Http, data: SignInRequest) -> Response[SignedIn]:
    """With the code of a one-time link, with a token, or with mail address and password of a user. The session has the
    rights of the token, or of the user in the tenant, and ends with it, after 12 hours without a request, or after
    seven days. In a browser that is signed in a code needs `replace`; with `preview` the answer says as whom it signs
    in, and nothing else happens."""
    headers = dict(request.scope["headers"])
    check_origin(request.scope, headers)  # another page must not sign a browser in as another user
    check_json(headers)
    try:
        current = secret_of(request.scope, headers)
    except Unauthorized:  # cookies that are of no use
        current = None
    if data.mail is not None or data.password is not None:
        person = await services_of(request).password_sign_in.sign_in(data, where_from(request))
        told = SignedIn(person.name, person.role, person.tenant, csrf_token(person.secret))
        return with_cookies(request, told, person)
    peer = request.scope.get("client")
    begun = await services_of(request).sessions.sign_in(
        data, current=current, address=None if peer is None else peer[0], client=client_of(headers)
    )
    if begun.secret is None:
        return Response(SignedIn(begun.name, begun.role, begun.tenant), status_code=200)
    csrf = csrf_token(begun.secret)
    cookie = set_cookie(request.scope, headers, begun.secret)
    return Response(SignedIn(begun.name, begun.role, begun.tenant, csrf), headers={"Set-Cookie": cookie})


@get("/v1/session", summary="Get who is signed in", operation="session.read", reach=Reach.NONE, roles=READERS)
async def get_session(request: Http) -> SessionView:
    """The caller, its role and its tenant; of a session also its end, and the token that changes must send in the
    header Mainspring-CSRF."""
    caller = caller_of(request)
    view = await services_of(request).sessions.session(caller)
    view.operations = operations_of_role(request.app, caller.role, caller.narrowing)
    if caller.session is not None:
        secret = secret_of(request.scope, dict(request.scope["headers"]))
        assert secret is not None
        view.csrf = csrf_token(secret)
    return view


@delete(
    "/v1/session", status_code=200, summary="Sign out: end the session", operation="session.end", reach=Reach.NONE,
    roles=READERS,
    answers={200: Answer("The session as it was. Its cookie is removed.", headers=("Set-Cookie",))},
    problems=("session_needed",),
)  # fmt: skip
async def delete_session(request: Http) -> Response[SessionView]:
    """It has ended at every server."""
    view = await services_of(request).sessions.sign_out(caller_of(request))
    return Response(view, headers={"Set-Cookie": clear_cookie(request.scope, dict(request.scope["headers"]))})


@post(
    "/v1/session/links", summary="Create a link that signs in once",
    operation="session.link", reach=Reach.NONE, roles=READERS, problems=("token_needed",),
)  # fmt: skip
async def create_sign_in_link(request: Http, data: Nothing | None = None) -> SignInLink:
    """The link opens the dashboard and signs in as the token of this request. It is valid for five minutes, once."""
    return await services_of(request).sessions.link(caller_of(request))


@get("/v1/sessions", summary="List the sessions that have not ended", operation="sessions.list", roles=READERS)
async def list_sessions(request: Http) -> SessionList:
    """The sessions of all tokens of the tenant, newest first: the token, the sign-in, the last use, and the end of
    each."""
    return await services_of(request).sessions.open_sessions(caller_of(request))


@post(
    "/v1/sessions/{session_id:str}/end", verb="end", status_code=200,
    summary="End a session", operation="sessions.end", roles=ADMINS,
)  # fmt: skip
async def end_session(request: Http, session_id: str, data: Nothing | None = None) -> OpenSession:
    """It has ended at every server. The answer is the session as it was. Its token is still valid, and can open
    another."""
    found = parse_uuid(session_id)
    if found is None:
        raise NotFound(f"there is no session {session_id!r}", hint="a session_id is a UUID")
    return await services_of(request).sessions.end(caller_of(request), found)


HANDLERS = [create_session, get_session, delete_session, create_sign_in_link, list_sessions, end_session]
