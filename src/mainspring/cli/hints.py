"""Hints of the server in the language of the command line: `POST /v1/jobs/x:resume` becomes `mainspring job resume x`.

The command follows from the route: a noun, and a verb that the noun has. `OTHER_COMMANDS` has the routes whose command
has another name. tests/cli/test_hints.py asks for every route of the server, and translates every text of it that names
one.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from urllib.parse import parse_qsl, unquote

from mainspring.cli.commands import NOUNS, load_noun

# {} is an id.
OTHER_COMMANDS = {
    "POST /v1/jobs": "submit",
    "GET /v1/jobs/{}/status": "job show {}",
    "GET /v1/jobs/{}/runs": "run list --job {}",
    "GET /v1/jobs/{}/upcoming": "job show {}",
    "GET /v1/jobs/{}/why": "run why {}",
    "POST /v1/jobs/{}:backfill": "backfill create {}",
    "POST /v1/jobs:act": "act",
    "POST /v1/runs:act": "act",
    "POST /v1/dead-letters:act": "act",
    "GET /v1/runs/{}/logs/range": "run logs {} --tail 100",
    "GET /v1/runs/{}/logs/search": "run logs {} --grep TEXT",
    "GET /v1/logs": "logs --search TEXT",
    "GET /v1/insights/overview": "status",
    "GET /v1/insights/failures": "failures",
    "GET /v1/insights/failures/{}": "failures",
    "GET /v1/insights/jobs": "job list",
    "GET /v1/insights/scaling": "queue scaling",
    "GET /v1/insights/upcoming": "schedule upcoming",
    "GET /v1/insights/heatmap": "schedule heatmap",
    "POST /v1/schedules:explain": "schedule preview",
    "POST /v1/calendars/{}:preview": "calendar set {} --preview",
    "GET /v1/tenant/limits": "tenant show",
    "PUT /v1/tenant/limits": "tenant set",
    "GET /v1/tenant/log-retention": "tenant logs",
    "PUT /v1/tenant/log-retention": "tenant logs",
    "PUT /v1/tenants/{}/quotas": "tenant quotas {}",
    "GET /v1/tenants/{}/usage": "tenant quotas {}",
    "POST /v1/pause": "tenant pause",
    "POST /v1/resume": "tenant resume",
    "GET /v1/workers/{}": "worker list",
    "POST /v1/workflows": "workflow apply",
    "POST /v1/workflows:validate": "workflow check",
    "PATCH /v1/workflows/{}": "workflow apply",
    "PUT /v1/workflows/{}": "workflow apply",
    "GET /v1/workflow-runs/{}": "workflow watch {}",
    "GET /v1/workflow-runs/{}/steps": "workflow steps {}",
    "POST /v1/workflow-runs/{}:cancel": "workflow cancel {}",
    "POST /v1/workflow-runs/{}:rerun": "workflow rerun {}",
    "POST /v1/session/links": "open",
    "POST /v1/users": "user invite",
    "DELETE /v1/users/{}": "user remove {}",
    "GET /v1/audit": "audit list",
    "GET /v1/audit/chain": "audit verify",
    "POST /v1/secrets:rotateKey": "secret rotate-key",
    "POST /v1/events": "event emit",
    "GET /v1/sources/{}/dead-messages": "source dead {}",
    "POST /v1/files:plan": "apply --plan",
    "POST /v1/files:apply": "apply",
    "POST /v1/files:export": "export",
}
_NOUNS = {f"{noun}s": noun for noun in NOUNS}
_ROUTE = re.compile(r"/v1/([a-z-]+)(/\{\})?(?:([:/])([A-Za-z-]+))?")
# What a method does to a whole list, and to one thing. The noun has one of these verbs.
_TO_A_LIST = {"GET": ("list",), "POST": ("add",)}
_TO_ONE = {"GET": ("show",), "PUT": ("set", "edit"), "PATCH": ("set", "edit"), "DELETE": ("delete", "cancel")}
_VERB_NAMES = {"runNow": "run"}


def command_of(method: str, route: str) -> str | None:
    """The command that does the same as a call of the route, with {} for the id. None if no command does."""
    if (command := OTHER_COMMANDS.get(f"{method} {route}")) is not None:
        return command
    found = _ROUTE.fullmatch(route)
    if found is None or found[1] not in _NOUNS:
        return None
    noun, of_one, mark, name = _NOUNS[found[1]], found[2], found[3], found[4]
    verbs: tuple[str, ...] = (_TO_ONE if of_one else _TO_A_LIST).get(method, ())
    if mark == "/" and not of_one:
        return None  # the name is an id
    if mark is not None:
        verbs = (_VERB_NAMES.get(name, name),) if (method, mark) in (("POST", ":"), ("GET", "/")) else ()
    known = {verb.name for verb in load_noun(noun).listed}
    verb = next((one for one in verbs if one in known), None)
    return None if verb is None else f"{noun} {verb}{' {}' if of_one else ''}"


TOKEN_HINT = "give --token-file, set MAINSPRING_TOKEN, or run the command in the folder of `mainspring up`"
# What a request or a response calls differently than the command line.
_PHRASES = {
    "take it from `next` or the Link header": "take it from the last line of the list before",
    'set "method": "POST"': "give --method POST",
    "runs that overlap have no order; set the limit to 1 or leave out the order": (
        "runs that overlap have no order; give --concurrency 1, or leave out --strict"
    ),
    'give delay ("delay": "30s") or schedule_time, or use keep or replace': (
        "give --in 30s or --at, or use keep or replace"
    ),
    "false removes the limits of a job": "--concurrency none removes the limits of a job",
    "false removes the rates of a job": "--rate none removes the rates of a job",
    'for a fire now: "schedule": "now", or :runNow': "for a run now: `mainspring job run`",
    "a server elsewhere is named by url= or MAINSPRING_URL": "a server elsewhere is named by --url or MAINSPRING_URL",
    "send 'Authorization: Bearer <token>'; the file admin-token in the data folder contains one": TOKEN_HINT,
}
_WORDS = (
    (re.compile(r"`(job|task|queue|error|since|until|limit|cursor|status|label|owner)`"), r"--\1"),
    (re.compile(r"(?<!, )\bPATCH\b(?! /)"), "`mainspring job edit`"),
    (re.compile(r"\banother job_id\b"), "another --job-id"),
    (re.compile(r'\{"all": true\}'), "--all"),
)
_CALL = re.compile(r"`?\b(GET|POST|PUT|PATCH|DELETE) (/[^\s,;)`']*[^\s,;.)`'])`?")
_VERB = re.compile(r"(?<![\w/}:]):([a-z]+[A-Za-z]*)\b")


def in_commands(hint: str) -> str:
    """The hint with commands and options instead of calls and parameters."""
    text = hint
    for phrase, words in _PHRASES.items():
        text = text.replace(phrase, words)
    text = _CALL.sub(lambda found: _command(found[1], found[2]) or found[0], text)
    text = _VERB.sub(lambda found: _command_of_verb(found[1]) or found[0], text)
    for pattern, replacement in _WORDS:
        text = pattern.sub(replacement, text)
    return text


def _command(method: str, address: str) -> str | None:
    """The command for a call, None if there is none."""
    path, _, query = address.partition("?")
    for route, argument in _routes(path):
        if (command := command_of(method, route)) is not None:
            options = "".join(f" --{name} {shlex.quote(value)}" for name, value in parse_qsl(query))
            return f"`mainspring {command.format(_argument(argument))}{options}`"
    return None


def _routes(path: str) -> Iterator[tuple[str, str]]:
    """The routes that the path may mean, and the id in it: the path itself, or with an id as its third part."""
    yield path, ""
    if found := re.fullmatch(r"(/v1/[a-z-]+/)([^/:]+)((?:[/:].+)?)", path):
        yield f"{found[1]}{{}}{found[3]}", found[2]


def _command_of_verb(verb: str) -> str | None:
    """The command for `:verb` alone: about a run if runs have this verb, then about a job, then about others. `:reset`
    is about a breaker: no route resets a limit."""
    for nouns in ("runs", "jobs", "breakers", "files", *_NOUNS, "workflow-runs"):
        for route in (f"/v1/{nouns}/{{}}:{verb}", f"/v1/{nouns}:{verb}"):
            if (command := command_of("POST", route)) is not None:
                return f"`mainspring {command.removesuffix(' {}')}`"
    return None


def _argument(text: str) -> str:
    """The id for a shell. A placeholder such as {job_id} becomes JOB_ID."""
    if re.fullmatch(r"[{<]\w+[}>]", text):
        return text[1:-1].upper()
    return shlex.quote(unquote(text))
