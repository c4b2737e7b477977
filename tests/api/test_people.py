"""People: invited by a link, signed in with a password, in tenants with a role each; what is theirs ends with them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import asyncpg
import httpx
import pytest

from mainspring.operations.access.caller import Caller
from mainspring.operations.people import passwords
from mainspring.operations.people.guesses import OF_A_KNOWN_BROWSER, OF_A_USER
from mainspring.operations.people.passwords import Passwords
from mainspring.roles.assembly import Assembly
from mainspring.store import attempts
from mainspring.store.tokens import hash_token
from tests.api.bookkeeping import problem
from tests.api.browsers import COOKIE, OWN, Browser, browsers, refusal, sign_in
from tests.conftest import TOKEN
from tests.operations.people import ADA, OTHER, PASSWORD, accepts, by_password, cheap_hashes, invited, member
from tests.operations.tenants import Tenants, several_tenants

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def cheap() -> Iterator[None]:
    with cheap_hashes():
        yield


@pytest.fixture
async def tenants(assembly: Assembly, api: httpx.AsyncClient) -> AsyncIterator[Tenants]:
    async with several_tenants(assembly, api) as made:
        yield made


@pytest.fixture
async def browser(assembly: Assembly) -> AsyncIterator[Browser]:
    async with browsers(assembly) as another:
        yield another


async def bearer(tenants: Tenants, client: httpx.AsyncClient, own: dict[str, str], **fields: str) -> httpx.AsyncClient:
    body = {"name": "laptop", "password": PASSWORD, **fields}
    answer = await client.post("/v1/user/tokens", json=body, headers=own)
    assert answer.status_code == 201, answer.text
    return await tenants.client(answer.json()["token"])


async def test_a_person_is_invited_signs_in_and_is_named(
    api: httpx.AsyncClient, tenants: Tenants, browser: Browser, connection: asyncpg.Connection
) -> None:
    made = await invited(api)
    assert (made["mail"], made["state"], made["path"]) == ("ada@example.com", "invited", f"/ui/#invite={made['code']}")
    first, again = browser(), await invited(api, "submitter")
    code = again["code"]
    assert refusal(await first.post("/v1/user/accept", json={"code": made["code"]}, headers=OWN))[1] == "invalid_link"
    told = (await first.post("/v1/user/accept", json={"code": code, "preview": True}, headers=OWN)).json()
    assert (told["role"], told["tenant"], told["has_password"]) == ("submitter", "default", False)
    for weak in ("tiny8", "aaaaaaaaaaaaaaaa", "ada@example.com!", "ada lovelace ada"):
        answer = await first.post("/v1/user/accept", json={"code": code, "password": weak}, headers=OWN)
        assert refusal(answer) == (422, "weak_password", "password")
        assert weak not in answer.text
    own = await accepts(first, code)
    assert refusal(await first.post("/v1/user/accept", json={"code": code, "password": OTHER}, headers=OWN))[0] == 401
    who = (await first.get("/v1/session")).json()
    assert (who["name"], who["role"], who["user_id"]) == (
        "Ada Lovelace (ada@example.com)",
        "submitter",
        made["user_id"],
    )
    # What she creates is hers, in each session and by each personal token.
    assert (await first.post("/v1/jobs", json={"task": "noop", "job_id": "hers"}, headers=own)).status_code == 201
    assert (await api.post("/v1/jobs", json={"task": "noop", "job_id": "not-hers"})).status_code == 201
    second = browser()
    await sign_in(second, **by_password(tenant="default"))
    laptop = await bearer(tenants, second, {**OWN, "Mainspring-CSRF": (await second.get("/v1/session")).json()["csrf"]})
    assert (await laptop.delete("/v1/jobs/hers")).status_code == 200
    assert refusal(await laptop.delete("/v1/jobs/not-hers"))[1] == "not_yours"
    assert (await laptop.post("/v1/jobs", json={"task": "noop", "job_id": "by-laptop"})).status_code == 201
    for job in ("hers", "by-laptop"):
        creator = (await api.get(f"/v1/jobs/{job}")).json()["created_by"]
        assert (creator["name"], creator["id"]) == (who["name"], who["token_id"])
    found = (await api.get("/v1/runs", params={"created_by": who["name"]})).json()
    assert {one["job_id"] for one in found["runs"]} == {"hers", "by-laptop"}
    actors = {(one["operation"], one["by"]) for one in (await api.get("/v1/audit")).json()["entries"]}
    assert {("user.accept", who["name"]), ("jobs.cancel", f"{who['name']}: laptop"), ("users.invite", "test")} <= actors
    [shown] = (await api.get("/v1/users")).json()["users"]
    assert (shown["state"], shown["tenants"]) == (
        "active",
        [{"tenant": "default", "role": "submitter", "invited_until": None}],
    )
    assert [one.get("user") for one in (await api.get("/v1/tokens")).json()["tokens"]].count("ada@example.com") == 1
    # No secret is stored in clear.
    for secret in (PASSWORD, code, first.cookies[COOKIE], first.cookies[f"{COOKIE}-known"]):
        for table in (
            "users",
            "user_links",
            "tokens",
            "sessions",
            "known_browsers",
            "audit_entries",
            "sign_in_attempts",
        ):
            assert secret not in str([dict(row) for row in await connection.fetch(f"select * from mainspring.{table}")])


async def test_what_is_of_a_person_ends_with_the_person(
    api: httpx.AsyncClient, tenants: Tenants, browser: Browser
) -> None:
    first = browser()
    user, own = await member(api, first)
    laptop, viewer = await bearer(tenants, first, own), await bearer(tenants, first, own, role="viewer")
    link = (await laptop.post("/v1/session/links")).json()["code"]
    assert refusal(await first.post("/v1/user/tokens", json={"name": "x", "password": PASSWORD, "role": "admin"},
                                    headers=own))[:2] == (403, "outside_token")  # fmt: skip
    assert refusal(await first.post("/v1/user/tokens", json={"name": "x", "password": OTHER},
                                    headers=own))[:2] == (403, "not_your_password")  # fmt: skip
    # A lesser role takes effect at once, and tokens that exceed it end.
    assert (await api.post(f"/v1/users/{user}:role", json={"role": "viewer"})).json()["tenants"][0]["role"] == "viewer"
    assert refusal(await first.post("/v1/queues/default:pause", json={}, headers=own))[1] == "role_not_allowed"
    assert [(await one.get("/v1/jobs")).status_code for one in (first, laptop, viewer)] == [200, 401, 200]
    assert refusal(await browser().post("/v1/session", json={"code": link}, headers=OWN))[1] == "invalid_link"
    for _ in range(2):
        assert (await api.post("/v1/users/ada@example.com:disable")).json()["state"] == "disabled"
        assert [(await one.get("/v1/jobs")).status_code for one in (first, viewer)] == [401, 401]
        refused = await browser().post("/v1/session", json=by_password(), headers=OWN)
        assert refusal(refused) == (401, "wrong_password", "password")
    assert refusal(await api.post(f"/v1/users/{user}:reset"))[1] == "user_disabled"
    assert (await api.post(f"/v1/users/{user}:enable")).json()["state"] == "active"
    assert [(await one.get("/v1/jobs")).status_code for one in (first, viewer)] == [401, 401], "they have ended"
    own = await sign_in(first, **by_password())
    viewer = await bearer(tenants, first, own)
    assert (await api.delete(f"/v1/users/{user}")).json()["mail"] == "ada@example.com"
    assert [(await one.get("/v1/jobs")).status_code for one in (first, viewer)] == [401, 401]
    assert (await api.get("/v1/users")).json()["users"] == []
    assert refusal(await api.get(f"/v1/users/{user}"))[0] == 404
    assert refusal(await browser().post("/v1/session", json=by_password(), headers=OWN))[1] == "wrong_password"


async def test_passwords_are_changed_by_their_owner_or_by_a_link(
    api: httpx.AsyncClient, tenants: Tenants, browser: Browser, connection: asyncpg.Connection
) -> None:
    async def known(client: httpx.AsyncClient) -> int:
        secret = hash_token(client.cookies[f"{COOKIE}-known"])
        of_secret = "select count(*) from mainspring.known_browsers where secret_hash = $1"
        return int(await connection.fetchval(of_secret, secret))

    first, second = browser(), browser()
    user, own = await member(api, first)
    await sign_in(second, **by_password())
    new = {"password": PASSWORD, "new_password": OTHER}
    assert refusal(await first.post("/v1/user/password", json={**new, "new_password": "short"}, headers=own))[0] == 422
    wrong = {**new, "password": OTHER}
    assert refusal(await first.post("/v1/user/password", json=wrong, headers=own))[1] == "not_your_password"
    assert (await first.post("/v1/user/password", json=new, headers=own)).status_code == 200
    assert [(await one.get("/v1/jobs")).status_code for one in (first, second)] == [200, 401]
    assert refusal(await second.post("/v1/session", json=by_password(), headers=OWN))[1] == "wrong_password"
    # Other browsers that were known are strangers again; the one where she is stays known.
    assert await known(second) == 0
    assert await known(first) == 1
    await sign_in(second, **by_password(OTHER))
    laptop = await bearer(tenants, first, own, password=OTHER)
    made = (await api.post(f"/v1/users/{user}:reset")).json()
    told = (await first.post("/v1/user/accept", json={"code": made["code"], "preview": True}, headers=OWN)).json()
    assert (told["mail"], told.get("role")) == ("ada@example.com", None)
    third = browser()
    await accepts(third, made["code"], PASSWORD)
    assert [(await one.get("/v1/jobs")).status_code for one in (first, second, laptop, third)] == [401, 401, 401, 200]
    assert [await known(one) for one in (first, second, third)] == [0, 0, 1]
    assert refusal(await browser().post("/v1/session", json=by_password(OTHER), headers=OWN))[1] == "wrong_password"
    for body in (by_password(token=TOKEN), by_password(preview=True), {"mail": "ada@example.com"}, {"password": "x"}):
        assert (await browser().post("/v1/session", json=body, headers=OWN)).status_code == 422, body
    assert refusal(await api.get("/v1/user"))[:2] == (403, "user_needed")


async def test_admins_administer_their_tenant_and_take_over_nobody_of_another(
    api: httpx.AsyncClient, tenants: Tenants, browser: Browser
) -> None:
    acme, other = await tenants.add("acme", "other")
    first = browser()
    user, own = await member(acme, first, "admin")
    early = (await acme.post(f"/v1/users/{user}:reset")).json()["code"]
    assert (await other.get("/v1/users")).json()["users"] == []
    assert refusal(await other.get("/v1/users/ada@example.com"))[0] == 404
    assert refusal(await acme.post("/v1/users", json={**ADA, "role": "viewer", "tenant": "other"}))[1] == (
        "instance_admin_only"
    )
    assert refusal(await acme.post("/v1/users", json={**ADA, "role": "viewer"}))[:2] == (409, "already_member")
    for name, answered in (("acme", 200), ("other", 403), ("default", 403), ("nowhere", 403)):
        changed = await acme.post(f"/v1/users/{user}:role", json={"role": "admin", "tenant": name})
        assert changed.status_code == answered, (name, changed.text)
    for role in ("worker", "metrics", "owner"):
        assert (await acme.post("/v1/users", json={**ADA, "role": role})).status_code == 422
    # Another tenant invites the same person: whoever has the link needs the password of that person.
    code = (await invited(other, "viewer"))["code"]
    stranger = browser()
    assert refusal(await stranger.post("/v1/user/accept", json={"code": code, "password": OTHER}, headers=OWN))[:2] == (
        401, "wrong_password",
    )  # fmt: skip
    await accepts(stranger, code)
    assert refusal(await stranger.post("/v1/user/accept", json={"code": early, "password": OTHER}, headers=OWN))[1] == (
        "invalid_link"
    ), "a link that an admin of one tenant has made does not open another tenant"
    for verb in ("reset", "disable", "enable"):
        assert refusal(await acme.post(f"/v1/users/{user}:{verb}"))[1] == "instance_admin_only"
    assert [one["tenant"] for one in (await other.get("/v1/users")).json()["users"][0]["tenants"]] == ["other"]
    # Each tenant has a role of its own, and a session is in one of them.
    assert [one["role"] for one in (await first.get("/v1/user")).json()["tenants"]] == ["admin", "viewer"]
    assert (await first.post("/v1/user/tenant", json={"tenant": "default"}, headers=own)).status_code == 404
    old = first.cookies[COOKIE]
    switched = await first.post("/v1/user/tenant", json={"tenant": "other"}, headers=own)
    assert (switched.status_code, switched.json()["role"]) == (201, "viewer")
    assert (await first.get("/v1/session")).json()["tenant"] == "other"
    gone = browser()
    gone.cookies.set(COOKIE, old)
    assert (await gone.get("/v1/session")).status_code == 401
    # A session makes nothing that lasts, unless its password is typed again.
    own = await sign_in(first, **by_password(tenant="acme"))
    eve = {"mail": "eve@example.com", "name": "Eve", "role": "admin"}
    for path, body in (("/v1/users", eve), ("/v1/tokens", {"name": "x", "role": "admin"}),
                       (f"/v1/users/{user}:role", {"role": "viewer"})):  # fmt: skip
        assert refusal(await first.post(path, json=body, headers=own))[:2] == (403, "token_needed")
    assert (await first.post("/v1/users", json={**eve, "password": PASSWORD}, headers=own)).status_code == 201
    narrowed = await acme.post("/v1/tokens", json={"name": "n", "role": "admin", "addresses": ["0.0.0.0/0", "::/0"]})
    by_narrowed = await tenants.client(narrowed.json()["token"])
    assert (await by_narrowed.post("/v1/users", json=eve)).status_code == 403
    # Removed from one tenant, she stays in the other; invited again, she is who she was.
    before = (await first.get("/v1/session")).json()["token_id"]
    assert (await acme.delete(f"/v1/users/{user}")).status_code == 200
    assert (await first.get("/v1/jobs")).status_code == 401
    own = await sign_in(first, **by_password())
    assert (await first.get("/v1/session")).json()["tenant"] == "other"
    await accepts(first, (await invited(acme, "viewer"))["code"])
    assert (await first.get("/v1/session")).json()["token_id"] == before


async def test_guessing_is_bounded_and_locks_nobody_out(
    api: httpx.AsyncClient, browser: Browser, assembly: Assembly, connection: asyncpg.Connection
) -> None:
    first, stranger = browser(), browser()
    await member(api, first)
    await invited(api, mail="bob@example.com")
    outcomes: dict[str, list[tuple[int, str]]] = {}
    for mail in ("ada@example.com", "bob@example.com", "nobody@example.com"):
        await connection.execute("delete from mainspring.sign_in_attempts")
        for _ in range(int(OF_A_USER.most) + 3):
            answer = await stranger.post("/v1/session", json=by_password(OTHER, mail=mail), headers=OWN)
            outcomes.setdefault(mail, []).append((answer.status_code, problem(answer)["code"]))
    expected = [(401, "wrong_password")] * int(OF_A_USER.most) + [(429, "too_many_attempts")] * 3
    assert all(one == expected for one in outcomes.values()), "nobody learns who has an account"
    await connection.execute("delete from mainspring.sign_in_attempts")
    for _ in range(int(OF_A_USER.most)):
        await stranger.post("/v1/session", json=by_password(OTHER), headers=OWN)
    refused = await stranger.post("/v1/session", json=by_password(), headers=OWN)
    assert refusal(refused)[:2] == (429, "too_many_attempts"), "also with the right password"
    assert 1 <= int(refused.headers["retry-after"]) <= 60
    own = await sign_in(first, **by_password())  # a browser in which she has signed in before
    for _ in range(3):
        assert (await first.post("/v1/session", json=by_password(OTHER), headers=OWN)).status_code == 401
    assert own and (await sign_in(first, **by_password()))
    copied = browser()
    copied.cookies.set(f"{COOKIE}-known", first.cookies[f"{COOKIE}-known"])
    bob = await copied.post("/v1/session", json=by_password(OTHER, mail="bob@example.com"), headers=OWN)
    assert bob.status_code == 401, "a known browser is known for its user alone"
    # Two at a time: others are refused at once, and that counts as no attempt.
    hashing = assembly.services.own_account._passwords
    with hashing.turn(), hashing.turn():
        for _ in range(int(OF_A_KNOWN_BROWSER.most) + 3):
            busy = await first.post("/v1/session", json=by_password(), headers=OWN)
            assert refusal(busy)[:2] == (429, "passwords_busy")
            assert busy.headers["retry-after"] == "1"
        # Attempts over the limit take no turn.
        over = await stranger.post("/v1/session", json=by_password(), headers=OWN)
        assert refusal(over)[:2] == (429, "too_many_attempts")
    own = await sign_in(first, **by_password())
    wrong = {"name": "x", "password": OTHER}
    for _ in range(int(OF_A_KNOWN_BROWSER.most)):
        assert refusal(await first.post("/v1/user/tokens", json=wrong, headers=own))[1] == "not_your_password"
    with hashing.turn(), hashing.turn():
        over = await first.post("/v1/user/tokens", json=wrong, headers=own)
        assert refusal(over)[:2] == (429, "too_many_attempts")


async def test_who_has_an_account_does_not_show_by_the_work_of_a_sign_in(
    api: httpx.AsyncClient, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a cookie of a known browser, a person who does not exist takes the statements of one who does."""
    looked = []
    is_known = attempts.is_known

    async def counted(*arguments: Any) -> bool:
        looked.append(arguments)
        return await is_known(*arguments)

    await invited(api)
    monkeypatch.setattr(attempts, "is_known", counted)
    for count, mail in enumerate(("ada@example.com", "nobody@example.com"), 1):
        stranger = browser()
        stranger.cookies.set(f"{COOKIE}-known", "of-nobody")
        answer = await stranger.post("/v1/session", json=by_password(mail=mail), headers=OWN)
        assert refusal(answer)[1] == "wrong_password"
        assert len(looked) == count, mail


