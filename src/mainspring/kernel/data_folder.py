"""Which data folders `up` and `server` of this user have made.

Commands look for a data folder in the working folder and above. A repository can contain one: after a clone it belongs
to the user like all other files there, and it would say which server gets the user's jobs, and which tokens are valid.
So `up` and `server` write a random id into their folder, and record the hash of the id in the state folder of the user.
A folder that was only found is used if its id is recorded. A folder that the user names is not questioned.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path

from mainspring.kernel.config import DEFAULT_DATA_FOLDER
from mainspring.kernel.ownership import ForeignFile, read_own

FOLDER_ID_FILE_NAME = "folder-id"
_IGNORE_FILE_NAME = ".gitignore"  # git must not store the id and the tokens by accident
_ROOT = 0
_KEPT = 30 * 86400.0  # seconds for which the record of a folder that is gone is kept


def found_folder(start: Path | None = None) -> Path | None:
    """The data folder in `start` or above. Default: the working folder."""
    here = Path.cwd() if start is None else start
    for parent in (here, *here.parents):
        folder = parent / DEFAULT_DATA_FOLDER
        if folder.is_dir():
            return folder
    return None


def record_folder(folder: Path) -> None:
    """Record a folder that we made, or that the user has named. Raises OSError if that is not possible."""
    folder = folder.resolve()
    known = _id_of(folder)
    chosen = known or secrets.token_hex(32)
    record = _record_of(chosen)
    record.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _write(record, str(folder))  # first: a folder with an id that is not recorded would be refused
    if known is None:
        _write(folder / FOLDER_ID_FILE_NAME, chosen)
    if not os.path.lexists(folder / _IGNORE_FILE_NAME):
        _write(folder / _IGNORE_FILE_NAME, "*")
    _prune(record)


def is_recorded(folder: Path) -> bool:
    """Whether we have made this folder. Raises ForeignFile if it is a link, or others control it."""
    known = _id_of(folder)
    if known is None:
        return False
    try:
        status = _record_of(known).lstat()
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()


def is_new(folder: Path) -> bool:
    """Whether the folder is missing or empty. A link is neither: it leads elsewhere."""
    try:
        return not os.path.lexists(folder) or (not folder.is_symlink() and not any(folder.iterdir()))
    except OSError:
        return False


def require_recorded(folder: Path) -> None:
    """Raise ForeignFile unless we have made this folder. For an ordinary user a folder of root will do: no clone of the
    user belongs to root."""
    if is_recorded(folder) or folder.lstat().st_uid == _ROOT != os.geteuid():
        return
    raise ForeignFile(
        folder,
        "was only found, and no `mainspring up` or `mainspring server` of yours has recorded it: it may have come with "
        "a repository",
        f"if you trust it, name it: --data {folder} or MAINSPRING_DATA",
    )


def _id_of(folder: Path) -> str | None:
    try:
        content = read_own(folder, FOLDER_ID_FILE_NAME, follow=False)
    except ForeignFile:
        raise
    except OSError:  # we may not read it
        return None
    return None if content is None else content.decode("ascii", "replace").strip() or None


def _record_of(known: str) -> Path:
    state = os.environ.get("XDG_STATE_HOME", "")
    try:
        place = Path(state) if state.startswith("/") else Path.home() / ".local/state"
    except RuntimeError as error:  # this user has no home folder
        raise FileNotFoundError(str(error)) from None
    return place / "mainspring/folders" / hashlib.sha256(known.encode()).hexdigest()


def _prune(newest: Path) -> None:
    """Remove records of folders that are gone. One that was moved a while ago is still known."""
    now = newest.stat().st_mtime
    for record in newest.parent.iterdir():
        with suppress(OSError):
            if now - record.stat().st_mtime > _KEPT and not Path(record.read_text().strip()).exists():
                record.unlink()


def _write(path: Path, text: str) -> None:
    """The file appears with its content, because it can be read at any time."""
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(f"{text}\n")
    draft.replace(path)
