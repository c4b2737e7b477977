"""`make clients`: clients are generated from the OpenAPI document of a running server, and call it.

openapi-typescript and openapi-python-client come from their registries into a temporary folder; neither is a dependency
of Mainspring. A warning of a generator is an error. Needs npm and the network.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx

PYTHON_GENERATOR = "openapi-python-client==0.29.1"
NODE_PACKAGES = ("openapi-typescript@7.13.0", "openapi-fetch@0.17.0", "typescript@5.9.3")
USES = Path(__file__).parent / "client_uses"
_PATIENCE = 60.0
# Answers that are no JSON: generated clients return them as text.
TEXTS = ("getMetrics", "getLogs")


@contextmanager
def a_server(folder: Path) -> Iterator[tuple[str, str]]:
    """The address and the token of a server of its own."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [str(Path(sys.executable).with_name("mainspring")), "up", "--data", str(folder), "--port", str(port)]
    with (folder.parent / "server.log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        address = f"http://127.0.0.1:{port}"
        _wait_for(f"{address}/readyz", server)
        yield address, (folder / "admin-token").read_text().strip()
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(_PATIENCE)


def _wait_for(url: str, server: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end and server.poll() is None:
        try:
            if httpx.get(url).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.2)
    raise SystemExit("the server did not start")


def python_client(folder: Path, environment: dict[str, str]) -> None:
    """Generate a Python client, import all of it, and use it."""
    run([sys.executable, "-m", "venv", folder / "venv"], folder)
    run([folder / "venv/bin/pip", "install", "--quiet", "--disable-pip-version-check", PYTHON_GENERATOR], folder)
    generate = [folder / "venv/bin/openapi-python-client", "generate", "--path", folder / "openapi.json"]
    beside_ruff = {**environment, "PATH": f"{Path(sys.executable).parent}:{environment['PATH']}"}
    run(
        [*generate, "--output-path", folder / "mainspring_client", "--meta", "none", "--fail-on-warning"],
        folder,
        beside_ruff,
    )
    run([folder / "venv/bin/python", USES / "use.py"], folder, {**environment, "PYTHONPATH": str(folder)})


def typescript_client(folder: Path, environment: dict[str, str]) -> None:
    """Generate TypeScript types, check a program that uses them, and run it."""
    (folder / "package.json").write_text('{"private": true, "type": "module"}\n')
    run(["npm", "install", "--silent", "--no-audit", "--no-fund", *NODE_PACKAGES], folder)
    run(["npx", "openapi-typescript", "openapi.json", "--output", "api.ts"], folder)
    shutil.copy(USES / "use.ts", folder)
    options = ["--strict", "--target", "es2022", "--module", "nodenext", "--lib", "es2022,dom"]
    run(["npx", "tsc", *options, "--outDir", "built", "use.ts"], folder)
    run(["node", "built/use.js"], folder, environment)


def run(command: Sequence[str | Path], folder: Path, environment: dict[str, str] | None = None) -> None:
    done = subprocess.run(
        [str(part) for part in command], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise SystemExit(f"{command}\n{done.stdout}\n{done.stderr}")


def main() -> int:
    if shutil.which("npm") is None:
        print("npm is missing: no TypeScript client")
        return 1
    with tempfile.TemporaryDirectory(prefix="mainspring-clients-") as name:
        folder = Path(name)
        with a_server(folder / "data") as (address, token):
            answer = httpx.get(f"{address}/schema/openapi.json", headers={"Authorization": f"Bearer {token}"})
            (folder / "openapi.json").write_bytes(answer.raise_for_status().content)
            environment = {**os.environ, "MAINSPRING_URL": address, "MAINSPRING_TOKEN": token}
            python_client(folder, environment)
            print("openapi-python-client: generated without a warning, imported, and called the server")
            typescript_client(folder, environment)
            print("openapi-typescript: generated, checked by tsc, and called the server")
    print(f"as text: {', '.join(TEXTS)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
