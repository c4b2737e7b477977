"""Authentication. Every route except health requires a token or a session. A death notice requires the secret of its
worker. Host and Origin must be allowed, and bodies must be JSON.

This holds on loopback too, because any web page can send requests there (FEATURES 7.8).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from ipaddress import ip_address
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from mainspring.api.handlers import RouteHandler
from mainspring.api.large_bodies import may_be_large
from mainspring.api.parameters import read_query
from mainspring.api.reach import check_reach
from mainspring.api.request_rates import RequestRates
from mainspring.api.session_cookie import check_request, secret_of
from mainspring.domain.errors import Forbidden, InvalidInput, NotFound, Unauthorized, WrongMediaType
from mainspring.kernel.clock import Clock
from mainspring.kernel.ids import TenantId
from mainspring.operations.access.caller import Caller
from mainspring.operations.access.failed_sign_ins import FailedSignIns
from mainspring.operations.access.permissions import SUBMITTER, WORKER, check_permission
from mainspring.operations.access.urgency import is_urgent
from mainspring.operations.exchange.death_notices import DeathNotices, Proof
from mainspring.operations.object_guard import ObjectGuard
from mainspring.store import tokens
from mainspring.store.outage_queue import despite_outages
from mainspring.store.pool import AWAY, Connection, Store
from mainspring.store.tokens import FoundToken, Principal
from mainspring.store.workers import hash_secret
from mainspring.wire.protocol import LONGEST_SECRET, SECRET_HEADER, WORKER_HEADER

_REMEMBER = 5.0  # seconds for which a token is cached
_SECRET = SECRET_HEADER.lower().encode()
_WORKER = WORKER_HEADER.lower().encode()
_PROVED = "worker.gone"
_PROOF = "proof"
_LONGEST_CLIENT = 200
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class TokenRegistry:
    """Finds tokens by their hash. Caches them for a few seconds, or until a server revokes one of the tenant.

    `find`: where to look; for sessions instead of tokens, `sessions.find`.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        find: Callable[[Connection, bytes], Awaitable[FoundToken | None]] | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._find = find or tokens.find
        self._known: dict[bytes, tuple[float, Principal]] = {}
        self._forgotten = 0
        self._lookups: dict[bytes, asyncio.Task[Principal | None]] = {}

    async def principal(self, token: str) -> Principal | None:
        digest = tokens.hash_token(token)
        remembered = self._known.get(digest)
        if remembered is not None and self._clock.monotonic() < remembered[0]:
            return remembered[1]
        return await despite_outages(self._store.waiting, lambda: self._shared_look_up(digest))

    def has_seen(self, token: str) -> bool:
        """Whether it was valid when this server last looked it up. It costs nothing to ask, and proves nothing."""
        return tokens.hash_token(token) in self._known

    async def _shared_look_up(self, digest: bytes) -> Principal | None:
        lookup = self._lookups.get(digest)
        if lookup is None:  # one for all requests that need it, or a busy server asks hundreds of times at once
            lookup = self._lookups[digest] = asyncio.create_task(self._look_up(digest))
            lookup.add_done_callback(lambda done: self._looked_up(digest, done))
        return await asyncio.shield(lookup)

    def _looked_up(self, digest: bytes, lookup: asyncio.Task[Principal | None]) -> None:
        if self._lookups.get(digest) is lookup:
            del self._lookups[digest]
        if not lookup.cancelled():
            lookup.exception()  # asyncio logs nothing if all requests have gone

    async def _look_up(self, digest: bytes) -> Principal | None:
        now = self._clock.monotonic()
        before = self._forgotten
        async with self._store.for_short_reads().acquire() as connection:
            found = await self._find(connection, digest)
        if found is None:
            self._known.pop(digest, None)
            return None
        if len(self._known) > 10_000:
            self._known.clear()
        if before == self._forgotten:  # otherwise the token may have been revoked after it was read
            left = _REMEMBER if found.seconds_left is None else min(_REMEMBER, found.seconds_left)
            self._known[digest] = (now + left, found.principal)
        return found.principal

    def forget(self, tenant: TenantId) -> None:
        """Drop the cached tokens of this tenant, because one of them was revoked."""
        self._forgotten += 1
        self._lookups.clear()  # those under way may have read the token before it was revoked
        self._known = {digest: known for digest, known in self._known.items() if known[1].tenant != tenant}


