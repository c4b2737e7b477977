"""The command `mainspring submit`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from mainspring.cli import completing
from mainspring.cli.connect import DataOption, JsonFlag, TokenFileOption, UrlOption, connect
from mainspring.cli.field_options import with_kind_options, with_plain_options
from mainspring.cli.job_options import job_fields
from mainspring.cli.screen import say, show_json, show_line
from mainspring.cli.waiting import longest_wait, wait_and_show

if TYPE_CHECKING:
    from mainspring.sdk.client.client import Client
    from mainspring.sdk.client.handle import Handle

EXAMPLES = (
    "mainspring submit hello name=you --wait",
    "mainspring submit --command 'date' --cron '* * * * *' --name clock",
    "mainspring submit --http https://example.com/hook --body '{\"id\": 7}' --wait",
    'mainspring submit report.generate --payload \'{"region": "eu"}\' --in 5m',
)
_WHEN = "Schedule"
_HOW = "Job options"
_ENVIRONMENT = "Execution environment"

_MERGED = {
    "kept": "it stays as it is",
    "replaced": "it has the new payload",
    "later": "it waits until the new time",
}


@with_plain_options(after="timeout", panel=_HOW)
@with_kind_options(after="payload")
def command(
    task: Annotated[
        str | None,
        typer.Argument(
            metavar="TASK",
            help="Name of the task; not with --command or --http.",
            autocompletion=completing.tasks,
            show_default=False,
        ),
    ] = None,
    params: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE",
            help="A parameter of the task. Valid JSON (3, true, [1]) is sent as JSON, anything else as text.",
            show_default=False,
        ),
    ] = None,
    payload: Annotated[
        str | None, typer.Option("--payload", metavar="JSON", help="All parameters as one JSON object.")
    ] = None,
    at: Annotated[
        str | None,
        typer.Option("--at", metavar="T", help="Run once at this time: 2026-12-31T23:59:59Z.", rich_help_panel=_WHEN),
    ] = None,
    delay: Annotated[
        str | None,
        typer.Option("--in", metavar="D", help="Run once after this time: 5m, 1h30m.", rich_help_panel=_WHEN),
    ] = None,
    every: Annotated[
        str | None,
        typer.Option("--every", metavar="D", help="Run at this interval: 90s, 15m, 1h30m.", rich_help_panel=_WHEN),
    ] = None,
    cron: Annotated[
        str | None,
        typer.Option(
            "--cron", metavar="E", help="Run by a cron expression: '0 9 * * MON-FRI', @daily.", rich_help_panel=_WHEN
        ),
    ] = None,
    timezone: Annotated[
        str | None,
        typer.Option("--timezone", metavar="Z", help="Time zone of --cron: Europe/Berlin.", rich_help_panel=_WHEN),
    ] = None,
    rrule: Annotated[
        str | None,
        typer.Option(
            "--rrule",
            metavar="R",
            help="Run by a rule of RFC 5545: 'FREQ=MONTHLY;BYDAY=-1FR;BYHOUR=17'.",
            rich_help_panel=_WHEN,
        ),
    ] = None,
    exdate: Annotated[
        list[str] | None,
        typer.Option(
            "--exdate", metavar="T", help="A fire of --rrule that is left out; can be repeated.", rich_help_panel=_WHEN
        ),
    ] = None,
    jitter: Annotated[
        str | None,
        typer.Option(
            "--jitter",
            metavar="D",
            help="Each fire is later by up to this: 10m.",
            rich_help_panel=_WHEN,
        ),
    ] = None,
    start: Annotated[
        str | None,
        typer.Option("--start", metavar="T", help="No fire is before this time.", rich_help_panel=_WHEN),
    ] = None,
    end: Annotated[
        str | None,
        typer.Option("--end", metavar="T", help="No fire is after this time.", rich_help_panel=_WHEN),
    ] = None,
    max_runs: Annotated[
        int | None,
        typer.Option("--max-runs", metavar="N", help="The schedule ends after so many runs.", rich_help_panel=_WHEN),
    ] = None,
    calendar: Annotated[
        str | None,
        typer.Option("--calendar", metavar="C", help="Fire only within this calendar.", rich_help_panel=_WHEN),
    ] = None,
    outside: Annotated[
        str | None,
        typer.Option(
            "--outside", metavar="O", help="A time outside the calendar: skip it, or next.", rich_help_panel=_WHEN
        ),
    ] = None,
    dst_gap: Annotated[
        str | None,
        typer.Option(
            "--dst-gap", metavar="P", help="A time that a clock change skips: shift or skip.", rich_help_panel=_WHEN
        ),
    ] = None,
    dst_overlap: Annotated[
        str | None,
        typer.Option(
            "--dst-overlap",
            metavar="P",
            help="A time that a clock change repeats: first, last or both.",
            rich_help_panel=_WHEN,
        ),
    ] = None,
    after: Annotated[
        list[str] | None,
        typer.Option(
            "--after",
            metavar="JOB",
            help="Run when this job has succeeded; can be repeated: when all of them have, since the last time.",
            rich_help_panel=_WHEN,
        ),
    ] = None,
    manual: Annotated[
        bool, typer.Option("--manual", help="Run only with `mainspring run-now`.", rich_help_panel=_WHEN)
    ] = False,
    name: Annotated[str | None, typer.Option("--name", help="Name of the job.", rich_help_panel=_HOW)] = None,
    queue: Annotated[
        str | None,
        typer.Option(
            "--queue", metavar="Q", help="Name of the queue.", autocompletion=completing.queues, rich_help_panel=_HOW
        ),
    ] = None,
    priority: Annotated[
        str | None, typer.Option("--priority", metavar="P", help="low, normal, high or critical.", rich_help_panel=_HOW)
    ] = None,
    timeout: Annotated[
        str | None,
        typer.Option("--timeout", metavar="D", help="Time limit for each attempt: 15m.", rich_help_panel=_HOW),
    ] = None,
    retries: Annotated[
        int | None,
        typer.Option("--retries", metavar="N", help="Number of retries after the first attempt.", rich_help_panel=_HOW),
    ] = None,
    retry: Annotated[
        str | None,
        typer.Option(
            "--retry",
            metavar="JSON",
            help='{"backoff": "linear", "base": "5s", "rules": [{"exit_code": 2, "then": "give_up"}]}',
            rich_help_panel=_HOW,
        ),
    ] = None,
    delivery: Annotated[
        str | None,
        typer.Option("--delivery", metavar="D", help="at_least_once or at_most_once.", rich_help_panel=_HOW),
    ] = None,
    overlap: Annotated[
        str | None,
        typer.Option(
            "--overlap",
            metavar="O",
            help="If a fire is due while a run is alive: skip, queue, allow or cancel_previous.",
            rich_help_panel=_HOW,
        ),
    ] = None,
    concurrency: Annotated[
        str | None,
        typer.Option(
            "--concurrency",
            metavar="N",
            help='At most N runs at once, or none. Or JSON: {"limit": 3, "per": "task"}, or a list of these.',
            rich_help_panel=_HOW,
        ),
    ] = None,
    concurrency_key: Annotated[
        str | None,
        typer.Option(
            "--concurrency-key",
            metavar="PATH",
            help="Count each value of this apart: payload.account, labels.region.",
            rich_help_panel=_HOW,
        ),
    ] = None,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="One run after another, in the order of submission.", rich_help_panel=_HOW),
    ] = False,
    rate: Annotated[
        str | None,
        typer.Option(
            "--rate",
            metavar="N/TIME",
            help='At most so many starts: 100/m. Or JSON: {"rate": "5/s", "burst": 10, "key": "payload.account"}.',
            rich_help_panel=_HOW,
        ),
    ] = None,
    circuit_breaker: Annotated[
        str | None,
        typer.Option(
            "--circuit-breaker",
            metavar="N:TIME",
            help="So many failures in a row stop its runs for a time: 5:10m, or on. Then one run is the probe.",
            rich_help_panel=_HOW,
        ),
    ] = None,
    depends_on: Annotated[
        list[str] | None,
        typer.Option(
            "--depends-on",
            metavar="JOB",
            help="Its runs wait for this job's run for the same time, or else its next success; can be repeated.",
            rich_help_panel=_HOW,
        ),
    ] = None,
    rule: Annotated[
        str | None,
        typer.Option(
            "--rule",
            metavar="R",
            help="Which ends of these jobs start it: all_success, all_done, one_success or one_failed.",
            rich_help_panel=_HOW,
        ),
    ] = None,
    on_upstream_failure: Annotated[
        str | None,
        typer.Option(
            "--on-upstream-failure",
            metavar="F",
            help="If a job that it depends on fails: skip it, or fail.",
            rich_help_panel=_HOW,
        ),
    ] = None,
    misfire: Annotated[
        str | None,
        typer.Option(
            "--misfire",
            metavar="M",
            help="Fires that became due while nothing could fire them: skip, once or all. once,grace=1h runs none that "
            "is older than that; all,cap=100 runs that many at most.",
            rich_help_panel=_HOW,
        ),
    ] = None,
    owner: Annotated[
        str | None, typer.Option("--owner", help="Who is responsible for the job.", rich_help_panel=_HOW)
    ] = None,
    description: Annotated[
        str | None, typer.Option("--description", help="What the job is for.", rich_help_panel=_HOW)
    ] = None,
    job_id: Annotated[
        str | None,
        typer.Option(
            "--job-id", metavar="ID", help="Id of the job. Default: the server chooses one.", rich_help_panel=_HOW
        ),
    ] = None,
    idempotency_key: Annotated[
        str | None,
        typer.Option(
            "--idempotency-key",
            metavar="K",
            help="A repeated submission with this key creates no second job.",
            rich_help_panel=_HOW,
        ),
    ] = None,
    unique: Annotated[
        str | None,
        typer.Option(
            "--unique",
            metavar="BY",
            help="Fields of which one job at a time has the values: task,payload.account. Also for=10m, "
            "while=queued+running, and else=keep, replace or later: what another submission does to that job.",
            rich_help_panel=_HOW,
        ),
    ] = None,
    keep_payload: Annotated[
        str | None,
        typer.Option(
            "--keep-payload",
            metavar="SIZE",
            help="Keep the payload after success: true, false, or up to a size. Default: 16KiB.",
            rich_help_panel=_HOW,
        ),
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option("--label", metavar="K=V", help="Label of the job; can be repeated.", rich_help_panel=_HOW),
    ] = None,
    env: Annotated[
        list[str] | None,
        typer.Option(
            "--env", metavar="K=V", help="Environment variable; can be repeated.", rich_help_panel=_ENVIRONMENT
        ),
    ] = None,
    limit: Annotated[
        list[str] | None,
        typer.Option(
            "--limit",
            metavar="WHAT=N",
            help="memory=512MB, cpu=30s, processes=8, files=256, output=10MB; can be repeated.",
            rich_help_panel=_ENVIRONMENT,
        ),
    ] = None,
    sandbox: Annotated[
        str | None,
        typer.Option(
            "--sandbox",
            metavar="S",
            help="bubblewrap: no network, no files but the system.",
            rich_help_panel=_ENVIRONMENT,
        ),
    ] = None,
    run_as: Annotated[
        str | None,
        typer.Option(
            "--run-as",
            metavar="USER",
            help="Run the command as this user; the worker must allow it with --run-as-allow.",
            rich_help_panel=_ENVIRONMENT,
        ),
    ] = None,
    kill_grace: Annotated[
        str | None,
        typer.Option(
            "--kill-grace", metavar="D", help="Time between SIGTERM and SIGKILL: 10s.", rich_help_panel=_ENVIRONMENT
        ),
    ] = None,
    require: Annotated[
        list[str] | None,
        typer.Option(
            "--require",
            metavar="K=V",
            help="A label that the worker must have; can be repeated.",
            rich_help_panel=_ENVIRONMENT,
        ),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the run ends; exit 0 only if it succeeds.")] = False,
    timeout_wait: Annotated[
        str | None, typer.Option("--timeout-wait", metavar="D", help="Longest time to wait: 30s.")
    ] = None,
    as_json: JsonFlag = False,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    data: DataOption = None,
    **plain: Any,
) -> None:
    """Submit a job that runs a task, a command or an HTTP call, now or on a schedule. Prints the job's id."""
    fields = job_fields(
        job_id=job_id, idempotency_key=idempotency_key, task=task, params=params,
        keep_payload=keep_payload, unique=unique,
        payload=payload, manual=manual, at=at, delay=delay, every=every, cron=cron,
        timezone=timezone, rrule=rrule, exdate=exdate, jitter=jitter, start=start, end=end, max_runs=max_runs,
        dst_gap=dst_gap, dst_overlap=dst_overlap, calendar=calendar, outside=outside, after=after,
        depends_on=depends_on, rule=rule, on_upstream_failure=on_upstream_failure,
        name=name, queue=queue, priority=priority, timeout=timeout, retries=retries, retry=retry,
        delivery=delivery, overlap=overlap, misfire=misfire, owner=owner, description=description, label=label, env=env,
        limit=limit, sandbox=sandbox, run_as=run_as, kill_grace=kill_grace, require=require, concurrency=concurrency,
        concurrency_key=concurrency_key, strict=strict, rate=rate, circuit_breaker=circuit_breaker, **plain,
    )  # fmt: skip
    longest = longest_wait(timeout_wait, wait=wait)
    with connect(url, token_file, data) as client:
        handle = client.submit(**fields)
        if task is not None:
            warn_if_nobody_offers(client, task)
        if wait:
            if not as_json:
                say(f"job {handle.job_id}{_merged(handle)}")
            raise typer.Exit(wait_and_show(client, handle, timeout=longest, as_json=as_json))
    if as_json:
        show_json({"job_id": handle.job_id} | ({} if handle.unique is None else {"unique": handle.unique}))
    else:
        show_line(handle.job_id)
        if handle.unique is not None:
            say(f"no new job: {handle.job_id} has the unique key{_merged(handle)}")


def _merged(handle: Handle[Any]) -> str:
    """What became of a submission with the unique key of another job."""
    return "" if handle.unique is None else f" ({_MERGED.get(handle.unique, handle.unique)})"


def warn_if_nobody_offers(client: Client, task: str) -> None:
    """The job is accepted anyway: its worker may start later."""
    from difflib import get_close_matches

    from mainspring.domain.errors import MainspringError

    try:
        known = client.tasks()
    except MainspringError:  # the job is submitted; this is only about a warning
        return
    names = [each.task for each in known.tasks]
    if task in names or known.more:
        return
    close = get_close_matches(task, names, 3)
    advice = f"did you mean {' or '.join(close)}?" if close else "the job waits until a worker does"
    say(f"warning: no worker offers the task {task!r} now; {advice}")
