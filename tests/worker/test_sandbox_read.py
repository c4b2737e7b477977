"""What `--sandbox-read` may show, and what it must not."""

from __future__ import annotations

import socket
import tempfile
from pathlib import Path

import pytest

from mainspring.domain.errors import InvalidInput
from mainspring.kinds.shell.sandbox.bubblewrap import Bubblewrap
from mainspring.kinds.shell.sandbox.read_paths import check_read_paths

from .sandboxes import needs_sandbox, sandbox_here
from .test_shell_executor import ran, result, shell


def refusal(path: Path | str, private: tuple[Path, ...] = (), home: str = "/nowhere") -> str:
    with pytest.raises(InvalidInput) as refused:
        check_read_paths([path], private, {"HOME": home})
    assert refused.value.field == "sandbox_read"
    assert refused.value.hint
    return refused.value.detail


@pytest.mark.parametrize(
    "path", ["/", "/etc", "/proc", "/proc/self", "/dev", "/dev/null", "/sys", "/var", "/usr/..", "tools", "/nowhere/at"]
)
def test_paths_that_show_the_machine_or_are_none_are_refused(path: str) -> None:
    assert path in refusal(path)


def test_the_folders_of_runs_and_the_home_of_the_worker_are_refused(tmp_path: Path) -> None:
    assert "the folders of other runs" in refusal(tempfile.gettempdir())
    work = tmp_path / "mainspring-worker-x" / "1"
    work.mkdir(parents=True)
    assert "the folders of other runs" in refusal(work)
    (tmp_path / ".ssh").mkdir()
    (tmp_path / "venv").mkdir()
    for path in (tmp_path, tmp_path / ".ssh"):
        assert "home" in refusal(path, home=str(tmp_path)) or "keys" in refusal(path, home=str(tmp_path))
    assert check_read_paths([tmp_path / "venv"], (), {"HOME": str(tmp_path)}) == [tmp_path / "venv"]


def test_secrets_of_the_worker_are_refused_also_through_a_link(tmp_path: Path) -> None:
    data, token, tools = tmp_path / "app" / ".mainspring", tmp_path / "app" / "token", tmp_path / "tools"
    data.mkdir(parents=True)
    tools.mkdir()
    token.write_text("ms_secret")
    (tmp_path / "link").symlink_to(tmp_path / "app")
    for path in (tmp_path / "app", data, token, tmp_path / "link"):
        assert "belongs to this worker" in refusal(path, (data, token))
    assert check_read_paths([tools], (data, token), {}) == [tools]


def test_a_socket_is_refused(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "s"))
        assert "neither a file nor a folder" in refusal(tmp_path / "s")


def test_a_token_in_what_every_sandbox_shows_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"/usr/local/token can be read in the sandbox"):
        check_read_paths([], [Path("/usr/local/token")], {})


@needs_sandbox
def test_what_is_named_can_be_read_and_not_written(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "data").write_text("shown")
    (tmp_path / "hidden").write_text("hidden")
    here = sandbox_here()
    assert isinstance(here, Bubblewrap)
    sandbox = Bubblewrap(here.program, (tmp_path / "tools",))
    look = f"cat {tmp_path}/tools/data; ls {tmp_path}; touch {tmp_path}/tools/x 2>&1 | grep -o 'Read-only'"
    assert result(ran(shell(look), sandbox=sandbox, confine_all=True)[0])["output"] == "showntools\nRead-only\n"
