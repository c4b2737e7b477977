"""Sign in at a provider of OpenID Connect: by an authorization code, with PKCE, state and nonce.

The browser keeps one secret in a cookie. State, nonce and the verifier of PKCE are made from it, so nothing is stored
while the person is away to sign in, and an answer is of use in that browser alone. Each secret is answered once.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import urlsafe_b64encode
from collections.abc import Sequence

import msgspec

from mainspring.domain.errors import InvalidInput, MainspringError, TooManyRequests, Unauthorized
from mainspring.domain.oidc import ProviderSettings, check_id_token, identity_of, refused
from mainspring.domain.texts import shown
from mainspring.kernel.clock import Clock, DatabaseClock
from mainspring.operations.access.failed_sign_ins import FailedSignIns
from mainspring.operations.people.guesses import Guesses
from mainspring.operations.people.provider import Provider
from mainspring.operations.people.provider_people import ProviderPeople
from mainspring.operations.people.provider_transport import ProviderTransport
from mainspring.operations.people.user_sessions import From, SignedInUser
from mainspring.store import identities, sessions
from mainspring.store.pool import Store
from mainspring.wire.providers import ProviderAnswer, ProviderChoice, ProviderList, ProviderView

LIFE = 600.0  # seconds from the button to the answer of the provider
_AT_ONCE = 16  # answers that are checked at the same time; each asks the provider
_AHEAD = 60.0  # seconds by which the clock of another server may be ahead


class Begin(msgspec.Struct, frozen=True):
    """Where the browser goes, and the secret that it keeps meanwhile."""

    url: str
    secret: str


class ProviderSignIn:
    def __init__(
        self, store: Store, failed: FailedSignIns, guesses: Guesses, people: ProviderPeople,
        settings: Sequence[ProviderSettings], transport: ProviderTransport, clock: Clock, database_clock: DatabaseClock,
    ) -> None:  # fmt: skip
        self._store = store
        self._failed = failed
        self._guesses = guesses
        self._people = people
        self._transport = transport
        self._database_clock = database_clock
        self._providers = {one.key: Provider(one, transport, clock) for one in settings}
        self._under_way = 0

    def providers(self) -> ProviderList:
        return ProviderList([ProviderView(key, one.settings.name) for key, one in self._providers.items()])

    def close(self) -> None:
        self._transport.close()

    async def begin(self, choice: ProviderChoice, redirect: str) -> Begin:
        """Raises Unavailable if the provider does not answer. `redirect`: where it sends the browser back to."""
        provider = self._providers.get(choice.provider)
        if provider is None:
            raise InvalidInput(
                f"there is no provider {shown(choice.provider)}", field="provider",
                hint="the page shows those of this server",
            )  # fmt: skip
        now = int(self._database_clock.timestamp())
        secret = f"{choice.provider}~{'again' if choice.again else 'once'}~{now}~{sessions.new_secret()}"
        settings = provider.settings
        parameters = {
            "response_type": "code", "client_id": settings.client_id, "redirect_uri": redirect,
            "scope": " ".join(settings.scopes), "state": _made(secret, "state"), "nonce": _made(secret, "nonce"),
            "code_challenge": _digest(_made(secret, "verifier").encode()), "code_challenge_method": "S256",
        }  # fmt: skip
        if choice.again:  # the provider asks for the password, also if the person is signed in there
            parameters |= {"prompt": "login", "max_age": "0"}
        return Begin(await provider.address(parameters), secret)

    async def finish(self, answer: ProviderAnswer, secret: str | None, redirect: str, where: From) -> SignedInUser:
        """Begin a session of the person of whom the provider tells. `secret`: what this browser has kept."""
        try:
            return await self._finish(answer, secret, redirect, where)
        except MainspringError as error:
            self._failed.note(error.code, where.address)
            raise

    async def _finish(self, answer: ProviderAnswer, secret: str | None, redirect: str, where: From) -> SignedInUser:
        if secret is None or not hmac.compare_digest(
            answer.state.encode(errors="replace"), _made(secret, "state").encode()
        ):
            raise _over("this sign-in was not begun in this browser, or another one was begun since")
        key, mode, began = _parts(secret)
        provider, now = self._providers.get(key), self._database_clock.timestamp()
        if provider is None or not now - LIFE < began < now + _AHEAD:
            raise _over("this sign-in took too long")
        settings = provider.settings
        if answer.iss is not None and answer.iss != settings.issuer:
            raise refused("the answer is of another issuer (iss)")
        charged = await self._guesses.charge_address(where.address)
        async with self._store.change() as connection:
            if not await identities.answer(connection, secret, LIFE):
                raise _over("this sign-in was answered before")
        if self._under_way >= _AT_ONCE:
            raise TooManyRequests(
                f"this server checks {_AT_ONCE} sign-ins at a time", code="sign_ins_busy", hint="try again in a second"
            )
        self._under_way += 1
        try:
            claims, access_token = await provider.claims(answer.code, _made(secret, "verifier"), redirect)
            subject = check_id_token(
                claims, settings, _made(secret, "nonce"), self._database_clock.timestamp(),
                signed_in_after=float(began) if mode == "again" else None,
            )  # fmt: skip
            identity = identity_of(await provider.more_claims(claims, subject, access_token), subject, settings)
        finally:
            self._under_way -= 1
        begun = await self._people.sign_in(settings, identity, where, fresh=mode == "again")
        await self._guesses.refund(charged)
        return begun


def _parts(secret: str) -> tuple[str, str, int]:
    parts = secret.split("~")
    if len(parts) != 4 or not parts[2].isascii() or not parts[2].isdigit() or len(parts[2]) > 12:
        raise _over("this sign-in was not begun here")
    return parts[0], parts[1], int(parts[2])


def _made(secret: str, purpose: str) -> str:
    return _encoded(hmac.new(secret.encode(errors="replace"), purpose.encode(), hashlib.sha256).digest())


def _digest(value: bytes) -> str:
    return _encoded(hashlib.sha256(value).digest())


def _encoded(value: bytes) -> str:
    return urlsafe_b64encode(value).decode().rstrip("=")


def _over(detail: str) -> Unauthorized:
    return Unauthorized(detail, code="sign_in_over", field="state", hint="begin again on the page")
