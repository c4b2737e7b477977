"""Sign in with mail address and password, accept a link, and go on in another tenant."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from mainspring.domain.errors import Forbidden, InvalidInput, TooManyRequests, Unauthorized
from mainspring.domain.people import check_new_password, full_name, mail_address
from mainspring.kernel.logs import get_logger
from mainspring.operations.access.caller import Caller
from mainspring.operations.access.failed_sign_ins import FailedSignIns
from mainspring.operations.people.guesses import Guesses, Keys
from mainspring.operations.people.passwords import Passwords
from mainspring.operations.people.user_sessions import ACCEPT, SIGN_IN, From, SignedInUser, begin, chosen, known_by
from mainspring.operations.signals import Signals
from mainspring.store import attempts, identities, sessions, users
from mainspring.store.pool import Connection, Store
from mainspring.store.users import NEW_PASSWORD, MemberRow, UserLinkRow, UserRow
from mainspring.wire.sessions import SignInRequest
from mainspring.wire.users import Accepted, AcceptRequest, TenantChoice

log = get_logger("people")

_NO_USER = UUID(int=0)  # so that a sign-in of a person who does not exist takes the same statements


class PasswordSignIn:
    def __init__(
        self, store: Store, signals: Signals, failed: FailedSignIns, passwords: Passwords, guesses: Guesses
    ) -> None:
        self._store = store
        self._signals = signals
        self._failed = failed
        self._passwords = passwords
        self._guesses = guesses

    async def sign_in(self, request: SignInRequest, where: From) -> SignedInUser:
        """Begin a session of a user. Raises Unauthorized if mail address and password do not belong together; who asks
        does not learn whether there is such a user."""
        if request.mail is None or request.password is None or request.code is not None or request.token is not None:
            raise InvalidInput(
                "mail and password belong together, and exclude code and token",
                field="password" if request.password is None else "mail", hint="give both, and neither code nor token",
            )  # fmt: skip
        if request.preview:
            raise InvalidInput("a password has no preview", field="preview", hint="it is for codes of links")
        mail = mail_address(request.mail)
        async with self._store.for_short_reads().acquire() as connection:
            user = await users.of_mail(connection, mail)
        if not await self._is_right(mail, user, request.password, where):
            raise _wrong()
        assert user is not None
        async with self._store.change() as connection:
            if user.password_hash is None or not await users.share(connection, user.user_id, user.password_hash):
                raise _wrong()  # it was changed since
            member = chosen(await users.members_of(connection, user.user_id), request.tenant)
            known = await known_by(connection, user, where)
            return await self._begin(connection, user, member, where, SIGN_IN, {"by": "password"}, known=known)

    async def accept(self, request: AcceptRequest, where: From) -> tuple[Accepted, SignedInUser | None]:
        """Accept an invitation, or choose a new password, and begin a session. With `preview` only say what the link is
        for."""
        async with self._store.for_short_reads().acquire() as connection:
            link = await users.find_link(connection, request.code)
        if link is None or link.disabled_at is not None:
            self._failed.note("invalid_link", where.address)
            raise _invalid_link()
        told = Accepted(link.mail, link.name, link.tenant, link.role, link.password_hash is not None)
        if request.preview:
            return told, None
        if request.password is None:
            raise InvalidInput("the link needs a password", field="password", hint="a new one, or that of the user")
        if link.role is not None and link.password_hash is None:
            async with self._store.for_short_reads().acquire() as connection:
                if await identities.has_some(connection, link.user_id):
                    raise _elsewhere()
        joins = link.role is not None and link.password_hash is not None
        if joins:  # the person has an account already, and must be who uses the link
            async with self._store.for_short_reads().acquire() as connection:
                user = await users.get(connection, link.user_id)
            if not await self._is_right(link.mail, user, request.password, where):
                raise _wrong()
            made = link.password_hash
        else:
            check_new_password(request.password, link.mail, link.name, "password")
            with self._passwords.turn():
                made = await self._passwords.hash(request.password)
        assert made is not None
        return told, await self._accept(request.code, link, made, where, joins=joins)

    async def _accept(self, code: str, link: UserLinkRow, made: str, where: From, *, joins: bool) -> SignedInUser:
        async with self._store.change() as connection:
            user = await users.lock(connection, link.user_id)
            if user is None or user.disabled_at is not None or user.password_hash != link.password_hash:
                raise _invalid_link()
            if not await users.take_link(connection, code):
                raise _invalid_link()
            if link.role is not None and not joins and await identities.has_some(connection, user.user_id):
                raise _elsewhere()
            if not joins and not await users.set_password(connection, user.user_id, made, user.password_hash):
                raise _invalid_link()
            if link.role is None:
                await users.end_sessions(connection, user.user_id)
                await users.revoke_personal(connection, user.user_id)
                await attempts.forget_browsers(connection, user.user_id)
            else:
                name = full_name(link.name, user.mail)  # as this tenant, and no other, has called the person
                await users.put_member(connection, user.user_id, link.tenant_id, link.role, name)
                # Links for a new password were made by those who administered the user before.
                await users.drop_links(connection, user.user_id, [NEW_PASSWORD])
            members = await users.members_of(connection, user.user_id)
            member = chosen(members, link.tenant)
            after = {"mail": user.mail, "role": link.role} if link.role else {"mail": user.mail, "password": "new"}
            known = await known_by(connection, user, where)
            begun = await self._begin(connection, user, member, where, ACCEPT, after, known=known)
        for one in members:
            self._signals.tokens.publish(one.tenant_id)
        return begun

    async def switch(self, caller: Caller, request: TenantChoice) -> SignedInUser:
        """A session of the same person in another tenant, which ends when this one would have."""
        if caller.user is None or caller.session is None or caller.member is not None:
            raise Forbidden(
                "only the session of a person goes on in another tenant", code="user_needed", field="Authorization",
                hint="sign in with mail address and password",
            )  # fmt: skip
        async with self._store.change() as connection:
            user = await users.lock(connection, caller.user)
            member = chosen([] if user is None else await users.members_of(connection, caller.user), request.tenant)
            left = await sessions.seconds_left(connection, caller.session)
            if user is None or not await sessions.end(connection, caller.session):
                raise Unauthorized("the session has ended", code="invalid_session", field="Cookie")
            where = From(caller.address, caller.client, None)
            operation = caller.operation or SIGN_IN
            begun = await self._begin(connection, user, member, where, operation, {"by": "session"}, left)
        self._signals.tokens.publish(caller.tenant)  # after the commit: servers that remember the session look again
        return begun

    async def confirm(self, caller: Caller, password: str) -> None:
        """Raise Forbidden unless it is the password of the person who calls."""
        user = None
        if caller.user is not None:
            async with self._store.for_short_reads().acquire() as connection:
                user = await users.get(connection, caller.user)
        if user is None:
            raise Forbidden(
                "the caller is no person with a password", code="user_needed", field="password",
                hint="type the token in the field token",
            )  # fmt: skip
        keys = await self._charged(f"session {user.user_id}", caller.address)
        if not await self._matches(password, user.password_hash, keys):
            self._failed.note("wrong_password", caller.address)
            raise Forbidden("this is not your password", code="not_your_password", field="password")
        await self._guesses.refund(keys)

    async def _charged(self, who: str, address: str | None) -> Keys:
        try:
            return await self._guesses.charge_known(who)
        except TooManyRequests as error:
            self._failed.note(error.code, address)
            raise

    async def _is_right(self, mail: str, user: UserRow | None, password: str, where: From) -> bool:
        """Whether it is the password of the user. Attempts in vain are counted."""
        user_id = _NO_USER if user is None else user.user_id
        known = where.known is not None and await self._is_known(where.known, user_id)
        try:
            if known:
                keys = await self._guesses.charge_known(f"{where.known} {mail}")
            else:
                keys = await self._guesses.charge(mail, where.address)
        except TooManyRequests as error:
            self._failed.note(error.code, where.address)
            raise
        stored = None if user is None or user.disabled_at is not None else user.password_hash
        right = await self._matches(password, stored, keys)
        if right:
            await self._guesses.refund(keys)
        else:
            self._failed.note("wrong_password", where.address)
        return right

    async def _matches(self, password: str, stored: str | None, keys: Keys) -> bool:
        """Attempts over a limit never come here, and so take no turn from others."""
        try:
            with self._passwords.turn():
                return await self._passwords.matches(password, stored)
        except TooManyRequests:
            await self._guesses.refund(keys)
            raise

    async def _is_known(self, secret: str, user_id: UUID) -> bool:
        async with self._store.change() as connection:
            return await attempts.is_known(connection, secret, user_id)

    async def _begin(
        self, connection: Connection, user: UserRow, member: MemberRow, where: From, operation: str,
        after: Mapping[str, object], seconds: float = sessions.LONGEST, *, known: str | None = None,
    ) -> SignedInUser:  # fmt: skip
        begun = await begin(connection, user, member, where, operation, after, seconds, known=known)
        if begun is None:
            raise _wrong()
        return begun.told


def _wrong() -> Unauthorized:
    return Unauthorized(
        "the mail address or the password is wrong", code="wrong_password", field="password",
        hint="an admin of your tenant can send you a link for a new password",
    )  # fmt: skip


def _invalid_link() -> Unauthorized:
    return Unauthorized(
        "this link was used before, or has expired", code="invalid_link", field="code",
        hint="ask whoever sent it for another one",
    )  # fmt: skip


def _elsewhere() -> Forbidden:
    """The admin who made the link knows it, too: a password chosen with it would sign in as the person everywhere."""
    return Forbidden(
        "this person signs in at a provider", code="signs_in_elsewhere", field="code",
        hint="sign in there: the invitation is accepted by that",
    )  # fmt: skip
