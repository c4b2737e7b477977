"""Reads crontabs: those of users, and those of the system, which name a user in each line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Any

from mainspring.cli.imports.model import Import, Imported, id_from
from mainspring.cli.imports.wall_times import ALIASES, DEBIAN, BadLine, line_fires, values_of

_VARIABLE = re.compile(r"""\s*(?:"([^"]+)"|'([^']+)'|([A-Za-z_][A-Za-z0-9_]*))\s*=\s*(.*)""")
_PERCENT = re.compile(r"(?<!\\)%")
_HERE = "END_OF_INPUT"
_SHELLS = ("/bin/sh", "sh", "")
_BEFORE = ("cd", "test", "[", "if")  # what comes before the program, with its arguments
_AROUND = ("sudo", "nice", "exec", "env", "then")
AS_CRON = {"overlap": "allow", "misfire": {"policy": "skip"}, "retries": 0, "timeout": "1d"}
AS_CRON_NOTE = (
    "overlap, misfire, retries and timeout are as cron has them: runs may overlap, late ones are not made up, failed "
    "ones are not repeated. Leave these lines out to get the defaults of Mainspring."
)
_MAIL_NOTES = (
    "cron mails all output; this channel is told of failures, and the output is kept with each run",
    "host: the mail server as the servers of Mainspring reach it; they must be allowed to call it (notify_allow)",
)
_NO_ZONE = "times are in {zone}, the zone of this machine; give --timezone if the crontab is from another one"


def read_crontab(text: str, source: str, *, zone: str, found_zone: bool, system: bool) -> Import:
    """system: each line names a user before the command."""
    found = Import(notes=[AS_CRON_NOTE])
    if found_zone:
        found.notes.append(_NO_ZONE.format(zone=zone))
    variables: dict[str, str] = {}
    comment: str | None = None
    for number, raw in enumerate(text.splitlines(), 1):
        line, where = raw.strip(), f"{source}:{number}"
        if not line or line.startswith("#"):
            comment = line.lstrip("# ").strip() or None if line else None
            continue
        if (variable := _VARIABLE.fullmatch(raw)) is not None:
            name = variable[1] or variable[2] or variable[3]
            variables[name] = _value(variable[4])
            continue
        _add_line(found, line, where, variables, comment, zone=zone, system=system)
        comment = None
    return found


def _value(text: str) -> str:
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
        return text[1:-1]
    return text


def _add_line(
    found: Import, line: str, where: str, variables: Mapping[str, str], comment: str | None, *, zone: str, system: bool
) -> None:
    count = 1 if line.startswith("@") else 5
    words = line.split(None, count + system)
    if len(words) < count + system + 1:
        found.refuse(where, line, "the line has no command" if len(words) > count else "it does not have five fields")
        return
    schedule, command = " ".join(words[:count]), words[-1]
    if schedule.lower() == "@reboot":
        found.refuse(where, line, "@reboot is about the start of a machine: use a unit of systemd")
        return
    if (why := _wrong(schedule)) is not None:
        found.refuse(where, line, why)
        return
    user = words[count] if system else None
    place = variables.get("CRON_TZ", zone)
    body, notes = _body(command, variables, user)
    if variables.get("MAILTO", "").strip():
        body["notify"] = [{"on": ["failure"], "to": [_mail(found, variables)]}]
    if "CRON_TZ" in variables:
        notes.append("CRON_TZ counts here, as in cronie; Debian's cron ignores it")
    when = {"cron": schedule} if place == "UTC" else {"cron": schedule, "timezone": place}
    body = {"schedule": when, **({"description": comment} if comment else {}), **body, **AS_CRON}
    job_id = id_from(_program(command))
    found.add(Imported(job_id, body, where, notes, partial(line_fires, schedule, place, DEBIAN)))


def _wrong(schedule: str) -> str | None:
    """Why cron would not take the schedule."""
    if schedule.startswith("@"):
        return None if schedule.lower() in ALIASES else f"{schedule} is unknown"
    try:
        for index, field in enumerate(schedule.lower().split()):
            if "?" in field or re.search(r"(?:^|,)\d+/", field):
                raise BadLine(f"{field!r} is not a field of cron")
            values_of(index, field)
    except BadLine as error:
        return str(error)
    return None


def _body(command: str, variables: Mapping[str, str], user: str | None) -> tuple[dict[str, Any], list[str]]:
    notes: list[str] = []
    program, *data = (part.replace("\\%", "%") for part in _PERCENT.split(command))
    text = program.strip()
    if data:  # the first % ends the command, and what follows is its input
        text = f"{{ {text}\n}} <<'{_HERE}'\n" + "\n".join(data) + f"\n{_HERE}"
    shell = variables.get("SHELL", "")
    body: dict[str, Any] = {"command": text if shell in _SHELLS else [shell, "-c", text]}
    env = {name: value for name, value in variables.items() if name not in ("SHELL", "MAILTO", "MAILFROM", "CRON_TZ")}
    if env:
        body["env"] = env
    if user is not None:
        body["run_as"] = user
        notes.append(f"the worker must allow the user: --run-as-allow {user}")
    if "HOME" in variables:
        notes.append("cron starts the command in HOME; here it starts in a folder of its own")
    return body, notes


def _mail(found: Import, variables: Mapping[str, str]) -> str:
    """The channel that stands for MAILTO. Returns its name."""
    to = [one if "@" in one else f"{one}@localhost" for one in variables["MAILTO"].replace(",", " ").split()]
    sender = variables.get("MAILFROM") or "cron@localhost"
    body = {"kind": "mail", "host": "localhost", "port": 25, "tls": "none", "from": sender, "to": to}
    name, number = id_from("-".join(["mail", *to])), 2
    while name in found.channels and found.channels[name][0] != body:
        name, number = f"{id_from('-'.join(['mail', *to]))}-{number}", number + 1
    found.channels[name] = body, [f"MAILTO={variables['MAILTO']}", *_MAIL_NOTES]
    return name


def _program(command: str) -> str:
    """The name of the program in a command, for the id."""
    for part in re.split(r"&&|\|\||;", _PERCENT.split(command)[0]):
        words = [word for word in part.split() if "=" not in word.partition("/")[0]]
        if not words or words[0] in _BEFORE:
            continue
        for word in words:
            name = word.rpartition("/")[2]
            if word not in _AROUND and name and name[0].isalnum():
                return name
    return command
