"""Completion of ids, tasks, queues and workers in the shell. If no server answers at once, there is nothing to offer.

A person waits, so this module uses the HTTP client of the standard library: the SDK's takes 0.2 s of CPU to load.

Shells evaluate what they are offered: zsh runs commands in it, bash expands patterns. So only plain characters of ids
and names are passed on, whatever the name of a job is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import typer

from mainspring.cli.short_ids import ShortIds

Offers = list[tuple[str, str]]
Get = Callable[[str], Any]
Reader = Callable[[Get, str], Iterable[tuple[str, str]]]
_SECONDS = 0.3  # for each answer
_MOST = 50
_PLAIN = re.compile(r"[A-Za-z0-9_.,=/@+-]+")
_NOT_PLAIN = re.compile(r"[^A-Za-z0-9_.,=/@+ -]+")


def _completer(read: Reader) -> Callable[[typer.Context, str], Offers]:
    def complete(ctx: typer.Context, incomplete: str) -> Offers:
        try:
            return list(_safe(read(_reader(ctx.params), incomplete), incomplete))
        except Exception:  # noqa: BLE001 - an error in the middle of a command line does not help
            return []

    return complete


def _reader(params: dict[str, Any]) -> Get:
    """Reads from the server of the connection options that are already on the command line."""
    import json
    from http.client import HTTPConnection, HTTPSConnection
    from urllib.parse import urlsplit

    from mainspring.kernel.trust import trusted_context
    from mainspring.sdk.client.connection import find_connection

    names = ("token_file", "data", "ca")
    given: dict[str, Any] = {name: params[name] for name in names if params.get(name)}
    found = find_connection(params.get("url"), insecure_http=bool(params.get("insecure_http")), **given)
    parts = urlsplit(found.addresses[0])
    host = parts.hostname or ""
    http: HTTPConnection
    if parts.scheme == "https":
        http = HTTPSConnection(host, parts.port, timeout=_SECONDS, context=trusted_context(found.ca))
    else:
        http = HTTPConnection(host, parts.port, timeout=_SECONDS)

    def get(path: str) -> Any:
        http.request("GET", parts.path + path, headers={"Authorization": f"Bearer {found.token}"})
        return json.loads(http.getresponse().read())

    return get


def _safe(offers: Iterable[tuple[str, str]], incomplete: str) -> Iterator[tuple[str, str]]:
    for value, words in offers:
        if value.startswith(incomplete) and _PLAIN.fullmatch(value):
            yield value, _NOT_PLAIN.sub(" ", words)[:60].strip()


def _ids(found: Iterable[tuple[str, str]], incomplete: str) -> Iterator[tuple[str, str]]:
    """Short ids, or whole ones if a whole one was begun."""
    offers = dict(found)
    short = ShortIds(offers)
    for one, words in offers.items():
        shortened = short.shorten(one)
        yield (shortened if shortened.startswith(incomplete) else one), words


def _run_ids(found: Iterable[Any], incomplete: str) -> Iterator[tuple[str, str]]:
    yield from _ids(((run["run_id"], f"{run['task']} {run['status']}") for run in found), incomplete)


def _jobs(get: Get, incomplete: str) -> Iterator[tuple[str, str]]:
    from urllib.parse import urlencode

    query = {"q": incomplete, "limit": _MOST} if incomplete else {"limit": _MOST}
    found = get(f"/v1/jobs?{urlencode(query)}")["jobs"]
    yield from _ids(((job["job_id"], f"{job['name']} {job['schedule']}") for job in found), incomplete)


def _runs_and_jobs(get: Get, incomplete: str) -> Iterator[tuple[str, str]]:
    """Runs, and jobs: also one-time jobs that have fired, which only their runs know."""
    jobs = dict(_jobs(get, incomplete))
    yield from jobs.items()
    found = get(f"/v1/runs?limit={_MOST}")["runs"]
    ran = {run["job_id"]: f"{run['task']} {run['status']}" for run in found if run["job_id"] != run["run_id"]}
    yield from _ids(((job_id, words) for job_id, words in ran.items() if job_id not in jobs), incomplete)
    yield from _run_ids(found, incomplete)


def _dead_letters(get: Get, incomplete: str) -> Iterator[tuple[str, str]]:
    found = get(f"/v1/dead-letters?limit={_MOST}")["dead_letters"]
    yield from _ids(((one["run_id"], f"{one['task']} {one['error_message'] or ''}") for one in found), incomplete)


def _workers(get: Get, incomplete: str) -> Iterator[tuple[str, str]]:
    found = [worker for worker in get("/v1/workers")["workers"] if worker["state"] == "LIVE"]
    yield from ((worker["name"], worker["state"]) for worker in found)
    yield from _ids(((worker["worker_id"], worker["name"]) for worker in found), incomplete)


def _tasks(get: Get, _: str) -> Iterator[tuple[str, str]]:
    return ((task["task"], ", ".join(task["queues"])) for task in get("/v1/tasks")["tasks"])


def _queues(get: Get, _: str) -> Iterator[tuple[str, str]]:
    return ((queue["name"], f"{queue['depth']} waiting") for queue in get("/v1/queues")["queues"])


def _limits(get: Get, _: str) -> Iterator[tuple[str, str]]:
    """Ids, and names without what they begin with: shells take a colon for the end of a word."""
    for limit in get(f"/v1/limits?limit={_MOST}")["limits"]:
        yield limit["name"].partition(":")[2], limit["name"]
        yield str(limit["limit_id"]), limit["name"]


def _breakers(get: Get, _: str) -> Iterator[tuple[str, str]]:
    return ((one["job_id"] or one["task"], one["state"]) for one in get("/v1/breakers")["breakers"])


def _tokens(get: Get, incomplete: str) -> Iterator[tuple[str, str]]:
    found = get("/v1/tokens")["tokens"]
    yield from _ids(((token["token_id"], f"{token['name']} {token['role']}") for token in found), incomplete)


def _workflows(get: Get, incomplete: str) -> Iterator[tuple[str, str]]:
    from urllib.parse import urlencode

    query = {"q": incomplete, "limit": _MOST} if incomplete else {"limit": _MOST}
    found = get(f"/v1/workflows?{urlencode(query)}")["workflows"]
    yield from _ids(((one["workflow_id"], f"{one['name']} {one['schedule']}") for one in found), incomplete)


def _workflow_runs(get: Get, incomplete: str) -> Iterator[tuple[str, str]]:
    """The runs of workflows. Their task has a reserved name."""
    from urllib.parse import urlencode

    query = urlencode({"task": "mainspring.workflow", "limit": _MOST})
    found = get(f"/v1/runs?{query}")["runs"]
    yield from _ids(((run["run_id"], f"{run['job_id']} {run['status']}") for run in found), incomplete)


jobs = _completer(_jobs)
workflows = _completer(_workflows)
workflow_runs = _completer(_workflow_runs)
runs_and_jobs = _completer(_runs_and_jobs)
dead_letters = _completer(_dead_letters)
workers = _completer(_workers)
tasks = _completer(_tasks)
queues = _completer(_queues)
limits = _completer(_limits)
breakers = _completer(_breakers)
tokens = _completer(_tokens)


def word_option(flag: str, *known: str) -> Any:
    """An option that takes one of these words. Its help lists them."""
    listed = f"{', '.join(known[:-1])} or {known[-1]}."
    return typer.Option(flag, help=listed, autocompletion=words(*known), show_default=False)


def words(*known: str) -> Callable[[str], list[str]]:
    """Completes one of these words."""

    def complete(incomplete: str) -> list[str]:
        return [word for word in known if word.startswith(incomplete.lower())]

    return complete
