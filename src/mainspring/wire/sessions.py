"""Messages about sessions of browsers."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from mainspring.wire.states import RoleWord

CSRF_HEADER = "Mainspring-CSRF"

Secret = Annotated[str, Meta(min_length=1, max_length=200)]


class SignInRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `POST /v1/session`: the code of a one-time link, or a token, or mail and password of a user. tenant:
    in which, of a user in several. preview: only say as whom the code signs in; it stays valid. replace: in place of
    the session that this browser has. A code needs it there, because a stranger can send a link."""

    code: Secret | None = None
    token: Secret | None = None
    mail: Secret | None = None
    password: Secret | None = None
    tenant: Secret | None = None
    preview: bool = False
    replace: bool = False


class SessionView(msgspec.Struct):
    """The caller. name: the name of its token, or of the person. tenant: the name of its tenant. operations: what its
    role may do, and what a narrowed token reaches. token_id: as in `created_by`. user_id: of the person.
    session_id, csrf, signed_in_at and expires_at belong to a session; they are null if the caller sent a token."""

    name: str
    role: RoleWord
    tenant: str
    session_id: str | None = None
    csrf: str | None = None
    signed_in_at: datetime | None = None
    expires_at: datetime | None = None
    operations: list[str] = []
    token_id: str = ""
    user_id: str | None = None


class SignedIn(msgspec.Struct):
    """The answer to `POST /v1/session`. name, role, tenant: as whom. csrf: for the header Mainspring-CSRF of changes;
    null in a preview, which begins no session."""

    name: str
    role: RoleWord
    tenant: str
    csrf: str | None = None


class SignInLink(msgspec.Struct):
    """A link that signs in once. path: the address at the server, with the code in its fragment."""

    code: str
    path: str
    expires_at: datetime


class OpenSession(msgspec.Struct):
    """A session of the tenant that has not ended. name, role: the name and role of its token. last_seen_at: its last
    use, to five minutes. ends_at: when it ends if it is not used. current: whether it is the one that asks."""

    session_id: str
    token_id: str
    name: str
    role: RoleWord
    signed_in_at: datetime
    last_seen_at: datetime
    ends_at: datetime
    current: bool = False


class SessionList(msgspec.Struct):
    """The response to `GET /v1/sessions`: newest first. more: there are others, beyond 1,000."""

    sessions: list[OpenSession]
    more: bool = False
