"""`mainspring import`: what other schedulers have becomes a job file that fires at the same times."""

from __future__ import annotations

import pickle
import sqlite3
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from mainspring.cli.imports.fields import schedule_of
from mainspring.cli.imports.model import Imported
from mainspring.cli.imports.systemd import BadCalendar, calendar_schedule
from mainspring.cli.imports.verify import compare, own_fires
from mainspring.cli.imports.wall_times import ALL_MATCH, DEBIAN, KUBERNETES, line_fires
from mainspring.cli.job_files.file_reader import read_job_files
from tests.domain.cron_table import DEBIAN as TABLE

Call = Callable[..., tuple[int, str, str]]
START = datetime(2026, 11, 16, tzinfo=UTC)


def jobs_of(path: Path, kind: str = "jobs") -> dict[str, Any]:
    return {entry.id: entry.body for entry in read_job_files([str(path)]).entries if entry.kind == kind}


CRONTAB = r"""
SHELL=/bin/sh
MAILTO=ops@example.org
PATH="/usr/local/bin:/usr/bin"

# the backup of the night
30 2 * * *   /opt/backup.sh --full
5 */2 * * *  cd /srv && ./poll   # not a comment for cron
0 9 * * mon-fri mail -s "hi" you%first line%second line, 50\%
@reboot      /opt/start
@weekly      /opt/weekly
61 * * * *   /opt/wrong
0 0 13 * 5   /opt/either
nonsense
"""


def test_a_crontab_of_a_user(tmp_path: Path, call: Call) -> None:
    file, out = tmp_path / "crontab", tmp_path / "jobs.yaml"
    file.write_text(CRONTAB)
    code, _, err = call(
        "import", "crontab", str(file), "--timezone", "Europe/Berlin", "-o", str(out), "--verify", "--owner", "ops"
    )
    assert code == 0, err
    jobs = jobs_of(out)
    assert [*jobs] == ["backup.sh", "poll", "mail", "weekly", "either"]
    assert jobs["backup.sh"] == {
        "schedule": {"cron": "30 2 * * *", "timezone": "Europe/Berlin"}, "description": "the backup of the night",
        "command": "/opt/backup.sh --full", "env": {"PATH": "/usr/local/bin:/usr/bin"}, "overlap": "allow",
        "misfire": {"policy": "skip"}, "retries": 0, "timeout": "1d",
        "notify": [{"on": ["failure"], "to": ["mail-ops-example.org"]}],
    }  # fmt: skip
    assert jobs_of(out, "channels") == {
        "mail-ops-example.org": {
            "kind": "mail", "host": "localhost", "port": 25, "tls": "none", "from": "cron@localhost",
            "to": ["ops@example.org"],
        }
    }  # fmt: skip
    assert jobs["poll"]["command"] == "cd /srv && ./poll   # not a comment for cron"
    assert jobs["mail"]["command"] == (
        "{ mail -s \"hi\" you\n} <<'END_OF_INPUT'\nfirst line\nsecond line, 50%\nEND_OF_INPUT"
    )
    text = out.read_text()
    assert "  # MAILTO=ops@example.org\n" in text
    for refused in (
        ":10: @reboot      /opt/start: @reboot is about the start of a machine",
        ":12: 61 * * * *   /opt/wrong: '61' is out of range", ":14: nonsense: it does not have five fields",
    ):  # fmt: skip
        assert refused in err, err
    assert "backup.sh: 365 fires in the next year, all the same" in err
    assert "poll: 4,380 fires in the next year, all the same" in err


def test_the_input_of_a_command_arrives(tmp_path: Path, call: Call) -> None:
    import subprocess

    file, out = tmp_path / "crontab", tmp_path / "jobs.yaml"
    file.write_text("* * * * * cat%a 'b' $HOME%c\\%\n")
    assert call("import", "crontab", str(file), "-o", str(out))[0] == 0
    command = jobs_of(out)["cat"]["command"]
    assert subprocess.run(["/bin/sh", "-c", command], capture_output=True, check=True).stdout == b"a 'b' $HOME\nc%\n"


