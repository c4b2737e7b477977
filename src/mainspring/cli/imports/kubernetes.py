"""Reads CronJobs of Kubernetes. The command of the first container becomes a command of a worker."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from mainspring.cli.imports.durations import go_seconds
from mainspring.cli.imports.fields import schedule_of
from mainspring.cli.imports.model import Import, Imported, id_from
from mainspring.cli.imports.wall_times import KUBERNETES, BadLine, line_fires
from mainspring.cli.workflow_file import read_yaml

_OVERLAP = {"Allow": "allow", "Forbid": "skip", "Replace": "cancel_previous"}
_SIX_TRIES = 6
_IMAGE = "image {image}: the command runs on the worker itself, so what the image has must be there"


def read_manifests(text: str, source: str) -> Import:
    found = Import()
    documents = read_yaml(source, text, "a manifest is a mapping: apiVersion, kind, metadata, spec")
    for document, lines in documents:
        for manifest, path in _manifests(document):
            where = f"{source}:{lines.line_of(path)}"
            if manifest.get("kind") != "CronJob":
                found.refuse(where, str(manifest.get("kind", "no kind")), "only CronJobs are imported")
                continue
            _add(found, manifest, where)
    return found


def _manifests(document: dict[str, Any]) -> Iterator[tuple[dict[str, Any], list[str | int]]]:
    if document.get("kind") in ("List", "CronJobList"):
        for index, item in enumerate(document.get("items") or []):
            yield item, ["items", index]
    else:
        yield document, []


def _add(found: Import, manifest: dict[str, Any], where: str) -> None:
    spec, named = _dict(manifest, "spec"), _dict(manifest, "metadata")
    name = id_from(str(named.get("name") or ""))
    schedule, zone = str(spec.get("schedule") or ""), str(spec.get("timeZone") or "UTC")
    notes: list[str] = []
    if schedule.upper().startswith(("TZ=", "CRON_TZ=")):
        place, _, schedule = schedule.partition(" ")
        zone = place.partition("=")[2]
    fires = None
    if schedule.startswith("@every "):
        seconds = go_seconds(schedule.removeprefix("@every "))
        if seconds is None:
            found.refuse(where, name, f"{schedule!r} cannot be read")
            return
        when: dict[str, Any] = {"every": seconds}
    else:
        try:
            when = schedule_of(schedule, zone, KUBERNETES)
        except (BadLine, ValueError) as error:
            found.refuse(where, name, f"its schedule {schedule!r} cannot be read: {error}")
            return
        fires = partial(line_fires, schedule, zone, KUBERNETES)
    job = _dict(spec, "jobTemplate", "spec")
    pod = _dict(job, "template", "spec")
    containers = pod.get("containers") or [{}]
    command = [str(one) for one in (containers[0].get("command") or [])]
    if not command:
        image = containers[0].get("image")
        found.refuse(
            where, name, f"its command is in the image {image}: write it into the manifest, or as a job by hand"
        )
        return
    command += [str(one) for one in containers[0].get("args") or []]
    body: dict[str, Any] = {
        "schedule": when,
        "command": command,
        "overlap": _OVERLAP.get(str(spec.get("concurrencyPolicy")), "allow"),
    }
    deadline = spec.get("startingDeadlineSeconds")
    body["misfire"] = {"policy": "once"} if deadline is None else {"policy": "once", "grace": float(deadline)}
    body["retries"] = int(job.get("backoffLimit", _SIX_TRIES))
    if "activeDeadlineSeconds" in job:
        body["run_timeout"] = float(job["activeDeadlineSeconds"])
    body["timeout"] = body.get("run_timeout", "1d")
    env = {}
    for one in containers[0].get("env") or []:
        if "value" in one:
            env[str(one["name"])] = str(one["value"])
        else:
            notes.append(f"env {one.get('name')} comes from elsewhere in the cluster: give it to the worker")
    if env:
        body["env"] = env
    labels = {str(key): str(value) for key, value in _dict(named, "labels").items()}
    if labels:
        body["labels"] = labels
    notes.append(_IMAGE.format(image=containers[0].get("image")))
    if len(containers) > 1 or pod.get("initContainers"):
        notes.append("it has further containers, which are left out")
    if any("$(" in word for word in command):
        notes.append("$(NAME) in a command is filled in by Kubernetes only: use sh -c and $NAME")
    if spec.get("suspend"):
        notes.append(f"it is suspended: pause it after the file is applied (mainspring job pause {name})")
    many = [what for what in ("parallelism", "completions") if int(job.get(what) or 1) > 1]
    notes += [f"{what} is {job[what]}: here one run is one command" for what in many]
    found.add(Imported(name, body, where, notes, fires))


def _dict(value: Any, *names: str) -> dict[str, Any]:
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}
