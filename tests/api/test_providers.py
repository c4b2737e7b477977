"""Sign-in at a provider of OpenID Connect: who gets in, as whom, and what a provider or a stranger cannot pretend."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import asyncpg
import httpx
import jwt
import pytest

from mainspring.domain.oidc import Grant
from mainspring.operations.people.provider import REFRESH_AFTER
from mainspring.operations.people.provider_sign_in import LIFE
from mainspring.roles.assembly import Assembly
from tests.api.browsers import COOKIE, OWN, Browser, browsers, refusal
from tests.operations.oidc import (
    CLIENT,
    ISSUER,
    Claims,
    FakeProvider,
    away,
    back,
    key_of,
    public,
    settings,
    signs_in,
    signs_in_at,
)
from tests.operations.people import PASSWORD, by_password, cheap_hashes, invited, member
from tests.operations.tenants import Tenants, several_tenants

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def cheap() -> Iterator[None]:
    with cheap_hashes():
        yield


@pytest.fixture
async def provider(assembly: Assembly) -> FakeProvider:
    made = FakeProvider(assembly.services.previewer._clock.timestamp)
    signs_in_at(assembly, made)
    return made


@pytest.fixture
async def browser(assembly: Assembly, provider: FakeProvider) -> AsyncIterator[Browser]:
    async with browsers(assembly) as another:
        yield another


@pytest.fixture
async def tenants(assembly: Assembly, api: httpx.AsyncClient) -> AsyncIterator[Tenants]:
    async with several_tenants(assembly, api) as made:
        yield made


async def who(client: httpx.AsyncClient) -> tuple[str, str, str]:
    told = (await client.get("/v1/session")).json()
    return told["name"], told["role"], told["tenant"]


async def test_a_person_signs_in_for_the_first_time_and_groups_decide_from_then_on(
    api: httpx.AsyncClient, browser: Browser, provider: FakeProvider
) -> None:
    first = browser()
    listed = (await first.get("/v1/session/providers")).json()
    assert listed == {"providers": [{"provider": "company", "name": "Company"}]}
    begun = await first.post("/v1/session/providers", json={"provider": "company"}, headers=OWN)
    cookie = begun.headers["set-cookie"]
    assert f"{COOKIE}-provider=" in cookie and "HttpOnly" in cookie and "SameSite=Strict" in cookie
    assert begun.json()["url"].startswith(
        f"{ISSUER}/auth?response_type=code&client_id={CLIENT}&redirect_uri=http%3A%2F%2F"
    )
    signed = await signs_in(first, provider)
    assert signed.status_code == 201, signed.text
    assert await who(first) == ("Ada Lovelace (ada@example.com)", "operator", "default")
    own = {**OWN, "Mainspring-CSRF": signed.json()["csrf"]}
    assert (await first.post("/v1/queues/default:pause", json={}, headers=own)).status_code == 200
    # What it cannot do without its password, it can do when the provider has asked again.
    refused = await first.post("/v1/user/tokens", json={"name": "laptop"}, headers=own)
    assert refusal(refused)[:2] == (403, "token_needed")
    fresh = await signs_in(first, provider, again=True)
    own = {**OWN, "Mainspring-CSRF": fresh.json()["csrf"]}
    made = await first.post("/v1/user/tokens", json={"name": "laptop"}, headers=own)
    assert made.status_code == 201, made.text
    laptop = {"Authorization": f"Bearer {made.json()['token']}"}
    # Another role, then none: what the groups gave ends, also for programs.
    provider.person |= {"groups": ["admins", "ops"], "name": "Ada King", "email": "ada@other.example"}
    second = browser()
    assert (await signs_in(second, provider)).status_code == 201
    assert await who(second) == ("Ada Lovelace (ada@example.com)", "admin", "default"), (
        "the same person, by the subject"
    )
    assert await who(first) == ("Ada Lovelace (ada@example.com)", "admin", "default")
    assert (await browser().get("/v1/jobs", headers=laptop)).status_code == 200
    provider.person["groups"] = []
    assert refusal(await signs_in(browser(), provider))[:2] == (403, "no_tenant")
    assert [(await one.get("/v1/jobs")).status_code for one in (first, second)] == [401, 401]
    assert (await browser().get("/v1/jobs", headers=laptop)).status_code == 401
    told = [
        (one["operation"], one["before"], one["after"])
        for one in (await api.get("/v1/audit?kind=user")).json()["entries"]
    ]
    roles = [(before and before.get("role"), after and after.get("role")) for _, before, after in told]
    assert ("operator", "admin") in roles and (None, "operator") in roles


def twisted(**changed: Any) -> Callable[[Claims], Claims]:
    return lambda claims: {name: value for name, value in {**claims, **changed}.items() if value is not ...}


LIES = {
    "another issuer": (twisted(iss="https://evil.example"), "(iss)"),
    "another client": (twisted(aud="another"), "(aud)"),
    "no client": (twisted(aud=...), "(aud)"),
    "several clients and no party": (twisted(aud=[CLIENT, "another"]), "(azp)"),
    "another party": (twisted(azp="another"), "(azp)"),
    "another nonce": (twisted(nonce="of-another-sign-in"), "(nonce)"),
    "no nonce": (twisted(nonce=...), "(nonce)"),
    "expired": (lambda claims: {**claims, "exp": claims["iat"] - 61}, "(exp)"),
    "no end": (twisted(exp=...), "exp"),
    "an end that is no number": (twisted(exp="tomorrow"), "exp"),
    "a clock that is ahead": (lambda claims: {**claims, "iat": claims["iat"] + 90}, "(iat)"),
    "an old token": (lambda claims: {**claims, "iat": claims["iat"] - 700}, "(iat)"),
    "not yet": (lambda claims: {**claims, "nbf": claims["iat"] + 90}, "(nbf)"),
    "nobody": (twisted(sub=""), "(sub)"),
    "no subject": (twisted(sub=...), "(sub)"),
    "too many groups": (twisted(_claim_names={"groups": "src1"}), "groups"),
}


async def test_an_id_token_that_says_something_else_signs_nobody_in(
    browser: Browser, provider: FakeProvider, connection: asyncpg.Connection
) -> None:
    for what, (twist, named) in LIES.items():
        provider.twist = twist
        client = browser()
        answer = await signs_in(client, provider)
        assert refusal(answer)[:2] == (401, "sign_in_refused"), what
        assert named in answer.json()["detail"], what
        assert (await client.get("/v1/session")).status_code == 401
    assert await connection.fetchval("select count(*) from mainspring.users") == 0
    # A clock that differs a little is no lie.
    for twist in (
        lambda claims: {**claims, "iat": claims["iat"] + 50, "nbf": claims["iat"] + 50},
        lambda claims: {**claims, "exp": claims["iat"] - 50, "iat": claims["iat"] - 350},
        twisted(aud=[CLIENT, "another"], azp=CLIENT),
    ):
        provider.twist = twist
        assert (await signs_in(browser(), provider)).status_code == 201


async def test_only_the_key_of_the_provider_signs(assembly: Assembly, browser: Browser, provider: FakeProvider) -> None:
    shared = "x" * 64
    other = {"kid": "ES256-0"}
    public_text = str(provider.keys[0])
    forgeries: dict[str, Callable[[Claims], str]] = {
        "none": lambda claims: jwt.encode(claims, None, "none", headers=other),
        "no signature": lambda claims: provider.signed(claims).rpartition(".")[0] + ".",
        "a shared secret": lambda claims: jwt.encode(claims, shared, "HS256", headers=other),
        "the public key as a secret": lambda claims: jwt.encode(claims, public_text.ljust(64), "HS256", headers=other),
        "a key of its own in the header": lambda claims: jwt.encode(
            claims, key_of("ES256", 9), "ES256", headers={"jwk": public("ES256", 9), "kid": "ES256-0"}
        ),
        "a demand": lambda claims: jwt.encode(
            claims, key_of("ES256"), "ES256", headers={"kid": "ES256-0", "crit": ["exp"], "exp": 1}
        ),
        "nonsense": lambda claims: "no token",
        "too long": lambda claims: "x" * 70_000,
    }
    for what, sign in forgeries.items():
        provider.sign = sign
        answer = await signs_in(browser(), provider)
        assert refusal(answer)[:2] == (401, "sign_in_refused"), what
    provider.sign = None
    for algorithm in ("RS256", "PS256", "EdDSA"):
        provider.algorithm, provider.keys = algorithm, [public("ES256"), public(algorithm)]
        signs_in_at(assembly, provider)  # nothing is cached
        assert (await signs_in(browser(), provider)).status_code == 201, algorithm
    # A key for something else, or of another algorithm, signs nothing.
    for key in (public("EdDSA", use="enc"), public("EdDSA", alg="ES256")):
        provider.keys = [key]
        signs_in_at(assembly, provider)  # nothing is cached
        assert refusal(await signs_in(browser(), provider))[1] == "sign_in_refused"


async def test_an_answer_is_of_use_once_and_only_in_the_browser_that_asked(
    browser: Browser, provider: FakeProvider, connection: asyncpg.Connection
) -> None:
    first, stranger = browser(), browser()
    answer = await away(first, provider)
    # The answer of somebody else, in this browser: signed in as a stranger, a person gives away what they do.
    assert refusal(await back(stranger, answer))[:2] == (401, "sign_in_over")
    other = await away(stranger, provider)
    assert refusal(await back(stranger, answer))[:2] == (401, "sign_in_over")
    assert refusal(await back(stranger, {**other, "state": answer["state"]}))[:2] == (401, "sign_in_over")
    # The code of one browser with the state of another: PKCE and nonce are of the browser.
    assert refusal(await back(stranger, {**other, "code": answer["code"]}))[:2] == (401, "sign_in_refused")
    answer = await away(first, provider)
    assert refusal(await back(first, {**answer, "iss": "https://evil.example"}))[:2] == (401, "sign_in_refused")
    kept = first.cookies[f"{COOKIE}-provider"]
    assert (await back(first, answer)).status_code == 201
    asked = len(provider.asked)
    replayed = await first.post("/v1/session/providers/answer", json=answer, headers=OWN)
    assert refusal(replayed)[:2] == (401, "sign_in_over") and len(provider.asked) == asked, "nobody is asked again"
    again = await away(first, provider)
    assert refusal(await back(first, {**again, "code": answer["code"]}))[:2] == (401, "sign_in_refused")
    for table in ("answered_sign_ins", "sessions", "user_identities", "audit_entries"):
        text = str([dict(row) for row in await connection.fetch(f"select * from mainspring.{table}")])
        assert kept not in text and answer["code"] not in text
    # Another page of this host must not begin or end a sign-in.
    for path in ("", "/answer"):
        body = {"provider": "company"} if not path else answer
        foreign = {"Origin": "http://127.0.0.1:9999", "Sec-Fetch-Site": "same-site"}
        assert (
            refusal(await first.post(f"/v1/session/providers{path}", json=body, headers=foreign))[1] == "wrong_origin"
        )
    assert refusal(await first.post("/v1/session/providers", json={"provider": "x"}, headers=OWN))[:2] == (
        422,
        "invalid_input",
    )


async def test_a_sign_in_ends_after_ten_minutes(assembly: Assembly, browser: Browser, provider: FakeProvider) -> None:
    client, clock = browser(), assembly.services.previewer._clock
    with pytest.MonkeyPatch.context() as patch:
        now = clock.timestamp()
        patch.setattr(clock, "timestamp", lambda: now - LIFE - 1)
        answer = await away(client, provider)
    assert refusal(await back(client, answer))[:2] == (401, "sign_in_over")


async def test_a_provider_changes_its_keys(assembly: Assembly, browser: Browser, provider: FakeProvider) -> None:
    assert (await signs_in(browser(), provider)).status_code == 201
    fetched = provider.asked.count("keys")
    provider.number, provider.keys = 1, [public("ES256"), public("ES256", 1)]
    assert refusal(await signs_in(browser(), provider))[1] == "sign_in_refused", "it was asked a moment ago"
    clock = assembly.services.provider_sign_in._providers["company"]._clock
    with pytest.MonkeyPatch.context() as patch:
        later = clock.monotonic() + REFRESH_AFTER + 1
        patch.setattr(type(clock), "monotonic", staticmethod(lambda: later))
        assert (await signs_in(browser(), provider)).status_code == 201
        for _ in range(3):  # a key that nobody knows is not looked for again and again
            provider.number = 7
            assert refusal(await signs_in(browser(), provider))[1] == "sign_in_refused"
    assert provider.asked.count("keys") == fetched + 1
    assert provider.asked.count("openid-configuration") == 1


async def test_who_has_an_account_does_not_lose_it_to_a_mail_address(
    assembly: Assembly, api: httpx.AsyncClient, browser: Browser, provider: FakeProvider
) -> None:
    ada = browser()
    await member(api, ada, "admin")
    for verified in (False, None, "no", 0):
        provider.person["email_verified"] = verified
        assert refusal(await signs_in(browser(), provider))[:2] == (403, "mail_not_verified")
    provider.person |= {"email_verified": True, "email": "ada@elsewhere.example"}
    assert refusal(await signs_in(browser(), provider))[:2] == (403, "mail_not_verified")
    provider.person["email"] = "Ada@Example.com"
    assert refusal(await signs_in(browser(), provider))[:2] == (403, "mail_taken")
    assert (await ada.get("/v1/jobs")).status_code == 200
    # The operator says that the provider speaks for this domain: the account is that person's, and nobody else's.
    signs_in_at(assembly, provider, link_by_mail=True)
    linked = browser()
    assert (await signs_in(linked, provider)).status_code == 201
    assert (await who(linked))[1] == "operator"
    assert (await ada.get("/v1/jobs")).status_code == 401, "sessions from before end"
    assert refusal(await browser().post("/v1/session", json=by_password(), headers=OWN))[1] == "wrong_password"
    provider.person["sub"] = "ada-2"  # somebody who got the mail address later
    assert refusal(await signs_in(browser(), provider))[:2] == (403, "mail_taken")
    [user] = (await api.get("/v1/users")).json()["users"]
    assert (await api.post(f"/v1/users/{user['user_id']}:disable")).status_code == 200
    provider.person["sub"] = "ada-1"
    assert refusal(await signs_in(browser(), provider))[:2] == (403, "sign_in_disabled")
    assert (await api.delete(f"/v1/users/{user['user_id']}")).status_code == 200
    provider.person["sub"] = "ada-3"
    assert (await signs_in(browser(), provider)).status_code == 201, "after that the address is free"


async def test_an_invitation_is_accepted_by_signing_in_and_gives_nobody_a_password(
    assembly: Assembly, api: httpx.AsyncClient, browser: Browser, provider: FakeProvider, tenants: Tenants
) -> None:
    [acme] = await tenants.add("acme")
    assert (await signs_in(browser(), provider)).status_code == 201
    link = (await invited(acme, "viewer"))["code"]  # the admin of acme knows it, too
    stolen = await browser().post("/v1/user/accept", json={"code": link, "password": PASSWORD}, headers=OWN)
    assert refusal(stolen)[:2] == (403, "signs_in_elsewhere")
    client = browser()
    assert (await signs_in(client, provider)).status_code == 201
    user = (await client.get("/v1/user")).json()
    assert [(one["tenant"], one["role"]) for one in user["tenants"]] == [("default", "operator"), ("acme", "viewer")]
    provider.person["groups"] = []  # what an admin has given stays
    assert (await signs_in(client, provider)).status_code == 201
    assert (await who(client))[1:] == ("viewer", "acme")
    assert refusal(await acme.post("/v1/users/ada@example.com:reset"))[:2] == (403, "signs_in_elsewhere")


async def test_groups_of_several_tenants_and_what_the_provider_tells_when_asked(
    assembly: Assembly, browser: Browser, provider: FakeProvider, tenants: Tenants
) -> None:
    await tenants.add("acme")
    grants = (Grant("*", "acme", "viewer"), Grant("ops", "acme", "operator"), Grant("ops", "gone", "admin"))
    signs_in_at(assembly, provider, grants=grants, groups_claim="realm_access.roles")
    provider.person.pop("groups")
    provider.userinfo = {"sub": "ada-1", "realm_access": {"roles": ["ops"]}, "email": "eve@example.com"}
    client = browser()
    assert (await signs_in(client, provider)).status_code == 201
    assert await who(client) == ("Ada Lovelace (ada@example.com)", "operator", "acme"), "what is signed counts more"
    provider.userinfo["sub"] = "eve-1"
    assert refusal(await signs_in(client, provider))[1] == "sign_in_refused"
    provider.person["realm_access"] = {"roles": []}
    assert (await signs_in(client, provider)).status_code == 201
    assert (await who(client))[1] == "viewer"


async def test_a_provider_that_is_away_or_describes_itself_wrongly(
    assembly: Assembly, browser: Browser, provider: FakeProvider
) -> None:
    client = browser()

    async def begun() -> tuple[int, str, str | None]:
        signs_in_at(assembly, provider)
        return refusal(await client.post("/v1/session/providers", json={"provider": "company"}, headers=OWN))

    provider.away = "no answer within 10 s"
    assert (await begun())[:2] == (503, "provider_unavailable")
    provider.away = None
    for description in (
        {"issuer": "https://evil.example"}, {"token_endpoint": "http://id.example.com/token"}, {"jwks_uri": 7},
        {"authorization_endpoint": "https://user:x@id.example.com"},
    ):  # fmt: skip
        provider.description = description
        assert (await begun())[:2] == (503, "provider_unavailable"), description
    assert "secret" not in repr(settings())
