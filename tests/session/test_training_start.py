"""What training starts from: an earlier checkpoint, or a drafter of others that is converted first."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from fakes.training.workshop import Told, Workshop
from safetensors.numpy import save_file

from specpanel.core.errors import ExitCode
from specpanel.core.session.events import FindingMade
from specpanel.core.training.events import TrainerStarted

SIZE = 100


@pytest.fixture
def shop(tmp_path: Path, own_folders: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workshop]:
    shop = Workshop(tmp_path / "shop", monkeypatch)
    shop.set("algorithm", draft_vocab_size=SIZE)
    yield shop
    assert shop.children() == []


def third_party(folder: Path, **config: object) -> Path:
    """An EAGLE-3 head as its authors publish it."""
    folder.mkdir()
    content = {"architectures": ["LlamaForCausalLMEagle3"], "hidden_size": 64, "vocab_size": 400}
    content |= {"draft_vocab_size": SIZE, **config}
    (folder / "config.json").write_text(json.dumps(content), encoding="utf-8")
    tensors = {
        "d2t": np.arange(SIZE, dtype=np.int64),
        "t2d": np.arange(400) % 2 == 0,
        "w": np.ones(4, np.float32),
    }
    save_file(tensors, folder / "model.safetensors")
    return folder


def flag(told: Told, name: str) -> str | None:
    argv = told.of(TrainerStarted)[0].argv
    return argv[argv.index(name) + 1] if name in argv else None


async def test_a_drafter_of_others_is_converted_and_keeps_its_vocabulary(
    shop: Workshop, tmp_path: Path
) -> None:
    shop.set("trainer", from_pretrained=str(third_party(tmp_path / "eagle")))
    told = await shop.run()
    assert told.outcome is not None
    assert told.outcome.error is None
    assert flag(told, "--from-pretrained") == str(shop.folder.trainer / "start")
    assert flag(told, "--d2t-path") == str(shop.folder.trainer / "start-d2t.npy")
    assert np.array_equal(np.load(shop.folder.trainer / "start-d2t.npy"), np.arange(SIZE))
    assert np.load(shop.folder.trainer / "start-t2d.npy").sum() == 200

    # A checkpoint of this run is of that vocabulary; the next run starts from it as it is.
    kept = shop.folder.kept()[-1]
    assert kept.mapping_sha256 is not None


@pytest.mark.parametrize(
    ("config", "algorithm", "code"),
    [
        ({"hidden_size": 128}, {}, "start-of-another-target"),
        ({}, {"type": "peagle", "draft_vocab_size": SIZE}, "start-not-converted"),
    ],
)
async def test_what_cannot_be_started_from_is_told_before_anything_starts(
    shop: Workshop, tmp_path: Path, config: dict[str, int], algorithm: dict[str, str], code: str
) -> None:
    shop.set("algorithm", **algorithm)
    shop.set("trainer", from_pretrained=str(third_party(tmp_path / "eagle", **config)))
    told = await shop.run()
    assert told.outcome is not None
    assert told.outcome.exit_code == ExitCode.USAGE
    assert code in [one.code for one in told.of(FindingMade)]
    assert told.of(TrainerStarted) == []


async def test_another_draft_vocabulary_is_refused_with_the_setting(
    shop: Workshop, tmp_path: Path
) -> None:
    shop.set("algorithm", draft_vocab_size=50)
    shop.set("trainer", from_pretrained=str(third_party(tmp_path / "eagle")))
    told = await shop.run()
    assert told.outcome is not None
    assert "algorithm.draft_vocab_size to 100" in str(told.outcome.error)
    assert told.of(TrainerStarted) == []
