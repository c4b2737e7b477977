"""A provider of OpenID Connect in this process, which a test can make misbehave."""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from mainspring.domain.oidc import Grant, ProviderSettings
from mainspring.operations.people.guesses import Guesses
from mainspring.operations.people.provider_people import ProviderPeople
from mainspring.operations.people.provider_sign_in import ProviderSignIn
from mainspring.operations.people.provider_transport import NotReached, ProviderAnswer, ProviderTransport
from mainspring.roles.assembly import Assembly
from tests.api.browsers import OWN

ISSUER = "https://id.example.com/realms/main"
CLIENT = "mainspring"
SECRET = "the secret of the client"
Claims = dict[str, Any]


@cache
def key_of(algorithm: str, number: int = 0) -> Any:
    if algorithm[:2] in ("RS", "PS"):
        return rsa.generate_private_key(65537, 2048)
    return ec.generate_private_key(ec.SECP256R1()) if algorithm == "ES256" else ed25519.Ed25519PrivateKey.generate()


def public(algorithm: str, number: int = 0, **more: str) -> dict[str, Any]:
    """The key as a provider publishes it."""
    implementation: Any = jwt.get_algorithm_by_name(algorithm)
    made: dict[str, Any] = json.loads(implementation.to_jwk(key_of(algorithm, number).public_key()))
    return {**made, "kid": f"{algorithm}-{number}", "use": "sig", **more}


def settings(**changed: Any) -> ProviderSettings:
    fields: dict[str, Any] = {
        "key": "company", "name": "Company", "issuer": ISSUER, "client_id": CLIENT, "client_secret": SECRET,
        "scopes": ("openid", "email"), "groups_claim": "groups", "mail_claim": "email",
        "mail_verified_claim": "email_verified", "mail_trusted": False, "mail_domains": ("example.com",),
        "link_by_mail": False, "session": 3600.0, "allow": None,
        "grants": (Grant("ops", "default", "operator"), Grant("admins", "default", "admin")),
    }  # fmt: skip
    return ProviderSettings(**{**fields, **changed})


class FakeProvider:
    """The provider, and the network between it and the server. What it says of the person who signs in is `person`;
    `twist` changes the claims of an ID token, and `sign` how it is signed."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self.person: Claims = {
            "sub": "ada-1", "email": "ada@example.com", "email_verified": True, "name": "Ada Lovelace",
            "groups": ["ops"],
        }  # fmt: skip
        self.userinfo: Claims | None = None
        self.description: Claims = {}
        self.keys = [public("ES256")]
        self.algorithm, self.number = "ES256", 0
        self.twist: Callable[[Claims], Claims] = lambda claims: claims
        self.sign: Callable[[Claims], str] | None = None
        self.away: str | None = None
        self.asked: list[str] = []
        self._now = now
        self._codes: dict[str, dict[str, str]] = {}

    def code_for(self, url: str) -> dict[str, str]:
        """Sign in at this address, as the browser of the person. Returns what the provider adds to the way back."""
        asked = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
        code = f"code-{len(self._codes)}"
        self._codes[code] = asked
        return {"code": code, "state": asked["state"], "iss": ISSUER}

    async def ask(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, *, allow: str | None
    ) -> ProviderAnswer:
        self.asked.append(urlsplit(url).path.rpartition("/")[2])
        if self.away is not None:
            raise NotReached(self.away)
        if url == f"{ISSUER}/.well-known/openid-configuration":
            return _json(200, {
                "issuer": ISSUER, "authorization_endpoint": f"{ISSUER}/auth", "token_endpoint": f"{ISSUER}/token",
                "jwks_uri": f"{ISSUER}/keys", "userinfo_endpoint": f"{ISSUER}/userinfo", **self.description,
            })  # fmt: skip
        if url == f"{ISSUER}/keys":
            return _json(200, {"keys": self.keys})
        if url == f"{ISSUER}/userinfo":
            assert headers["Authorization"] == "Bearer opaque"
            return _json(200, self.userinfo or {})
        assert (url, method) == (f"{ISSUER}/token", "POST")
        return self._redeem(headers, {name: values[0] for name, values in parse_qs(body.decode()).items()})

    def close(self) -> None:
        pass

    def _redeem(self, headers: Mapping[str, str], form: Mapping[str, str]) -> ProviderAnswer:
        asked = self._codes.pop(form["code"], None)  # once
        basic = base64.b64decode(headers["Authorization"].removeprefix("Basic ")).decode()
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        if asked is None or asked["code_challenge"] != challenge or asked["redirect_uri"] != form["redirect_uri"]:
            return _json(400, {"error": "invalid_grant"})
        assert basic == f"{CLIENT}:{SECRET.replace(' ', '%20')}" and asked["code_challenge_method"] == "S256"
        now = int(self._now())
        claims = {"iss": ISSUER, "aud": CLIENT, "exp": now + 300, "iat": now, "nonce": asked["nonce"], **self.person}
        if asked.get("max_age") == "0":
            claims["auth_time"] = now
        claims = self.twist(claims)
        signed = self.signed(claims) if self.sign is None else self.sign(claims)
        return _json(200, {"id_token": signed, "access_token": "opaque", "token_type": "Bearer"})

    def signed(self, claims: Claims) -> str:
        key = key_of(self.algorithm, self.number)
        return jwt.encode(claims, key, self.algorithm, headers={"kid": f"{self.algorithm}-{self.number}"})


def _json(status: int, value: object) -> ProviderAnswer:
    return ProviderAnswer(status, json.dumps(value).encode())


def signs_in_at(assembly: Assembly, provider: ProviderTransport, **changed: Any) -> None:
    """Let people sign in at this provider."""
    services = assembly.services
    clock = services.previewer._clock
    services.provider_sign_in = ProviderSignIn(
        assembly.store, services.sessions._failed, Guesses(assembly.store),
        ProviderPeople(assembly.store, assembly.signals), [settings(**changed)], provider, services.clock, clock,
    )  # fmt: skip


async def away(browser: httpx.AsyncClient, provider: FakeProvider, **choice: Any) -> dict[str, str]:
    """Begin, and sign in at the provider."""
    begun = await browser.post("/v1/session/providers", json={"provider": "company", **choice}, headers=OWN)
    assert begun.status_code == 201, begun.text
    return provider.code_for(begun.json()["url"])


async def back(browser: httpx.AsyncClient, answer: Mapping[str, str]) -> httpx.Response:
    return await browser.post("/v1/session/providers/answer", json=dict(answer), headers=OWN)


async def signs_in(browser: httpx.AsyncClient, provider: FakeProvider, **choice: Any) -> httpx.Response:
    return await back(browser, await away(browser, provider, **choice))
