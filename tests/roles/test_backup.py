"""Backups of the embedded PostgreSQL, and what a restore means for jobs, runs and workers."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest

from mainspring.domain.errors import Conflict, InvalidInput, Unavailable
from mainspring.kernel.clock import SYSTEM_CLOCK
from mainspring.operations.secrets.master_keys import new_key
from mainspring.operations.workflows.join_counter import JoinCounter
from mainspring.operations.workflows.starter import FlowStarter
from mainspring.roles.backup import base_backup, commands
from mainspring.roles.backup import restore as restoring
from mainspring.roles.backup.archive_id import archive_of, archives_of, begin_archive
from mainspring.roles.backup.base_backup import take_backup
from mainspring.roles.backup.fencing import UNSURE_FIRE, UNSURE_RUN
from mainspring.roles.backup.keeper import Keeper
from mainspring.roles.backup.repository import Backup, Repository
from mainspring.roles.backup.restore import Restored, restore
from mainspring.roles.backup.sealed_files import DamagedBackup, Keys
from mainspring.roles.backup.wal import number_of, segment_name
from mainspring.roles.token import ensure_admin_token
from mainspring.store.database import Database
from mainspring.store.embedded import EmbeddedPostgres
from mainspring.store.migrate import migrate
from mainspring.store.restores import FENCE_GAP, RESTORED
from tests.conftest import put_together
from tests.eventually import until
from tests.operations.hand_worker import HandWorker, outcome
from tests.operations.workflows.scene import task_of

pytestmark = pytest.mark.slow

SMALL = {"shared_buffers": "16MB", "fsync": "off"}
AT_MOST_ONCE = {"delivery": "at_most_once"}
KILLED_RESTORE = """
import os, signal, sys
from pathlib import Path
from mainspring.roles.backup import restore
from mainspring.roles.backup.repository import Repository
from mainspring.roles.backup.sealed_files import Keys
restore._recover = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
repository = Repository(Path(sys.argv[1]), Keys.of_file(Path(sys.argv[2])))
restore.restore(repository, repository.find(None), Path(sys.argv[3]))
"""
KILLED_RECOVERY = """
import os, signal, sys
from pathlib import Path
from mainspring.roles.backup import restore
from mainspring.roles.backup.repository import Repository
from mainspring.roles.backup.sealed_files import Keys
def give(feed):
    if list(feed._incoming.glob("*.wanted")):
        os.kill(os.getpid(), signal.SIGKILL)