class Admission:
    """Which requests a server accepts."""

    def __init__(
        self,
        registry: TokenRegistry,
        browsers: TokenRegistry,
        death_notices: DeathNotices,
        allowed_hosts: Iterable[str],
        failed: FailedSignIns,
        objects: ObjectGuard,
        rates: RequestRates | None = None,
    ) -> None:
        self.rates = rates
        self._objects = objects
        self._registry = registry
        self._sessions = browsers
        self._death_notices = death_notices
        self._failed = failed
        self._hosts = frozenset(host.lower() for host in allowed_hosts)

    async def check(self, scope: Any) -> bool:
        """Raise unless the request is accepted. Return whether its body may be large."""
        headers = dict(scope["headers"])
        self._check_host(headers)
        handler: RouteHandler = scope["handler"]
        operation, roles = handler.operation, handler.roles
        if self.rates is not None:
            self._count_address(self.rates, scope, operation, public=not roles)
        if not roles:
            if operation == _PROVED:
                scope[_PROOF] = await self._death_notices.prove(_text(headers, _WORKER), _text(headers, _SECRET))
            return False
        caller = scope["caller"] = _caller(await self._authenticate(scope, headers), headers, scope)
        if (connection := scope.get("connection")) is not None:
            connection.authenticated()
        if self.rates is not None and caller.role != WORKER and not is_urgent(operation):
            self.rates.count_token(caller.credential, caller.name)
        check_permission(caller, roles)
        if caller.narrowing is not None or caller.role == SUBMITTER:
            await self._check_part(caller, scope, handler)
        _check_address(scope)
        scope["query"] = read_query(scope, handler.parameters, payload_keys=handler.payload_keys)
        if scope["method"] not in ("POST", "PUT", "PATCH"):
            return False
        check_json(headers)
        return may_be_large(headers)

    def _count_address(self, rates: RequestRates, scope: Any, operation: str, *, public: bool) -> None:
        if not is_urgent(operation) or not (public or self.has_seen(scope)):
            peer = scope.get("client")
            rates.count_address(None if peer is None else peer[0])

    async def _check_part(self, caller: Caller, scope: Any, handler: RouteHandler) -> None:
        """Check the request of a caller that reaches only a part of its tenant."""
        named, narrowing, method = scope["path_params"], caller.narrowing, scope["method"]
        if narrowing is not None:
            if not narrowing.accepts(caller.address):
                raise _wrong_address(caller)
            if method != "OPTIONS":
                check_reach(handler, narrowing, named, scope["query_string"])
        job_id, run_id = named.get("job_id", named.get("workflow_id")), named.get("run_id")
        backfill_id, changes = named.get("backfill_id"), method not in ("GET", "HEAD", "OPTIONS")
        if (job_id or run_id or backfill_id) and (changes or narrowing is not None):
            await self._objects.check(caller, job_id=job_id, run_id=run_id, backfill_id=backfill_id, changes=changes)

    async def outside(self, caller: Caller, job_ids: Iterable[str]) -> set[str]:
        """Those of the jobs that the token of the caller does not reach."""
        return await self._objects.outside(caller, job_ids)

    def _check_host(self, headers: dict[bytes, bytes]) -> None:
        host = _host_name(headers.get(b"host", b"").decode("latin-1"))
        hosts = {host} if "*" in self._hosts else self._hosts
        if host not in hosts:
            raise Forbidden(
                f"this server does not accept the host {host!r}", code="wrong_host", field="Host",
                hint="use the address that the server was started with, or start the server with --allow-host",
            )  # fmt: skip
        origin = headers.get(b"origin")
        if origin is not None and _origin_host(origin.decode("latin-1")) not in hosts:
            raise Forbidden("requests from other origins are refused", code="wrong_origin", field="Origin")

    def may_be_valid(self, scope: Any) -> bool:
        """Whether the request has a token or a session at all."""
        return self._secret(scope) is not None

    def has_seen(self, scope: Any) -> bool:
        """Whether its token or session was valid before."""
        found = self._secret(scope)
        return found is not None and found[0].has_seen(found[1])

    def _secret(self, scope: Any) -> tuple[TokenRegistry, str] | None:
        headers = dict(scope["headers"])
        if token := _bearer(headers.get(b"authorization", b"").decode("latin-1")):
            return self._registry, token
        try:
            secret = None if b"authorization" in headers else secret_of(scope, headers)
        except Unauthorized:
            return None
        return None if secret is None else (self._sessions, secret)

    async def still_admits(self, scope: Any) -> bool:
        """Whether the token or session of this request is still valid. True while the database is unavailable."""
        try:
            await self._authenticate(scope, dict(scope["headers"]))
        except Unauthorized:
            return False
        except AWAY:
            return True
        return True

    async def _authenticate(self, scope: Any, headers: dict[bytes, bytes]) -> Principal:
        """A token, or else a session: no other page can add the header Authorization to the request of a browser."""
        token = _bearer(headers.get(b"authorization", b"").decode("latin-1"))
        if not token and b"authorization" not in headers and (secret := secret_of(scope, headers)) is not None:
            check_request(scope, headers, secret)
            signed_in = await self._sessions.principal(secret)
            if signed_in is None:
                raise Unauthorized(
                    "the session has ended", code="invalid_session", field="Cookie",
                    hint="sign in again: mainspring open makes a link",
                )  # fmt: skip
            return signed_in
        if not token:
            raise Unauthorized(
                "a token is required", field="Authorization",
                hint="send 'Authorization: Bearer <token>'; the file admin-token in the data folder contains one",
            )  # fmt: skip
        principal = await self._registry.principal(token)
        if principal is None:
            peer = scope.get("client")
            self._failed.note("invalid_token", None if peer is None else peer[0])
            raise Unauthorized(
                "this token is not valid", code="invalid_token", field="Authorization",
                hint="it may have expired or been revoked, or belong to another server",
            )  # fmt: skip
        return principal


