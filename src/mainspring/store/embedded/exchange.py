"""The exchange of a data folder's database for its conversion to another major version of PostgreSQL.

The conversion gets the name `postgres.upgraded` when all of it is on the disk. From then on it counts: the old database
becomes `postgres-MAJOR`, which is kept, and the new one `postgres`. The next start finishes what was interrupted.
"""

from __future__ import annotations

from pathlib import Path

from mainspring.kernel.config import POSTGRES_FOLDER_NAME
from mainspring.kernel.private_files import sync_folder

UPGRADED_FOLDER_NAME = "postgres.upgraded"


def kept_folder(folder: Path, major: int | str) -> Path:
    """Where the database of this version is kept."""
    return folder / f"{POSTGRES_FOLDER_NAME}-{major}"


def finish_exchange(folder: Path) -> None:
    """Exchange the databases if the new one is complete. The caller holds the lock of the folder."""
    new, data = folder / UPGRADED_FOLDER_NAME, folder / POSTGRES_FOLDER_NAME
    if not (new / "PG_VERSION").exists():
        return
    if data.exists():
        data.rename(kept_folder(folder, (data / "PG_VERSION").read_text(encoding="ascii").strip()))
        sync_folder(folder)
    new.rename(data)
    sync_folder(folder)
