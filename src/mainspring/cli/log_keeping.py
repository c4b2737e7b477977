"""How long output is kept by label: shown, and changed rule by rule."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainspring.cli.screen import show_json, show_rows
from mainspring.cli.table import Column

if TYPE_CHECKING:
    from mainspring.sdk.client.client import Client
    from mainspring.wire.log_retention import LogRetentionView

_COLUMNS = (Column("LABELS", least=12), Column("KEPT"))
NONE = "none"


def rule_given(labels: list[str] | None, keep: str | None) -> tuple[dict[str, str], str] | None:
    """The rule of --label and --keep. None if it has neither."""
    from mainspring.cli.option_values import pairs_of
    from mainspring.domain.errors import InvalidInput

    if not labels and keep is None:
        return None
    if not labels:
        raise InvalidInput("--keep is about a label", field="label", hint="give --label K=V")
    if keep is None:
        raise InvalidInput("--label needs a time", field="keep", hint="give --keep 1y, or --keep none")
    return pairs_of(labels, "label") or {}, keep


def keep_logs(client: Client, labels: dict[str, str], keep: str) -> LogRetentionView:
    """Set the rule of these labels, or remove it (`none`). The other rules stay."""
    view = client.log_retention()
    rules: list[dict[str, Any]] = [
        {"labels": rule.labels, "keep_logs": rule.keep_logs} for rule in view.rules if rule.labels != labels
    ]
    if keep.strip().lower() != NONE:
        rules.append({"labels": labels, "keep_logs": keep})
    return client.set_log_retention(rules, if_version=view.version)


def show_retention(view: LogRetentionView, *, as_json: bool) -> None:
    from mainspring.domain.durations import format_duration

    if as_json:
        show_json(view)
        return
    show_rows(
        _COLUMNS,
        [
            (" ".join(f"{name}={value}" for name, value in rule.labels.items()), format_duration(rule.keep_logs))
            for rule in view.rules
        ],
        nothing="no rules by label: output is kept as long as its job says, or as the history",
    )
