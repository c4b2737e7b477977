"""`make witness`: Debian's cron runs the lines of the table, on a clock of libfaketime that is 60 times as fast.

Each window is a few minutes around a time of the table, or the night in which a zone moves its clocks. Debian's cron
runs all lines in it, and their runs are compared with our fires. It needs root, cron, faketime and bubblewrap: cron
runs in a sandbox with an empty /etc/crontab, and finds only our lines. If something is missing, the target says so
and is skipped.

There is one known difference: if several times of a line are skipped, Debian's cron runs the line as many times, all
right after the change. We run it once.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from pathlib import Path
from zoneinfo import ZoneInfo

import msgspec

from mainspring.domain.intake.cron import check_cron
from mainspring.domain.schedules.fires import fires
from mainspring.domain.schedules.schedule import Schedule, ScheduleKind
from tests.domain.cron_table import DEBIAN, MOVED

SPEEDS = (60, 30, 15)
AT_ONCE = 6
MINUTE = timedelta(minutes=1)
NIGHTS = [
    ("Europe/Berlin", "2027-03-28T01:50", 55),
    ("Europe/Berlin", "2027-10-31T01:50", 145),
    ("Europe/Dublin", "2027-10-31T00:50", 145),
    ("America/New_York", "2027-03-14T01:50", 55),
    ("America/New_York", "2027-11-07T00:50", 145),
    ("Australia/Lord_Howe", "2026-10-04T01:50", 55),
    ("Australia/Lord_Howe", "2026-04-05T01:20", 85),
    ("America/Sao_Paulo", "2018-11-03T23:50", 45),
]
AT_NIGHT = [
    "* * * * *", "*/20 * * * *", "0 */3 * * *", "15 */2 * * *", "*/30 0-2 * * *", "* 0 * * *", "0,30 2 * * *",
    "15 0 * * *", "0 0 * * *", "15 1 * * *", "45 1 * * *", "30 1 * * *", "0-59/20 2 * * *", "0 3 * * *", "0 1-3 * * *",
]  # fmt: skip
_INSIDE = """#!/bin/sh
{ for name in LD_PRELOAD FAKETIME FAKETIME_SHARED FAKETIME_DONT_RESET TZ; do printenv $name | sed "s/^/$name=/"; done
cat /mnt/lines; } > /var/spool/cron/crontabs/root
chmod 600 /var/spool/cron/crontabs/root
exec cron -f -L 0
"""


class Window(msgspec.Struct, frozen=True):
    zone: str
    start: datetime  # a wall time
    minutes: int
    lines: tuple[str, ...]

    @property
    def begin(self) -> datetime:
        return self.start.replace(tzinfo=ZoneInfo(self.zone)).astimezone(UTC)


def windows() -> list[Window]:
    table = tuple(line for line, _ in DEBIAN)
    times = {datetime.fromisoformat(text) for _, row in DEBIAN for text in row.split()}
    found = [Window("UTC", moment - 3 * MINUTE, 5, table) for moment in sorted(times) if moment.year < 2038]
    by_default = {row[0] for row in MOVED if row[2] is None and row[3] is None and len(row[0].split()) != 6}
    at_night = (*sorted({*by_default, *AT_NIGHT}),)
    return [Window(zone, datetime.fromisoformat(at), minutes, at_night) for zone, at, minutes in NIGHTS] + found


def runs_of_debian(window: Window, speed: int) -> list[set[datetime]]:
    """The minutes in which Debian's cron runs each line."""
    with tempfile.TemporaryDirectory() as folder:
        spool, out = Path(folder, "spool"), Path(folder, "out")
        Path(spool, "crontabs").mkdir(parents=True)
        out.mkdir()
        lines = [f"{line} date +\\%s >> /mnt/{number}" for number, line in enumerate(window.lines)]
        Path(out, "lines").write_text("\n".join(lines) + "\n")
        inside = Path(out, "inside")
        inside.write_text(_INSIDE)
        inside.chmod(0o755)
        sandbox = [
            "bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/dev/shm",
            "--tmpfs", "/tmp",
            "--tmpfs", "/run", "--tmpfs", "/etc/cron.d", "--ro-bind", "/dev/null", "/etc/crontab", "--bind", str(spool),
            "/var/spool/cron", "--bind", str(out), "/mnt", "--unshare-pid", "--die-with-parent", "--cap-add", "ALL",
        ]  # fmt: skip
        clock = ["faketime", "-f", f"@{window.start:%Y-%m-%d %H:%M:%S} x{speed}", "/mnt/inside"]
        env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "TZ": window.zone, "FAKETIME_DONT_RESET": "1"}
        process = subprocess.Popen(sandbox + clock, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        with suppress(subprocess.TimeoutExpired):
            _, said = process.communicate(timeout=window.minutes * 60 / speed + 1.5)
            raise RuntimeError(f"cron ended: {said.decode()}")
        process.kill()
        process.communicate()
        return [_minutes(out / str(number), window) for number in range(len(lines))]


def _minutes(file: Path, window: Window) -> set[datetime]:
    seconds = file.read_text().split() if file.exists() else []
    moments = {datetime.fromtimestamp(int(second) // 60 * 60, UTC) for second in seconds}
    return {moment for moment in moments if MINUTE < moment - window.begin < window.minutes * MINUTE}


def differences(window: Window) -> list[str]:
    """On a busy machine a job is late on the fast clock. What differs is looked at again, on a slower one."""
    wrong: list[str] = []
    for speed in SPEEDS:
        if not (wrong := _differences(window, speed)):
            break
    return wrong


def _differences(window: Window, speed: int) -> list[str]:
    begin, end = window.begin + MINUTE, window.begin + window.minutes * MINUTE  # cron starts within the first minute
    wrong = []
    for line, witness in zip(window.lines, runs_of_debian(window, speed), strict=True):
        schedule = Schedule(
            kind=ScheduleKind.CRON, cron=check_cron(line, window.zone, "cron", begin), timezone=window.zone
        )
        ours = set(takewhile(lambda moment: moment < end, fires(schedule, begin)))
        if ours != witness:
            wrong.append(f"{line!r} {window.zone} {window.start}: we {_shown(ours)}, Debian {_shown(witness)}")
    return wrong


def _shown(moments: set[datetime]) -> str:
    return " ".join(f"{moment:%dT%H:%MZ}" for moment in sorted(moments)) or "never"


def main() -> int:
    missing = [name for name in ("cron", "faketime", "bwrap") if shutil.which(name, path="/usr/sbin:/usr/bin") is None]
    if missing or os.geteuid() != 0:
        sys.stdout.write(f"skipped: {' and '.join(missing) + ' not installed' if missing else 'it needs root'}\n")
        return 0
    began, all_windows = time.monotonic(), windows()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        wrong = [said for found in pool.map(differences, all_windows) for said in found]
    sys.stdout.write("".join(f"{said}\n" for said in wrong))
    lines = sum(len(window.lines) for window in all_windows)
    sys.stdout.write(
        f"{len(all_windows)} windows, {lines} lines run by Debian's cron: {len(wrong)} differences, "
        f"{time.monotonic() - began:.0f} s\n"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
