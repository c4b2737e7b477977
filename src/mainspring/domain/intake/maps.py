"""Intake of `map`: what the members of a step are."""

from __future__ import annotations

import msgspec

from mainspring.domain.errors import InvalidInput
from mainspring.domain.intake.execution import read_required_labels
from mainspring.domain.texts import shown
from mainspring.domain.workflows.definition import FromStep, StepMap
from mainspring.domain.workflows.references import (
    DEEPEST,
    FROM,
    OF_A_MEMBER,
    PARAMETER,
    is_deeper,
    may_refer,
    read_reference,
)
from mainspring.wire.workflows import MAX_MEMBERS, MapIn

_LARGEST = 2**53  # what every JSON reader takes for a whole number
_count_items = msgspec.json.Decoder(list[msgspec.Raw]).decode


def read_map(given: MapIn) -> StepMap:
    """Raises InvalidInput with a field that begins with `map`."""
    over = bytes(memoryview(given.over)).strip()
    if over == b"null":
        over = b""
    ways = [name for name, is_given in (
        ("over", bool(over)), ("range", given.range is not None), ("workers", given.workers is not None),
    ) if is_given]  # fmt: skip
    if len(ways) != 1:
        raise InvalidInput(
            f"map has {' and '.join(ways)}" if ways else "map does not say over what", field="map",
            expected="exactly one of over, range and workers",
        )  # fmt: skip
    _check_bounds(given)
    found = _over(over) if over else _range(given.range) if given.range is not None else _workers(given.workers or {})
    return msgspec.structs.replace(found, max_parallel=given.max_parallel, max_failures=given.max_failures)


def _check_bounds(given: MapIn) -> None:
    for value, field, least in ((given.max_parallel, "max_parallel", 1), (given.max_failures, "max_failures", 0)):
        if value is not None and not least <= value <= MAX_MEMBERS:
            raise InvalidInput(
                f"{shown(value)} is out of range", field=f"map.{field}", expected=f"{least} to {MAX_MEMBERS:,}"
            )


def _over(over: bytes) -> StepMap:
    wrong = InvalidInput(
        "map.over is neither a list nor a reference", field="map.over",
        expected='a list, {"$from": "step", "path": "rows"} or {"$parameter": "rows"}',
    )  # fmt: skip
    if over[:1] == b"[":
        try:
            items = _count_items(over)
            text = over.decode()
            too_deep = any(map(_is_too_deep, items))
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise InvalidInput(f"the list cannot be decoded: {error}", field="map.over") from None
        if too_deep:
            raise InvalidInput("an item is nested too deeply", field="map.over", expected=f"at most {DEEPEST} levels")
        _check_total(len(items), "map.over")
        if may_refer(text) and (place := next((n for n, item in enumerate(items) if _refers(item)), None)) is not None:
            raise InvalidInput(
                "the items of a list are taken as they are, and this one is a reference", code="invalid_reference",
                field=f"map.over[{place}]", hint="map over one reference, or refer to the value in the payload",
            )  # fmt: skip
        return StepMap(items=text, total=len(items))
    if over[:1] != b"{":
        raise wrong
    try:
        value = msgspec.json.decode(over)
    except (msgspec.DecodeError, RecursionError):
        raise wrong from None
    if FROM not in value and PARAMETER not in value:
        raise wrong
    reference = read_reference(value, "map.over")
    if reference.kind == PARAMETER:
        return StepMap(parameter=reference.of)
    return StepMap(source=FromStep(reference.of, reference.path))


def _is_too_deep(item: msgspec.Raw) -> bool:
    """A short item cannot be: there may be a million of them."""
    raw = memoryview(item)
    return len(raw) > 2 * DEEPEST and is_deeper(msgspec.json.decode(raw))


def _refers(item: msgspec.Raw) -> bool:
    """Whether an item is a reference. What is inside of it is data."""
    if bytes(memoryview(item)[:1]) != b"{":
        return False
    names = msgspec.json.decode(item).keys()
    return any(name in names for name in (FROM, PARAMETER, *OF_A_MEMBER))


def _range(given: int | list[int]) -> StepMap:
    bounds = [0, given] if isinstance(given, int) else given
    if not 2 <= len(bounds) <= 3 or (len(bounds) == 3 and bounds[2] == 0) or max(map(abs, bounds)) > _LARGEST:
        raise InvalidInput(
            f"{shown(given)} is not a range", field="map.range",
            expected="a number, [start, stop] or [start, stop, step] with a step that is not 0",
        )  # fmt: skip
    start, stop, step = bounds if len(bounds) == 3 else [*bounds, 1]
    _check_total(len(range(start, stop, step)), "map.range")
    return StepMap(range=(start, stop, step))


def _workers(labels: dict[str, str]) -> StepMap:
    if wrong := [name for name in labels if name.startswith("$")]:
        raise InvalidInput(
            "map.workers takes labels and no references", code="invalid_reference", field=f"map.workers.{wrong[0]}",
            expected='labels of workers, such as {"zone": "eu"}',
        )  # fmt: skip
    try:
        read_required_labels(labels)
    except InvalidInput as error:
        error.field = "map.workers"
        raise
    return StepMap(workers=labels)


def _check_total(total: int, field: str) -> None:
    if total > MAX_MEMBERS:
        raise InvalidInput(f"the map has {total:,} members", field=field, expected=f"at most {MAX_MEMBERS:,}")