def _wrong_address(caller: Caller) -> Forbidden:
    return Forbidden(
        f"the token {caller.name!r} is not accepted from the address {caller.address}", code="wrong_address",
        field="Authorization", hint="use it from one of its networks, or another token",
    )  # fmt: skip


def proof_of(scope: Any) -> Proof:
    """The proof of a death notice."""
    proof: Proof = scope[_PROOF]
    return proof


def _text(headers: dict[bytes, bytes], name: bytes) -> str | None:
    value = headers.get(name)
    return None if value is None else value.decode("latin-1")


def _caller(principal: Principal, headers: dict[bytes, bytes], scope: Any) -> Caller:
    peer = scope.get("client")
    return Caller(
        principal.tenant, principal.role, principal.name, principal.token_id, peer[0] if peer is not None else None,
        _secret_hash(headers), principal.session_id, principal.narrowing, client_of(headers),
        scope["handler"].operation, principal.user_id, principal.member_id,
    )  # fmt: skip


def client_of(headers: dict[bytes, bytes]) -> str | None:
    """What the program of the caller calls itself."""
    agent = headers.get(b"user-agent")
    return None if agent is None else agent[:_LONGEST_CLIENT].decode("latin-1").replace("\x00", "")


def _secret_hash(headers: dict[bytes, bytes]) -> bytes | None:
    secret = headers.get(_SECRET)
    if not secret:
        return None
    if len(secret) > LONGEST_SECRET:
        raise InvalidInput(
            "the secret is too long", field=SECRET_HEADER, expected=f"at most {LONGEST_SECRET} characters"
        )
    return hash_secret(secret.decode("latin-1"))


def _bearer(authorization: str) -> str:
    """The token in this header. Empty if there is none."""
    scheme, _, token = authorization.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def hosts_for(bind_host: str, extra: Iterable[str] = ()) -> frozenset[str]:
    """The Host names that a server accepts: loopback, `bind_host`, `extra`. Any name if it binds to all addresses."""
    names = set(_LOOPBACK) | {bind_host.strip("[]").lower()} | {name.lower() for name in extra}
    try:
        if ip_address(bind_host.strip("[]")).is_unspecified:
            names.add("*")
    except ValueError:
        pass  # a name, not an address
    return frozenset(names)


def _host_name(host: str) -> str:
    """The name without its port; IPv6 without its brackets."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()


def _origin_host(origin: str) -> str | None:
    try:
        return urlsplit(origin).hostname
    except ValueError:  # such as an incomplete IPv6 address
        return None


def _check_address(scope: Any) -> None:
    """Refuse the character NUL. PostgreSQL cannot store it, so no name or id contains it."""
    if "\x00" in scope["path"]:
        raise NotFound("the path contains the character NUL")
    if b"%00" in scope["query_string"]:
        for name, value in parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True):
            if "\x00" in name or "\x00" in value:
                raise InvalidInput(
                    "a parameter contains the character NUL", code="invalid_parameter", field=name.replace("\x00", "")
                )


def check_json(headers: dict[bytes, bytes]) -> None:
    """Raise WrongMediaType if there is a body that is not JSON."""
    if headers.get(b"content-length", b"0") == b"0" and b"transfer-encoding" not in headers:
        return
    kind = headers.get(b"content-type", b"").decode("latin-1").partition(";")[0].strip().lower()
    if kind != "application/json" and not kind.endswith("+json"):
        raise WrongMediaType(
            f"the content type of the body is {kind or 'missing'}", field="Content-Type", expected="application/json",
            hint="send the header Content-Type: application/json",
        )  # fmt: skip
