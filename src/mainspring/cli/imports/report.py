"""What an import prints: the job file, what was refused, and how the fires compare."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import typer

from mainspring.cli.exit_codes import FAILURE
from mainspring.cli.imports.libraries import has_library, library_fires
from mainspring.cli.imports.model import Import
from mainspring.cli.imports.verify import compare, differences
from mainspring.cli.job_files.file_writer import job_file_text, with_comments
from mainspring.cli.screen import say, show_output

_ZONES = "/zoneinfo/"


@dataclass(frozen=True, slots=True)
class FoundIn:
    """source: the other scheduler. library: what it works out its fires with, if `python` has it."""

    source: str
    owner: str
    output: str | None
    verify: bool
    library: str | None = None
    python: str = ""


def finish(found: Import, options: FoundIn) -> None:
    """Print the job file, and say what else there is to say."""
    sections = {
        "channels": {name: body for name, (body, _) in found.channels.items()},
        "jobs": {job.id: job.body for job in found.jobs},
    }
    comments = {("channels", name): notes for name, (_, notes) in found.channels.items()}
    comments |= {("jobs", job.id): [f"from {job.source}", *job.notes] for job in found.jobs}
    notes = [f"imported from {options.source}", *found.notes]
    notes += [f"left out: {one.source}: {one.what}: {one.why}" for one in found.refused]
    text = with_comments(job_file_text(options.owner, sections, [" ".join(note.split()) for note in notes]), comments)
    if options.output is None:
        show_output(text, raw=True)
    else:
        Path(options.output).write_text(text, encoding="utf-8")
    for one in found.refused:
        say(f"left out: {one.source}: {one.what}: {one.why}")
    count = "1 job" if len(found.jobs) == 1 else f"{len(found.jobs)} jobs"
    file = options.output or "the file"
    say(f"{count}; nothing is changed until you apply {file}: mainspring apply {options.output or 'FILE'} --plan")
    if options.verify and not _verified(found, options):
        raise typer.Exit(FAILURE)


def _verified(found: Import, options: FoundIn) -> bool:
    from datetime import UTC, datetime

    from mainspring.kernel.clock import SYSTEM_CLOCK

    start = datetime.fromtimestamp(SYSTEM_CLOCK.wall().timestamp() // 60 * 60 + 60, UTC)
    by_library = options.library is not None and has_library(options.python, options.library)
    same = True
    for job in found.jobs:
        fires = job.fires
        if by_library and isinstance(fires, partial) and options.library is not None:
            line, zone = fires.args[:2]
            job.fires = partial(library_fires, options.python, options.library, line, zone)
        compared = compare(job, start)
        if compared is None:
            say(f"{job.id}: not compared, because nothing here works it out as {options.source} does")
            continue
        same &= compared.same
        for line in differences(compared):
            say(line)
    if found.jobs:
        say(f"compared with {options.library if by_library else f'the rules of {options.source}, minute by minute'}")
    return same


def local_zone() -> str:
    """The zone of this machine, as an IANA name."""
    if os.environ.get("TZ"):
        return os.environ["TZ"].lstrip(":")
    target = os.path.realpath("/etc/localtime")
    if _ZONES in target:
        found = target.partition(_ZONES)[2]
        return "UTC" if found in ("Etc/UTC", "UTC", "Universal", "Etc/Universal", "Zulu") else found
    return "UTC"
