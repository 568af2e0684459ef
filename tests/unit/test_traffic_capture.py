"""Capture of our own requests: only where asked for, private, bounded, and fit to be trained on."""

import asyncio
import json
import stat
from pathlib import Path

import pytest
from fakes.openai_endpoint import FakeEndpoint

from specpanel.core.errors import RecordingError
from specpanel.core.settings.profile import Traffic
from specpanel.core.traffic.capture import Capture
from specpanel.core.traffic.endpoint import Endpoint
from specpanel.core.traffic.load import Load
from specpanel.core.traffic.records import Prompt, RequestRecord
from specpanel.core.training.conversations import read_lines

PROMPTS = tuple(Prompt(f"p{n}", "chat", f"prompt {n}", "be brief") for n in range(3))


def record(text: str = "an answer", error: str | None = None) -> RequestRecord:
    return RequestRecord(0, "p", "chat", 0.0, 0.0, 1.0, 1.0, 1.0, 3, 4, "stop", error, text)


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


async def send(settings: Traffic) -> None:
    async with FakeEndpoint() as server, Endpoint(server.url) as endpoint:
        stop = asyncio.Event()
        await Load(endpoint, PROMPTS, settings, on_record=lambda _: None, stop=stop).run()


async def test_a_load_keeps_each_question_once_as_a_recipe_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "mine" / "captured.jsonl"
    await send(Traffic(requests=7, warmup=1, capture=path))
    reading = read_lines(path.read_bytes().splitlines(), "captured", answers_needed=True)
    assert reading.skipped == []
    assert sorted(one.turns[1].text for one in reading.conversations) == [
        "prompt 0",
        "prompt 1",
        "prompt 2",
    ]
    assert [turn.role for turn in reading.conversations[0].turns] == ["system", "user", "assistant"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600

    # A later load goes on in the same file, and knows the questions again.
    await send(Traffic(requests=3, warmup=0, capture=path))
    assert len(lines(path)) == 3


def test_nothing_is_kept_without_being_asked_for() -> None:
    assert Traffic().capture is None


def test_it_never_grows_beyond_its_bound(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    capture = Capture(path, 1000)
    for number in range(50):
        capture.take(Prompt(f"p{number}", "chat", f"question {number}"), record())
    capture.close()
    assert capture.full
    assert 0 < path.stat().st_size <= 1000
    assert capture.kept == len(lines(path))


def test_failures_and_empty_answers_are_passed_over(tmp_path: Path) -> None:
    capture = Capture(tmp_path / "c.jsonl", 10_000)
    capture.take(PROMPTS[0], record(error="timed out"))
    capture.take(PROMPTS[1], record(text=" \n"))
    assert capture.kept == 0
    capture.take(PROMPTS[1], record())
    assert capture.kept == 1
    capture.close()


def test_a_file_that_others_could_read_becomes_private(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    path.write_text("not JSON\n")
    path.chmod(0o644)
    Capture(path, 10_000).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("kind", ["link", "folder", "pipe"])
def test_what_is_no_plain_file_is_refused(tmp_path: Path, kind: str) -> None:
    import os

    path = tmp_path / "c.jsonl"
    if kind == "link":
        path.symlink_to(tmp_path / "elsewhere")
    elif kind == "folder":
        path.mkdir()
    else:
        os.mkfifo(path)
    with pytest.raises(RecordingError):
        Capture(path, 1000)
    assert not (tmp_path / "elsewhere").exists()
