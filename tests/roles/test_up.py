"""`mainspring up` before it starts anything."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
import uvloop

from mainspring.domain.errors import Conflict
from mainspring.roles.up import UpOptions, own_command, run_up


def test_a_port_that_is_in_use_leaves_no_data_folder_behind(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        options = UpOptions(
            data=tmp_path / "data", host="127.0.0.1", port=port, database=None, app=None, postgres_bin=None,
            slots=None, queues=None, log_level="info",
        )  # fmt: skip
        with pytest.raises(Conflict, match=f"port {port} on 127.0.0.1 is in use"):
            uvloop.run(run_up(options))
    assert list(tmp_path.iterdir()) == []


def test_what_is_printed_to_type_is_found_in_the_second_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`make run` starts it by its path, and the folder of `.venv` is in no PATH."""
    program = tmp_path / "bin" / "mainspring"
    program.parent.mkdir()
    program.write_text("")
    program.chmod(0o700)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["bin/mainspring", "up"])
    monkeypatch.setenv("PATH", str(tmp_path))
    assert own_command() == "bin/mainspring"
    monkeypatch.setenv("PATH", str(program.parent))
    assert own_command() == "mainspring"
