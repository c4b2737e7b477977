"""FEATURES 8.4, 8.5: the example files are planned, applied, exported and pruned by real processes, and the scripts of
the examples run as they do in CI and before a commit. A crontab is imported and runs."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import TOKEN
from tests.processes.cluster import Cluster

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "job-files"


async def test_the_example_files_are_planned_applied_exported_and_pruned(cluster: Cluster, tmp_path: Path) -> None:
    await cluster.server()
    await cluster.worker()
    jobs = str(EXAMPLES / "jobs.yaml")

    def script(name: str, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        env = {**os.environ, "PATH": path, "MAINSPRING_URL": cluster.url, "MAINSPRING_TOKEN": TOKEN, **more}
        return subprocess.run(
            [EXAMPLES / name, *arguments], cwd=EXAMPLES, env=env, capture_output=True, text=True, check=False
        )

    def steer() -> None:
        planned = script("plan.sh", "jobs.yaml")
        assert planned.returncode == 0 and "+ job invoices" in planned.stdout, planned
        assert script("check.sh", "jobs.yaml").returncode == 0
        assert cluster.cli("apply", jobs, "--env", "production").stdout.endswith("8 created\n")
        again = cluster.cli("apply", jobs, "--env", "production", "--plan")
        assert (again.returncode, again.stdout) == (0, "8 unchanged\n")

        exported = tmp_path / "exported.yaml"
        assert cluster.cli("export", "--owner", "shop", "-o", str(exported)).returncode == 0
        same = cluster.cli("apply", str(exported), "--plan")
        assert (same.returncode, same.stdout) == (0, "8 unchanged\n"), same

        wrong = tmp_path / "jobs.yaml"
        wrong.write_text(exported.read_text().replace("calendar: business-days", "calendar: busines-days"))
        refused = cluster.cli("apply", str(wrong))
        assert refused.returncode == 2 and "did you mean 'business-days'?" in refused.stderr, refused
        assert script("check.sh", JOB_FILES=str(wrong)).returncode == 1
        assert script("plan.sh", str(wrong)).returncode == 1

        wrong.write_text("owner: shop\njobs:\n  clean-up: {command: 'true', schedule: {every: 1h}}\n")
        asked = cluster.cli("apply", str(wrong), "--prune")
        assert asked.returncode == 2 and "nobody can be asked" in asked.stderr
        pruned = cluster.cli("apply", str(wrong), "--prune", "--yes")
        assert pruned.stdout.endswith("1 changed, 7 removed\n"), pruned

        crontab = tmp_path / "crontab"
        crontab.write_text("NAME=world\n0 0 1 1 * cat%hello $NAME%50\\%\n")
        imported = tmp_path / "imported.yaml"
        line = ["import", "crontab", str(crontab), "--timezone", "UTC", "--verify", "-o", str(imported)]
        done = subprocess.run([sys.executable, "-m", "mainspring", *line], capture_output=True, text=True, check=False)
        assert done.returncode == 0 and "cat: 1 fires in the next year, all the same" in done.stderr, done
        assert cluster.cli("apply", str(imported)).stdout == "+ job cat\n1 created\n"
        ran = cluster.cli("job", "run", "cat", "--wait")
        assert ran.returncode == 0 and "hello $NAME\n50%\n" in ran.stdout, ran

    await asyncio.to_thread(steer)
