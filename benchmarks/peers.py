"""`make peers`: the same jobs through Mainspring and through other job queues, in turn, with the same settings of
PostgreSQL.

Each peer is installed into an environment of its own below `.peers`, with the versions of this file. One process sends
jobs, and one worker process runs them; Mainspring has a server besides. Celery has Redis instead of PostgreSQL, as its
users do. A peer that cannot be installed here is named with the reason.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mainspring import __version__
from mainspring.bench.arena import empty_arena, fresh_postgres
from mainspring.store.embedded import EmbeddedPostgres
from mainspring.store.embedded.access import DATABASE, ROLE

HERE = Path(__file__).resolve().parent / "peers"
PLACE = HERE.parent.parent / ".peers"
PATIENCE = 180.0
OURS = "Mainspring"


@dataclass
class PeerKind:
    """`packages` for pip, or `script` for Node. `redis`: it needs a Redis."""

    name: str
    script: str
    packages: tuple[str, ...] = ()
    redis: bool = False
    figures: list[dict[str, float]] = field(default_factory=list)
    version: str = ""

    @property
    def command(self) -> list[str]:
        if self.script.endswith(".mjs"):
            return ["node", str(PLACE / "node" / self.script)]
        return [str(PLACE / self.name / "bin" / "python"), str(HERE / self.script)]


PEERS = (
    PeerKind("PgQueuer", "pgqueuer_peer.py", ("pgqueuer[asyncpg]==1.6.0", "uvloop==0.23.0")),
    PeerKind("Procrastinate", "procrastinate_peer.py", ("procrastinate==3.10.0", "psycopg[binary]==3.3.9")),
    PeerKind("Celery", "celery_peer.py", ("celery[redis]==5.7.0",), redis=True),
    PeerKind("graphile-worker", "graphile_peer.mjs"),
)


class NotHere(Exception):
    """The peer cannot run on this machine."""


def install(peer: PeerKind) -> None:
    if peer.redis and shutil.which("redis-server") is None:
        raise NotHere("redis-server is not installed: apt install redis-server")
    try:
        peer.version = _install_node(peer) if peer.script.endswith(".mjs") else _install_python(peer)
    except (OSError, subprocess.CalledProcessError) as error:
        raise NotHere(f"it cannot be installed: {error}") from None


def _install_python(peer: PeerKind) -> str:
    place = PLACE / peer.name
    mark = place / "installed"
    wanted = "\n".join(peer.packages)
    if not mark.exists() or mark.read_text() != wanted:
        shutil.rmtree(place, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", place], check=True)
        subprocess.run([place / "bin" / "pip", "install", "--quiet", *peer.packages], check=True)
        mark.write_text(wanted)
    return peer.packages[0].partition("==")[2]


def _install_node(peer: PeerKind) -> str:
    if shutil.which("npm") is None:
        raise NotHere("npm is not installed")
    place = PLACE / "node"
    place.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", peer.script):
        shutil.copy(HERE / name, place / name)
    wanted = json.loads((place / "package.json").read_text())["dependencies"][peer.name]
    found = place / "node_modules" / peer.name / "package.json"
    if not found.exists() or json.loads(found.read_text())["version"] != wanted:
        subprocess.run(
            ["npm", "install", "--silent", "--no-audit", "--no-fund", "--no-package-lock"], cwd=place, check=True
        )
    return wanted


def environment_of(postgres: EmbeddedPostgres) -> dict[str, str]:
    return {
        "PGHOST": str(postgres.socket_folder),
        "PGPORT": "5432",
        "PGUSER": ROLE,
        "PGDATABASE": DATABASE,
        "PGPASSFILE": str(postgres.access.password_file),
    }


@contextmanager
def redis() -> Iterator[str]:
    """With its own persistence off, as for a broker."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    arguments = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL)
    try:
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        process.terminate()
        process.wait()


