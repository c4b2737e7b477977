"""Shows the figures of a benchmark as a table or as JSON, and a progress bar on stderr."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table


def progress() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )


def show(title: str, figures: Mapping[str, object], as_json: bool) -> None:
    if as_json:
        sys.stdout.write(json.dumps(figures) + "\n")
        return
    table = Table(title=title, show_header=False, title_justify="left")
    table.add_column(style="bold")
    table.add_column(justify="right")
    for name, value in figures.items():
        table.add_row(
            name,
            f"{value:,.2f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value),
        )
    Console().print(table)


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that is not exceeded by the fraction `share` of the values."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
