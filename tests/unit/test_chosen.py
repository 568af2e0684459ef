"""What vLLM chose, from a real start's log and a real server's metrics, beside what was wished."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specpanel.core.engine.chosen import (
    Choice,
    Chosen,
    ChosenReader,
    against,
    cache_info,
    disagreements,
    with_cache_info,
)
from specpanel.core.engine.logline import parse_line
from specpanel.core.session.explaining import read_choices
from specpanel.core.settings.profile import Profile

DATA = Path(__file__).parents[1] / "data"
HEAD = "(EngineCore pid=5) INFO 11-30 11:00:00 [core.py:133] "


def read(*lines: str) -> Chosen:
    reader = ChosenReader()
    for line in lines:
        reader.feed(parse_line(line.encode()))
    return reader.chosen


def real() -> Chosen:
    chosen = read_choices(DATA / "logs" / "ngram_good.txt")
    metrics = (DATA / "metrics_vllm_0_32_ngram.txt").read_text()
    return with_cache_info(chosen, cache_info(metrics))


def profile(**sections: object) -> Profile:
    return Profile.model_validate({"target": {"model": "/models/smol"}, **sections})


def named(choices: tuple[Choice, ...]) -> dict[str, Choice]:
    return {choice.name: choice for choice in choices}


def test_a_real_start_tells_what_was_chosen():
    chosen = real()
    assert (chosen.vllm_version, chosen.method, chosen.draft_tokens) == ("0.32.0", "ngram", 4)
    assert (chosen.runner, chosen.dtype, chosen.max_model_len) == ("V1", "float32", 1024)
    assert (chosen.kv_cache_dtype, chosen.block_size) == ("auto", 128)
    assert (chosen.kv_cache_tokens, chosen.max_concurrency) == (23296, 22.75)
    assert (chosen.prefix_caching, chosen.chunked_prefill) == (True, True)
    assert (chosen.async_scheduling, chosen.enforce_eager) == (False, True)
    assert "Model Runner V2 requires Triton; using the V1 model runner instead." in chosen.remarks


def test_a_real_mla_start_on_a_cpu_took_its_own_block_size_and_says_so():
    """A small DeepSeek V2 with n-gram, asked for blocks of 64; what it wrote until it answered."""
    chosen = read_choices(DATA / "logs" / "mla_cpu.txt")
    assert (chosen.attention_backend, chosen.mla_prefill_backend) == ("CPU_MLA", "CPU_SDPA_MLA")
    assert (chosen.prefix_caching, chosen.chunked_prefill) == (False, False)
    wished = profile(
        drafter={"method": "ngram", "k": 3},
        mla={"attention_backend": "CPU_MLA", "block_size": 64},
        engine={"arguments": ["--enable-prefix-caching"]},
    )
    found = {
        choice.name: (choice.wished, choice.chosen)
        for choice in disagreements(against(wished, chosen))
    }
    assert found == {"block size": ("64", "16"), "prefix caching": ("yes", "no")}
    assert any("forcing chunked prefill" in remark for remark in chosen.remarks)


def test_what_a_log_does_not_say_is_absent():
    assert real().attention_backend is None  # a CPU has one, and names none
    assert read("a line", "INFO: another") == Chosen()


def test_nothing_is_read_from_a_log_after_the_server_answered():
    chosen = read(
        "INFO:     Application startup complete.",
        f"{HEAD}Using FLASHMLA backend.",
    )
    assert chosen.attention_backend is None


def test_a_start_as_asked_has_no_disagreement():
    wished = profile(
        drafter={"method": "ngram", "k": 4},
        target={"model": "/models/smol", "max_model_len": 1024, "dtype": "float32"},
        engine={"enforce_eager": True},
    )
    assert disagreements(against(wished, real())) == ()


def test_every_wish_that_was_dropped_is_named_with_its_setting():
    wished = profile(
        drafter={"method": "suffix", "k": 8},
        target={"model": "/models/smol", "dtype": "bfloat16"},
        mla={"kv_cache_dtype": "fp8", "block_size": 64},
        engine={
            "environment": {"VLLM_USE_V2_MODEL_RUNNER": "1"},
            "arguments": ["--no-enable-prefix-caching"],
        },
    )
    found = {
        choice.setting: (choice.wished, choice.chosen)
        for choice in disagreements(against(wished, real()))
    }
    assert found == {
        "drafter.method": ("suffix", "ngram"),
        "drafter.k": ("8", "4"),
        "engine.environment": ("V2", "V1"),
        "mla.kv_cache_dtype": ("fp8", "auto (float32)"),
        "mla.block_size": ("64", "128"),
        "target.dtype": ("bfloat16", "float32"),
        "engine.arguments": ("no", "yes"),
    }


def test_p_eagle_is_vllms_eagle3_and_no_disagreement():
    chosen = Chosen(method="eagle3", draft_tokens=3)
    wished = profile(drafter={"method": "p_eagle", "model": "/d", "k": 3})
    assert disagreements(against(wished, chosen)) == ()


def test_speculation_that_was_dropped_is_a_disagreement():
    chosen = read(f"{HEAD}Initializing a V1 LLM engine (v0.32.0) with config: model='x', "
                  "speculative_config=None, tokenizer='x'")  # fmt: skip
    wished = profile(drafter={"method": "ngram"})
    (found,) = disagreements(against(wished, chosen))
    assert (found.name, found.wished, found.chosen) == ("drafter", "ngram", "none")


@pytest.mark.parametrize(
    ("wished", "found", "dtype", "agrees"),
    [
        ("fp8", "fp8_e4m3", "bfloat16", True),
        ("fp8", "fp8_ds_mla", "bfloat16", True),
        ("fp8_e5m2", "fp8_e4m3", "bfloat16", False),
        ("bfloat16", "auto", "bfloat16", True),
        ("bfloat16", "auto", "float16", False),
        ("fp8", "auto", "bfloat16", False),
        ("auto", "fp8", "bfloat16", True),
    ],
)
def test_names_of_one_cache_type_agree(wished, found, dtype, agrees):
    choices = against(
        profile(mla={"kv_cache_dtype": wished}), Chosen(kv_cache_dtype=found, dtype=dtype)
    )
    assert named(choices)["KV cache type"].agrees is agrees


def test_what_was_left_to_vllm_neither_agrees_nor_disagrees():
    choice = named(against(profile(), real()))["max model length"]
    assert (choice.wished, choice.chosen, choice.agrees) == (None, "1024", None)


def test_without_a_profile_the_choices_are_told_alone():
    choices = against(None, real())
    assert named(choices)["drafter"].chosen == "ngram"
    assert all(choice.wished is None for choice in choices)


# The forms of vLLM 0.32.0's platforms/cuda.py, platforms/rocm.py and v1/attention.
@pytest.mark.parametrize(
    "line",
    [
        "Using FLASHMLA attention backend out of potential backends: ['FLASHMLA', 'TRITON_MLA'].",
        "Using AttentionBackendEnum.FLASHMLA backend.",
        "Using FLASHMLA backend (selected via --attention-backend).",
        "Using FLASHMLA backend out of potential backends: ['FLASHMLA'].",
    ],
)
def test_the_attention_backend_is_read_in_every_form(line):
    assert read(HEAD + line).attention_backend == "FLASHMLA"


@pytest.mark.parametrize(
    "line",
    [
        "Using FLASHMLA MLA prefill backend.",
        "Using backend FLASH_ATTN for vit attention",
        "Using fp8_ds_mla KV cache format for FLASHMLA_SPARSE backend.",
        "Using PyNccl as the backend",
    ],
)
def test_other_backends_are_not_taken_for_the_attention_backend(line):
    assert read(HEAD + line).attention_backend is None


def test_the_drafters_backend_is_told_apart_from_the_targets():
    chosen = read(
        f"{HEAD}Using FLASHMLA attention backend out of potential backends: ['FLASHMLA'].",
        f"{HEAD}Loading drafter model...",
        f"{HEAD}Using FLASH_ATTN attention backend out of potential backends: ['FLASH_ATTN'].",
        f"{HEAD}Using FLASHMLA MLA prefill backend.",
    )
    assert chosen.attention_backend == "FLASHMLA"
    assert chosen.drafter_attention_backend == "FLASH_ATTN"
    assert chosen.mla_prefill_backend == "FLASHMLA"


@pytest.mark.parametrize(
    ("source", "runner"),
    [("gpu_model_runner.py:5040", "V1"), ("model_runner.py:400", "V2")],
)
def test_the_runner_is_told_by_the_file_that_loads_the_model(source, runner):
    line = f"(Worker pid=9) INFO 11-30 11:00:00 [{source}] Starting to load model /m..."
    assert read(line).runner == runner


def test_a_cache_format_that_the_backend_asked_for_replaces_the_one_in_the_config():
    chosen = read(
        f"{HEAD}Initializing a V1 LLM engine (v0.32.0) with config: model='x', kv_cache_dtype=fp8, x=1",
        f"{HEAD}Using fp8_ds_mla KV cache format for FLASHMLA_SPARSE backend.",
    )
    assert chosen.kv_cache_dtype == "fp8_ds_mla"


def test_an_overriding_of_vllms_is_kept_in_its_words():
    text = "CPU MLA backend requires block_size=16, overriding user-specified block_size=64."
    chosen = read(f"{HEAD}{text}")
    assert (chosen.block_size, chosen.remarks) == (16, (text,))


def test_metrics_without_the_info_change_nothing():
    assert with_cache_info(Chosen(block_size=16), cache_info("vllm:x 1")) == Chosen(block_size=16)
    assert (
        with_cache_info(Chosen(), {"block_size": "None", "kv_cache_size_tokens": "x"}) == Chosen()
    )


@settings(max_examples=100, deadline=None)
@given(st.lists(st.one_of(st.text(max_size=80), st.sampled_from([
    f"{HEAD}Initializing a V1 LLM engine (v0.32.0) with config: model='x', max_seq_len=9, dtype=torch.x",
    f"{HEAD}GPU KV cache size: 1,2,3 tokens, Maximum concurrency for 1 tokens per request: 1.00x",
    f"{HEAD}Using X backend.",
])), max_size=8), st.text(max_size=200))  # fmt: skip
def test_no_log_and_no_metrics_whatever_they_hold_are_an_error(lines, exposition):
    chosen = with_cache_info(read(*lines), cache_info(exposition))
    assert disagreements(against(None, chosen)) == ()
