"""/ui/: the dashboard from inside the package, with headers of its own."""

from __future__ import annotations

import gzip
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from mainspring.api import page
from mainspring.api.early_refusals import SAFE_HEADERS
from mainspring.api.page import DashboardPage
from mainspring.roles.assembly import Assembly
from tests.api.bookkeeping import problem
from tests.api.slices import listening

pytestmark = pytest.mark.anyio

SCRIPT = "console.log(1);" * 200


@pytest.fixture
def built(tmp_path: Path) -> Path:
    folder = tmp_path / "static"
    (folder / "assets").mkdir(parents=True)
    (folder / "index.html").write_text("<!doctype html><title>the shell</title>")
    (folder / "assets" / "index-abc123.js").write_text(SCRIPT)
    (folder / "icon.svg").write_text("<svg/>")
    (tmp_path / "secret.txt").write_text("secret")
    return folder


@pytest.fixture
async def client(assembly: Assembly, built: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[httpx.AsyncClient]:
    """Over a connection, because the server adds headers to answers."""
    monkeypatch.setattr(type(assembly), "front", lambda self: DashboardPage(self.app, built))
    async with listening(assembly) as port, httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as opened:
        yield opened


def headers_of(answer: httpx.Response) -> dict[str, str]:
    names = [name for name, _ in answer.headers.multi_items()]
    assert len(names) == len(set(names)), "two policies would allow only what both allow"
    return dict(answer.headers)


async def test_the_root_leads_to_the_dashboard(client: httpx.AsyncClient) -> None:
    for path in ("/", "/ui"):
        answer = await client.get(path)
        assert (answer.status_code, headers_of(answer)["location"]) == (307, "/ui/"), path


async def test_docs_leads_to_the_page_of_the_api(client: httpx.AsyncClient) -> None:
    for path in ("/docs", "/docs/"):
        for method in ("GET", "HEAD"):
            answer = await client.request(method, path)
            assert (answer.status_code, headers_of(answer)["location"]) == (307, "/ui/docs"), path
    assert (await client.post("/docs")).status_code in (401, 404, 405)
    assert "the shell" in (await client.get("/ui/docs")).text
    assert (await client.get("/schema/openapi.json")).status_code == 401, "what it shows needs a session"


async def test_every_address_of_the_dashboard_is_the_shell(client: httpx.AsyncClient) -> None:
    for path in (
        "/ui/",
        "/ui/jobs/a%2Fb?tab=runs",
        "/ui/runs/x.js",
        "/ui/..%2F..%2Fsecret.txt",
        "/ui/%2e%2e/secret.txt",
    ):
        answer = await client.get(path)
        assert (answer.status_code, answer.text) == (200, "<!doctype html><title>the shell</title>"), path
        headers = headers_of(answer)
        assert (headers["cache-control"], headers["content-type"]) == ("no-store", "text/html; charset=utf-8")
        assert headers["referrer-policy"] == "no-referrer" and headers["x-content-type-options"] == "nosniff"
        policy = headers["content-security-policy"].split("; ")
        assert {"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "base-uri 'none'"} <= set(policy)
        assert "require-trusted-types-for 'script'" in policy and "unsafe" not in headers["content-security-policy"]


async def test_assets_are_kept_for_ever_and_compressed_for_those_who_can_read_it(client: httpx.AsyncClient) -> None:
    for encoding, compressed in (("gzip, br", True), ("identity", False), ("gzip;q=0", False)):
        async with client.stream("GET", "/ui/assets/index-abc123.js", headers={"Accept-Encoding": encoding}) as answer:
            raw = b"".join([piece async for piece in answer.aiter_raw()])
        headers = headers_of(answer)
        assert headers["cache-control"] == "public, max-age=31536000, immutable"
        assert headers["content-type"] == "text/javascript; charset=utf-8" and headers["vary"] == "accept-encoding"
        assert ("content-encoding" in headers) == compressed
        assert (gzip.decompress(raw) if compressed else raw).decode() == SCRIPT
    head = await client.head("/ui/assets/index-abc123.js", headers={"Accept-Encoding": "identity"})
    assert (head.content, int(head.headers["content-length"])) == (b"", len(SCRIPT))
    missing = await client.get("/ui/assets/index-old.js")
    assert (missing.status_code, problem(missing)["code"]) == (404, "not_found")
    assert headers_of(missing)["cache-control"] == "no-store"


async def test_the_dashboard_is_only_read(client: httpx.AsyncClient) -> None:
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        answer = await client.request(method, "/ui/")
        assert (answer.status_code, headers_of(answer)["allow"]) == (405, "GET, HEAD")


async def test_the_api_keeps_its_headers(client: httpx.AsyncClient) -> None:
    for path in ("/healthz", "/uix", "/v1/jobs", "/"):
        headers = headers_of(await client.get(path))
        assert all(headers[name] == value for name, value in SAFE_HEADERS), path


async def test_without_a_build_the_page_says_how_to_get_it(tmp_path: Path) -> None:
    async def nothing(scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError("this is no call of the API")

    transport = httpx.ASGITransport(app=DashboardPage(nothing, tmp_path / "none"))  # type: ignore[arg-type]
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8700") as client:
        for path in ("/ui/", "/ui/jobs"):
            answer = await client.get(path)
            assert answer.status_code == 200 and "make page" in answer.text
        assert (await client.get("/ui/assets/x.js")).status_code == 404


async def test_the_page_that_is_built_names_only_its_own_files() -> None:
    """No request leaves for another host."""
    files = page._files_of(page.FOLDER)
    if not files:
        pytest.skip("the page was not built: there is no Node.js here")
    shell = files["index.html"].body.decode()
    assert "//" not in shell.replace("<!doctype", "").replace("http://www.w3.org", "")
    assert all(
        f'"/ui/{name}"' in shell or name.startswith("assets/") for name in files if name.endswith((".js", ".css"))
    )
