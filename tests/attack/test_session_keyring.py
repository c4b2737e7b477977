"""Commands do not have the session keyring of their worker, with the keys that its administrator put there.

Needs Linux on x86_64 or aarch64 and the system calls of keys, which containers often forbid. As root, the command has
another account.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys

import pytest

from mainspring.worker.processes.accounts import CommandAccounts, command_accounts
from tests.worker.sandboxes import PYTHON

from .test_accounts import ends, output
from .test_outliving import HERE, ROOT

CALLS = {"x86_64": (248, 250), "aarch64": (217, 219)}  # add_key, keyctl
UNAVAILABLE = 77
LOOK = """
import ctypes
libc = ctypes.CDLL(None)
held = libc.syscall({keyctl}, 10, -3, b"user", b"secret of the worker", 0)
left = libc.syscall({add_key}, b"user", b"left by the command", b"x", 1, -3)
print(held > 0, left > 0)
"""


def main() -> None:
    """In a process of its own: prints what a command finds, and whether its key reaches this process."""
    add_key, keyctl = CALLS[os.uname().machine]
    libc = ctypes.CDLL(None)
    if libc.syscall(keyctl, 1, None, 0, 0, 0) < 0:
        sys.exit(UNAVAILABLE)
    if libc.syscall(add_key, b"user", b"secret of the worker", b"x", 1, -3) < 0:
        sys.exit(UNAVAILABLE)
    accounts = command_accounts(None) if ROOT else CommandAccounts()
    (ending,) = ends(accounts, (f"{PYTHON} -c '{LOOK.format(add_key=add_key, keyctl=keyctl)}'", None))
    left = libc.syscall(keyctl, 10, -3, b"user", b"left by the command", 0)
    sys.stdout.write(json.dumps([*output(ending), left > 0]))


@pytest.mark.skipif(os.uname().machine not in CALLS, reason="the system calls of keys are not known here")
def test_a_command_has_an_empty_session_keyring_of_its_own() -> None:
    argv = [sys.executable, "-m", "tests.attack.test_session_keyring"]
    done = subprocess.run(argv, cwd=HERE, capture_output=True, text=True, check=False)
    if done.returncode == UNAVAILABLE:
        pytest.skip("the system calls of keys are not available here")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == ["False True", False]


if __name__ == "__main__":
    main()
