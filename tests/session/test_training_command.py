"""``specpanel train`` as a person has it: its stream, its exit status, its signals."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from fakes.engine.workbench import wait_for
from fakes.training.workshop import Workshop


@pytest.fixture
def shop(tmp_path: Path, own_folders: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workshop]:
    shop = Workshop(tmp_path / "shop", monkeypatch)
    yield shop
    assert shop.children() == []


def write_recipe(shop: Workshop) -> Path:
    table = shop.recipe().model_dump(mode="json", exclude_none=True)
    path = shop.root / "shop.toml"
    path.write_text(tomli_w.dumps(table), encoding="utf-8")
    return path


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "specpanel.app", "train", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ,
    )


def ended(child: subprocess.Popen[str]) -> tuple[int, list[dict[str, Any]], str]:
    out, err = child.communicate(timeout=120)
    return child.returncode, [json.loads(line) for line in out.splitlines()], err


def test_the_stream_ends_with_its_summary_and_a_signal_with_130(
    shop: Workshop, tmp_path: Path
) -> None:
    recipe = write_recipe(shop)
    shop.behave("FAKE_TRAINER", gate={"step": 7, "file": str(tmp_path / "gate")})
    folder = str(tmp_path / "run")
    child = start(str(recipe), "--folder", folder, "--json")
    metrics = tmp_path / "run/trainer/metrics.jsonl"
    wait_for(lambda: metrics.exists() and metrics.read_text().count('"step"') >= 7, "seven steps")
    child.send_signal(signal.SIGINT)
    code, lines, _ = ended(child)
    assert code == 130
    assert lines[-1]["kind"] == "summary"
    assert lines[-1]["interrupted"] is True
    assert lines[-1]["resumable"] is True

    (tmp_path / "gate").touch()
    code, lines, err = ended(start(str(recipe), "--folder", folder, "--resume", "--json"))
    assert code == 0, err
    assert lines[-1]["steps"] == 12
    assert next(one["stage"] for one in lines if one["kind"] == "stage_skipped") == "data"


def test_what_cannot_be_is_told_without_a_run() -> None:
    code, lines, err = ended(start("train-demo", "--stage", "dat"))
    assert (code, lines) == (2, [])
    assert "there is no stage dat" in err
    assert "Did you mean data?" in err
    code, _, err = ended(start("train-demo", "--stage", "train"))
    assert code == 2
    assert "needs the data of an earlier run" in err
    code, _, err = ended(start("train-demo", "--resume"))
    assert code == 2
    assert "there is no run of train-demo to go on with" in err


def test_without_a_recipe_those_that_there_are_are_listed() -> None:
    code, lines, _ = ended(start("--json"))
    assert code == 0
    assert {line["name"] for line in lines} >= {"train-demo", "train-tiny"}
    assert all(line["schema_version"] == 1 and line["description"] for line in lines)
