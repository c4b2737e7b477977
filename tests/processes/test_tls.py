"""Server, worker, death notice and command line through TLS, with a certificate that is replaced on the way. Needs
openssl."""

from __future__ import annotations

import os
import shutil
import signal
import socket
from pathlib import Path

import httpx
import pytest

from mainspring.kernel.trust import trusted_context
from tests.certificates import Authority, Issued
from tests.processes.cluster import SLOW, Cluster, eventually, free_port, worker_process

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


def names_served(port: int, ca: Path) -> set[str]:
    context = trusted_context(str(ca))
    with (
        socket.create_connection(("127.0.0.1", port)) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as tls,
    ):
        return {value for _, value in (tls.getpeercert() or {})["subjectAltName"]}


def replace(target: Issued, source: Issued) -> None:
    for old, new in zip(target, source, strict=True):
        shutil.copy(new, old.with_suffix(".new"))
        old.with_suffix(".new").replace(old)


async def test_everything_goes_through_tls_and_the_certificate_can_change(cluster: Cluster) -> None:
    authority = Authority(cluster.folder)
    ca = str(authority.ca)
    served = authority.issue("served", "IP:127.0.0.1")
    await cluster.use_tls(trusted_context(ca))
    server = await cluster.server(options=served.options)
    worker = await cluster.worker("--ca", os.path.relpath(ca), folder=Path.cwd())
    job_id = await cluster.submit(command="echo one")
    assert (await cluster.ended(job_id))["status"] == "SUCCESS"

    # The command line verifies, and says what is wrong.
    assert cluster.cli("jobs", "--ca", ca).returncode == 0
    unknown = cluster.cli("jobs")
    assert unknown.returncode != 0 and "not trusted here" in unknown.stderr and "--ca" in unknown.stderr
    cluster.url = f"https://localhost:{cluster.port}"
    other_name = cluster.cli("jobs", "--ca", ca)
    assert other_name.returncode != 0 and "for another name" in other_name.stderr
    cluster.url = f"https://127.0.0.1:{cluster.port}"

    # A client that does not speak TLS, and one that says nothing, disturb nobody.
    with socket.create_connection(("127.0.0.1", cluster.port)) as plain:
        plain.sendall(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
        assert b"HTTP/1.1 200" not in plain.recv(1000)

    # The certificate changes while a connection is open. The connection goes on.
    context = trusted_context(ca)
    with (
        socket.create_connection(("127.0.0.1", cluster.port)) as raw,
        context.wrap_socket(raw, server_hostname="127.0.0.1") as open_before,
    ):
        replace(served, authority.issue("renewed", "IP:127.0.0.1", "DNS:renewed.test"))

        async def renewed() -> bool:
            return "renewed.test" in names_served(cluster.port, authority.ca)

        await eventually(renewed, SLOW, "the new certificate is served")
        open_before.sendall(b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n")
        assert open_before.recv(1000).startswith(b"HTTP/1.1 200")
    assert (await cluster.ended(await cluster.submit(command="echo two")))["status"] == "SUCCESS"
    assert server.poll() is None

    # The death notice is sent through TLS too. Without it the worker would be lost only after its lease.
    os.kill(worker_process(worker.pid), signal.SIGKILL)

    async def told() -> bool:
        metrics = (await cluster.http.get("/metrics")).text
        return any(
            line.startswith("mainspring_death_notices_total") and float(line.split()[-1]) > 0
            for line in metrics.splitlines()
        )

    await eventually(told, SLOW, "the death notice arrived")


async def test_the_cookie_of_a_session_is_kept_to_this_host(cluster: Cluster) -> None:
    authority = Authority(cluster.folder)
    trusted = trusted_context(str(authority.ca))
    await cluster.use_tls(trusted)
    await cluster.server(options=authority.issue("served", "IP:127.0.0.1").options)
    code = (await cluster.http.post("/v1/session/links")).json()["code"]
    own = {"Origin": cluster.url, "Sec-Fetch-Site": "same-origin"}
    async with httpx.AsyncClient(base_url=cluster.url, verify=trusted, timeout=60) as browser:
        signed = await browser.post("/v1/session", json={"code": code}, headers=own)
        value, *attributes = signed.headers["set-cookie"].split("; ")
        assert value.startswith("__Host-mainspring=")
        assert set(attributes) == {"Path=/", "Max-Age=604800", "HttpOnly", "SameSite=Strict", "Secure"}
        assert (await browser.get("/v1/session")).json()["session_id"] is not None
        plain = {"Origin": cluster.url.replace("https", "http")}
        assert (await browser.get("/v1/session", headers=plain)).json()["code"] == "wrong_origin"
        # The name that the cookie has without TLS opens nothing: a page of plain HTTP could have set it.
        browser.cookies = httpx.Cookies({f"mainspring-{cluster.port}": value.partition("=")[2]})
        assert (await browser.get("/v1/session")).status_code == 401


async def test_every_answer_through_tls_tells_browsers_to_use_tls_only(cluster: Cluster) -> None:
    """Pages, answers, errors, and refusals before the request was read. Without TLS there is no such header."""
    authority = Authority(cluster.folder)
    trusted = trusted_context(str(authority.ca))
    await cluster.server()
    assert "strict-transport-security" not in (await cluster.http.get("/healthz")).headers
    cluster.talk_to(free_port())
    await cluster.use_tls(trusted)
    await cluster.server(options=authority.issue("served", "IP:127.0.0.1").options)
    asked = [
        await cluster.http.get(path, headers=headers)
        for path, headers in (
            ("/healthz", {}),
            ("/v1/jobs", {}),
            ("/v1/jobs", {"Authorization": ""}),
            ("/v1/nothing", {}),
            ("/v1/jobs", {"Host": "elsewhere"}),
            ("/", {}),
            ("/ui", {}),
            ("/ui/", {}),
            ("/ui/assets/none.js", {}),
        )
    ]
    assert {answer.status_code for answer in asked} >= {200, 307, 401, 403, 404}
    for answer in asked:
        assert answer.headers.get_list("strict-transport-security") == ["max-age=31536000"], answer.request.url
    for early in (b"nonsense\r\n\r\n", b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", b"GET /" + b"x" * 70_000):
        with (
            socket.create_connection(("127.0.0.1", cluster.port)) as plain,
            trusted.wrap_socket(plain, server_hostname="127.0.0.1") as tls,
        ):
            tls.sendall(early)
            head = tls.recv(4096).partition(b"\r\n\r\n")[0]
        assert head.startswith(b"HTTP/1.1 4") and head.count(b"strict-transport-security: max-age=31536000") == 1, head
