"""The embedded PostgreSQL's data for another major version, by pg_upgrade.

The old data is copied into a draft, and the copy is converted there by hard links. The old data itself is not changed:
it is kept as `postgres-MAJOR`. Until the exchange (store/embedded/exchange.py) a kill leaves only a draft, which the
next try removes; after that the next start of anything finishes it.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from mainspring.domain.errors import Conflict, InvalidInput, NotFound, Unavailable
from mainspring.kernel.private_files import sync_folder, write_privately
from mainspring.roles.backup.archive_id import end_archive
from mainspring.roles.backup.base_backup import require_room
from mainspring.store.embedded import POLL_SECONDS, EmbeddedPostgres
from mainspring.store.embedded.access import HBA, replace_file
from mainspring.store.embedded.binaries import binary_major, wheel_bin_folder_of
from mainspring.store.embedded.exchange import UPGRADED_FOLDER_NAME, finish_exchange, kept_folder
from mainspring.store.embedded.programs import Programs
from mainspring.store.embedded.server import end_orphan

_DRAFT = ".postgres.upgrading"
_TRUSTED = "# During pg_upgrade, in a folder that only its account can enter.\nlocal all all trust\n"
_CHECKSUMS = re.compile(r"^Data page checksum version:\s+(\d+)$", re.MULTILINE)
_SEGMENT = re.compile(r"^Bytes per WAL segment:\s+(\d+)$", re.MULTILINE)
_HAS_CHECKSUMS = 18  # from this version on initdb switches them on by itself
_TUNED: Mapping[str, str] = MappingProxyType({})
_MARGIN = 512 * 1024 * 1024
_MOST_SAID = 2000
# The copy's own settings may name programs or libraries, and none is needed.
_SETTINGS = {"postgresql.conf": "", "postgresql.auto.conf": "", "pg_ident.conf": "", "pg_hba.conf": _TRUSTED}


@dataclass(frozen=True, slots=True)
class Upgraded:
    """`kept`: where the old data is. None if there was nothing to do."""

    before: int
    now: int
    kept: Path | None
    seconds: float


def upgrade_database(
    folder: Path, *, old_bin: Path | None = None, new_bin: Path | None = None, settings: Mapping[str, str] = _TUNED
) -> Upgraded:
    """Convert the data of a folder on which no Mainspring runs. Errors change nothing. `settings` override those of the
    embedded PostgreSQL."""
    began = time.monotonic()
    write_privately()
    new = EmbeddedPostgres(folder, bin_folder=new_bin, settings=settings)
    version = new.data / "PG_VERSION"
    if not version.exists() and not (new.folder / UPGRADED_FOLDER_NAME).exists():
        raise NotFound(f"{folder} has no embedded PostgreSQL", hint="name the data folder: --data DIR")
    new.lock.acquire()
    try:
        finish_exchange(new.folder)
        before, now = int(version.read_text(encoding="ascii")), binary_major(new.programs.bin_folder)
        if before == now:
            return Upgraded(before, now, None, time.monotonic() - began)
        if before > now:
            raise Conflict(f"{new.data} belongs to PostgreSQL {before}, and {now} is older", code="postgres_major")
        kept = kept_folder(new.folder, before)
        if kept.exists():
            raise Conflict(f"{kept} exists: the old data could not be kept there", code="upgrade_target_exists")
        draft = new.folder / _DRAFT
        _remove(draft)
        try:
            old = EmbeddedPostgres(new.folder, bin_folder=_programs_of(before, old_bin), settings=settings)
            _convert(new, old, draft)
            end_archive(new.folder)  # the WAL begins anew
            (draft / "new").rename(new.folder / UPGRADED_FOLDER_NAME)
            sync_folder(new.folder)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        finish_exchange(new.folder)
        return Upgraded(before, now, kept, time.monotonic() - began)
    finally:
        new.stop()


def _remove(draft: Path) -> None:
    """What a killed conversion has left, and the server that it had started on it."""
    for data in (draft / "old", draft / "new"):
        for _ in end_orphan(data):
            time.sleep(POLL_SECONDS)
    if draft.exists():
        shutil.rmtree(draft)


def _programs_of(major: int, named: Path | None) -> Path:
    """The programs of the old version."""
    found = named or wheel_bin_folder_of(major)
    if found is None:
        raise Unavailable(
            f"the programs of PostgreSQL {major} are needed, and the wheel does not have them", code="no_postgres",
            hint="name their folder: --old-postgres-bin DIR",
        )  # fmt: skip
    if binary_major(found) != major:
        raise InvalidInput(f"{found} has another PostgreSQL than {major}", field="old_postgres_bin")
    return found


def _convert(new: EmbeddedPostgres, old: EmbeddedPostgres, draft: Path) -> None:
    """The new data becomes `new` in the draft."""
    if not old.access.is_set_up():
        raise Conflict(
            f"{new.folder} is from a version of Mainspring that did not protect its superuser",
            code="postgres_access", hint="start `mainspring up` once with --postgres-bin and the old programs",
        )  # fmt: skip
    with closing(old.resting()) as steps:
        for _ in steps:
            time.sleep(POLL_SECONDS)
    if any((old.data / "pg_tblspc").iterdir()):
        raise Conflict(f"{old.data} has tablespaces, which are not converted", code="postgres_tablespaces")
    require_room(new.folder, 2 * _size(old.data) + _MARGIN, "the conversion")
    programs, of_old = new.account_programs(), old.account_programs()
    draft.mkdir(mode=0o700)
    shutil.copytree(old.data, draft / "old", symlinks=True)
    for name, text in _SETTINGS.items():
        _replace(draft / "old" / name, text)
    if programs.account is not None:
        programs.account.own(draft)
    new.initialise_in(draft / "new", *_options_of(of_old, draft / "old", binary_major(programs.bin_folder)))
    _replace(draft / "new" / "pg_hba.conf", _TRUSTED)
    _run_upgrade(programs, of_old, draft)
    replace_file(draft / "new" / "pg_hba.conf", HBA)


def _replace(file: Path, text: str) -> None:
    """The copy is of files that another account may have written: a link is not followed."""
    file.unlink(missing_ok=True)
    replace_file(file, text)


def _size(folder: Path) -> int:
    return sum((Path(place) / name).lstat().st_size for place, _, files in os.walk(folder) for name in files)


def _options_of(programs: Programs, data: Path, major: int) -> list[str]:
    """What initdb has to do as it was done for the old data."""
    said = programs.run("pg_controldata", ["--pgdata", programs.path_of(data)], data)
    checksums, segment = _CHECKSUMS.search(said), _SEGMENT.search(said)
    if checksums is None or segment is None:
        raise Unavailable(f"pg_controldata does not say how the data is stored: {said}", code="upgrade_failed")
    options = [f"--wal-segsize={int(segment[1]) // 1024**2}"]
    if int(checksums[1]):
        options.append("--data-checksums")
    elif major >= _HAS_CHECKSUMS:
        options.append("--no-data-checksums")
    return options


def _run_upgrade(programs: Programs, old: Programs, draft: Path) -> None:
    """As another account the programs often cannot pass through the folders above: they reach the draft as the working
    directory of pg_upgrade, by its process id, which a shell knows before it becomes pg_upgrade."""
    here = "/proc/$$/cwd" if programs.account is not None else shlex.quote(str(draft))
    sockets = Path(tempfile.mkdtemp(prefix="mainspring-upgrade-", dir="/tmp"))
    try:
        if programs.account is not None:
            programs.account.own(sockets)
        words = [
            shlex.quote(str(programs.bin_folder / "pg_upgrade")), "--link", "--username=postgres",
            f"--socketdir={shlex.quote(str(sockets))}",
            f"--old-bindir={shlex.quote(str(old.bin_folder))}", f"--new-bindir={shlex.quote(str(programs.bin_folder))}",
            f"--old-datadir={here}/old", f"--new-datadir={here}/new",
            *(["--no-sync"] if programs.fsync == "off" else []),
        ]  # fmt: skip
        process = programs.start_shell(
            f"exec {' '.join(words)}", draft, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        said, _ = process.communicate()
    finally:
        shutil.rmtree(sockets, ignore_errors=True)
    if process.returncode != 0:
        raise Unavailable(
            f"pg_upgrade failed, and nothing has changed: {said.decode('utf-8', 'replace').strip()[-_MOST_SAID:]}",
            code="upgrade_failed",
        )
