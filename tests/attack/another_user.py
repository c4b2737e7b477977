"""An ordinary user, where the tests run as root: a number that no account has. Without root it is who runs the tests.

Programs start in a mount namespace in which this number has a name, and every user may reach the interpreter and the
tests, also if they are in the home folder of root.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

NUMBER = 64321
ROOT = os.geteuid() == 0
HERE = Path(__file__).parents[2]


@cache
def as_another_user() -> list[str]:
    """The words before a command line."""
    if not ROOT:
        return []
    become = [
        "setpriv",
        f"--reuid={NUMBER}",
        f"--regid={NUMBER}",
        "--clear-groups",
        "--inh-caps=-all",
        "--no-new-privs",
    ]
    line = f"tester:x:{NUMBER}:{NUMBER}:tester:/:/bin/sh"
    script = f"mount --make-rprivate /; names=$(mktemp); (cat /etc/passwd; echo {line}) > $names; chmod 644 $names; "
    script += "mount --bind $names /etc/passwd; rm $names; "
    for place in (Path(sys.base_prefix), Path(sys.prefix).resolve(), HERE):
        closed = [folder for folder in reversed(place.parents) if not folder.stat().st_mode & 1]
        if closed:
            here, there = shlex.quote(str(closed[0])), shlex.quote(str(place))
            script += f"exec 9< {there}; mount -t tmpfs -o mode=755 tmpfs {here}; mkdir -p {there}; "
            script += f"mount -c --bind /proc/self/fd/9 {there}; exec 9<&-; "
    return ["unshare", "--mount", "sh", "-ec", f'{script} exec "$@"', "sh", *become]


def run_as_another_user(*argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*as_another_user(), *argv], cwd=HERE, capture_output=True, text=True, check=False)


@cache
def why_not() -> str | None:
    """Why this user cannot run the tests, or cannot have a pid namespace."""
    if ROOT and not all(map(shutil.which, ("setpriv", "unshare", "mount"))):
        return "setpriv, unshare and mount are missing"
    program = "from mainspring.worker.processes.watchdog.namespaces import why_not; print(why_not() or '')"
    done = run_as_another_user(sys.executable, "-c", program)
    return done.stderr.strip() or done.stdout.strip() or None


needs_another_user = pytest.mark.skipif(
    sys.platform != "linux" or why_not() is not None, reason=f"an ordinary user cannot run it here: {why_not()}"
)