def test_a_crontab_of_the_system_names_users_and_another_shell(tmp_path: Path, call: Call) -> None:
    file, out = tmp_path / "crontab", tmp_path / "jobs.yaml"
    file.write_text("SHELL=/bin/bash\n17 * * * * root  cd / && run-parts /etc/cron.hourly\n@daily www-data /opt/x\n")
    assert call("import", "crontab", str(file), "--system", "--timezone", "UTC", "-o", str(out))[0] == 0
    jobs = jobs_of(out)
    assert jobs["run-parts"]["command"] == ["/bin/bash", "-c", "cd / && run-parts /etc/cron.hourly"]
    assert (jobs["run-parts"]["run_as"], jobs["x"]["run_as"]) == ("root", "www-data")
    assert "--run-as-allow root" in out.read_text()


def test_the_independent_road_agrees_with_the_table_of_debians_cron() -> None:
    for line, times in TABLE:
        expected = [datetime.fromisoformat(one).replace(tzinfo=UTC) for one in times.split()]
        end = expected[-1].replace(second=59)
        if end.year < 2035:
            assert list(line_fires(line, "UTC", DEBIAN, START.replace(second=1), end)) == expected, line


LINES = ("30 2 * * *", "0 1-5 * * *", "0 0 13 * FRI", "15 1 */13 * 5")
MANY = ("*/10 * * * *", "30 * * * *", "* 1-3 * * *")


@pytest.mark.parametrize(
    ("lines", "zones"),
    [
        (LINES, ("Europe/Berlin", "Australia/Lord_Howe")),
        pytest.param(LINES + MANY, ("America/New_York", "Africa/Casablanca", "UTC"), marks=pytest.mark.long),
    ],
)
def test_ours_is_compared_over_a_year_with_moved_clocks(lines: tuple[str, ...], zones: tuple[str, ...]) -> None:
    for zone in zones:
        for line in lines:
            for rules in (DEBIAN, KUBERNETES, ALL_MATCH):
                if rules is DEBIAN:
                    schedule: dict[str, Any] = {"cron": line} | ({} if zone == "UTC" else {"timezone": zone})
                else:
                    schedule = schedule_of(line, zone, rules)

                def fires(
                    start: datetime, end: datetime, line: str = line, zone: str = zone, rules: Any = rules
                ) -> Any:
                    return line_fires(line, zone, rules, start, end)

                body = {"schedule": schedule, "command": "true"}
                found = compare(Imported("x", body, "x", fires=fires), START)
                assert found is not None and found.same, (zone, line, rules, found)


def test_a_difference_is_found_and_told(tmp_path: Path, call: Call) -> None:
    job = Imported("x", {"schedule": {"cron": "0 9 * * *"}, "command": "true"}, "x")
    job.fires = lambda start, end: line_fires("0 9,10 * * 1", "UTC", DEBIAN, start, end)
    found = compare(job, START)
    assert found is not None and (len(found.missing), len(found.extra)) == (53, 312)


MANIFEST = """\
apiVersion: batch/v1
kind: CronJob
metadata: {name: report, labels: {team: bi}}
spec:
  schedule: "0 3 */2 * 1"
  timeZone: Europe/Berlin
  concurrencyPolicy: Forbid
  startingDeadlineSeconds: 600
  suspend: true
  jobTemplate:
    spec:
      backoffLimit: 2
      activeDeadlineSeconds: 900
      template:
        spec:
          containers:
          - name: main
            image: registry/report:1
            command: [python, -m, report]
            args: ["--day", "$(DAY)"]
            env:
            - {name: A, value: "1"}
            - {name: SECRET, valueFrom: {secretKeyRef: {name: s, key: k}}}
---
kind: CronJob
metadata: {name: from-image}
spec: {schedule: "@hourly", jobTemplate: {spec: {template: {spec: {containers: [{image: x}]}}}}}
---
kind: Service
metadata: {name: web}
"""


def test_cronjobs_of_kubernetes(tmp_path: Path, call: Call) -> None:
    file, out = tmp_path / "cronjobs.yaml", tmp_path / "jobs.yaml"
    file.write_text(MANIFEST)
    code, _, err = call("import", "kubernetes", str(file), "-o", str(out), "--verify")
    assert code == 0, err
    [job] = jobs_of(out).values()
    assert job == {
        "schedule": {
            "cron": "0 3 1,3,5,7,9,11,13,15,17,19,21,23,25,27,29,31 * 1", "timezone": "Europe/Berlin",
            "dst": {"gap": "skip", "overlap": "both"},
        },
        "command": ["python", "-m", "report", "--day", "$(DAY)"], "overlap": "skip", "retries": 2,
        "misfire": {"policy": "once", "grace": 600.0}, "run_timeout": 900.0, "timeout": 900.0, "env": {"A": "1"},
        "labels": {"team": "bi"},
    }  # fmt: skip
    text = out.read_text()
    for note in (
        "image registry/report:1",
        "env SECRET comes from elsewhere",
        "it is suspended",
        "$(NAME) in a command",
    ):
        assert note in text
    assert "from-image: its command is in the image x" in err
    assert "Service: only CronJobs are imported" in err


