"""The log store: a folder or an S3 URL, and the errors for unusable ones."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path

import pytest

from mainspring.domain.errors import InvalidInput, Unavailable
from mainspring.store.log_files import LogFiles, Stored, folder_of, open_log_files
from tests.store.s3_peer import BUCKET, s3_peer

pytestmark = pytest.mark.anyio

FOLDER = folder_of(1, "a-run", 2, 5)


async def keeps_logs(files: LogFiles) -> None:
    await files.check()
    assert await files.objects(FOLDER) == []
    assert await files.get(FOLDER, 0) is None
    for offset, data in ((6, b"second"), (0, b"first "), (12, b"third")):
        await files.put(FOLDER, offset, data)
    await files.put(FOLDER, 0, b"first ")
    await files.put(folder_of(1, "a-run", 2, 51), 0, b"of another fence")
    assert await files.objects(FOLDER) == [Stored(0, 6), Stored(6, 6), Stored(12, 5)]
    assert await files.get(FOLDER, 6) == b"second"
    merged = await files.put_merged(FOLDER, 0, b"first second")
    assert await files.objects(FOLDER) == [Stored(0, 6), merged, Stored(6, 6), Stored(12, 5)]
    assert (merged, merged.end) == (Stored(0, 12, merged=True), 12)
    assert await files.read(FOLDER, merged, 4, 9) == b"t sec"
    assert await files.read(FOLDER, Stored(6, 6), 8, 10) == b"co"
    await files.remove(FOLDER, [Stored(0, 6), merged])
    for gone in (Stored(0, 6), merged):
        assert await files.read(FOLDER, gone, 0, 2) is None
    await files.put(FOLDER, 0, b"first ")
    assert await files.delete(FOLDER) == 3
    assert await files.delete(FOLDER) == 0
    assert await files.objects(FOLDER) == []
    assert await files.get(folder_of(1, "a-run", 2, 51), 0) == b"of another fence"


@pytest.mark.parametrize("form", ["path", "url"])
async def test_a_folder_keeps_logs_for_our_eyes_only(tmp_path: Path, form: str) -> None:
    place = tmp_path / "with space" / "logs"
    files = open_log_files(place if form == "path" else place.as_uri())
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    await keeps_logs(files)
    assert [path.name for path in place.rglob("*") if path.is_file()] == ["000000000000000"]


async def test_memory_keeps_logs() -> None:
    await keeps_logs(LogFiles.in_memory())


async def test_s3_keeps_logs_under_its_prefix(monkeypatch: pytest.MonkeyPatch) -> None:
    with s3_peer() as (url, objects):
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "someone")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "something")
        monkeypatch.setenv("AWS_REGION", "eu-central-1")
        await keeps_logs(open_log_files(f"s3://{BUCKET}/mainspring/logs"))
        assert list(objects) == ["mainspring/logs/1/a-run/2-51/000000000000000"]


@pytest.mark.parametrize("where", ["ftp://somewhere/logs", "https://example.com/logs", "s3://"])
async def test_what_is_no_store_is_refused_with_what_would_be(where: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        await open_log_files(where).check()
    assert refused.value.field == "log_store"
    assert "s3://bucket/prefix" in (refused.value.expected or "")


async def test_servers_that_start_together_do_not_take_each_others_probe(tmp_path: Path) -> None:
    place = tmp_path / "logs"
    await asyncio.gather(*(open_log_files(place).check() for _ in range(200)))
    assert list(place.iterdir()) == []


async def test_what_another_server_has_removed_already_does_not_keep_the_rest(tmp_path: Path) -> None:
    files = open_log_files(tmp_path)
    for offset in range(40):
        await files.put(FOLDER, offset, b"x")
    await files.remove(FOLDER, [Stored(offset, 1) for offset in (0, 13, 26)])
    await files.remove(FOLDER, [Stored(offset, 1) for offset in range(40)])
    assert await files.objects(FOLDER) == []


async def test_files_that_are_none_of_ours_are_not_taken_for_output(tmp_path: Path) -> None:
    files = open_log_files(tmp_path)
    await files.put(FOLDER, 0, b"x")
    (tmp_path / FOLDER / "notes.txt").write_text("of another program")
    assert await files.objects(FOLDER) == [Stored(0, 1)]


async def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a file where the folder should be")
    with pytest.raises(InvalidInput) as refused:
        open_log_files(tmp_path / "file" / "logs")
    assert refused.value.code == "log_store_unusable"


async def test_a_store_that_cannot_be_written_to_is_refused_at_the_start_and_503_later(tmp_path: Path) -> None:
    place = tmp_path / "logs"
    files = open_log_files(place)
    place.rmdir()
    place.write_text("a file where the folder should be")
    with pytest.raises(InvalidInput):
        await files.check()
    with pytest.raises(Unavailable) as away:
        await files.put(FOLDER, 0, b"x")
    assert away.value.code == "log_store_down"
