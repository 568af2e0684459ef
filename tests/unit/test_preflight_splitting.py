"""Over how many ranks a launch can be split: heads of target and drafter."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from specpanel.core.checkpoints.config import parse_config
from specpanel.core.checkpoints.weights import Weights
from specpanel.core.engine.interpreter_facts import InterpreterFacts
from specpanel.core.preflight.finding import Finding
from specpanel.core.preflight.rules import check
from specpanel.core.preflight.surroundings import (
    DeviceState,
    ModelState,
    PortState,
    Surroundings,
)
from specpanel.core.settings.profile import Profile

GIB = 1024**3
FACTS = InterpreterFacts(
    *("/venv/bin/python", "3.12.1", "vllm", "0.32.0", "cuda", "serve", "/venv/bin/vllm"),
    frozenset({"vllm", "triton"}),
)
H200 = DeviceState("NVIDIA H200", 141 * GIB, 140 * GIB, (9, 0))
LATENT = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
}


def model(heads: int, kv_heads: int, **more: Any) -> ModelState:
    folder = Path("/models/x")
    values = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": 49152,
        "hidden_size": heads * 64,
        "num_hidden_layers": 2,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "max_position_embeddings": 2048,
        "dtype": "bfloat16",
        **more,
    }
    return ModelState(
        str(folder), "folder", parse_config(values, folder), Weights("safetensors", GIB, 1)
    )


def split(
    ranks: int, target: ModelState, drafter: ModelState | None = None, **settings: Any
) -> dict[str, Finding]:
    around = Surroundings(
        interpreter=FACTS,
        platform="cuda",
        port=PortState(8000, free=True),
        target=target,
        drafter=drafter,
        devices=(H200,) * 16,
    )
    method = {"method": "draft_model", "model": "/models/d", "k": 3} if drafter else {}
    table: dict[str, Any] = {
        "target": {"model": "/models/x"},
        "engine": {"tensor_parallel_size": ranks},
        "drafter": {**(method or {"method": "ngram", "k": 3}), **settings},
    }
    return {each.code: each for each in check(Profile.model_validate(table), around)}


@pytest.mark.parametrize(
    ("heads", "kv_heads", "ranks", "code", "possible"),
    [
        (9, 3, 8, "heads-undivided", 3),  # SmolLM2-135M
        (14, 2, 4, "heads-undivided", 2),  # Qwen2.5-0.5B
        (7, 1, 4, "heads-undivided", None),
        (12, 2, 3, "kv-heads-undivided", 2),  # Qwen2.5-1.5B: two KV heads cannot be copied to three
        (12, 4, 6, "kv-heads-undivided", 4),
        (32, 6, 4, "kv-heads-undivided", 2),
        (9, 3, 3, None, None),
        (9, 3, 9, None, None),  # each KV head is copied to three ranks
        (64, 8, 16, None, None),
    ],
)
def test_heads_divide_over_the_ranks_or_the_launch_is_refused(
    heads: int, kv_heads: int, ranks: int, code: str | None, possible: int | None
) -> None:
    found = split(ranks, model(heads, kv_heads))
    if code is None:
        assert not {"heads-undivided", "kv-heads-undivided"} & set(found)
        return
    assert found[code].severity == "error"
    assert found[code].mend == (("engine.tensor_parallel_size", possible),)
    assert {"heads-undivided", "kv-heads-undivided"} & set(found) == {code}


def test_a_latent_has_no_kv_heads_to_divide() -> None:
    assert not {"heads-undivided", "kv-heads-undivided"} & set(split(3, model(12, 2, **LATENT)))


@pytest.mark.parametrize("own", [{}, {"draft_tensor_parallel_size": 1}])
def test_a_drafters_heads_are_divided_over_the_targets_ranks_too(own: dict[str, int]) -> None:
    found = split(4, model(32, 8), model(14, 2), **own)["heads-undivided"]
    assert "the drafter's 14 attention heads" in found.text
    assert found.mend == (("engine.tensor_parallel_size", 2),)


@pytest.mark.parametrize(
    ("settings", "nodes", "told"),
    [
        ({"tensor_parallel_size": 8}, 1, "needs 8 ranks"),
        ({"arguments": ["-pp", "2"]}, 1, "needs 2 ranks"),
        ({"tensor_parallel_size": 2}, 2, None),
        ({}, 1, None),
        (
            {"tensor_parallel_size": 2, "environment": {"VLLM_CPU_OMP_THREADS_BIND": "0|1"}},
            1,
            None,
        ),
        (
            {"tensor_parallel_size": 4, "environment": {"VLLM_CPU_SIM_MULTI_NUMA": "1"}},
            1,
            "and 2 cores",
        ),
    ],
)
def test_more_ranks_than_the_cpu_has_places_for_are_a_warning(
    settings: dict[str, Any], nodes: int, told: str | None
) -> None:
    around = Surroundings(
        interpreter=replace(FACTS, platform="cpu"),
        platform="cpu",
        port=PortState(8000, free=True),
        target=ModelState("lab/of-the-hub", "hub"),
        cpu_nodes=nodes,
        cores=2,
    )
    table = {"target": {"model": "lab/of-the-hub"}, "engine": settings}
    found = {each.code: each for each in check(Profile.model_validate(table), around)}
    if told is None:
        assert "ranks-on-cpu" not in found
    else:
        assert found["ranks-on-cpu"].severity == "warning"
        assert told in found["ranks-on-cpu"].text