BEAT = """
from celery import Celery
from celery.schedules import crontab, solar
from datetime import timedelta
import os
MINUTE = 60
app = Celery("shop")
app.conf.timezone = "Europe/London"
app.conf.beat_schedule = {
    "add-every-30-seconds": {"task": "tasks.add", "schedule": 30.0, "args": (16, 16)},
    "monday": {"task": "tasks.report", "schedule": crontab(hour=7, minute=30, day_of_week=1), "kwargs": {"full": True},
               "options": {"queue": "reports", "expires": 5 * MINUTE}},
    "friday-13th": {"task": "t", "schedule": crontab(0, 0, day_of_week="fri", day_of_month="13")},
    "hourly": {"task": "t", "schedule": timedelta(hours=1)},
    "sunset": {"task": "t", "schedule": solar("sunset", -37.8, 144.9)},
    "unknown": {"task": "t", "schedule": float(os.environ["EVERY"])},
}
raise SystemExit("this file was run")
"""


def test_schedules_of_celery_beat_are_read_and_not_run(tmp_path: Path, call: Call) -> None:
    file, out = tmp_path / "tasks.py", tmp_path / "jobs.yaml"
    file.write_text(BEAT)
    code, _, err = call("import", "celery", str(file), "-o", str(out), "--verify", "--python", "/bin/false")
    assert code == 0, err
    jobs = jobs_of(out)
    assert [*jobs] == ["add-every-30-seconds", "monday", "friday-13th", "hourly"]
    assert jobs["add-every-30-seconds"]["schedule"] == {"every": 30.0}
    assert jobs["add-every-30-seconds"]["payload"] == {"args": [16, 16]}
    monday = jobs["monday"]
    assert (monday["schedule"]["cron"], monday["schedule"]["timezone"]) == ("30 7 * * 1", "Europe/London")
    assert (monday["payload"], monday["queue"], monday["expires_in"]) == ({"full": True}, "reports", 300.0)
    assert jobs["friday-13th"]["schedule"]["rrule"] == (
        "FREQ=DAILY;BYMONTHDAY=13;BYDAY=FR;BYHOUR=0;BYMINUTE=0;BYSECOND=0"
    )
    assert "sunset: it follows the sun" in err
    assert "give --execute" in err
    assert "friday-13th: " in err and "all the same" in err


DAGS = """
import pendulum
from airflow import DAG
from airflow.decorators import dag
from datetime import timedelta
with DAG("etl", schedule="0 5 * * *", start_date=pendulum.datetime(2024, 1, 1, tz="Europe/Paris"), catchup=False):
    pass
DAG(dag_id="often", schedule_interval=timedelta(minutes=10))
@dag(schedule="@quarterly")
def quarter(): ...
@dag(schedule=None)
def by_hand(): ...
@dag(schedule=[Dataset("s3://x")])
def by_data(): ...
1 / 0
"""


def test_schedules_of_airflow_are_read_from_the_syntax_tree(tmp_path: Path, call: Call) -> None:
    file, out = tmp_path / "dags.py", tmp_path / "jobs.yaml"
    file.write_text(DAGS)
    code, _, err = call("import", "airflow", str(file), "-o", str(out), "--verify", "--python", "/bin/false")
    assert code == 0, err
    jobs = jobs_of(out)
    assert jobs["etl"]["schedule"] == {"cron": "0 5 * * *", "timezone": "Europe/Paris"}
    assert jobs["etl"]["command"] == ["airflow", "dags", "trigger", "etl"]
    assert jobs["often"]["schedule"] == {"every": 600.0}
    assert jobs["quarter"]["schedule"]["cron"].startswith("0 0 1 ")
    assert "schedule" not in jobs["by_hand"]
    assert "by_data: its schedule Dataset" in err


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("daily", {"cron": "0 0 * * *"}),
        ("Mon..Fri 08:30", {"cron": "30 8 * * 1,2,3,4,5"}),
        ("*-*-01,15 04:00:00 Europe/Berlin", {"cron": "0 4 1,15 * *", "timezone": "Europe/Berlin"}),
        ("*:0/15", {"cron": "0,15,30,45 * * * *"}),
        ("*-*-* *:*:30", {"cron": "30 * * * * *"}),
        ("Fri *-*-13 12:00", {"rrule": "FREQ=DAILY;BYMONTHDAY=13;BYDAY=FR;BYHOUR=12;BYMINUTE=0;BYSECOND=0"}),
        ("Sat,Sun 10..12/2:00", {"cron": "0 10,12 * * 0,6"}),
        ("12-24 18:00", {"cron": "0 18 24 12 *"}),
        ("*-*~01 00:00", None), ("2027-01-01", None), ("*:61", None), ("whenever it likes", None),
    ],
)  # fmt: skip
def test_calendars_of_systemd(text: str, expected: dict[str, Any] | None) -> None:
    if expected is None:
        with pytest.raises(BadCalendar):
            calendar_schedule(text, "UTC")
        return
    assert calendar_schedule(text, "UTC") == expected
    assert next(
        own_fires(Imported("x", {"schedule": expected, "command": "true"}, "x"), START, START.replace(year=2027))
    )


