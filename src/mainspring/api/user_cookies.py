"""What a browser gets when a person has signed in: the cookie of the session, and one by which the browser is known.

The second one does not sign in. Attempts to sign in that have it are counted apart from those of strangers
(operations/people/guesses.py).
"""

from __future__ import annotations

from typing import TypeVar

from mainspring.api.auth import client_of
from mainspring.api.session_cookie import known_cookie, known_secret_of, set_cookie
from mainspring.api.web import Request, Response
from mainspring.operations.people.user_sessions import From, SignedInUser
from mainspring.store.attempts import KNOWN_FOR

T = TypeVar("T")
Http = Request


def where_from(request: Http) -> From:
    headers = dict(request.scope["headers"])
    peer = request.scope.get("client")
    return From(None if peer is None else peer[0], client_of(headers), known_secret_of(request.scope, headers))


def with_cookies(request: Http, content: T, begun: SignedInUser) -> Response[T]:
    headers = dict(request.scope["headers"])
    cookies = [set_cookie(request.scope, headers, begun.secret)]
    if begun.known is not None:
        cookies.append(known_cookie(request.scope, headers, begun.known, int(KNOWN_FOR)))
    return Response(content, cookies=cookies)
