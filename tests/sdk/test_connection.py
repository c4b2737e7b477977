"""How the client finds the server and the token."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from mainspring.domain.errors import InvalidInput
from mainspring.kernel.data_folder import record_folder
from mainspring.sdk.client.connection import find_connection


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / ".mainspring"
    folder.mkdir()
    (folder / "server.json").write_text(json.dumps({"url": "http://127.0.0.1:9000", "pid": 1}))
    (folder / "admin-token").write_text("from-folder\n")
    record_folder(folder)  # as `mainspring up` does
    (tmp_path / "deep" / "inside").mkdir(parents=True)
    return tmp_path


def test_the_data_folder_above_is_found(project: Path) -> None:
    found = find_connection(environ={}, start=project / "deep" / "inside")
    assert (found.url, found.token) == ("http://127.0.0.1:9000", "from-folder")


def test_the_environment_goes_before_the_folder_and_arguments_before_both(project: Path) -> None:
    environ = {"MAINSPRING_URL": "http://127.0.0.1:9001/", "MAINSPRING_TOKEN": "from-env"}
    found = find_connection(environ=environ, start=project)
    assert (found.url, found.token) == ("http://127.0.0.1:9001", "from-env")
    found = find_connection("https://there", "given", environ=environ, start=project)
    assert (found.url, found.token) == ("https://there", "given")


def test_the_data_folder_may_be_named(project: Path, tmp_path: Path) -> None:
    named = project / ".mainspring"
    elsewhere = Path("/")
    assert find_connection(data=named, environ={}, start=elsewhere).token == "from-folder"
    assert find_connection(environ={"MAINSPRING_DATA": str(named)}, start=elsewhere).token == "from-folder"


def test_the_folders_token_is_not_sent_to_another_machine(project: Path) -> None:
    assert find_connection("http://example.org:8700", environ={}, start=project).token is None
    assert find_connection("http://localhost:8700", environ={}, start=project).token == "from-folder"


def test_without_anything_it_is_the_default_address_and_no_token(tmp_path: Path) -> None:
    found = find_connection(environ={}, data=tmp_path)
    assert (found.url, found.token) == ("http://127.0.0.1:8700", None)


def test_a_token_file_is_read_and_a_missing_one_is_named(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(" abc \n")
    assert find_connection(token_file=file, environ={}).token == "abc"
    assert find_connection(environ={"MAINSPRING_TOKEN_FILE": str(file)}).token == "abc"
    with pytest.raises(InvalidInput, match="nowhere"):
        find_connection(token_file=tmp_path / "nowhere", environ={})


@pytest.mark.parametrize("address", ["localhost:8700", "http://[::1", "http://a:99999", "http://a:0"])
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(address)):
        find_connection(f"http://b:1,{address}", environ={})


def test_a_token_is_not_shown_when_the_connection_is_printed() -> None:
    assert "secret" not in repr(find_connection(token="secret", environ={}))


def test_several_servers_may_be_named(project: Path) -> None:
    environ = {"MAINSPRING_URL": "http://127.0.0.1:9001/, http://localhost:9002"}
    found = find_connection(environ=environ, start=project)
    assert found.url == "http://127.0.0.1:9001,http://localhost:9002"
    assert found.addresses == ("http://127.0.0.1:9001", "http://localhost:9002")
    assert found.token == "from-folder"
    mixed = find_connection("http://127.0.0.1:9001,http://example.org", environ={}, start=project)
    assert mixed.token is None, "it would travel to another machine"
    with pytest.raises(InvalidInput, match="'there:9'"):
        find_connection("http://127.0.0.1:9001,there:9", environ={})
    with pytest.raises(InvalidInput, match="','"):
        find_connection(",", environ={})


def test_a_token_is_sent_to_another_machine_only_through_tls_unless_it_is_allowed(project: Path) -> None:
    for url in ("http://example.org:8700", "https://example.org,http://example.org", "http://127.0.0.1.example.org"):
        with pytest.raises(InvalidInput, match="plain HTTP to another machine"):
            find_connection(url, "token", environ={}, start=project)
        assert find_connection(url, "token", insecure_http=True, environ={}).token == "token"
        assert find_connection(url, "token", environ={"MAINSPRING_INSECURE_HTTP": "1"}).token == "token"
    assert find_connection("https://example.org", "token", environ={}).token == "token"


def test_the_address_in_the_folder_is_on_this_machine(project: Path) -> None:
    (project / ".mainspring" / "server.json").write_text(json.dumps({"url": "http://192.168.1.5:8700", "pid": 1}))
    assert find_connection(environ={}, start=project).token == "from-folder"