restore._Feed.give = give
repository = Repository(Path(sys.argv[1]), Keys())
restore.restore(repository, repository.find(None), Path(sys.argv[2]))
"""
KILLED_BACKUP = """
import os, signal, sys
from pathlib import Path
from mainspring.roles.backup.commands import back_up
from mainspring.roles.backup.repository import Repository
from mainspring.roles.backup.sealed_files import Keys
Repository.publish = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
back_up(Path(sys.argv[3]), Repository(Path(sys.argv[1]), Keys.of_file(Path(sys.argv[2]))))
"""


@asynccontextmanager
async def a_server(postgres: EmbeddedPostgres) -> AsyncIterator[httpx.AsyncClient]:
    """A server on this PostgreSQL, whose loops do not run."""
    token = await ensure_admin_token(postgres.url(), postgres.folder)
    async with put_together(Database(postgres.url())) as assembled:
        transport = httpx.ASGITransport(app=assembled.app)  # type: ignore[arg-type]
        headers = {"Authorization": f"Bearer {token}"}
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8700", headers=headers) as api:
            yield api


async def submitted(api: httpx.AsyncClient, name: str, **fields: Any) -> str:
    answer = await api.post("/v1/jobs", json={"task": "noop", "name": name, **fields})
    assert answer.status_code in (200, 201), answer.text
    job_id: str = answer.json()["job_id"]
    return job_id


async def with_key(api: httpx.AsyncClient) -> str:
    return await submitted(api, "waits", idempotency_key="the key")


async def ask(postgres: EmbeddedPostgres, sql: str, *arguments: Any) -> Any:
    connection = await asyncpg.connect(postgres.url())
    try:
        return await connection.fetchval(sql, *arguments)
    finally:
        await connection.close()


async def no_flow_begins(_: FlowStarter) -> int:
    return 0


async def joins_are_counted(postgres: EmbeddedPostgres) -> None:
    async with put_together(Database(postgres.url())) as assembled:
        await task_of(assembled, JoinCounter).run_once()


class Scene:
    """Workers hold runs, others wait, and schedules are due: then a backup is made, and the installation goes on."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.key_file = place / "key"
        self.key_file.write_text(new_key())
        self.repository = Repository(place / "backups", Keys.of_file(self.key_file))
        self.ids: dict[str, str] = {}
        self.backup: Backup
        self.early: tuple[HandWorker, list[Any]]
        self.late: tuple[HandWorker, list[Any]]

    async def before(self, postgres: EmbeddedPostgres) -> None:
        with pytest.MonkeyPatch.context() as patched:
            async with a_server(postgres) as api:
                for name, fields in {"held": {}, "held once": AT_MOST_ONCE}.items():
                    self.ids[name] = await submitted(api, name, **fields)
                worker = HandWorker(api)
                self.early = worker, await worker.claim(2)
                self.ids["waits"] = await with_key(api)
                for name, fields in {"waits once": AT_MOST_ONCE, "later once": {**AT_MOST_ONCE, "delay": "1h"}}.items():
                    self.ids[name] = await submitted(api, name, **fields)
                for name, fields in {"each": {}, "each once": AT_MOST_ONCE}.items():
                    self.ids[name] = await submitted(
                        api, name, schedule={"cron": "*/10 * * * *"}, misfire={"policy": "all"}, **fields
                    )
                await self._workflows(api, postgres, patched)
        due = (datetime.now(UTC) - timedelta(hours=2)).replace(minute=0, second=0, microsecond=0)
        names = [self.ids["each"], self.ids["each once"], "nightly"]
        await ask(postgres, "update mainspring.jobs set next_fire_at = $1 where job_id = any ($2)", due, names)

    async def _workflows(self, api: httpx.AsyncClient, postgres: EmbeddedPostgres, patched: pytest.MonkeyPatch) -> None:
        """One has begun, one is about to begin, and one is due. Each has a later step that is at most once."""
        steps = [
            {"name": "first", "task": "noop", "queue": "steps"},
            {"name": "charge", "task": "noop", "queue": "steps", "depends_on": ["first"], **AT_MOST_ONCE},
            {"name": "other", "task": "noop", "queue": "steps", "depends_on": ["first"]},
        ]
        schedule = {"schedule": {"cron": "*/10 * * * *"}, "misfire": {"policy": "all"}}
        for name, more in {"begun": {}, "queued": {}, "nightly": schedule}.items():
            made = await api.post("/v1/workflows", json={"workflow_id": name, "steps": steps, **more})
            assert made.status_code in (200, 201), made.text
        for name in ("begun", "queued"):
            run = await api.post(f"/v1/workflows/{name}:runNow", json={})
            assert run.status_code == 202, run.text
            self.ids[f"{name} workflow"] = run.json()["run_id"]
            if name == "begun":
                while not await ask(postgres, "select count(*) from mainspring.runs where job_id = 'first@begun'"):
                    await asyncio.sleep(0.01)
                await HandWorker(api, queues=["steps"]).claim(1)
                patched.setattr(FlowStarter, "_start_queued", no_flow_begins)

    async def since(self, postgres: EmbeddedPostgres) -> None:
        async with a_server(postgres) as api:
            worker = HandWorker(api)
            self.late = worker, await worker.claim(2)
            await submitted(api, "since")


