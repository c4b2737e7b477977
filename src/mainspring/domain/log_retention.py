"""Rules that say how long the output of runs with certain labels is kept."""

from __future__ import annotations

import msgspec

from mainspring.domain.durations import parse_duration
from mainspring.domain.errors import InvalidInput
from mainspring.domain.texts import check_line
from mainspring.wire.fields import LONGEST_KEPT
from mainspring.wire.log_retention import LogRetentionRequest

MOST_RULES = 100
_MOST_LABELS = 20
_LEAST = 3600.0


class KeepRule(msgspec.Struct, frozen=True):
    """As it is stored. SQL reads both fields (advanced_logs)."""

    labels: dict[str, str]
    seconds: float


def read_rules(request: LogRetentionRequest) -> list[KeepRule]:
    """Check a request. Raises InvalidInput that names the field."""
    if len(request.rules) > MOST_RULES:
        raise InvalidInput(f"there are {len(request.rules)} rules", field="rules", expected=f"at most {MOST_RULES}")
    found: list[KeepRule] = []
    for index, rule in enumerate(request.rules):
        field = f"rules[{index}]"
        if not 1 <= len(rule.labels) <= _MOST_LABELS:
            raise InvalidInput(
                f"the rule has {len(rule.labels)} labels", field=f"{field}.labels",
                expected=f"1 to {_MOST_LABELS}", hint="MAINSPRING_HISTORY_DAYS is for the output of all runs",
            )  # fmt: skip
        for name, value in rule.labels.items():
            check_line(name, f"{field}.labels")
            check_line(value, f"{field}.labels.{name}")
        if any(rule.labels == other.labels for other in found):
            raise InvalidInput("an earlier rule has the same labels", field=f"{field}.labels", hint="leave one out")
        seconds = parse_duration(rule.keep_logs, f"{field}.keep_logs", least=_LEAST, most=LONGEST_KEPT)
        found.append(KeepRule(rule.labels, seconds))
    return found
