"""A provider of OpenID Connect: its addresses and keys, which are cached for a while, and what it says of a person."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from mainspring.domain.errors import Unavailable
from mainspring.domain.oidc import ProviderSettings, is_safe, lacks, refused
from mainspring.kernel.clock import Clock
from mainspring.kernel.logs import get_logger
from mainspring.operations.people.id_tokens import Key, UnknownKey, verified_claims
from mainspring.operations.people.provider_transport import NotReached, ProviderAnswer, ProviderTransport

CACHED_FOR = 600.0  # seconds: a key that the provider withdraws is accepted for so long
REFRESH_AFTER = 30.0  # seconds between two looks for a key that is not known
_WELL_KNOWN = "/.well-known/openid-configuration"
_MOST_KEYS = 100
_FORM = "application/x-www-form-urlencoded"

log = get_logger("people")


class Metadata(msgspec.Struct, frozen=True):
    """What a provider says of itself."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    userinfo_endpoint: str | None = None
    token_endpoint_auth_methods_supported: tuple[str, ...] = ("client_secret_basic",)


class _KeySet(msgspec.Struct, frozen=True):
    keys: list[dict[str, Any]]


class _Tokens(msgspec.Struct, frozen=True):
    id_token: str
    access_token: str | None = None


class _Problem(msgspec.Struct, frozen=True):
    error: str = ""


class Provider:
    def __init__(self, settings: ProviderSettings, transport: ProviderTransport, clock: Clock) -> None:
        self.settings = settings
        self._transport = transport
        self._clock = clock
        self._metadata: tuple[float, Metadata] | None = None
        self._keys: tuple[float, list[dict[str, Any]]] | None = None
        self._turn = asyncio.Lock()  # many who sign in at the same time ask once

    async def address(self, parameters: Mapping[str, str]) -> str:
        """Where a browser goes to sign in. Raises Unavailable."""
        endpoint = (await self._described()).authorization_endpoint
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(parameters)}"

    async def claims(self, code: str, verifier: str, redirect: str) -> tuple[dict[str, Any], str | None]:
        """Redeem a code. Returns the claims of the ID token, of which only the signature was checked, and the token
        with which `more_claims` asks. Raises Unauthorized or Unavailable."""
        described, settings = await self._described(), self.settings
        form = {"grant_type": "authorization_code", "code": code, "redirect_uri": redirect, "code_verifier": verifier}
        headers = {"Content-Type": _FORM}
        if settings.client_secret is None:
            form["client_id"] = settings.client_id
        elif "client_secret_basic" in described.token_endpoint_auth_methods_supported:
            pair = f"{quote(settings.client_id, safe='')}:{quote(settings.client_secret, safe='')}"
            headers["Authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
        else:
            form |= {"client_id": settings.client_id, "client_secret": settings.client_secret}
        answer = await self._ask("POST", described.token_endpoint, headers, urlencode(form).encode())
        if answer.status != 200:
            log.info("a provider has refused a code", provider=settings.key, status=answer.status, error=_error(answer))
            if answer.status >= 500 or answer.status == 429:
                raise self._unavailable(f"its token endpoint answers with {answer.status}")
            raise refused(f"{settings.name} has refused the code")
        tokens = self._decoded(answer, _Tokens, "tokens")
        try:
            return verified_claims(tokens.id_token, await self._signing_keys()), tokens.access_token
        except UnknownKey:  # it may be a new one
            pass
        try:
            return verified_claims(tokens.id_token, await self._signing_keys(newer=True)), tokens.access_token
        except UnknownKey:
            raise refused("the ID token is signed with a key that the provider does not publish (kid)") from None

    async def more_claims(self, claims: dict[str, Any], subject: str, access_token: str | None) -> dict[str, Any]:
        """The claims, with those that the provider tells only when it is asked. What is signed counts more."""
        endpoint = (await self._described()).userinfo_endpoint
        if access_token is None or endpoint is None or not lacks(claims, self.settings):
            return claims
        if not access_token.isascii() or not access_token.isprintable():
            raise refused("the access token cannot be sent")
        answer = await self._ask("GET", endpoint, {"Authorization": " ".join(("Bearer", access_token))}, b"")
        if answer.status != 200:
            raise self._unavailable(f"its userinfo endpoint answers with {answer.status}")
        told = self._decoded(answer, dict[str, Any], "claims")
        if told.get("sub") != subject:
            raise refused("the provider tells about another person (sub)")
        return {**told, **claims}

    async def _described(self) -> Metadata:
        async with self._turn:
            now = self._clock.monotonic()
            if self._metadata is not None and now < self._metadata[0] + CACHED_FOR:
                return self._metadata[1]
            answer = await self._ask("GET", f"{self.settings.issuer.rstrip('/')}{_WELL_KNOWN}", {}, b"")
            if answer.status != 200:
                raise self._unavailable(f"its description answers with {answer.status}")
            found: Metadata = self._decoded(answer, Metadata, "a description")
            if found.issuer != self.settings.issuer:
                raise self._unavailable("its description is of another issuer")
            for address in (
                *(found.authorization_endpoint, found.token_endpoint, found.jwks_uri),
                *(() if found.userinfo_endpoint is None else (found.userinfo_endpoint,)),
            ):
                if not is_safe(address):
                    raise self._unavailable("its description names an address without TLS")
            self._metadata = (now, found)
            return found

    async def _signing_keys(self, *, newer: bool = False) -> list[Key]:
        """The keys of the provider. `newer`: as they are now, unless they were just read."""
        described = await self._described()
        async with self._turn:
            now = self._clock.monotonic()
            lasts = REFRESH_AFTER if newer else CACHED_FOR
            if self._keys is None or now >= self._keys[0] + lasts:
                answer = await self._ask("GET", described.jwks_uri, {}, b"")
                if answer.status != 200:
                    raise self._unavailable(f"its keys answer with {answer.status}")
                self._keys = (now, self._decoded(answer, _KeySet, "keys").keys[:_MOST_KEYS])
            return list(self._keys[1])

    async def _ask(self, method: str, url: str, headers: dict[str, str], body: bytes) -> ProviderAnswer:
        try:
            return await self._transport.ask(
                method, url, {"Accept": "application/json", **headers}, body, allow=self.settings.allow
            )
        except NotReached as error:
            raise self._unavailable(str(error)) from None

    def _decoded(self, answer: ProviderAnswer, kind: type[Any], what: str) -> Any:
        try:
            return msgspec.json.decode(answer.body, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise self._unavailable(f"what it sends as {what} cannot be read") from None

    def _unavailable(self, why: str) -> Unavailable:
        log.warning("a provider cannot be used", provider=self.settings.key, reason=why)
        return Unavailable(
            f"{self.settings.name} cannot be used for signing in: {why}", code="provider_unavailable",
            hint="try again later; who has a password or a token can sign in with that",
        )  # fmt: skip


def _error(answer: ProviderAnswer) -> str:
    try:
        return msgspec.json.decode(answer.body, type=_Problem).error[:40]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