@pytest.fixture(scope="module", autouse=True)
def fast() -> Iterator[None]:
    """PostgreSQL without fsync, also for restores."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(restoring, "EmbeddedPostgres", partial(EmbeddedPostgres, settings=SMALL))
        yield


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    place = Path(tempfile.mkdtemp(prefix="ms-", dir="/tmp"))
    scene = Scene(place)
    with EmbeddedPostgres(place / "data", settings=SMALL) as postgres:
        asyncio.run(migrate(postgres.url()))
        asyncio.run(scene.before(postgres))
        scene.repository.prepare()
        with scene.repository.alone():
            scene.backup = take_backup(postgres, scene.repository, SYSTEM_CLOCK)
        asyncio.run(scene.since(postgres))
    yield scene
    shutil.rmtree(place)


def test_after_a_restore_nothing_of_the_time_before_can_report_and_nothing_at_most_once_is_repeated(
    scene: Scene,
) -> None:
    done = restore(scene.repository, scene.backup, scene.place / "restored")
    assert done.counted.live_runs == 9
    assert done.settled is not None
    assert (done.settled.workers, done.settled.runs_taken, done.settled.runs_ended, done.settled.jobs_skipped) == (
        2, 3, 3, 2,
    )  # fmt: skip
    assert (scene.place / "restored").stat().st_mode & 0o777 == 0o700
    assert (scene.place / "restored/admin-token").read_text() == (scene.place / "data/admin-token").read_text()
    with EmbeddedPostgres(scene.place / "restored", settings=SMALL) as postgres:
        asyncio.run(_check(scene, postgres))


async def _check_workflows(api: httpx.AsyncClient, postgres: EmbeddedPostgres, ids: dict[str, str]) -> None:
    """Their steps that are at most once may have run since the backup. The others run again."""
    worker = HandWorker(api, queues=["steps"])
    names = []
    while orders := (await worker.exchange(free=3, hello=None if worker.seq else worker.card)).runs:
        names += [order.name for order in orders]
        await worker.report(*map(outcome, orders))
        await joins_are_counted(postgres)
    assert sorted(names) == ["first", "other"]
    reasons = "select reason from mainspring.run_history where name = 'charge' or run_id = $1 order by name"
    connection = await asyncpg.connect(postgres.url())
    found = [row["reason"] for row in await connection.fetch(reasons, ids["queued workflow"])]
    await connection.close()
    assert found == [UNSURE_RUN, UNSURE_RUN]
    missed = "select sum(count)::int from mainspring.missed_fires where job_id = 'nightly' and reason = $1"
    assert await ask(postgres, missed, UNSURE_FIRE) >= 12
    left = "select count(*) from mainspring.runs where job_id in ('begun', 'queued') or job_id like '%@begun'"
    assert await ask(postgres, left) == 0


async def _check(scene: Scene, postgres: EmbeddedPostgres) -> None:
    ids = scene.ids
    async with a_server(postgres) as api:
        # A worker that the backup knows is fenced. One that came later may say hello, and its reports match nothing.
        worker, orders = scene.early
        worker.api = api
        answer = await worker.ask(outcomes=[outcome(order) for order in orders])
        assert (answer.status_code, answer.json()["code"]) == (409, "fenced")
        worker, orders = scene.late
        worker.api = api
        reply = await worker.hello(outcomes=[outcome(order) for order in orders])
        assert set(reply.fenced) == {order.run_id for order in orders}
        assert await with_key(api) == ids["waits"]  # keys are kept
        fresh = HandWorker(api)
        again = await fresh.claim(2)
        assert {str(order.run_id) for order in again} == {ids["held"], ids["waits"]}
        assert all(order.fence > FENCE_GAP for order in again)
        await fresh.report(*(outcome(order) for order in again))
        await _check_workflows(api, postgres, ids)
        names = [name for name in ids if not name.endswith("workflow")]
        jobs = {name: (await api.get(f"/v1/jobs/{ids[name]}")).json() for name in names}
    shown = {name: job["status"] for name, job in jobs.items()}
    assert shown == {
        "held": "COMPLETED", "held once": "FAILED", "waits": "COMPLETED", "waits once": "CANCELLED",
        "later once": "SCHEDULED", "each": "SCHEDULED", "each once": "SCHEDULED",
    }  # fmt: skip
    reason = "select reason from mainspring.run_history where run_id = $1"
    assert await ask(postgres, reason, ids["waits once"]) == UNSURE_RUN
    missed = "select sum(count)::int from mainspring.missed_fires where job_id = $1 and reason = $2"
    assert await ask(postgres, missed, ids["each once"], UNSURE_FIRE) >= 12
    due = "select next_fire_at < clock_timestamp() from mainspring.jobs where job_id = $1"
    assert await ask(postgres, due, ids["each once"]) is False
    assert await ask(postgres, due, ids["each"]) is True  # its misfire policy decides, when the scheduler sees it
    lost = "select count(*) from mainspring.workers where lost_because = $1"
    assert await ask(postgres, lost, RESTORED) == 2
    assert await ask(postgres, "select bool_and(owner is null and epoch > 1000000) from mainspring.shard_leases")


def test_a_restore_refuses_what_it_cannot_restore_and_leaves_nothing(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository, backup, target = scene.repository, scene.backup, scene.place / "refused"
    scene.place.joinpath("full").mkdir()
    scene.place.joinpath("full/file").touch()
    with pytest.raises(Conflict, match="overwrites nothing"):
        restore(repository, backup, scene.place / "full")
    with pytest.raises(InvalidInput, match="no WAL archive"):
        restore(repository, backup, target, at=datetime.now(UTC))
    with pytest.raises(InvalidInput, match="another key was given"):
        restore(Repository(repository.folder, Keys({"f" * 16: b"x" * 32})), backup, target)
    with pytest.raises(InvalidInput, match="no key was given"):
        restore(Repository(repository.folder, Keys()), backup, target)
    with monkeypatch.context() as patched:
        patched.setattr(restoring, "binary_major", lambda _: 17)
        with pytest.raises(Conflict, match="belongs to PostgreSQL 18"):
            restore(repository, backup, target)
    with monkeypatch.context() as patched:
        patched.setattr(base_backup, "room_of", lambda _: 1000)
        with pytest.raises(Unavailable, match="MB free"):
            restore(repository, backup, target)
    base = repository.base_file(backup)
    content = base.read_bytes()
    for damage in (content[:-1000], content[:9000] + b"?" + content[9001:]):
        base.write_bytes(damage)
        with pytest.raises(DamagedBackup):
            restore(repository, backup, target)
        base.write_bytes(content)
    assert not [path for path in scene.place.iterdir() if "refused" in path.name]


def test_a_backup_or_a_restore_that_is_killed_is_not_taken_for_a_good_one(scene: Scene) -> None:
    names = [str(scene.repository.folder), str(scene.key_file)]
    target = scene.place / "again"
    for script, last in ((KILLED_BACKUP, scene.place / "data"), (KILLED_RESTORE, target)):
        killed = subprocess.run([sys.executable, "-c", script, *names, str(last)], check=False)
        assert killed.returncode == -signal.SIGKILL
    assert list(scene.repository.folder.glob(".draft-*"))
    assert [one.backup.id for one in scene.repository.listed()] == [scene.backup.id]
    assert not target.exists()
    with scene.repository.alone():
        assert not list(scene.repository.folder.glob(".draft-*"))
    restored = restore(scene.repository, scene.backup, target)
    assert (restored.counted.jobs, restored.counted.live_runs) == (6, 9)
    assert not list(scene.place.glob(".*"))


def test_the_archive_restores_any_moment_and_says_which_segment_is_missing(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = scene.place / "archived"
    repository = Repository(scene.place / "with-wal", Keys())
    with EmbeddedPostgres(data, settings=SMALL) as postgres:
        asyncio.run(migrate(postgres.url()))
        keeper = Keeper(data, repository, 86400.0, 2)
        keeper.begin()

        def has_backup() -> bool:
            keeper.run_once()
            return bool(repository.listed())

        until(has_backup)
        moments = [asyncio.run(_a_job(postgres, name)) for name in ("one", "two", "three")]
        keeper.run_once()
    keeper.finish()  # PostgreSQL ends when all of its WAL was received
    backup = repository.find(None)
    assert backup.archive == archive_of(data, repository)
    assert not [path for path in (data / "wal-spool").iterdir() if path.suffix == ""]
    assert _jobs(commands.verify(repository, backup)) == 3
    assert _jobs(restore(repository, backup, scene.place / "then", at=moments[1])) == 2
    words = [sys.executable, "-c", KILLED_RECOVERY, str(repository.folder), str(scene.place / "killed")]
    assert subprocess.run(words, check=False).returncode == -signal.SIGKILL
    until(lambda: not _processes_in(scene.place / ".killed.restoring"))
    shutil.rmtree(scene.place / ".killed.restoring")
    assert archive_of(scene.place / "then", repository) is None  # its history is another one
    with pytest.raises(InvalidInput, match="nothing from 2100"):
        restore(repository, backup, scene.place / "future", at=datetime(2100, 1, 1, tzinfo=UTC))
    archive = repository.archive(str(backup.archive))
    first = segment_name(backup.timeline, number_of(backup.last_segment) + 1)
    with monkeypatch.context() as patched:  # removed while it restores
        patched.setattr(restoring, "_verify", lambda _: (archive.folder / f"{first}.gz").rename(scene.place / first))
        with pytest.raises(Conflict, match=f"{first} of the WAL is missing"):
            restore(repository, backup, scene.place / "removed")
    (scene.place / first).rename(archive.folder / f"{first}.gz")
    gone = sorted(archive.folder.glob("*.gz"))[-2]
    gone.rename(scene.place / gone.name)
    with pytest.raises(Conflict, match=f"{gone.name[:24]} of the WAL is missing"):
        restore(repository, backup, scene.place / "gap")
    assert all(path.stat().st_mode & 0o077 == 0 for path in repository.folder.rglob("*"))


def test_a_folder_of_backups_is_shared_by_installations(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "backups", Keys())
    repository.prepare()
    data = [tmp_path / "mine", tmp_path / "other"]
    for folder in data:
        folder.mkdir(mode=0o700)
    now = datetime.now(UTC)
    old, new = (begin_archive(data[0], repository, now) for _ in range(2))
    other = begin_archive(data[1], repository, now)
    mine = [_published(repository, now - timedelta(days=day), old if day > 2 else new) for day in (4, 3, 2, 1)]
    theirs = ((9, None), (8, other), (7, "x"))
    others = [_published(repository, now - timedelta(days=day), name) for day, name in theirs]
    assert repository.prune(2, archives_of(data[0], repository)) == mine[:2]
    assert [one.backup.id for one in repository.listed()] == [*others, *mine[2:]]
    # One that is damaged takes nothing from the others.
    facts = repository.folder / mine[2] / "backup.json"
    content = facts.read_text()
    for damage in ("{", content.replace(mine[2], mine[3]), content.replace("Z", "")):
        facts.write_text(damage)
        assert [one.backup.id for one in repository.listed()] == [*others, mine[3]]
        assert repository.find(None).id == repository.find(mine[3]).id == mine[3]
        with pytest.raises(DamagedBackup):
            repository.find(mine[2])
    # It can be restored until the first gap of its archive.
    archive = repository.archive(new)
    archive.folder.mkdir(parents=True)
    for number, ending in ((1, ""), (2, ""), (3, ".partial"), (5, "")):
        segment = archive.folder / f"{segment_name(1, number)}{ending}.gz"
        segment.touch()
        os.utime(segment, (number * 1000, number * 1000))
    assert repository.listed()[-1].until == datetime.fromtimestamp(3000, UTC)
    # What is empty now, and was not, is the place of a disk that is not mounted.
    shutil.rmtree(repository.folder)
    repository.folder.mkdir()
    (data[0] / "postgres").mkdir()
    (data[0] / "postgres/PG_VERSION").touch()
    with pytest.raises(Unavailable, match="is it mounted"):
        Keeper(data[0], repository, 60.0, 2).begin()
    assert not list(repository.folder.iterdir())


def _published(repository: Repository, at: datetime, archive: str | None) -> str:
    """What counts as a backup until it is read."""
    backup = Backup(
        id=repository.new_id(at), started_at=at, ended_at=at, mainspring="0", postgres=18, timeline=1, start_lsn="0/1",
        end_lsn="0/2", size=1, stored=4, sha256="", archive=archive,
    )  # fmt: skip
    with repository.draft(backup.id) as draft:
        (draft / "base.tar.gz").write_bytes(b"base")
        repository.publish(draft, backup)
    return backup.id


def _processes_in(folder: Path) -> list[Path]:
    """The processes that work in this folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (process / "cwd").readlink().is_relative_to(folder):
                found.append(process)
    return found


def _jobs(done: Restored) -> int:
    return done.counted.live_runs


async def _a_job(postgres: EmbeddedPostgres, name: str) -> datetime:
    """Submit a job, fill the segment of the WAL, and return the time."""
    async with a_server(postgres) as api:
        await submitted(api, name)
    at: datetime = await ask(postgres, "select clock_timestamp()")
    await ask(postgres, "create table if not exists filler (text text)")
    await ask(postgres, "insert into filler select repeat(md5(g::text), 30) from generate_series(1, 20000) g")
    return at
