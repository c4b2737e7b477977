"""The options of `mainspring backup` and `mainspring restore`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from mainspring.roles.backup.fencing import Settled

BackupsArgument = Annotated[Path, typer.Argument(metavar="DIR", help="The folder of backups.")]
BackupDataOption = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="DIR",
        envvar="MAINSPRING_DATA",
        help="Data folder of `mainspring up`. Default: .mainspring in this folder or a parent.",
        show_default=False,
    ),
]
KeyFileOption = Annotated[
    Path | None,
    typer.Option(
        "--key-file",
        metavar="FILE",
        help="Encrypt with the first key in this file, decrypt with any. `mainspring secret new-key` makes a key.",
        show_default=False,
    ),
]
EveryOption = Annotated[str, typer.Option("--every", metavar="DURATION", help="How often to make a backup.")]
KeepOption = Annotated[int, typer.Option("--keep", metavar="N", min=1, max=10_000, help="How many backups to keep.")]
PostgresBinOption = Annotated[
    Path | None,
    typer.Option(
        "--postgres-bin", metavar="DIR", help="Use the PostgreSQL programs in this folder.", show_default=False
    ),
]


def settled_text(settled: Settled) -> str:
    return (
        f"fenced {settled.workers} workers, took {settled.runs_taken} runs from them; at most once: ended "
        f"{settled.runs_ended} runs, and recorded due fires of {settled.jobs_skipped} jobs as missed"
    )


def data_folder(named: Path | None) -> Path:
    """The data folder that the user means. One that was only found must be ours."""
    from mainspring.domain.errors import NotFound, not_ours
    from mainspring.kernel.data_folder import found_folder, require_recorded
    from mainspring.kernel.ownership import ForeignFile

    if named is not None:
        return named.absolute()
    found = found_folder()
    if found is None:
        raise NotFound("there is no data folder here", hint="name it: --data DIR")
    try:
        require_recorded(found)
    except ForeignFile as error:
        raise not_ours(error) from None
    return found