class Scene:
    """One peer with an empty database. Its worker lives for one phase."""

    def __init__(self, command: list[str], variables: Mapping[str, str], folder: Path) -> None:
        self._command = command
        self._variables = {**os.environ, "PYTHONPATH": str(HERE), **variables}
        self._folder = folder
        self._worker: subprocess.Popen[bytes] | None = None

    def run(self, *arguments: str) -> dict[str, Any]:
        done = subprocess.run(
            [*self._command, *arguments],
            env=self._variables,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(arguments)}: {done.stderr[-2000:]}")
        lines = done.stdout.strip().splitlines()
        return json.loads(lines[-1]) if lines else {}

    @contextmanager
    def worker(self, expected: int) -> Iterator[Path]:
        """A worker that writes a file when it has run so many jobs."""
        out = self._folder / f"{time.monotonic_ns()}.json"
        with (self._folder / "worker.log").open("ab") as log:
            worker = subprocess.Popen(
                [*self._command, "work"], env={**self._variables, "EXPECT": str(expected), "OUT": str(out)},
                stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        try:
            yield out
        finally:
            os.killpg(worker.pid, signal.SIGKILL)
            worker.wait()


class OurScene(Scene):
    """The worker of Mainspring is started by the arena."""

    def __init__(self, command: list[str], variables: Mapping[str, str], folder: Path) -> None:
        super().__init__(command, variables, folder)
        self._token = variables["MAINSPRING_TOKEN_FILE"]
        self._url = variables["MAINSPRING_URL"]

    @contextmanager
    def worker(self, expected: int) -> Iterator[Path]:
        out = self._folder / f"{time.monotonic_ns()}.json"
        arguments = [sys.executable, "-m", "mainspring", "worker", "--server", self._url, "--token-file", self._token]
        with (self._folder / "worker.log").open("ab") as log:
            worker = subprocess.Popen(
                [*arguments, "--app", "mainspring_peer:app"],
                env={**self._variables, "EXPECT": str(expected), "OUT": str(out)}, stdout=log, stderr=log,
            )  # fmt: skip
        try:
            yield out
        finally:
            worker.terminate()
            worker.wait()


def result_of(out: Path) -> dict[str, Any]:
    give_up = time.monotonic() + PATIENCE
    while not out.exists():
        if time.monotonic() > give_up:
            raise RuntimeError("the jobs did not end in time")
        time.sleep(0.02)
    found: dict[str, Any] = json.loads(out.read_text())
    return found


def measure(scene: Scene, jobs: int, few: int, seconds: int) -> dict[str, float]:
    """Each worker runs `warm` jobs before it is measured."""
    warm = 50
    figures: dict[str, float] = {}
    with scene.worker(jobs + warm) as out:
        scene.run("pick_up", str(warm))
        sent = scene.run("throughput", str(jobs))
        figures["jobs_per_s"] = jobs / (result_of(out)["last"] - sent["began"])
    with scene.worker(few + warm) as out:
        scene.run("pick_up", str(warm))
        scene.run("pick_up", str(few))
        figures |= percentiles("pick_up", result_of(out)["delays"][warm:])
    with scene.worker(few + warm) as out:
        scene.run("pick_up", str(warm))
        scene.run("lag", str(few))
        figures |= percentiles("lag", result_of(out)["delays"][warm:])
    figures["submits_per_s"] = scene.run("singles", str(seconds))["per_second"]
    return figures


def percentiles(name: str, delays: list[float]) -> dict[str, float]:
    ordered = sorted(delays)
    return {
        f"{name}_p50_ms": 1000 * ordered[len(ordered) // 2],
        f"{name}_p99_ms": 1000 * ordered[int(len(ordered) * 0.99)],
    }


async def measure_peer(peer: PeerKind, options: argparse.Namespace) -> dict[str, float]:
    async with fresh_postgres() as (postgres, folder):
        with ExitStack() as stack:
            variables = environment_of(postgres)
            if peer.redis:
                variables["REDIS_URL"] = stack.enter_context(redis())
            scene = Scene(peer.command, variables, folder)
            scene.run("setup")
            return measure(scene, options.jobs, options.few, options.seconds)


async def measure_ours(options: argparse.Namespace) -> dict[str, float]:
    async with fresh_postgres() as (postgres, folder), empty_arena(postgres, folder) as arena:
        server = await arena.start_server()
        variables = {"MAINSPRING_URL": server.url, "MAINSPRING_TOKEN_FILE": str(folder / "data" / "admin-token")}
        command = [sys.executable, str(HERE / "mainspring_peer.py")]
        return measure(OurScene(command, variables, folder), options.jobs, options.few, options.seconds)


COLUMNS = {
    "jobs_per_s": "jobs/s, end to end",
    "submits_per_s": "single submits/s",
    "pick_up_p50_ms": "pick-up p50 ms",
    "pick_up_p99_ms": "p99",
    "lag_p50_ms": "start lag p50 ms",
    "lag_p99_ms": "p99",
}


def show(rows: dict[str, list[dict[str, float]]], missing: dict[str, str]) -> None:
    print(f"| | {' | '.join(COLUMNS.values())} |")
    print("| --- |" + " ---: |" * len(COLUMNS))
    for name, figures in rows.items():
        cells = [statistics.median(each[column] for each in figures) for column in COLUMNS]
        shown = [f"{cell:,.0f}" if cell >= 100 else f"{cell:.1f}" for cell in cells]
        print(f"| {name} | {' | '.join(shown)} |")
    for name, why in missing.items():
        print(f"\n{name}: {why}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=20_000, help="jobs of the throughput, sent in batches of 1,000")
    parser.add_argument("--few", type=int, default=200, help="jobs of the pick-up and of the start lag, 25 ms apart")
    parser.add_argument("--seconds", type=int, default=5, help="seconds of single submits by 16 clients")
    parser.add_argument("--rounds", type=int, default=3, help="the median of so many rounds is shown; peers take turns")
    parser.add_argument("--only", action="append", help="a peer; may be given several times")
    parser.add_argument("--json", action="store_true", help="print all figures as JSON")
    options = parser.parse_args()
    chosen = [peer for peer in PEERS if options.only is None or peer.name in options.only]
    rows: dict[str, list[dict[str, float]]] = {f"{OURS} {__version__}": []}
    missing = {"River": "Go is not installed"} if shutil.which("go") is None else {"River": "not measured yet"}
    ready = []
    for peer in chosen:
        print(f"installing {peer.name}", file=sys.stderr)
        try:
            install(peer)
        except NotHere as reason:
            missing[peer.name] = str(reason)
        else:
            ready.append(peer)
            rows[f"{peer.name} {peer.version}"] = []
    for number in range(options.rounds):
        print(f"round {number + 1}: {OURS}", file=sys.stderr)
        rows[f"{OURS} {__version__}"].append(asyncio.run(measure_ours(options)))
        for peer in ready:
            print(f"round {number + 1}: {peer.name}", file=sys.stderr)
            rows[f"{peer.name} {peer.version}"].append(asyncio.run(measure_peer(peer, options)))
    if options.json:
        print(json.dumps({"figures": rows, "missing": missing}, indent=2))
    else:
        show(rows, missing)


if __name__ == "__main__":
    main()
