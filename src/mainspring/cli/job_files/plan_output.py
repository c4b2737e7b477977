"""What the application of files changes, for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mainspring.wire.files import FileChange, FilesAnswer

_MARKS = {"create": "+", "change": "~", "adopt": "=", "remove": "-"}
_PLANNED = {"create": "to create", "change": "to change", "adopt": "to adopt", "remove": "to remove"}
_DONE = {"create": "created", "change": "changed", "adopt": "adopted", "remove": "removed"}
_LONGEST = 200
_SHOWN_RUNS = 5


def differs(answer: FilesAnswer) -> bool:
    return any(change.action != "unchanged" for change in answer.changes)


def plan_lines(answer: FilesAnswer) -> Iterator[str]:
    """The lines of a plan, or of what was done."""
    from mainspring.wire.files import FILE_KINDS

    for change in answer.changes:
        if change.action in _MARKS:
            yield f"{_MARKS[change.action]} {FILE_KINDS[change.kind].noun} {change.id}{_note(change, answer.owner)}"
            for one in change.fields:
                yield from _field_lines(one.field, one.before, one.after)
    for change in answer.left:
        noun = FILE_KINDS[change.kind].noun
        yield f"! {noun} {change.id} is no longer in the files; --prune removes it"
    yield summary(answer)


def _note(change: FileChange, owner: str) -> str:
    found = "" if change.previous_owner is None else f"  taken over from {change.previous_owner}"
    if change.action == "adopt" and change.previous_owner is None:
        found = f"  owned by {owner} from now on"
    if change.live_runs:
        runs = change.live_runs
        more = f" and {len(runs) - _SHOWN_RUNS} more" if len(runs) > _SHOWN_RUNS else ""
        count = "1 live run" if len(runs) == 1 else f"{len(runs)} live runs"
        found += f"  cancels {count}: {', '.join(runs[:_SHOWN_RUNS])}{more}"
    return found


def summary(answer: FilesAnswer) -> str:
    counts = Counter(change.action for change in answer.changes)
    words = _DONE if answer.applied else _PLANNED
    parts = [f"{counts[action]} {word}" for action, word in words.items() if counts[action]]
    if counts["unchanged"] or not parts:
        parts.append(f"{counts['unchanged']} unchanged")
    return ", ".join(parts)


def _field_lines(name: str, before: Any, after: Any) -> Iterator[str]:
    """Members of objects that differ have a line each."""
    if isinstance(before, dict) and isinstance(after, dict):
        for member in dict.fromkeys([*before, *after]):
            if before.get(member) != after.get(member):
                yield from _field_lines(f"{name}.{member}", before.get(member), after.get(member))
        return
    if _named(before) and _named(after):
        yield from _list_lines(name, before, after)
        return
    yield f"    {name}: {_shown(before)} -> {_shown(after)}"


def _named(value: Any) -> bool:
    """Whether it is a list of objects with names, such as steps."""
    return isinstance(value, list) and bool(value) and all(isinstance(one, dict) and "name" in one for one in value)


def _list_lines(name: str, before: Sequence[Any], after: Sequence[Any]) -> Iterator[str]:
    old, new = ({one["name"]: one for one in items} for items in (before, after))
    for key in dict.fromkeys([*old, *new]):
        if key not in new:
            yield f"    - {name}.{key}"
        elif key not in old:
            yield f"    + {name}.{key}"
        else:
            yield from _field_lines(f"{name}.{key}", old[key], new[key])
    if [*old] != [*new] and {*old} == {*new}:
        yield f"    {name}: in another order"


def _shown(value: Any) -> str:
    import json

    if value is None:
        return "none"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