def test_timers_of_systemd(tmp_path: Path, call: Call) -> None:
    (tmp_path / "backup.timer").write_text(
        "[Timer]\nOnCalendar=\nOnCalendar=daily\nPersistent=true\nRandomizedDelaySec=1h 30min\n[Install]\n"
    )
    (tmp_path / "backup.service").write_text(
        "[Unit]\nDescription=Back up\n[Service]\nUser=backup\nEnvironment=A=1 'B=two words'\n"
        "WorkingDirectory=/srv/data\nExecStart=-/usr/bin/backup \\\n  --all\n"
    )
    (tmp_path / "poll.timer").write_text("[Timer]\nOnBootSec=1min\nOnUnitActiveSec=5min\nUnit=backup.service\n")
    (tmp_path / "lost.timer").write_text("[Timer]\nOnCalendar=daily\n")
    (tmp_path / "boot.timer").write_text("[Timer]\nOnBootSec=1min\nUnit=backup.service\n")
    out = tmp_path / "jobs.yaml"
    code, _, err = call("import", "systemd", str(tmp_path), "--timezone", "UTC", "-o", str(out))
    assert code == 0, err
    jobs = jobs_of(out)
    assert jobs["backup"] == {
        "schedule": {"cron": "0 0 * * *", "jitter": 5400.0}, "command": "cd /srv/data && /usr/bin/backup --all",
        "description": "Back up", "env": {"A": "1", "B": "two words"}, "run_as": "backup", "timeout": "1d",
        "overlap": "skip", "misfire": {"policy": "once"}, "retries": 0,
    }  # fmt: skip
    assert jobs["poll"]["schedule"] == {"every": 300.0}
    assert "lost.timer: its service lost.service is not beside it" in err
    assert "boot.timer: it is about the start of the machine" in err


class Evil:
    def __reduce__(self) -> Any:
        return (Path(PROOF).write_text, ("it was unpickled",))


PROOF = ""


def test_a_store_of_apscheduler_is_not_unpickled_unless_told(
    tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    proof = tmp_path / "proof"
    monkeypatch.setattr(sys.modules[__name__], "PROOF", str(proof))
    store = tmp_path / "jobs.sqlite"
    opened = sqlite3.connect(store)
    opened.execute("create table apscheduler_jobs (id text primary key, next_run_time real, job_state blob)")
    opened.execute("insert into apscheduler_jobs values ('nightly', 1.0, ?)", (pickle.dumps(Evil()),))
    opened.commit()
    opened.close()
    code, out, err = call("import", "apscheduler", f"sqlite:///{store}")
    assert code == 0
    assert "nightly: what it runs and when is a pickle" in err
    assert not proof.exists()
    assert "jobs:" not in out
    code, _, err = call("import", "apscheduler", f"sqlite:///{store}", "--execute")
    assert code == 2 and "the import failed" in err
    assert proof.read_text() == "it was unpickled"  # by the child


def test_what_cannot_be_read_is_an_error_with_its_line(tmp_path: Path, call: Call) -> None:
    file = tmp_path / "dags.py"
    file.write_text("x = 1\ndef (:\n")
    code, _, err = call("import", "airflow", str(file))
    assert code == 2 and f"{file}, line 2" in err
    assert call("import", "crontab", str(tmp_path / "none"))[0] == 2
