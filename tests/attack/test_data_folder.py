"""A plain command of the worker of `mainspring up` gets nothing of the data folder and changes nothing there, whichever
way it goes, as an ordinary user and as root. Its ordinary work goes on.

Needs Linux with pid namespaces. Without root it is who runs the tests.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from mainspring.operations.secrets.master_keys import new_key
from mainspring.roles.up import MAINSPRING
from mainspring.worker.processes.watchdog.namespaces import why_not
from mainspring.worker.processes.watchdog.tree import children_of
from tests.attack.another_user import NUMBER, ROOT, as_another_user, needs_another_user
from tests.processes.cluster import SLOW, START, eventually, free_port

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(why_not() is not None, reason=f"no pid namespace can be had here: {why_not()}"),
]

# $DATA: the folder. $PIDS: the processes of `up`, of PostgreSQL, of the server and of the worker.
ATTACK = r"""
exec 2>&1
cd "$DATA/.." && for way in "$DATA" .mainspring ../project/.mainspring ./x/../.mainspring /proc/self/cwd/.mainspring \
    /proc/self/root/"$DATA" $(for pid in 1 $PIDS; do echo /proc/$pid/root$DATA /proc/$pid/cwd/.mainspring; done); do
  cat $way/admin-token $way/worker-token $way/server.json $way/folder-id $way/postgres-password
  cat $way/logs/* $way/logs/*/* $way/*
  cat $way/postgres/PG_VERSION $way/postgres/*/PG_VERSION $way/postgres/global/pg_control; ls -laR $way/
  echo '{"url": "http://127.0.0.1:9"}' > $way/server.json; echo forged > $way/admin-token
  touch $way/new; mkdir $way/dir
  rm -rf $way/server.json $way/admin-token $way/logs; ln $way/admin-token stolen; ln -s $way/admin-token linked
  mv $way/admin-token stolen; cp -r $way copied; chmod -R 777 $way; cat stolen linked copied/*
done
for pid in 1 $PIDS; do
  cat /proc/$pid/environ /proc/$pid/cmdline /proc/$pid/maps /proc/$pid/fd/* < /dev/null
  ls -l /proc/$pid/fd /proc/$pid/cwd
done
mv .mainspring moved; mv "$DATA" "$DATA"-moved; rmdir "$DATA"; rm -rf "$DATA"
find "$DATA"/.. \( -name admin-token -o -name postgres-password \) -exec cat {} +
unshare --user --map-root-user --mount sh -c 'umount -l "$DATA"; umount -R "$DATA"; cat "$DATA"/admin-token
  mount --bind / /mnt; cat /mnt"$DATA"/admin-token; mount --rbind / /mnt; cat /mnt"$DATA"/admin-token'
cp "${NOTES%notes}master-key" key; cat key "${NOTES%notes}master-key" "${NOTES%notes}backup-key"
ls -laR "${NOTES%notes}backups"; rm -rf "${NOTES%notes}backups" "${NOTES%notes}backup-key"
echo "attacked"
"""
WORK = 'cd "$OLDPWD" 2>/dev/null || cd "$TMPDIR"; echo mine > file && cat file && cat "$NOTES" && echo "worked in $PWD"'


@pytest.fixture
def project() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="ms-data-", dir="/tmp")).resolve()
    folder.chmod(0o755)
    (folder / "project").mkdir()
    (folder / "home").mkdir()
    (folder / "notes").write_text("notes of the user\n")
    for name in ("master-key", "backup-key"):
        (folder / name).write_text(f"{new_key()}\n")
    yield folder / "project"
    shutil.rmtree(folder)


@pytest.mark.slow
@pytest.mark.parametrize("who", [pytest.param("an ordinary user", marks=needs_another_user), "this user"])
async def test_a_plain_command_gets_and_changes_nothing_of_the_data_folder(who: str, project: Path) -> None:
    other = who == "an ordinary user" and ROOT
    above, port = project.parent, free_port()
    if other:
        for path in (above, *above.iterdir()):
            os.chown(path, NUMBER, NUMBER)
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("MAINSPRING_", "XDG_"))}
    if not other:  # a key of the user's own, outside of the data folder
        clean["MAINSPRING_MASTER_KEY_FILE"] = str(above / "master-key")
    with (above / "up.log").open("wb") as log:
        up = subprocess.Popen(
            [*(as_another_user() if other else ()), *MAINSPRING, "up", "--data", ".mainspring", "--port", str(port),
             "--backup", "../backups", "--backup-key", "../backup-key"],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=project,
            env={**clean, "HOME": str(above / "home")},
        )  # fmt: skip
    try:
        await attack(up, project / ".mainspring", f"http://127.0.0.1:{port}", above)
    finally:
        up.send_signal(signal.SIGINT)
        up.wait()


async def attack(up: subprocess.Popen[bytes], data: Path, url: str, above: Path) -> None:
    log = above / "up.log"

    async def is_up() -> bool:
        assert up.poll() is None, log.read_text()
        return "Ctrl-C stops everything" in log.read_text()

    await eventually(is_up, START, "it is up")
    before = contents(data)
    pids = " ".join(map(str, [up.pid, *children_of(up.pid)]))
    env = {"DATA": str(data), "PIDS": pids, "NOTES": str(above / "notes")}
    headers = {"Authorization": f"Bearer {before['admin-token'].decode().strip()}"}
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=60) as operator:

        async def ended(command: str) -> dict[str, Any]:
            answer = await operator.post("/v1/jobs", json={"command": command, "env": env})
            assert answer.status_code == 201, answer.text

            async def look() -> dict[str, Any]:
                run = (await operator.get(f"/v1/jobs/{answer.json()['job_id']}/status")).json()["latest_run"] or {}
                return run if run.get("end_time") else {}

            return await eventually(look, SLOW, "the command ends")

        for _ in range(2):
            run = await ended(ATTACK + WORK)
            assert run["status"] == "SUCCESS", run
            output = run["result"]["output"]
            assert (above / "backup-key").read_text().strip() not in output
            assert "mainspring-backups\n" not in output, output
            assert (above / "backups" / "mainspring-backups").exists()
            if not (data / "master-key").exists():
                assert (data.parents[1] / "master-key").read_text().strip() not in output
            assert "attacked\nmine\nnotes of the user\nworked in " in output, output
            for name, content in before.items():
                if len(content) > 8:
                    assert content.decode("latin-1").strip() not in output, name
            for word in ("PG_VERSION\n", "folder-id\n", "postgres\n", "logs\n"):
                assert word not in output, output
            after = {name: content for name, content in contents(data).items() if name in before}
            after["postgres.log"] = after["postgres.log"][: len(before["postgres.log"])]  # PostgreSQL goes on writing
            assert after == before
            assert (data / "postgres" / "PG_VERSION").exists()
            assert not {"new", "dir"} & set(os.listdir(data))


def contents(data: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in data.iterdir() if path.is_file() and not path.is_symlink()}
