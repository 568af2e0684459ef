"""Which drafters fit a target, and in which order: each with the reason."""

import json
from pathlib import Path
from typing import Any

import pytest
from fakes import drafter_checkpoints as tiny
from typer.testing import CliRunner

from specpanel.app.cli.plain_drafters import match_lines
from specpanel.app.cli.root import app
from specpanel.core.checkpoints.config import ModelConfig, parse_config, read_config
from specpanel.core.checkpoints.drafters import Candidate, recognise
from specpanel.core.matching.fit import Match, ranked
from specpanel.core.matching.scan import scan

TARGET = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
}
HEAD = {
    "speculators_model_type": "eagle3",
    "eagle_aux_hidden_state_layer_ids": [2, 16, 29],
    "transformer_layer_config": {
        "model_type": "llama",
        "hidden_size": 4096,
        "num_hidden_layers": 1,
        "vocab_size": 128256,
        "max_position_embeddings": 131072,
    },
    "speculators_config": {
        "proposal_methods": [{"speculative_tokens": 5}],
        "verifier": {"name_or_path": "/models/target"},
    },
}


def target(**changes: Any) -> ModelConfig:
    return parse_config({**TARGET, **changes}, Path("/models/target"))


def candidate(name: str, **values: Any) -> Candidate:
    folder = Path(name)
    config = parse_config(values, folder)
    verifier = config.speculators.verifier if config.speculators else None
    place = Path(verifier) if verifier else None
    return Candidate(name, folder, config, recognise(config, values, name), place)


def head(name: str = "/runs/head", **changes: Any) -> Candidate:
    values = {**HEAD, **changes}
    if "layer" in values:
        layer = values.pop("layer")
        values["transformer_layer_config"] = {**HEAD["transformer_layer_config"], **layer}  # type: ignore[dict-item]
    return candidate(name, **values)


def only(found: tuple[Match, ...], model: str) -> Match:
    (match,) = [one for one in found if one.model == model]
    return match


def texts(match: Match, kind: str) -> str:
    return "; ".join(reason.text for reason in match.reasons if reason.kind == kind)


def test_a_head_trained_for_this_target_comes_first_with_its_k() -> None:
    stranger = head("/runs/a-stranger", speculators_config={"verifier": {"name_or_path": "/x/y"}})
    found = ranked(target(), [stranger, head()])
    assert (found[0].model, found[0].method, found[0].k) == ("/runs/head", "eagle3", 5)
    assert "trained for this target" in texts(found[0], "for")
    assert found[1].model == "/runs/a-stranger"
    assert "trained for /x/y" in texts(found[1], "note")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"layer": {"hidden_size": 2048}}, "hidden size 2048, and the target's is 4096"),
        ({"layer": {"vocab_size": 32000}}, "vocabulary 32000, and the target's is 128256"),
        ({"eagle_aux_hidden_state_layer_ids": [2, 30, 77]}, "listens to layers 2, 30, 77"),
    ],
)
def test_a_head_of_other_sizes_does_not_fit_and_says_why(
    changes: dict[str, Any], reason: str
) -> None:
    match = only(ranked(target(), [head(**changes)]), "/runs/head")
    assert match.fits == "no"
    assert reason in texts(match, "against")
    assert reason in match.first_reason


def test_a_short_head_fits_with_a_note() -> None:
    match = only(ranked(target(), [head(layer={"max_position_embeddings": 2048})]), "/runs/head")
    assert match.fits == "yes"
    assert "made for 2048 tokens" in texts(match, "note")


def test_a_target_that_hands_out_no_hidden_states_takes_no_eagle3_head() -> None:
    match = only(ranked(target(architectures=["BloomForCausalLM"]), [head()]), "/runs/head")
    assert match.fits == "no"
    assert "does not hand out hidden states" in texts(match, "against")


def test_mtp_layers_of_the_target_stand_between_its_heads_and_the_rest() -> None:
    plain = candidate("/models/small", **{**TARGET, "num_hidden_layers": 4, "hidden_size": 1024})
    found = ranked(target(num_nextn_predict_layers=1), [plain, head()])
    order = [(one.method, one.fits) for one in found]
    assert order[:3] == [("eagle3", "yes"), ("mtp", "yes"), ("draft_model", "yes")]
    (mtp,) = [one for one in ranked(target(), []) if one.method == "mtp"]
    assert mtp.fits == "no"
    assert "names no MTP layers" in mtp.first_reason


def test_deepseek_v4_1_has_no_classic_mtp() -> None:
    found = ranked(target(model_type="deepseek_v41", num_nextn_predict_layers=1), [])
    (mtp,) = [one for one in found if one.method == "mtp"]
    assert mtp.fits == "no"
    assert "dspark" in mtp.first_reason


def test_a_smaller_model_drafts_if_its_vocabulary_is_the_targets() -> None:
    small = {**TARGET, "num_hidden_layers": 4, "hidden_size": 1024}
    same = only(ranked(target(), [candidate("/m/a", **small)]), "/m/a")
    assert (same.method, same.fits) == ("draft_model", "yes")
    other = only(ranked(target(), [candidate("/m/b", **{**small, "vocab_size": 32000})]), "/m/b")
    assert other.fits == "no"
    assert "use_heterogeneous_vocab" in other.first_reason
    padded = only(ranked(target(), [candidate("/m/c", **{**small, "vocab_size": 128384})]), "/m/c")
    assert "padding" in padded.first_reason