async def test_a_token_made_while_its_person_is_disabled_is_none(
    api: httpx.AsyncClient, browser: Browser, assembly: Assembly, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = browser()
    user, own = await member(api, first)
    sign_ins = assembly.services.own_account._sign_in
    confirm = sign_ins.confirm

    async def disabled_meanwhile(caller: Caller, password: str) -> None:
        await confirm(caller, password)
        assert (await api.post(f"/v1/users/{user}:disable")).status_code == 200

    monkeypatch.setattr(sign_ins, "confirm", disabled_meanwhile)
    made = await first.post("/v1/user/tokens", json={"name": "late", "password": PASSWORD}, headers=own)
    assert refusal(made)[:2] == (403, "user_needed")
    assert (await api.post(f"/v1/users/{user}:enable")).status_code == 200
    assert "late" not in [one["name"] for one in (await api.get("/v1/tokens")).json()["tokens"]]


async def test_a_tenant_neither_learns_nor_names_what_a_person_is_elsewhere(
    api: httpx.AsyncClient, tenants: Tenants, browser: Browser
) -> None:
    acme, other = await tenants.add("acme", "other")
    first = browser()
    user, _ = await member(acme, first, name="Mallory's choice")
    [early] = (await acme.get("/v1/users")).json()["users"]
    assert (await api.post(f"/v1/users/{user}:disable")).json()["state"] == "disabled"
    code = (await invited(other, "viewer"))["code"]
    [seen] = (await other.get("/v1/users")).json()["users"]
    assert (seen["state"], seen["name"]) == ("invited", "Ada Lovelace")
    assert seen["created_at"] > early["created_at"], "since when she is invited here, not since when she has an account"
    assert (await acme.get("/v1/users")).json()["users"][0]["state"] == "disabled"
    assert (await api.post(f"/v1/users/{user}:enable")).status_code == 200
    await accepts(first, code)
    assert (await first.get("/v1/session")).json()["name"] == "Ada Lovelace (ada@example.com)"
    [seen] = (await other.get("/v1/users")).json()["users"]
    assert (seen["state"], seen["name"], seen["created_at"] > early["created_at"]) == ("active", "Ada Lovelace", True)
    assert (await acme.get("/v1/users")).json()["users"][0]["name"] == "Mallory's choice"


async def test_what_sign_ins_leave_behind_is_bounded(
    api: httpx.AsyncClient, tenants: Tenants, browser: Browser, connection: asyncpg.Connection
) -> None:
    (acme,) = await tenants.add("acme")
    first, second = browser(), browser()
    await member(api, first)
    await accepts(second, (await invited(acme))["code"])
    browsers_known = "select secret_hash from mainspring.known_browsers order by seen_at, secret_hash"
    had = await connection.fetch(browsers_known)
    assert len(had) == 2
    kept = first.cookies[f"{COOKIE}-known"]
    for tenant in ("acme", "default"):  # neither another sign-in there nor a switch makes the browser known again
        own = await sign_in(first, **by_password(tenant="default"))
        assert (await first.post("/v1/user/tenant", json={"tenant": tenant}, headers=own)).status_code == 201
    assert first.cookies[f"{COOKIE}-known"] == kept
    assert sorted(await connection.fetch(browsers_known)) == sorted(had)
    for _ in range(attempts.MOST_KNOWN):
        await sign_in(browser(), **by_password())
    left = [row["secret_hash"] for row in await connection.fetch(browsers_known)]
    assert len(left) == attempts.MOST_KNOWN
    assert not {row["secret_hash"] for row in had} & set(left), "the newest stay"
    # Old attempts go with those that are in vain, too.
    old = "insert into mainspring.sign_in_attempts values ($1, 1, clock_timestamp() - interval '2 days')"
    await connection.executemany(old, [(bytes([number]),) for number in range(5)])
    assert (await browser().post("/v1/session", json=by_password(OTHER), headers=OWN)).status_code == 401
    short = "select count(*) from mainspring.sign_in_attempts where length(key) = 1"
    assert await connection.fetchval(short) == 0


async def test_of_two_that_accept_a_link_at_the_same_time_one_does(api: httpx.AsyncClient, browser: Browser) -> None:
    code = (await invited(api))["code"]
    one, two = await asyncio.gather(
        *(browser().post("/v1/user/accept", json={"code": code, "password": word}, headers=OWN)
          for word in (PASSWORD, OTHER))
    )  # fmt: skip
    assert sorted((one.status_code, two.status_code)) == [201, 401]


async def test_hashes_are_of_argon2id_and_take_64_mib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    made = await Passwords().hash(PASSWORD)
    assert made.startswith("$argon2id$v=19$m=64,t=3,p=1$")
    at_once = [Passwords().matches(PASSWORD, made) for _ in range(8)]
    assert all(await asyncio.gather(*at_once))
    assert (passwords._PASSES, passwords._LANES) == (3, 1)
    assert await Passwords().matches(PASSWORD, made)
    assert not await Passwords().matches(PASSWORD, made[:-2] + "AA") and not await Passwords().matches(PASSWORD, "x")
