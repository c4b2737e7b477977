"""mainspring.toml: options count more than variables, these more than the file, and the file more than defaults."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from mainspring.cli.main import main
from mainspring.cli.settings import all_settings
from mainspring.cli.settings_file import FILE_NAME, name_the_file, read_settings
from mainspring.domain.errors import MainspringError, Unavailable
from mainspring.roles.scheduler import SchedulerOptions
from mainspring.sdk.client.core import ELSEWHERE

from .conftest import CannedServer

SECRET = "Tr0mbone"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, and none of our variables but one: no command waits for a database."""
    for name in [name for name in os.environ if name.startswith("MAINSPRING_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("MAINSPRING_DATABASE_WAIT", "0")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(text: str, name: str = FILE_NAME, mode: int = 0o600) -> Path:
    path = Path(name)
    path.write_text(text)
    path.chmod(mode)
    return path


def said(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str]:
    code = main(args)
    return code, capsys.readouterr().err


URL = "postgresql://{}@127.0.0.1:1/shop"


def test_flag_then_variable_then_file(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    write(f'database_url = "{URL.format("file")}"')
    assert "role 'file'" in said(capsys, "migrate")[1]
    monkeypatch.setenv("MAINSPRING_DATABASE_URL", URL.format("variable"))
    assert "role 'variable'" in said(capsys, "migrate")[1]
    assert "role 'flag'" in said(capsys, "migrate", "--database-url", URL.format("flag"))[1]
    assert "MAINSPRING_CONFIG" not in os.environ


def test_a_url_in_the_environment_counts_more_than_a_url_file_in_the_file(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(f"{URL.format('urlfile')}\n", "url")
    write('database_url_file = "url"')
    assert "role 'urlfile'" in said(capsys, "migrate")[1]
    monkeypatch.setenv("MAINSPRING_DATABASE_URL", URL.format("variable"))
    assert "role 'variable'" in said(capsys, "migrate")[1]
    monkeypatch.delenv("MAINSPRING_DATABASE_URL")
    write(f'database_url = "{URL.format("file")}"')
    monkeypatch.setenv("MAINSPRING_DATABASE_URL_FILE", "url")
    assert "role 'urlfile'" in said(capsys, "migrate")[1]


def test_the_table_of_a_command_counts_more_than_the_top() -> None:
    write(
        'port = 1\nlog_level = "debug"\n[server]\nport = 2\nallow_host = ["a", "b"]\nscheduler = false\n[up]\nport = 3'
    )
    settings = read_settings(Path(FILE_NAME), "server")
    assert settings is not None
    assert settings.options == {"port": 2, "log_level": "debug", "allow_host": ["a", "b"], "scheduler": False}
    other = read_settings(None, "scheduler")
    assert other is not None and other.options == {"log_level": "debug"}


def test_options_reach_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}

    async def run(options: SchedulerOptions) -> int:
        seen.update(options=options, days=os.environ.get("MAINSPRING_HISTORY_DAYS"))
        return 0

    monkeypatch.setattr("mainspring.roles.scheduler.run_scheduler", run)
    write(f'log_level = "debug"\ndatabase_url = "{URL.format("file")}"\npgbouncer = "session"\nhistory_days = 7')
    assert main(["scheduler"]) == 0
    options = seen["options"]
    assert (options.log_level, options.database.pooling, seen["days"]) == ("debug", "session", "7")
    assert "MAINSPRING_HISTORY_DAYS" not in os.environ


def test_a_named_file_takes_the_place_of_the_one_in_the_folder(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(f'database_url = "{URL.format("folder")}"')
    named = write(f'database_url = "{URL.format("named")}"', "other.toml")
    assert "role 'named'" in said(capsys, "migrate", "--config", str(named))[1]
    monkeypatch.setenv("MAINSPRING_CONFIG", str(named))
    assert "role 'named'" in said(capsys, "migrate")[1]
    monkeypatch.setenv("MAINSPRING_CONFIG", os.devnull)
    assert "no database is given" in said(capsys, "migrate")[1]
    assert "cannot be read" in said(capsys, "migrate", "--config", "missing.toml")[1]


@pytest.mark.parametrize(
    ("text", "field", "hint"),
    [
        ("prot = 1", "prot", "did you mean port?"),
        ("database-url = 'x'", "database-url", "did you mean database_url?"),
        ("[server]\nprt = 1", "server.prt", "did you mean port?"),
        ("[server]\nslots = 1", "server.slots", "docs/operating.md has all settings"),
        ("[sever]\nport = 1", "sever", None),
        ("port = '1'", "port", None),
        ("port = true", "port", None),
        ("scheduler = 'no'", "scheduler", None),
        ("allow_host = 'a'", "allow_host", None),
        ("allow_host = [1]", "allow_host", None),
        (f"token = ['{SECRET}']", "token", None),
        ("port = ", "config", None),
        ("app = 1979-05-27", "app", None),
    ],
)
def test_a_mistake_is_named_with_its_key_whatever_the_command(text: str, field: str, hint: str | None) -> None:
    write(text)
    for verb in ("server", "migrate", "jobs"):
        with pytest.raises(MainspringError) as caught:
            read_settings(None, verb)
        assert (caught.value.field, caught.value.hint) == (field, hint)
        assert SECRET not in caught.value.detail


@pytest.mark.parametrize(
    ("verb", "text", "key", "words"),
    [
        ("server", "port = 99999", "port", "65535"),
        ("server", "[server]\nport = 99999", "server.port", "65535"),
        ("up", 'log_level = "loud"', "log_level", "'loud' is not a log level"),
        ("server", 'database_url = "mysql://x"', "database_url", "postgresql"),
        ("up", "history_days = 0", "history_days", "'0' is not a number of days"),
        (
            "server",
            f'history_days = 0\ndatabase_url = "{URL.format("a")}"',
            "history_days",
            "'0' is not a number of days",
        ),
        ("up", "audit_days = 29", "audit_days", "from 30 to 36500"),
        ("scheduler", f'history_days = 0\ndatabase_url = "{URL.format("a")}"', "history_days", "from 1 to 36500"),
        ("up", "slots = 0", "slots", "1"),
        ("worker", 'queues = "a=x"', "queues", "a has the weight 'x'"),
        ("jobs", 'url = "ftp://x"', "url", "ftp://x"),
    ],
)
def test_a_bad_value_is_named_by_its_file_and_key(
    capsys: pytest.CaptureFixture[str], verb: str, text: str, key: str, words: str
) -> None:
    path = write(text)
    code, err = said(capsys, verb, *(("--config", FILE_NAME) if verb == "jobs" else ()))
    [error] = [line for line in err.splitlines() if line.startswith("error: ")]
    assert code == 2 and error.startswith(f"error: {path.absolute()}: {key}: ") and words in err
    assert "--" not in error and error.count(key.rpartition(".")[2]) == 1


def test_an_address_of_the_file_that_nobody_answers_is_named_by_its_file() -> None:
    path = write('url = "http://127.0.0.1:1"')
    settings = read_settings(path, "jobs")
    assert settings is not None
    for address, named in (("http://127.0.0.1:1", True), ("http://127.0.0.2:7", False)):
        error = Unavailable(f"no answer from {address}: refused", hint=f"is it running? {ELSEWHERE}")
        name_the_file(error, settings, ["MAINSPRING_URL"])
        assert (f"its address is `url` in {path.absolute()}" in str(error.hint)) == named


def test_a_bad_value_of_an_option_or_a_variable_is_not_blamed_on_the_file(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write('port = 8700\nlog_level = "info"\nhistory_days = 3')
    assert f"{path.name}: " not in said(capsys, "up", "--port", "99999")[1]
    assert f"{path.name}: " not in said(capsys, "up", "--log-level", "loud")[1]
    monkeypatch.setenv("MAINSPRING_HISTORY_DAYS", "x")
    assert "error: MAINSPRING_HISTORY_DAYS: 'x' is not a number of days" in said(capsys, "up")[1]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_file_of_somebody_else_is_refused_unless_it_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    path = write(f'database_url = "{URL.format("planted")}"')
    os.chown(path, 65534, 65534)
    code, err = said(capsys, "migrate")
    assert code == 5 and "belongs to" in err and "--config" in err and "planted" not in err
    assert "role 'planted'" in said(capsys, "migrate", "--config", str(path))[1]


def test_a_file_that_everybody_can_change_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    write('log_level = "info"', mode=0o666)
    assert said(capsys, "migrate")[0] == 5


def test_a_secret_that_others_can_read_is_warned_about(capsys: pytest.CaptureFixture[str]) -> None:
    url = f"postgresql://ada:{SECRET}@127.0.0.1:1/shop"
    for text, secret in (
        (f'database_url = "{url}"', True),
        (f'[server]\ndirect_url = "{url}"', True),
        ("port = 1", False),
    ):
        write(text, mode=0o644)
        err = said(capsys, "migrate")[1]
        assert ("chmod 600" in err) is secret and SECRET not in err
        write(text, mode=0o600)
        assert "chmod 600" not in said(capsys, "migrate")[1]


def test_commands_that_start_something_say_which_file_they_use(capsys: pytest.CaptureFixture[str]) -> None:
    path = write('log_level = "info"').absolute()
    assert f"note: using the settings in {path}" in said(capsys, "migrate")[1]


def test_clients_find_the_server_and_the_token_in_a_file_that_is_named(
    server: CannedServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MAINSPRING_URL")
    monkeypatch.delenv("MAINSPRING_TOKEN")
    server.says("GET /v1/queues", {"queues": []})
    write(f'url = "{server.url}"\ntoken = "{SECRET}"')
    assert main(["queues", "--config", FILE_NAME]) == 0
    assert "MAINSPRING_TOKEN" not in os.environ and "MAINSPRING_URL" not in os.environ
    monkeypatch.setenv("MAINSPRING_CONFIG", FILE_NAME)
    assert main(["queues"]) == 0
    monkeypatch.setenv("MAINSPRING_TOKEN", "mine")
    assert main(["queues"]) == 0


def test_the_commands_of_a_group_use_the_file_too(server: CannedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server.says("GET /v1/workflows", {"workflows": [], "next_cursor": None})
    write('log_level = "info"')
    assert main(["workflow", "list"]) == 0


@pytest.mark.parametrize("number", ["2", "1.5"])
def test_a_number_with_a_fraction_may_be_whole(number: str) -> None:
    write(f"max_cpus = {number}")
    settings = read_settings(None, "worker")
    assert settings is not None and settings.options == {"max_cpus": float(number)}


def test_every_setting_has_a_help_and_a_kind() -> None:
    for setting in all_settings():
        assert setting.kind in (str, int, float, bool, list)
        assert setting.help or setting.key == "port", setting.key
