"""Calls for job files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mainspring.sdk.client.core import Call, encode, json_of
from mainspring.wire.files import ExportAnswer, FilesAnswer

_answer = json_of(FilesAnswer)
_exported = json_of(ExportAnswer)


def plan_files(
    owner: str, objects: Sequence[Mapping[str, Any]], *, prune: bool = False, take_over: bool = False
) -> Call[FilesAnswer]:
    """Say what `apply_files` would change. An object has `kind`, `id`, `body` and perhaps `source`. Nothing is
    changed."""
    body = {"owner": owner, "objects": list(objects), "prune": prune, "take_over": take_over}
    return Call("POST", "/v1/files:plan", _answer, body=encode(body))


def apply_files(
    owner: str,
    objects: Sequence[Mapping[str, Any]],
    *,
    prune: bool = False,
    take_over: bool = False,
    expected: str | None = None,
) -> Call[FilesAnswer]:
    """Create and change what differs, all or nothing. `prune`: remove what the owner had and the files no longer have.
    `take_over`: also what other files own. `expected`: the digest of the plan that was confirmed."""
    body = {"owner": owner, "objects": list(objects), "prune": prune, "take_over": take_over, "expected": expected}
    return Call("POST", "/v1/files:apply", _answer, body=encode(body))


def export_files(
    kind: str, *, owner: str | None = None, limit: int = 500, cursor: str | None = None
) -> Call[ExportAnswer]:
    """One page of what there is of a kind, as files say it. `owner`: only what these files own."""
    body = {"kind": kind, "owner": owner, "limit": limit, "cursor": cursor}
    return Call("POST", "/v1/files:export", _exported, body=encode(body))