def test_larger_models_the_target_itself_and_other_things_are_no_candidates() -> None:
    larger = candidate("/m/large", **{**TARGET, "num_hidden_layers": 64})
    itself = candidate("/models/target", **{**TARGET, "num_hidden_layers": 4})
    encoder = candidate("/m/bert", architectures=["BertModel"], num_hidden_layers=2, hidden_size=64)
    assert [one.model for one in ranked(target(), [larger, itself, encoder]) if one.model] == []


def test_what_cannot_be_served_is_listed_last_with_what_it_is() -> None:
    found = ranked(target(), [candidate("/runs/x", speculators_model_type="xpress")])
    assert found[-1].model == "/runs/x"
    assert "XPress" in found[-1].first_reason


def test_a_cpu_takes_no_drafter_that_needs_runner_v2() -> None:
    dspark = {**HEAD, "speculators_model_type": "dspark"}
    found = ranked(target(), [candidate("/runs/d", **dspark)], "cpu")
    assert only(found, "/runs/d").fits == "no"
    assert "a CPU" in only(found, "/runs/d").first_reason
    assert only(ranked(target(), [candidate("/runs/d", **dspark)], "cuda"), "/runs/d").fits == "yes"
    by_method = {one.method: one.fits for one in found}
    assert (by_method["ngram"], by_method["ngram_gpu"]) == ("yes", "no")


def test_suffix_decoding_asks_for_its_package_where_packages_are_known() -> None:
    def suffix(packages: frozenset[str] | None) -> str:
        found = ranked(target(), [], "cpu", packages)
        return next(one.fits for one in found if one.method == "suffix")

    assert suffix(None) == "yes"
    assert suffix(frozenset({"vllm"})) == "no"
    assert suffix(frozenset({"vllm", "arctic-inference"})) == "yes"


# --- the command line -------------------------------------------------------------------------------


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A target, two drafters for it, one of them not to be read, and an empty hub cache."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    target = tiny.write_target(tmp_path / "target")
    tiny.write_eagle3(tmp_path / "runs" / "e", target)
    tiny.write_dflash(tmp_path / "runs" / "d\x1b[2J", target)
    (tmp_path / "runs" / "broken").mkdir()
    (tmp_path / "runs" / "broken" / "config.json").write_text("{")
    return tmp_path


def test_what_fits_a_target_is_printed_with_the_command_that_launches_it(disk: Path) -> None:
    target = str(disk / "target")
    result = CliRunner().invoke(app, ["drafters", "for", target, "--scan", str(disk / "runs")])
    assert result.exit_code == 0, result.output
    text = result.stdout
    assert "target: LlamaForCausalLM, 4 layers, 64 wide" in text
    assert "✓ eagle3" in text
    assert f"{disk}/runs/e" in text
    assert "✗ mtp" in text
    assert f"Try the first: specpanel run --model {target} --drafter " in text
    assert "skipped:" in result.output
    assert "is not JSON" in result.output


def test_a_head_trained_through_a_link_to_the_target_is_this_targets(
    disk: Path, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(disk / "target")
    tiny.write_eagle3(tmp_path / "linked", tmp_path / "link")
    (found,) = scan([tmp_path / "linked"]).candidates
    match = only(ranked(read_config((disk / "target").resolve()), [found]), found.name)
    assert texts(match, "for").startswith("trained for this target")


def test_no_name_from_disk_reaches_the_terminal_unprintable(disk: Path) -> None:
    found = ranked(read_config(disk / "target"), scan([disk / "runs"]).candidates)
    lines = list(match_lines(found, "/models/x\x1b[31m"))
    assert any("d\N{REPLACEMENT CHARACTER}[2J" in line for line in lines)
    assert all(line.isprintable() for line in lines)


def test_what_fits_a_target_as_json_is_an_object_a_drafter_in_order(disk: Path) -> None:
    arguments = ["drafters", "for", str(disk / "target"), "--scan", str(disk / "runs"), "--json"]
    result = CliRunner().invoke(app, arguments)
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert [one["rank"] for one in found] == list(range(1, len(found) + 1))
    assert {"eagle3", "dflash", "ngram", "mtp"} <= {one["method"] for one in found}
    for one in found:
        assert list(one)[:2] == ["schema_version", "kind"]
        assert one["reasons"]
        assert (one["command"] is None) == (one["fits"] == "no")


def test_a_target_that_is_no_folder_is_an_error_with_a_fix(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["drafters", "for", str(tmp_path / "no")])
    assert result.exit_code == 2
    assert "does not exist" in result.output
    assert "Traceback" not in result.output


def test_a_target_may_be_named_as_in_the_hub_cache(disk: Path) -> None:
    snapshot = disk / "hub" / "models--org--Target" / "snapshots" / "0a1b"
    tiny.write_target(snapshot)
    result = CliRunner().invoke(app, ["drafters", "for", "org/Target"])
    assert result.exit_code == 0, result.output
    assert "LlamaForCausalLM, 4 layers" in result.stdout
    assert "Try the first: specpanel run --model org/Target --drafter ngram" in result.stdout
    missing = CliRunner().invoke(app, ["drafters", "for", "org/Other"])
    assert missing.exit_code == 2
    assert "Hugging Face cache" in missing.output
