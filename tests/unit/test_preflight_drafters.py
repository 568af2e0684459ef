"""Drafter and target: each way in which they do not fit gives its finding, with the facts it rests on."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from specpanel.core.checkpoints.config import parse_config
from specpanel.core.checkpoints.weights import Weights
from specpanel.core.engine.interpreter_facts import InterpreterFacts
from specpanel.core.preflight.finding import Finding
from specpanel.core.preflight.rules import check
from specpanel.core.preflight.surroundings import ModelState, PortState, Surroundings
from specpanel.core.settings.profile import Profile

TARGET = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 128256,
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
    "dtype": "bfloat16",
}
HEAD = TARGET | {
    "architectures": ["LlamaForCausalLMEagle3"],
    "num_hidden_layers": 1,
    "draft_vocab_size": 32000,
}
TENSORS = {"model.fc.weight": (4096, 12288), "d2t": (32000,), "t2d": (128256,)}
FACTS = InterpreterFacts(
    *("/venv/bin/python", "3.12.1", "vllm", "0.32.0", "cuda", "serve", "/venv/bin/vllm"),
    frozenset({"vllm", "triton"}),
)


def state(values: dict[str, Any], **more: Any) -> ModelState:
    tensors = more.pop("tensors", {})
    weights = Weights("safetensors", 1000, 1, shapes=tensors)
    config = parse_config(values, Path("/models/x"))
    return ModelState("/models/x", "folder", config, more.pop("weights", weights), **more)


def around(
    target: dict[str, Any] | None = None, drafter: dict[str, Any] | None = None, **more: Any
) -> Surroundings:
    tensors = more.pop("tensors", TENSORS)
    return Surroundings(
        interpreter=more.pop("interpreter", FACTS),
        platform="cuda",
        port=PortState(8000, free=True),
        target=state(TARGET | (target or {}), tokenizer=more.pop("tokenizer", None)),
        drafter=state(HEAD | (drafter or {}), tensors=tensors, **more),
    )


def profile(method: str = "eagle3", **sections: Any) -> Profile:
    drafter = {"method": method, "model": "/models/d", "k": 3} | sections.pop("drafter", {})
    target = {"model": "/models/t"} | sections.pop("target", {})
    return Profile.model_validate({"target": target, "drafter": drafter, **sections})


def told(launch: Profile, place: Surroundings) -> dict[str, Finding]:
    return {finding.code: finding for finding in check(launch, place)}


def test_a_fitting_head_is_silent() -> None:
    assert told(profile(), around()) == {}


def test_d10_s12a_a_head_of_another_width_is_an_error_with_both_numbers() -> None:
    found = told(profile(), around({"hidden_size": 8192}))
    assert found["hidden-size-mismatch"].severity == "error"
    assert found["hidden-size-mismatch"].evidence == (
        "target: hidden_size 8192",
        "drafter: hidden_size 4096",
    )


def test_d10_fc_must_take_what_the_auxiliary_layers_give() -> None:
    tensors = TENSORS | {"model.fc.weight": (4096, 8192)}
    (finding,) = told(profile(), around(tensors=tensors)).values()
    assert finding.code == "fc-width-mismatch"
    assert "fc takes 8192 values, and 3 layers of 4096 give 12288" in finding.text


def test_s12b_a_short_head_is_told_and_needs_its_map() -> None:
    place = around(drafter={"max_position_embeddings": 2048}, tensors={"embed": (32000, 4096)})
    found = told(profile(), place)
    assert set(found) == {"drafter-short", "head-vocabulary"}
    assert "d2t" in found["head-vocabulary"].text
    assert found["drafter-short"].mend == (("target.max_model_len", 2048),)


def test_a_map_is_not_missed_where_headers_were_not_all_read() -> None:
    place = around(weights=Weights("safetensors", 1000, 9, shapes={"x": (1,)}, whole=False))
    assert told(profile(), place) == {}


def test_a_head_of_a_larger_vocabulary_is_an_error() -> None:
    place = around(drafter={"draft_vocab_size": None, "vocab_size": 152064})
    assert told(profile(), place)["head-vocabulary"].severity == "error"


def test_s12c_two_paddings_of_one_vocabulary_are_explained() -> None:
    place = around({"vocab_size": 152064}, {"vocab_size": 151936, "draft_vocab_size": None})
    finding = told(profile("draft_model"), place)["vocabulary-mismatch"]
    assert "a gap of 128 that may be padding only" in finding.text
    heterogeneous = profile("draft_model", drafter={"use_heterogeneous_vocab": True})
    assert "vocabulary-mismatch" not in told(heterogeneous, place)


def test_s12d_four_layers_one_of_them_not_there() -> None:
    place = around(
        drafter={"eagle_aux_hidden_state_layer_ids": [2, 16, 31, 32]},
        tensors=TENSORS | {"model.fc.weight": (4096, 16384)},
    )
    texts = [finding.text for finding in check(profile(), place)]
    assert any("4 layers (fc takes 16384)" in text for text in texts)
    assert any("layer 32, and the target has 32" in text for text in texts)


def test_s12g_a_verifier_of_another_machine_is_a_note() -> None:
    speculators = {
        "speculators_model_type": "eagle3",
        "speculators_config": {"verifier": {"name_or_path": "/scratch/job91/base"}},
        "transformer_layer_config": {"hidden_size": 4096},
    }
    place = around(drafter=speculators, verifier_found=False)
    finding = told(profile(), place)["verifier-elsewhere"]
    assert finding.severity == "note"
    assert "/scratch/job91/base" in finding.text
    assert "verifier-elsewhere" not in told(profile(), around(drafter=speculators))


def test_d11_a_target_without_the_interface_is_told_before_the_weights_are_loaded() -> None:
    place = around({"architectures": ["FalconForCausalLM"]})
    assert told(profile(), place)["eagle3-target-unknown"].severity == "warning"


def test_d13_d14_the_served_length_counts_not_the_models() -> None:
    short = around(drafter={"max_position_embeddings": 2048})
    assert "drafter-short" in told(profile(), short)
    assert told(profile(target={"max_model_len": 2048}), short) == {}


@pytest.mark.parametrize(("k", "words"), [(2, "above the 1"), (13, "far above the 1")])
def test_d17_s12e_mtp_beyond_its_trained_layers(k: int, words: str) -> None:
    mtp = around({"num_nextn_predict_layers": 1})
    launch = Profile.model_validate(
        {"target": {"model": "/models/t"}, "drafter": {"method": "mtp", "k": k}}
    )
    finding = told(launch, replace(mtp, drafter=None))["k-above-mtp-layers"]
    assert words in finding.text
    assert finding.mend == (("drafter.k", 1),)


def test_d26_a_quantised_target_and_a_plain_head() -> None:
    place = around({"quantization_config": {"quant_method": "fp8"}})
    finding = told(profile(), place)["quantised-target"]
    assert (finding.severity, finding.evidence[0]) == ("note", "target: fp8")


def test_d35_norm_flags_that_an_older_vllm_ignores() -> None:
    flags = {"norm_before_fc": True, "norm_output": True}
    old = around(drafter=flags, interpreter=replace(FACTS, vllm_version="0.20.1"))
    assert "norm_before_fc, norm_output" in told(profile(), old)["norm-flags"].text
    assert "norm-flags" not in told(profile(), around(drafter=flags))
    assert "vllm-version" in told(profile(), old)


def test_a_tokenizer_of_the_same_size_may_still_be_another() -> None:
    launch = profile("draft_model")
    same = {"draft_vocab_size": None}
    place = around(drafter=same, tokenizer="tokenizer.json:aa")
    assert place.drafter is not None
    other = replace(place, drafter=replace(place.drafter, tokenizer="tokenizer.json:bb"))
    assert told(launch, other)["tokenizer-differs"].severity == "warning"
    alike = replace(place, drafter=replace(place.drafter, tokenizer="tokenizer.json:aa"))
    assert told(launch, alike) == {}


def test_the_method_is_what_the_drafter_was_trained_for() -> None:
    peagle = {
        "speculators_model_type": "peagle",
        "speculators_config": {"proposal_methods": [{"speculative_tokens": 4}]},
        "transformer_layer_config": {"hidden_size": 4096},
        "mask_token_id": 5,
    }
    place = around(drafter=peagle)
    finding = told(profile("eagle3"), place)["method-not-the-drafters"]
    assert finding.fix == "Use the drafter p_eagle."
    assert "method-not-the-drafters" not in told(profile("p_eagle"), place)
    unmasked = {name: value for name, value in peagle.items() if name != "mask_token_id"}
    assert "mask-token-missing" in told(profile("p_eagle"), around(drafter=unmasked))


def test_a_speculators_checkpoint_without_its_layers_is_refused_in_vllms_words() -> None:
    broken = {"speculators_model_type": "eagle3", "speculators_config": {}}
    finding = told(profile(), around(drafter=broken))["speculators-format"]
    assert "Must provide transformer_layer_config" in finding.evidence[0]
    unknown = {
        "speculators_model_type": "xpress",
        "speculators_config": {},
        "transformer_layer_config": {},
    }
    assert "xpress" in told(profile(), around(drafter=unknown))["speculators-format"].text


def test_a_block_of_sixteen_drafts_fifteen() -> None:
    launch = profile("dflash", drafter={"k": 16})
    place = around(drafter={"block_size": 16, "architectures": ["DFlashDraftModel"]})
    finding = told(launch, place)["k-above-training"]
    assert finding.mend == (("drafter.k", 15),)


def test_the_drafters_length_is_at_most_its_own_and_the_targets() -> None:
    launch = profile(drafter={"max_model_len": 200000})
    finding = told(launch, around())["draft-max-model-len"]
    assert finding.mend == (("drafter.max_model_len", 131072),)
