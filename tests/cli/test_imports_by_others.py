"""`mainspring import --verify` with croniter, celery and apscheduler themselves, in an environment of their own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.long
Call = Callable[..., tuple[int, str, str]]
TASKS = """
from celery import Celery
from celery.schedules import crontab
app = Celery("shop")
app.conf.timezone = "Europe/London"
app.conf.beat_schedule = {
    "monday": {"task": "t", "schedule": crontab(hour=7, minute=30, day_of_week=1), "kwargs": {"full": True}},
    "friday-13th": {"task": "t", "schedule": crontab(minute=0, hour=0, day_of_week="fri", day_of_month="13")},
    "often": {"task": "t", "schedule": crontab(minute="*/20", hour="*/3", month_of_year="*/3")},
    "skipped": {"task": "t", "schedule": crontab(minute=30, hour=1)},
}
"""
DAGS = """
DAG("etl", schedule="0 5 * * *", start_date=pendulum.datetime(2024, 1, 1, tz="Europe/Paris"))
DAG("either", schedule="0 0 13 * 5")
DAG("both", schedule="0 0 */2 * 5")
"""
STORE = """
import time
from apscheduler.schedulers.background import BackgroundScheduler
url = {"type": "sqlalchemy", "url": "sqlite:///jobs.sqlite"}
jobs = BackgroundScheduler(jobstores={"default": url}, timezone="Europe/Berlin")
jobs.start(paused=True)
jobs.add_job(time.sleep, "cron", day_of_week="mon-fri", hour=9, args=[1], id="work")
jobs.add_job(time.sleep, "cron", day="13", day_of_week="4", hour=0, args=[1], id="friday-13th")
jobs.add_job(time.sleep, "interval", minutes=10, args=[2], id="often")
jobs.shutdown(wait=False)
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("others")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    packages = ["croniter", "celery", "apscheduler<4", "sqlalchemy"]
    done = subprocess.run([folder / "bin" / "pip", "install", "-q", *packages], capture_output=True, check=False)
    if done.returncode:
        pytest.skip("the packages cannot be installed here")
    return str(folder / "bin" / "python")


def test_celery(python: str, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("shop_tasks.py").write_text(TASKS)
    read = call("import", "celery", "shop_tasks.py", "--verify", "--python", python, "-o", "read.yaml")
    run = call("import", "celery", "shop_tasks:app", "--execute", "--verify", "--python", python, "-o", "run.yaml")
    for code, _, err in (read, run):
        assert "compared with celery" in err
        for job in ("monday", "friday-13th", "often"):
            assert any(line.startswith(f"{job}: ") and line.endswith("all the same") for line in err.splitlines()), err
        assert code == 1 and "skipped: 2 differences" in err  # Celery runs it half an hour later than we do
    read_text, run_text = (
        [line for line in Path(name).read_text().splitlines() if "# from" not in line]
        for name in ("read.yaml", "run.yaml")
    )
    assert read_text == run_text


def test_airflow(python: str, tmp_path: Path, call: Call) -> None:
    file = tmp_path / "dags.py"
    file.write_text(DAGS)
    code, _, err = call("import", "airflow", str(file), "--verify", "--python", python, "-o", str(tmp_path / "x"))
    assert (code, err.count("all the same")) == (0, 3) and "compared with croniter" in err, err


def test_apscheduler(python: str, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    subprocess.run([python, "-c", STORE], check=True)
    line = ("sqlite:///jobs.sqlite", "--execute", "--verify", "--python", python, "-o", "jobs.yaml")
    code, _, err = call("import", "apscheduler", *line)
    assert (code, err.count("all the same")) == (0, 2), err
