"""Messages about people: users, invitations, passwords."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from mainspring.wire.access import TokenView
from mainspring.wire.formats import DurationIn, Name
from mainspring.wire.sessions import Secret
from mainspring.wire.states import PersonRoleWord, RoleWord, UserStateWord

Mail = Annotated[str, Meta(min_length=3, max_length=200)]


class InviteRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `POST /v1/users`. name: of the person; in lists and in `created_by`. role: in the tenant. tenant: its
    name, if an instance administrator invites to another one. token, password: those of the caller, typed again. A
    session needs one of them."""

    mail: Mail
    name: Name
    role: PersonRoleWord
    tenant: Name | None = None
    token: Secret | None = None
    password: Secret | None = None


class RoleRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `POST /v1/users/{user}:role`. tenant, token, password: as in an invitation."""

    role: PersonRoleWord
    tenant: Name | None = None
    token: Secret | None = None
    password: Secret | None = None


class ConfirmRequest(msgspec.Struct, forbid_unknown_fields=True):
    """token, password: those of the caller, typed again. A session needs one of them."""

    token: Secret | None = None
    password: Secret | None = None


class UserTenant(msgspec.Struct):
    """A tenant of a user. invited_until: the invitation was not accepted yet; it expires then."""

    tenant: str
    role: RoleWord
    invited_until: datetime | None = None


class UserView(msgspec.Struct):
    """A person. state: active, invited (nothing was accepted yet) or disabled. tenants: those that the caller
    administers; name, created_at: of the first of them. token_id: what the audit and `created_by` have of the user in
    the tenant of the caller."""

    user_id: str
    mail: str
    name: str
    state: UserStateWord
    tenants: list[UserTenant]
    created_at: datetime
    token_id: str | None = None


class UserList(msgspec.Struct):
    """By mail address. more: there are others, beyond 1,000."""

    users: list[UserView]
    more: bool = False


class UserLink(UserView, kw_only=True):
    """A user with a new link, which is not shown again: the person opens it, and chooses a password. path: the address
    at the server, with the code in its fragment."""

    path: str
    code: str
    expires_at: datetime


class AcceptRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `POST /v1/user/accept`. code: of the link. password: a new one; of a user who has one and is invited
    to another tenant, that one. preview: only say what the link is for."""

    code: Secret
    password: Secret | None = None
    preview: bool = False


class Accepted(msgspec.Struct):
    """What the link is for. tenant, role: of an invitation; null in a link for a new password. has_password: the user
    has one, and an invitation needs it. csrf: of the session that begins; null in a preview."""

    mail: str
    name: str
    tenant: str | None
    role: RoleWord | None
    has_password: bool
    csrf: str | None = None


class PasswordRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `POST /v1/user/password`."""

    password: Secret
    new_password: Secret


class TenantChoice(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `POST /v1/user/tenant`."""

    tenant: Name


class PersonalTokenRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `POST /v1/user/tokens`. password: that of the user, typed again, unless a provider has just confirmed
    who it is. The others are those of
    `POST /v1/tokens`. The role is that of the user, or a lesser one."""

    name: Name
    password: Secret | None = None
    role: RoleWord | None = None
    expires_in: DurationIn | None = None
    queues: list[str] | None = None
    tasks: list[str] | None = None
    labels: dict[str, str] | None = None
    payloads: bool = True
    addresses: list[str] | None = None


class OwnUser(msgspec.Struct):
    """The person who calls. tenant: in which. tenants: all of them. tokens: the personal ones of this tenant."""

    user_id: str
    mail: str
    name: str
    tenant: str
    tenants: list[UserTenant]
    tokens: list[TokenView]
    password_at: datetime | None = None
