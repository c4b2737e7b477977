"""`mainspring up` before it starts anything."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
import uvloop

from mainspring.domain.errors import Conflict
from mainspring.roles.up import UpOptions, run_up


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
