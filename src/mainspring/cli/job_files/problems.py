"""What a server refuses about files, with the file and the line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from mainspring.cli.job_files.file_reader import JobFiles

if TYPE_CHECKING:
    from mainspring.domain.errors import InvalidBatch, InvalidInput

_FIELD = re.compile(r"objects\[\d+\]\.?")
_PART = re.compile(r"\[(\d+)\]|([^.\[\]]+)")


def problem_lines(error: InvalidBatch, files: JobFiles) -> Iterator[str]:
    """`jobs.yaml:12: jobs.invoices.schedule.cron: ...`, one line for each problem."""
    for problem in error.errors:
        if problem.index is None or problem.index >= len(files.entries):
            yield problem.detail
            continue
        entry = files.entries[problem.index]
        field = _FIELD.sub("", problem.field, count=1)
        path = [int(index) if index else name for index, name in _PART.findall(field)]
        where = ".".join([entry.kind, entry.id, *([field] if field else [])])
        hint = f" ({problem.hint})" if problem.hint else ""
        yield f"{entry.part.file}:{entry.line(path)}: {where}: {problem.detail}{hint}"


def in_files(error: InvalidBatch, files: JobFiles) -> InvalidInput:
    """The error for people. The lines of `problem_lines` are printed before it."""
    from mainspring.domain.errors import InvalidInput

    count = "1 problem" if len(error.errors) == 1 else f"{len(error.errors)} problems"
    return InvalidInput(f"{count}, and nothing was changed", code=error.code)
