"""`mainspring import`"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from mainspring.cli.imports.model import Import
from mainspring.cli.imports.report import FoundIn, finish, local_zone
from mainspring.cli.noun import Noun
from mainspring.cli.workflow_file import name_of, read_text

noun = Noun("import", "Jobs of other schedulers as a job file. Nothing is changed.")
OwnerOption = Annotated[str, typer.Option("--owner", metavar="NAME", help="Owner of the job file.")]
OutputOption = Annotated[str | None, typer.Option("--output", "-o", metavar="FILE", help="Instead of stdout.")]
VerifyFlag = Annotated[
    bool,
    typer.Option(
        "--verify", help="Compare all fires of the next year with those of the source. Exit with 1 if they differ."
    ),
]
ZoneOption = Annotated[
    str | None,
    typer.Option("--timezone", metavar="Z", help="Zone of times without one. Default: that of this machine."),
]
ExecuteFlag = Annotated[
    bool, typer.Option("--execute", help="Run code of the source, in a process of its own. Without it nothing is run.")
]
PythonOption = Annotated[
    str | None, typer.Option("--python", metavar="P", help="The interpreter that has the other scheduler.")
]
FilesArgument = Annotated[list[str], typer.Argument(metavar="FILE...", help="Files; - is stdin.")]


@noun.verb(
    "crontab",
    "crontab -l | mainspring import crontab - --verify > jobs.yaml",
    "mainspring import crontab /etc/crontab /etc/cron.d/backup --system",
)
def crontab(
    files: FilesArgument,
    system: Annotated[
        bool | None,
        typer.Option(
            "--system/--user", help="Whether lines name a user. Default: those of /etc do.", show_default=False
        ),
    ] = None,
    timezone: ZoneOption = None,
    owner: OwnerOption = "crontab",
    output: OutputOption = None,
    verify: VerifyFlag = False,
) -> None:
    """Crontabs of users and of the system."""
    from mainspring.cli.imports.crontab import read_crontab

    zone, given = timezone or local_zone(), timezone is not None

    def read(text: str, source: str) -> Import:
        of_system = source.startswith("/etc/") if system is None else system
        return read_crontab(text, source, zone=zone, found_zone=not given, system=of_system)

    finish(_all(files, read), FoundIn("crontab", owner, output, verify))


@noun.verb("systemd", "mainspring import systemd /etc/systemd/system", "mainspring import systemd backup.timer")
def systemd(
    files: Annotated[
        list[Path], typer.Argument(metavar="PATH...", help="Timers, or folders with timers and services.")
    ],
    timezone: ZoneOption = None,
    owner: OwnerOption = "systemd",
    output: OutputOption = None,
    verify: VerifyFlag = False,
) -> None:
    """Timers of systemd, with their services."""
    from mainspring.cli.imports.systemd import read_timers

    finish(read_timers(files, zone=timezone or local_zone()), FoundIn("systemd", owner, output, verify))


@noun.verb(
    "kubernetes",
    "kubectl get cronjobs -o yaml | mainspring import kubernetes -",
    "mainspring import kubernetes cronjob.yaml --verify",
)
def kubernetes(
    files: FilesArgument,
    owner: OwnerOption = "kubernetes",
    output: OutputOption = None,
    verify: VerifyFlag = False,
) -> None:
    """CronJobs of Kubernetes: their commands run on workers."""
    from mainspring.cli.imports.kubernetes import read_manifests

    finish(_all(files, read_manifests), FoundIn("kubernetes", owner, output, verify))


@noun.verb(
    "celery",
    "mainspring import celery celeryconfig.py > jobs.yaml",
    "mainspring import celery shop.tasks:app --execute",
)
def celery(
    sources: Annotated[list[str], typer.Argument(metavar="FILE...", help="Python files; with --execute MODULE:APP.")],
    execute: ExecuteFlag = False,
    python: PythonOption = None,
    owner: OwnerOption = "celery",
    output: OutputOption = None,
    verify: VerifyFlag = False,
) -> None:
    """Schedules of Celery beat. Files are read, not run."""
    from mainspring.cli.imports.celery import read_application, read_file

    if execute:
        found = Import()
        for source in sources:
            _merge(found, read_application(source, python or sys.executable))
    else:
        found = _all(sources, _python(read_file))
    finish(found, FoundIn("celery", owner, output, verify, "celery", python or sys.executable))


@noun.verb(
    "apscheduler",
    "mainspring import apscheduler sqlite:///jobs.sqlite",
    "mainspring import apscheduler sqlite:///jobs.sqlite --execute > jobs.yaml",
)
def apscheduler(
    store: Annotated[str, typer.Argument(metavar="URL", help="The database of the job store.")],
    table: Annotated[str, typer.Option("--table", metavar="T", help="Its table.")] = "apscheduler_jobs",
    execute: ExecuteFlag = False,
    python: PythonOption = None,
    owner: OwnerOption = "apscheduler",
    output: OutputOption = None,
    verify: VerifyFlag = False,
) -> None:
    """Job stores of APScheduler 3. Their jobs are pickles, which only --execute reads."""
    from mainspring.cli.imports.apscheduler import read_store

    found = read_store(store, table, execute=execute, python=python or sys.executable)
    finish(found, FoundIn("apscheduler", owner, output, verify))


@noun.verb("airflow", "mainspring import airflow dags/*.py > jobs.yaml")
def airflow(
    files: FilesArgument,
    python: PythonOption = None,
    owner: OwnerOption = "airflow",
    output: OutputOption = None,
    verify: VerifyFlag = False,
) -> None:
    """Schedules of Airflow DAGs. Files are read, not run."""
    from mainspring.cli.imports.airflow import read_dags

    finish(
        _all(files, _python(read_dags)),
        FoundIn("airflow", owner, output, verify, "croniter", python or sys.executable),
    )


def _all(files: list[str], read: Callable[[str, str], Import]) -> Import:
    found = Import()
    for file in files:
        _merge(found, read(read_text(file), name_of(file)))
    return found


def _merge(found: Import, more: Import) -> None:
    for job in more.jobs:
        found.add(job)
    found.channels |= more.channels
    found.refused += more.refused
    found.notes += [note for note in more.notes if note not in found.notes]


def _python(read: Callable[[str, str], Import]) -> Callable[[str, str], Import]:
    """What is no Python is refused with its line."""

    def reading(text: str, source: str) -> Import:
        from mainspring.domain.errors import InvalidInput

        try:
            return read(text, source)
        except (SyntaxError, ValueError, RecursionError) as error:
            line = getattr(error, "lineno", None)
            raise InvalidInput(f"{source}{'' if line is None else f', line {line}'}: {error}", field="file") from None

    return reading
