"""Which drafter a checkpoint is, what is found on disk, and the small ones that tests are served with."""

import json
from pathlib import Path
from typing import Any

import pytest
from fakes import drafter_checkpoints as tiny

from specpanel.core.checkpoints.config import parse_config, read_config
from specpanel.core.checkpoints.drafters import recognise
from specpanel.core.checkpoints.json_file import read_json
from specpanel.core.errors import ConfigurationError
from specpanel.core.matching.scan import hub_cache, scan

# What `speculators train --dry-run` of Speculators 0.9.0 wrote for the tiny target, with
# --target-layer-ids 1 2 3 --num-layers 1 --full-attention-indices 0 --mask-token-id 319.
WRITTEN = json.loads(
    (Path(__file__).parents[1] / "data" / "speculators_0_9_0.json").read_text(encoding="utf-8")
)
WRITERS = {"eagle3": tiny.write_eagle3, "peagle": tiny.write_p_eagle, "dflash": tiny.write_dflash}


@pytest.mark.parametrize("algorithm", WRITERS)
def test_the_small_drafters_are_what_speculators_writes(algorithm: str, tmp_path: Path) -> None:
    """Every name, type, shape and entry of the configuration."""
    folder = WRITERS[algorithm](tmp_path / algorithm, Path("TARGET"))
    assert json.loads((folder / "config.json").read_text()) == WRITTEN[algorithm]["config"]
    raw = (folder / "model.safetensors").read_bytes()
    size = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + size])
    header.pop("__metadata__")
    found = {name: [entry["dtype"], entry["shape"]] for name, entry in header.items()}
    assert found == WRITTEN[algorithm]["tensors"]
    ends = sorted(entry["data_offsets"][1] for entry in header.values())
    assert ends[-1] == len(raw) - 8 - size


def kind(folder: Path, **values: Any) -> str | None:
    found = recognise(parse_config(values, folder), values, folder.name)
    return None if found is None else found.method or f"not served: {found.what}"


@pytest.mark.parametrize(
    ("values", "method"),
    [
        ({"speculators_model_type": "eagle3"}, "eagle3"),
        ({"speculators_model_type": "peagle"}, "p_eagle"),
        ({"speculators_model_type": "dflash"}, "dflash"),
        ({"speculators_model_type": "dflash2"}, "dflash2"),
        ({"speculators_model_type": "dspark"}, "dspark"),
        ({"architectures": ["LlamaForCausalLMEagle3"], "num_hidden_layers": 1}, "eagle3"),
        ({"architectures": ["Eagle3Qwen3ForCausalLM"]}, "eagle3"),
        ({"architectures": ["EagleLlamaForCausalLM"]}, "eagle"),
        ({"architectures": ["PEagleDraftModel"]}, "p_eagle"),
        ({"architectures": ["PeagleQwen3ForCausalLM"]}, "p_eagle"),
        ({"architectures": ["DFlashDraftModel"]}, "dflash"),
        ({"architectures": ["DFlash2DraftModel"]}, "dflash2"),
        ({"architectures": ["LiLiCorrDraftModel"]}, "dflash2"),
        ({"architectures": ["Qwen3DSparkModel"]}, "dspark"),
        ({"architectures": ["DeepSeekMTPModel"], "num_nextn_predict_layers": 1}, "mtp"),
        ({"architectures": ["EagleDeepSeekMTPModel"]}, "mtp"),
        ({"model_type": "medusa", "architectures": ["MedusaModel"]}, "medusa"),
        ({"medusa_num_heads": 5, "medusa_num_layers": 1}, "medusa"),
        ({"architectures": ["LlamaForCausalLM"], "pard_token": 128256}, "pard"),
        ({"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 16}, None),
        ({"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 1}, None),
    ],
)
def test_a_checkpoint_is_recognised_by_its_configuration(
    values: dict[str, Any], method: str | None, tmp_path: Path
) -> None:
    assert kind(tmp_path / "run-7", **values) == method


@pytest.mark.parametrize(
    ("name", "method"),
    [("EAGLE-LLaMA3-Instruct-8B", "eagle"), ("EAGLE3-LLaMA3.1-Instruct-8B", "eagle3")],
)
def test_a_head_of_the_first_releases_is_told_by_its_name(name: str, method: str) -> None:
    plain = {"architectures": ["LlamaForCausalLM"]}
    assert kind(Path("/x") / name, **plain, num_hidden_layers=1) == method
    assert kind(Path("/x") / name, **plain, num_hidden_layers=32) is None


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"speculators_model_type": "xpress"}, "XPress"),
        ({"speculators_model_type": "mtp"}, "stitch-mtp"),
        ({"speculators_model_type": "eagle9"}, "eagle9"),
        ({"model_type": "mlp_speculator"}, "MLP"),
    ],
)
def test_what_cannot_be_served_says_what_it_is(values: dict[str, Any], words: str) -> None:
    assert words in str(kind(Path("/x"), **values))


