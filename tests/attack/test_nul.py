"""A NUL in a command or its environment is refused by the worker, even if a server sends it: it ends an option of
bubblewrap, so the rest of the text would be options that open the sandbox. Part of it needs bubblewrap.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mainspring.kinds.shell.sandbox.bubblewrap import Bubblewrap
from mainspring.wire.execution import RunSetup
from tests.worker.sandboxes import needs_sandbox, sandbox_here
from tests.worker.test_shell_executor import ran, shell

OPENS = "x\0--bind\0/\0/mnt"


@pytest.mark.parametrize("confined", [False, pytest.param(True, marks=needs_sandbox)])
def test_a_worker_refuses_a_nul(confined: bool) -> None:
    fields: dict[str, Any] = {"sandbox": sandbox_here(), "confine_all": True} if confined else {}
    for order, names in (
        (shell("true", setup=RunSetup(env={"A": OPENS})), "env: 'A' contains the character NUL"),
        (shell("true", setup=RunSetup(env={OPENS: "x"})), "env: "),
        (shell("true", job_id=OPENS), "env: 'MAINSPRING_JOB_ID'"),
        (shell("true # \0"), "command: contains the character NUL"),
        (shell(["true", "\0"]), "command: contains the character NUL"),
    ):
        ending, _ = ran(order, **fields)
        assert (ending.status, ending.retry) == ("FAILED", False)
        assert ending.error is not None
        assert ending.error.startswith(names)
        assert "NUL" in ending.error


@needs_sandbox
def test_the_sandbox_refuses_a_nul_itself(tmp_path: Path) -> None:
    sandbox = sandbox_here()
    assert isinstance(sandbox, Bubblewrap)
    for argv, inside in ((["true"], {"A": OPENS}), (["true", "\0"], {})):
        with pytest.raises(ValueError, match="NUL"):
            sandbox.confine(argv, tmp_path, {}, inside)
