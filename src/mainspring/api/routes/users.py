"""/v1/users: the people of a tenant. No answer has a password."""

from __future__ import annotations

from mainspring.api.answers import LISTS
from mainspring.api.handlers import delete, get, post
from mainspring.api.openapi import request_examples as examples
from mainspring.api.services import caller_of, services_of
from mainspring.api.web import Request
from mainspring.operations.access.permissions import ADMINS
from mainspring.wire.jobs import Nothing
from mainspring.wire.users import ConfirmRequest, InviteRequest, RoleRequest, UserLink, UserList, UserView

Http = Request
_TYPED = (
    "token_needed", "wrong_token", "not_your_password", "user_needed", "outside_token",
    "passwords_busy", "too_many_attempts",
)  # fmt: skip


@get("/v1/users", summary="List people", operation="users.list", roles=ADMINS, problems=LISTS)
async def list_users(request: Http) -> UserList:
    """By mail address, with their roles, and with invitations that were not accepted yet. An instance administrator
    sees the people of all tenants."""
    return await services_of(request).users.users(caller_of(request))


@post(
    "/v1/users", summary="Invite a person to a tenant", operation="users.invite", roles=ADMINS,
    problems=("already_member", "instance_admin_only", *_TYPED), examples=examples.INVITATIONS,
)  # fmt: skip
async def invite_user(request: Http, data: InviteRequest) -> UserLink:
    """The answer has a link, which is valid for seven days, once, and is not shown again. Send it to the person, who
    chooses a password. Inviting again makes another link and ends the earlier one. With a session the body needs the
    own token or password again."""
    return await services_of(request).users.invite(caller_of(request), data)


@get("/v1/users/{user:str}", summary="Get a person", operation="users.read", roles=ADMINS, problems=LISTS)
async def get_user(request: Http, user: str) -> UserView:
    """`user` is a user_id or a mail address."""
    return await services_of(request).users.user(caller_of(request), user)


@post(
    "/v1/users/{user:str}/role", verb="role", status_code=200, summary="Change the role of a person",
    operation="users.role", roles=ADMINS, problems=("only_invited", "instance_admin_only", *_TYPED),
    examples=examples.ROLES_OF_PEOPLE,
)  # fmt: skip
async def set_user_role(request: Http, user: str, data: RoleRequest) -> UserView:
    """At once, also for sessions that are open. Personal tokens that exceed the new role are revoked."""
    return await services_of(request).users.set_role(caller_of(request), user, data)


@post(
    "/v1/users/{user:str}/disable", verb="disable", status_code=200, summary="Disable a person",
    operation="users.disable", roles=ADMINS, problems=("instance_admin_only", "outside_token"),
)  # fmt: skip
async def disable_user(request: Http, user: str, data: Nothing | None = None) -> UserView:
    """The sessions and personal tokens of the person end at once, in all tenants. Disabling again changes nothing."""
    return await services_of(request).users.disable(caller_of(request), user)


@post(
    "/v1/users/{user:str}/enable", verb="enable", status_code=200, summary="Enable a person again",
    operation="users.enable", roles=ADMINS, problems=("instance_admin_only", *_TYPED), examples=examples.CONFIRMATIONS,
)  # fmt: skip
async def enable_user(request: Http, user: str, data: ConfirmRequest | None = None) -> UserView:
    """The person can sign in with the same password. Personal tokens stay revoked."""
    return await services_of(request).users.enable(caller_of(request), user, data or ConfirmRequest())


@post(
    "/v1/users/{user:str}/reset", verb="reset", summary="Create a link for a new password",
    operation="users.reset", roles=ADMINS,
    problems=("instance_admin_only", "only_invited", "signs_in_elsewhere", "user_disabled", *_TYPED),
    examples=examples.CONFIRMATIONS,
)  # fmt: skip
async def reset_password(request: Http, user: str, data: ConfirmRequest | None = None) -> UserLink:
    """It is valid for a day, once, and is not shown again. When it is used, all sessions and personal tokens of the
    person end."""
    return await services_of(request).users.reset(caller_of(request), user, data or ConfirmRequest())


@delete(
    "/v1/users/{user:str}", status_code=200, summary="Remove a person from the tenant", operation="users.remove",
    roles=ADMINS, problems=("outside_token",),
)  # fmt: skip
async def remove_user(request: Http, user: str) -> UserView:
    """An instance administrator removes the person from all tenants. Sessions and personal tokens there end at once.
    The answer is the user as it was; jobs that the person has created keep the name."""
    return await services_of(request).users.remove(caller_of(request), user)


HANDLERS = [
    list_users, invite_user, get_user, set_user_role, disable_user, enable_user, reset_password, remove_user,
]  # fmt: skip
