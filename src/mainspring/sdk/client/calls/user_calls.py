"""Calls for people: users of tenants. No answer has a password."""

from __future__ import annotations

from mainspring.sdk.client.calls.common import verb
from mainspring.sdk.client.core import Call, encode, json_of, segment
from mainspring.wire.users import OwnUser, UserLink, UserList, UserView

_user = json_of(UserView)
_users = json_of(UserList)
_link = json_of(UserLink)
_own = json_of(OwnUser)


def users() -> Call[UserList]:
    """The people of the tenant, with invitations that were not accepted yet. An instance administrator sees all."""
    return Call("GET", "/v1/users", _users)


def user(who: str) -> Call[UserView]:
    """The person with this id or mail address."""
    return Call("GET", _path(who), _user)


def invite_user(mail: str, name: str, role: str, *, tenant: str | None = None) -> Call[UserLink]:
    """Invite a person with the role "admin", "operator", "submitter" or "viewer". The response contains a link, which
    is valid once and not shown again: send it to the person. tenant="name" is for another tenant, which only an
    instance administrator can do."""
    given = {"mail": mail, "name": name, "role": role, "tenant": tenant}
    body = encode({field: value for field, value in given.items() if value is not None})
    return Call("POST", "/v1/users", _link, body=body, repeatable=False)


def set_user_role(who: str, role: str, *, tenant: str | None = None) -> Call[UserView]:
    """Change what a person may do in the tenant, at once. Personal tokens that exceed the new role are revoked."""
    body = encode({"role": role} if tenant is None else {"role": role, "tenant": tenant})
    return Call("POST", f"{_path(who)}:role", _user, body=body)


def disable_user(who: str) -> Call[UserView]:
    """The person cannot sign in any more. Sessions and personal tokens end at once."""
    return verb(f"{_path(who)}:disable", _user)


def enable_user(who: str) -> Call[UserView]:
    """The person can sign in again. Personal tokens stay revoked."""
    return verb(f"{_path(who)}:enable", _user)


def reset_password(who: str) -> Call[UserLink]:
    """A link with which the person chooses a new password. It is valid once and not shown again."""
    return verb(f"{_path(who)}:reset", _link, repeatable=False)


def remove_user(who: str) -> Call[UserView]:
    """Remove a person from the tenant; an instance administrator from all. Sessions and personal tokens there end at
    once. Not repeated after a lost response."""
    return Call("DELETE", _path(who), _user, repeatable=False)


def own_user() -> Call[OwnUser]:
    """The person whose personal token this is, with tenants and personal tokens."""
    return Call("GET", "/v1/user", _own)


def _path(who: str) -> str:
    return f"/v1/users/{segment(who)}"