def test_eagle_3_1_is_told_by_its_norms() -> None:
    values = {"speculators_model_type": "eagle3", "fc_norm": True}
    found = recognise(parse_config(values, Path("/x")), values, "x")
    assert found is not None
    assert found.method == "eagle3"
    assert "3.1" in found.what


# --- looking on disk --------------------------------------------------------------------------------


def checkpoint(folder: Path, **values: Any) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(values))
    return folder


def test_checkpoints_are_found_below_a_folder_each_once(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "a"
    first = checkpoint(run / "0", speculators_model_type="eagle3")
    second = checkpoint(run / "1", speculators_model_type="peagle")
    (run / "checkpoint_best").symlink_to(second)
    (run / "loop").symlink_to(tmp_path)
    checkpoint(tmp_path / ".hidden" / "b", speculators_model_type="dflash")
    found = scan([tmp_path, run])
    assert [one.folder for one in found.candidates] == [first, second]
    assert [one.name for one in found.candidates] == [str(first), str(second)]
    assert found.complete


def test_a_broken_configuration_hides_no_other_and_is_told(tmp_path: Path) -> None:
    checkpoint(tmp_path / "good", speculators_model_type="eagle3")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "config.json").write_text("<!doctype html>")
    found = scan([tmp_path])
    assert len(found.candidates) == 1
    (problem,) = found.unreadable
    assert "web page" in problem


def test_a_scan_of_what_is_no_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="is no folder"):
        scan([tmp_path / "nothing"])


def test_the_hub_cache_gives_the_snapshot_that_main_points_to(tmp_path: Path) -> None:
    model = tmp_path / "models--org--Head-EAGLE3"
    checkpoint(model / "snapshots" / "aaa", speculators_model_type="eagle3")
    newer = checkpoint(model / "snapshots" / "bbb", speculators_model_type="dflash")
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text("aaa")
    (tmp_path / "models--org--empty").mkdir()
    (found,) = scan([], tmp_path).candidates
    assert found.name == "org/Head-EAGLE3"
    assert found.folder == (model / "snapshots" / "aaa").resolve()
    assert found.recognised is not None
    assert found.recognised.method == "eagle3"
    (model / "refs" / "main").write_text("../../elsewhere")
    (found,) = scan([], tmp_path).candidates
    assert found.folder == newer or found.folder.name in {"aaa", "bbb"}


def test_a_head_of_the_first_releases_is_told_by_its_hub_id(tmp_path: Path) -> None:
    """The folder of a snapshot is called after its commit."""
    model = tmp_path / "models--yuhuili--EAGLE-LLaMA3-Instruct-8B"
    plain = {"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 1}
    checkpoint(model / "snapshots" / "0a1b", **plain)
    (found,) = scan([], tmp_path).candidates
    assert found.recognised is not None
    assert found.recognised.method == "eagle"


def test_a_cache_that_is_not_there_holds_nothing(tmp_path: Path) -> None:
    assert scan([], tmp_path / "no").candidates == ()


@pytest.mark.parametrize(
    ("environment", "place"),
    [
        ({"HF_HUB_CACHE": "/a"}, "/a"),
        ({"HF_HOME": "/b"}, "/b/hub"),
        ({"XDG_CACHE_HOME": "/c"}, "/c/huggingface/hub"),
    ],
)
def test_the_cache_is_where_the_hub_keeps_it(environment: dict[str, str], place: str) -> None:
    assert hub_cache(environment) == Path(place)


def test_the_tiny_target_reads_as_what_it_is(tmp_path: Path) -> None:
    config = read_config(tiny.write_target(tmp_path / "target"))
    assert (config.hidden_size, config.layers, config.vocab_size) == (64, 4, 320)
    values = read_json(config.folder / "config.json")
    assert recognise(config, values, "target") is None
