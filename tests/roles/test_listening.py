"""A port that is in use is named before anything is started, with who holds it and what to do."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mainspring.cli.main import build
from mainspring.domain.errors import Conflict, InvalidInput, MainspringError
from mainspring.roles.listening import require_free_port


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        yield holder.getsockname()[1]


def test_the_process_that_holds_the_port_is_named(taken: int) -> None:
    with pytest.raises(Conflict) as refused:
        require_free_port("127.0.0.1", taken)
    error = refused.value
    assert (error.code, error.field) == ("port_taken", "port")
    assert error.detail.startswith(f"port {taken} on 127.0.0.1 is in use by process {os.getpid()} (")
    assert error.hint == "stop that process, or choose another port with --port"


def test_a_server_says_so_before_it_looks_for_its_database(taken: int, tmp_path: Path) -> None:
    url = "postgresql://nobody@127.0.0.1:1/none"
    arguments = ["server", "--database-url", url, "--port", str(taken), "--data", str(tmp_path / "d")]
    result = CliRunner().invoke(build(), arguments)
    error = result.exception
    assert isinstance(error, MainspringError) and error.code == "port_taken", result.output
    assert not (tmp_path / "d").exists(), "nothing was made"


def test_a_free_port_is_taken_by_nobody(taken: int) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        free = other.getsockname()[1]
    require_free_port("127.0.0.1", free)
    for host, port, field in (("127.0.0.1", 70_000, "port"), ("192.0.2.1", free, "host")):
        with pytest.raises(InvalidInput) as refused:
            require_free_port(host, port)
        assert refused.value.field == field and refused.value.hint
