"""What a session may do only after its own token or password was typed again.

A session ends; an attacker who had one for a while must not keep access for ever.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from mainspring.domain.errors import Forbidden
from mainspring.operations.access.caller import Caller
from mainspring.operations.access.failed_sign_ins import FailedSignIns
from mainspring.store import identities, tokens
from mainspring.store.pool import Store

CheckPassword = Callable[[Caller, str], Awaitable[None]]  # raises Forbidden


class TypedAgain:
    """`check_password`: raises Forbidden unless it is the password of the person who calls."""

    def __init__(self, store: Store, failed: FailedSignIns, check_password: CheckPassword) -> None:
        self._store = store
        self._failed = failed
        self._check_password = check_password

    async def is_typed(self, caller: Caller, token: str | None, password: str | None) -> bool:
        """Whether one of them was given and is right. Raises Forbidden if it is wrong."""
        if token is not None:
            async with self._store.for_short_reads().acquire() as connection:
                found = await tokens.find(connection, tokens.hash_token(token))
            if found is None or found.principal.token_id != caller.credential:
                self._failed.note("wrong_token", caller.address)
                raise Forbidden(
                    "this is not the token that you signed in with", code="wrong_token", field="token",
                    hint="type the token whose name the page shows",
                )  # fmt: skip
        if password is not None:
            await self._check_password(caller, password)
        return token is not None or password is not None or await self.is_fresh(caller)

    async def is_fresh(self, caller: Caller) -> bool:
        """Whether the session of a person has just begun with a proof at a provider."""
        if caller.session is None or caller.user is None:
            return False
        async with self._store.for_short_reads().acquire() as connection:
            return await identities.is_fresh(connection, caller.session)


def check_typed(caller: Caller, typed: bool, kept: str | None) -> None:
    """Raise Forbidden if a session calls, and there is a reason why it needs to type something, and it has not."""
    if typed or caller.session is None or kept is None:
        return
    person = caller.user is not None and caller.member is None
    what = "password" if person else "token"
    raise Forbidden(
        f"{kept}, unless its own {what} is typed again", code="token_needed", field=what,
        hint=f"send the {what} that you signed in with in the field {what}, or use a token instead of a session; "
        "who signs in at a provider does so again on the page Settings, and has five minutes",
    )  # fmt: skip
