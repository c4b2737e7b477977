"""Sign-in at a provider that others have written: npm's `oidc-provider`, over the network of this machine."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import parse_qsl, urljoin, urlsplit

import httpx
import pytest

from mainspring.domain.oidc import Grant
from mainspring.roles.assembly import Assembly
from mainspring.roles.provider_transport import NetworkProviderTransport
from tests.api.browsers import BASE, OWN, Browser, browsers, refusal
from tests.operations.oidc import back, signs_in_at

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

PACKAGE = "oidc-provider@9"
PROGRAM = """
import http from "node:http";
import { Provider } from "oidc-provider";
const server = http.createServer((request, response) => handle(request, response));
let handle;
server.listen(0, "127.0.0.1", () => {
  const issuer = `http://127.0.0.1:${server.address().port}`;
  const provider = new Provider(issuer, {
    clients: [{
      client_id: "mainspring", client_secret: "a-secret-of-the-client", redirect_uris: ["REDIRECT"],
      grant_types: ["authorization_code"], response_types: ["code"],
    }],
    pkce: { required: () => true },
    claims: { openid: ["sub"], email: ["email", "email_verified"], profile: ["name"], groups: ["groups"] },
    findAccount: (context, id) => ({ accountId: id, claims: () => ({
      sub: id, email: `${id}@example.com`, email_verified: true, name: `Person ${id}`, groups: ["ops"],
    }) }),
  });
  handle = provider.callback();
  console.log(issuer);
});
"""


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if shutil.which("npm") is None or shutil.which("node") is None:
        pytest.skip("needs Node.js and npm")
    folder: Path = tmp_path_factory.mktemp("provider")
    (folder / "package.json").write_text('{"private": true, "type": "module"}')
    (folder / "server.js").write_text(PROGRAM.replace("REDIRECT", f"{BASE}/ui/signed-in"))
    install = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", PACKAGE]
    if subprocess.run(install, cwd=folder, capture_output=True, check=False).returncode != 0:
        pytest.skip(f"npm does not reach {PACKAGE}")
    server = subprocess.Popen(
        ["node", "server.js"], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert server.stdout is not None
        yield server.stdout.readline().strip()
    finally:
        server.kill()
        server.wait()


@pytest.fixture
async def browser(assembly: Assembly, issuer: str) -> AsyncIterator[Browser]:
    network = NetworkProviderTransport()
    signs_in_at(
        assembly, network, issuer=issuer, client_secret="a-secret-of-the-client", allow="127.0.0.1",
        scopes=("openid", "email", "profile", "groups"), grants=(Grant("ops", "default", "operator"),),
    )  # fmt: skip
    async with browsers(assembly) as another:
        yield another
    network.close()


async def at_the_provider(url: str, login: str) -> dict[str, str]:
    """What the provider adds to the way back, after its own pages."""
    async with httpx.AsyncClient() as person:
        answer = await person.get(url)
        while True:
            while answer.is_redirect:
                target = urljoin(str(answer.url), answer.headers["location"])
                if target.startswith(BASE):
                    return dict(parse_qsl(urlsplit(target).query))
                answer = await person.get(target)
            form = re.search(r'action="([^"]+)"', answer.text)
            prompt = re.search(r'name="prompt" value="(\w+)"', answer.text)
            assert form is not None and prompt is not None, answer.text
            data = {"prompt": prompt[1], "login": login, "password": "any"}
            answer = await person.post(urljoin(str(answer.url), form[1]), data=data)


async def begun(client: httpx.AsyncClient, *, again: bool = False) -> str:
    answer = await client.post("/v1/session/providers", json={"provider": "company", "again": again}, headers=OWN)
    assert answer.status_code == 201, answer.text
    url: str = answer.json()["url"]
    return url


async def test_a_person_signs_in_at_a_real_provider(browser: Browser) -> None:
    client = browser()
    answer = await at_the_provider(await begun(client), "ada")
    assert answer.keys() == {"code", "state", "iss"}
    signed = await back(client, answer)
    assert signed.status_code == 201, signed.text
    assert (await client.get("/v1/session")).json()["name"] == "Person ada (ada@example.com)"
    own = {**OWN, "Mainspring-CSRF": signed.json()["csrf"]}
    assert refusal(await client.post("/v1/user/tokens", json={"name": "x"}, headers=own))[1] == "token_needed"
    # The provider asks again, and says when it did.
    signed = await back(client, await at_the_provider(await begun(client, again=True), "ada"))
    own = {**OWN, "Mainspring-CSRF": signed.json()["csrf"]}
    assert (await client.post("/v1/user/tokens", json={"name": "x"}, headers=own)).status_code == 201


async def test_a_real_provider_redeems_a_code_once_and_only_with_its_verifier(browser: Browser) -> None:
    first, second = browser(), browser()
    mine = await at_the_provider(await begun(first), "ada")
    theirs = await at_the_provider(await begun(second), "eve")
    assert refusal(await back(second, {**theirs, "code": mine["code"]}))[:2] == (401, "sign_in_refused")
    assert refusal(await back(first, {**mine, "state": theirs["state"]}))[:2] == (401, "sign_in_over")


async def test_an_address_that_is_not_public_is_called_only_if_it_is_allowed(assembly: Assembly, issuer: str) -> None:
    network = NetworkProviderTransport()
    signs_in_at(assembly, network, issuer=issuer)
    async with browsers(assembly) as another:
        answer = await another().post("/v1/session/providers", json={"provider": "company"}, headers=OWN)
    assert refusal(answer)[:2] == (503, "provider_unavailable")
    assert "allow it with allow 127.0.0.1" in answer.json()["detail"]
    network.close()
