"""FEATURES 6.1: every change that the dashboard makes sends If-Match, or is listed here with the reason why not."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mainspring.api.app import app_without_a_server
from mainspring.api.openapi.document import document

SOURCES = Path(__file__).resolve().parents[2] / "dashboard" / "src"
CLIENT = SOURCES / "api" / "client.ts"
METHODS = ("post", "put", "patch", "delete")
_NEW = "it creates something: there is nothing yet that somebody else could change"
_ASKS = "it changes nothing"
_MANY = "many objects have many tags: the count that was confirmed is sent instead (`expected`)"
_MESSAGE = "a message changes by itself while it is sent; a state that does not fit is refused"
_TURN = "it is wanted whatever the sink was before"
_MUTE = "it does not depend on what the rule says"
_PERSON = "it is wanted whatever the person was before: what is shown last holds"
_SECRET = "its value is not seen, so no decision depends on what it was"

# File and address of the calls without If-Match.
WITHOUT = {
    ("api/session.ts", "PATH"): "signing in and out: a session belongs to one browser, and nobody else changes it",
    ("bulk/acts.ts", "`/v1/${target}:act`"): _MANY,
    ("pages/access/AccessPage.tsx", '"/v1/tokens"'): _NEW,
    ("pages/access/Sessions.tsx", "`/v1/sessions/${session.session_id}:end`"): (
        "a session does not change: it is there, or it has ended and the answer is 404"
    ),
    ("pages/approvals/approvals.ts", "`${PATH}/${approval.run_id}:${verb}`"): (
        "a wait ends once: a second decision is refused with 409"
    ),
    ("pages/job-form/JobFormPage.tsx", '"/v1/jobs"'): _NEW,
    ("pages/notifications/Channels.tsx", "`${PATH}/${encodeURIComponent(testing.name)}:test`"): _ASKS,
    ("pages/notifications/History.tsx", "`${PATH}/${one.notification_id}:${kind}`"): _MESSAGE,
    ("pages/notifications/Rules.tsx", "`${path}:mute`"): _MUTE,
    ("pages/notifications/Rules.tsx", "`${path}:unmute`"): _MUTE,
    ("pages/notifications/settings.ts", "path"): _NEW,
    ("pages/notifications/Sinks.tsx", "`${pathOf(testing)}:test`"): _ASKS,
    ("pages/notifications/Sinks.tsx", '`${pathOf(turning)}:${turning.paused ? "resume" : "pause"}`'): _TURN,
    ("pages/secrets/SecretsPage.tsx", "`/v1/secrets/${encodeURIComponent(secret.name)}`"): _SECRET,
    ("pages/secrets/SecretsPage.tsx", "path"): _SECRET,
    ("api/providers.ts", "PATH"): "nobody is signed in yet",
    ("api/providers.ts", "`${PATH}/answer`"): "the answer of a provider works once",
    ("api/invitation.ts", "PATH"): "the code of the link works once",
    ("views/SavedViews.tsx", "pathOf(trimmed)"): _NEW,
    ("pages/people/PeoplePage.tsx", '"/v1/users"'): _NEW,
    ("pages/people/PeoplePage.tsx", "path"): _PERSON,
    ("pages/people/PeoplePage.tsx", "`${path}:reset`"): _NEW,
    ("pages/people/PeoplePage.tsx", "`${path}:role`"): _PERSON,
    ("pages/people/PeoplePage.tsx", "`${path}:${kind}`"): _PERSON,
    ("pages/settings/OwnAccount.tsx", "`${PATH}/tenant`"): "the session of the caller",
    ("pages/settings/OwnAccount.tsx", "`${PATH}/password`"): "the password now is sent, too",
    ("pages/settings/OwnAccount.tsx", "`${PATH}/tokens`"): _NEW,
    ("pages/settings/OwnAccount.tsx", "`${PATH}/tokens/${token.token_id}:revoke`"): "revoked is revoked",
    ("pages/operations/MakeUp.tsx", "`${jobPath(job)}:backfill`"): _NEW,
    ("pages/job-form/problems.ts", '"/v1/jobs:validate"'): _ASKS,
    ("pages/job-form/useExplanation.ts", '"/v1/schedules:explain"'): _ASKS,
    ("pages/workflows/EditDefinition.tsx", '"/v1/workflows:validate"'): _ASKS,
    ("pages/calendars/usePreview.ts", "`/v1/calendars/${encodeURIComponent(name)}:preview`"): _ASKS,
}
# Operations of the API that change something, and do not know If-Match.
OPERATIONS_WITHOUT = {
    "applyFiles": "many objects: the digest of the plan is sent (`expected`)",
    "planFiles": "nothing is changed",
    "previewCalendar": "nothing is changed",
    "exportFiles": "nothing is changed",
    "acknowledgeNotification": _MESSAGE,
    "sendNotification": _MESSAGE,
    "testChannel": "it sends a message, and the channel stays as it is",
    "testSink": "it sends a message, and the sink stays as it is",
    "pauseSink": _TURN,
    "resumeSink": _TURN,
    "takeMessages": "connectors: the stored offset is compared",
    "deleteSource": "what the source has taken by then is forgotten",
    "acceptCallback": "the address works once",
    "muteRule": _MUTE,
    "unmuteRule": _MUTE,
    "putSecret": _SECRET,
    "deleteSecret": _SECRET,
    "rotateKey": "it is the key of the tenant, whatever it was before",
    "inviteUser": _NEW,
    "resetPassword": _NEW,
    "setUserRole": _PERSON,
    "disableUser": _PERSON,
    "enableUser": _PERSON,
    "removeUser": _PERSON,
    "createProviderSignIn": "nobody is signed in yet",
    "acceptProviderAnswer": "the answer of a provider works once",
    "acceptLink": "the code of the link works once",
    "changePassword": "the password now is sent, too",
    "switchTenant": "the session of the caller",
    "createPersonalToken": _NEW,
    "revokePersonalToken": "revoked is revoked",
    "createJob": _NEW,
    "createJobs": _NEW,
    "createWorkflow": _NEW,
    "createBackfill": _NEW,
    "emitEvent": _NEW,
    "emitEvents": _NEW,
    "approveStep": "a wait ends once: a second decision is refused with 409",
    "rejectStep": "a wait ends once: a second decision is refused with 409",
    "createTenant": _NEW,
    "createToken": _NEW,
    "createSession": _NEW,
    "createSignInLink": _NEW,
    "checkJob": _ASKS,
    "checkWorkflow": _ASKS,
    "explainSchedule": _ASKS,
    "previewSchedule": _ASKS,
    "testCondition": _ASKS,
    "actOnJobs": _MANY,
    "actOnRuns": _MANY,
    "actOnDeadLetters": _MANY,
    "replayDeadLetters": _MANY,
    "discardDeadLetters": _MANY,
    "deleteSession": "the session of the caller",
    "endSession": "a session is there or has ended: 404",
    "declareSchedules": "a declaration has a number of its own",
    "exchangeRuns": "workers: the fence of each run is compared",
    "reportDeath": "workers: the secret of the incarnation is compared",
    "shipLogs": "workers: the fence of each run is compared",
}
_CALL = re.compile(r"\b(post|call|send|change)(?:<[\w\[\], |]*>)?\(")
_IMPORT = re.compile(r"import \{([^}]*)\} from \"[./]*api/client\"|import \{([^}]*)\} from \"\./client\"")


def arguments(text: str, start: int) -> list[str]:
    """The arguments of the call whose parenthesis opens before `start`."""
    found, depth, begun, quote = [], 0, start, ""
    for place in range(start, len(text)):
        letter = text[place]
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'`":
            quote = letter
        elif letter in "([{":
            depth += 1
        elif letter in ")]}" and depth:
            depth -= 1
        elif depth == 0 and letter in ",)":
            found.append(text[begun:place].strip())
            begun = place + 1
            if letter == ")":
                return [one for one in found if one]
    raise AssertionError("a call without an end")


def sent() -> Iterator[tuple[str, str, list[str]]]:
    """The file, the function and the arguments of each call to the server."""
    for path in sorted(SOURCES.rglob("*.ts*")):
        text = path.read_text()
        imported = {name.strip() for names in _IMPORT.findall(text) for name in "".join(names).split(",")}
        for found in _CALL.finditer(text):
            if found[1] in imported:
                yield str(path.relative_to(SOURCES)), found[1], arguments(text, found.end())


def test_a_change_names_what_was_seen() -> None:
    changes = [(file, given) for file, name, given in sent() if name == "change"]
    assert len(changes) > 15, "they are found"
    for file, given in changes:
        assert re.fullmatch(r"seen|version|[\w.]+\.(etag|version)", given[2]), (file, given)
    sends = CLIENT.read_text().split("export async function change<T>")[1].split("\n}\n")[0]
    assert '"If-Match": `"${seen}"`' in sends and "seen: Seen" in sends


def test_calls_without_it_are_listed_with_a_reason() -> None:
    found = set()
    for file, name, given in sent():
        if name == "post":
            found.add((file, given[0]))
        elif name in ("call", "send") and given[0] != '"GET"':
            found.add((file, given[1]))
    assert found == set(WITHOUT)


def test_nothing_else_speaks_to_the_server() -> None:
    for path in sorted(SOURCES.rglob("*.ts*")):
        if path != CLIENT:
            others = re.findall(
                r"\bfetch\(|XMLHttpRequest|sendBeacon|EventSource\(|WebSocket|<form[^>]* action=", path.read_text()
            )
            assert others == [], path


@pytest.mark.parametrize("known", [True, False], ids=["those that know it", "the others"])
def test_operations_know_it_or_are_listed_with_a_reason(known: bool) -> None:
    paths: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(document(app_without_a_server())))["paths"]
    changes = [operation for path in paths.values() for method, operation in path.items() if method in METHODS]
    knowing = {
        operation["operationId"]
        for operation in changes
        if any(parameter["name"] == "If-Match" for parameter in operation.get("parameters", []))
    }
    if known:
        for operation in changes:
            assert ("412" in operation["responses"]) is (operation["operationId"] in knowing), operation["operationId"]
    else:
        assert {operation["operationId"] for operation in changes} - knowing == set(OPERATIONS_WITHOUT)
