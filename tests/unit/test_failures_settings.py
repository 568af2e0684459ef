"""From a failure to the setting that ends it, and how much of what vLLM can say is known."""

import ast
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from string import Formatter

import pytest
from hypothesis import given
from hypothesis import settings as settings_of_hypothesis
from hypothesis import strategies as st
from pace import cheapest_s

from specpanel.core.engine.failures import Failure, diagnose, known_cause
from specpanel.core.engine.known_causes import KNOWN_CAUSES
from specpanel.core.settings.drafters import DRAFTERS
from specpanel.core.settings.rows import rows
from specpanel.core.settings.vllm_names import setting_named_in, setting_of_flag

LOGS = Path(__file__).parents[1] / "data" / "logs"


def settings() -> set[str]:
    """Every setting that a form can have a row for."""
    found = {row.dotted for row in rows({"target": {"model": "x"}})}
    for drafter in DRAFTERS.values():
        found |= {f"drafter.{name}" for name in drafter.model_fields}
    return found


def failed(text: str) -> Failure:
    trace = (
        "Traceback (most recent call last):\n"
        '  File "/venv/vllm/engine/arg_utils.py", line 1, in create_engine_config\n'
        f"{text}\n"
    )
    failure = diagnose(trace, 1)
    assert failure is not None
    return failure


def test_every_known_cause_points_at_a_setting_that_exists():
    for cause in KNOWN_CAUSES:
        if cause.setting is not None and "{" not in cause.setting:
            assert cause.setting in settings(), cause.code


def test_every_known_cause_says_what_to_change():
    assert all(cause.sentence and cause.fix.endswith(".") for cause in KNOWN_CAUSES)


def test_every_known_cause_fills_its_words_from_its_own_pattern():
    for cause in KNOWN_CAUSES:
        words = f"{cause.sentence} {cause.fix} {cause.setting or ''}"
        named = {name for _, name, _, _ in Formatter().parse(words) if name}
        assert named <= set(cause.pattern.groupindex), cause.code


@settings_of_hypothesis(max_examples=150, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.text(max_size=60),
            st.sampled_from(
                [
                    "Traceback (most recent call last):",
                    '  File "/venv/vllm/v1/spec_decode/eagle.py", line 1, in f',
                    "ValueError: {0} {x} %s KV cache",
                    "(EngineCore pid=5) ERROR 11-30 11:00:00 [core.py:1] EngineCore failed to start.",
                    "KeyError: 'layers.0.weight'",
                    "RuntimeError: Dumping scheduled_spec_decode_tokens={'a': [-1, x",
                ]
            ),
        ),
        max_size=12,
    ),
    st.sampled_from([None, 0, 1, 2, -9, 137]),
)
def test_no_log_whatever_it_holds_keeps_a_sentence_from_being_told(lines, exit_code):
    failure = diagnose("\n".join(lines), exit_code)
    assert exit_code is None or (failure is not None and failure.sentence)


def test_a_log_of_megabytes_is_diagnosed_at_once():
    line = "(APIServer pid=1) INFO 11-30 11:00:00 [loggers.py:335] Engine 000: Avg prompt throughput: 0.4"
    text = "\n".join([line] * 40_000)
    assert diagnose(text, 1) is not None
    assert cheapest_s(lambda: diagnose(text, 1), 5) < 5


# What a user of vLLM 0.32.0 meets with drafters and MLA: text, code, setting.
TEXTS = [
    (
        "ValueError: rejection_sample_method='synthetic' requires exactly one of "
        "synthetic_acceptance_rates or synthetic_acceptance_length.",
        "synthetic-settings",
        "drafter.rejection_sample_method",
    ),
    (
        "ValueError: suffix_decoding_min_token_prob=1.5 must be in [0, 1]",
        "suffix-settings",
        "drafter.suffix_decoding_min_token_prob",
    ),
    (
        "ValueError: The first batch-size range must start at 1 so every runtime batch size has a "
        "defined schedule.",
        "k-schedule",
        "drafter.k_by_batch_size",
    ),
    (
        "ValueError: Adaptive verification requires full CUDA graphs. Use cudagraph mode FULL, "
        "FULL_DECODE_ONLY, or FULL_AND_PIECEWISE, or disable adaptive verification.",
        "adaptive-verification",
        "drafter.enable_adaptive_verification",
    ),
    (
        "ValueError: Qwen3-Omni DSpark requires num_speculative_tokens to match the trained block_size "
        "(8); got 5.",
        "dspark-checkpoint",
        "drafter.model",
    ),
    (
        "ValueError: speculative_max_model_len=9000 cannot be larger than draft_max_model_len=2048",
        "drafter-length",
        "drafter.max_model_len",
    ),
    (
        "ValueError: Currently, 'draft_tensor_parallel_size' and 'tensor_parallel_size' must be the "
        "same. Got 1 and 4. Please pass 'draft_tensor_parallel_size' in the speculative_config.",
        "drafter-parallel-size",
        "drafter.draft_tensor_parallel_size",
    ),
    (
        "ValueError: For parallel drafting, the draft model config must have "
        "`dflash_config.mask_token_id`, `mask_token_id`, `pard_token` specified in its config.json.",
        "not-parallel",
        "drafter.method",
    ),
    (
        "ImportError: Cannot import module 'my.drafter' for custom proposer 'my.drafter.Mine': No module "
        "named 'my'",
        "custom-class",
        "drafter.proposer",
    ),
    (
        "ValueError: Invalid speculators config structure",
        "drafter-config",
        "drafter.model",
    ),
    (
        "ValueError: tp_size=4 must be divisible by dcp_size=3.",
        "context-parallel",
        "mla.decode_context_parallel_size",
    ),
    (
        "ValueError: Selected MLA prefill backend TRTLLM_RAGGED is not valid for this configuration. "
        "Reason: ['compute capability not supported']",
        "mla-prefill-backend",
        "mla.mla_prefill_backend",
    ),
    (
        "ValueError: FP8 KV cache is not supported by the Triton MLA backend on NVIDIA A100 (compute "
        "capability 8.0); native FP8 (fp8e4nv) requires SM89+. Re-run with --kv-cache-dtype bfloat16.",
        "kv-cache-type",
        "mla.kv_cache_dtype",
    ),
    (
        "ValueError: indexer_kv_dtype='mxfp4' requires Blackwell datacenter GPUs (sm_10x)",
        "indexer-type",
        "mla.indexer_kv_dtype",
    ),
    (
        "ValueError: Inconsistent GPU visibility env vars: HIP_VISIBLE_DEVICES='0' vs "
        "CUDA_VISIBLE_DEVICES='1'. Please set only one, or ensure they match.",
        "device-variables",
        "engine.environment",
    ),
    (
        "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network "
        "address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already "
        "in use",
        "internal-port-in-use",
        "engine.environment",
    ),
]


@pytest.mark.parametrize(("text", "code", "setting"), TEXTS)
def test_a_text_of_vllms_leads_to_the_setting_to_change(text, code, setting):
    failure = failed(text)
    assert (failure.code, failure.setting) == (code, setting)
    assert failure.fix


def test_what_pydantic_adds_to_a_refusal_is_left_out_of_the_sentence():
    failure = failed(
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for VllmConfig\n"
        "  Value error, Model Runner V1 does not support: dspark speculative decoding [type=value_error, "
        "input_value=ArgsKwargs((), {'model': 'x'}), input_type=ArgsKwargs]\n"
        "    For further information visit https://errors.pydantic.dev/2.14/v/value_error"
    )
    assert failure.sentence.endswith("cannot do: dspark speculative decoding")


@pytest.mark.parametrize(
    ("flag", "setting"),
    [
        ("--max-model-len", "target.max_model_len"),
        ("--speculative-config/-sc", "drafter.method"),
        ("--kv-cache-dtype", "mla.kv_cache_dtype"),
        ("--port/-p", "engine.port"),
        ("--speculative-config.num_speculative_tokens", "drafter.method"),
        ("--no-such-flag", None),
    ],
)
def test_a_flag_that_vllm_refuses_leads_to_its_setting(flag, setting):
    assert setting_of_flag(flag) == setting


@pytest.mark.parametrize(
    ("place", "text", "setting"),
    [
        ("CacheConfig", "block_size must be a power of two", "mla.block_size"),
        ("SpeculativeConfig", "num_speculative_tokens must be positive", "drafter.k"),
        ("SpeculativeConfig", "quantization is not known", "drafter.quantization"),
        ("ModelConfig", "quantization is not known", "target.quantization"),
        ("CacheConfig", "something is wrong with it", None),
    ],
)
def test_a_field_that_vllm_refuses_leads_to_its_setting(place, text, setting):
    assert setting_named_in(place, text) == setting


# -- against the installed vLLM, where there is one ------------------------------------------

# Not for users: what vLLM's own code gets wrong, and its method for making training data.
INTERNAL = ("target_model_config must be present", "extract_hidden_states")


def _words(node: ast.expr) -> str:
    """The text of an exception; what is filled in at run time becomes a number."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(
                _words(part) if isinstance(part, ast.Constant) else "3" for part in parts
            )
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _words(left) + _words(right)
    return ""


def _raised(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
            text = _words(node.exc.args[0])
            if text and not any(word in text for word in INTERNAL):
                yield " ".join(f"{ast.unparse(node.exc.func)}: {text}".split())


@pytest.mark.parametrize(
    "name",
    [
        "config/speculative.py",
        "v1/spec_decode/custom_class_proposer.py",
        "v1/attention/backends/mla/prefill/selector.py",
        "transformers_utils/configs/speculators/base.py",
    ],
)
def test_everything_that_the_installed_vllm_raises_there_is_known(name):
    found = importlib.util.find_spec("vllm")
    if found is None or found.origin is None:
        pytest.skip("vLLM is not installed here")
    file = Path(found.origin).parent / name
    if not file.exists():
        pytest.skip(f"this vLLM has no {name}")
    unknown = [text for text in _raised(file) if known_cause(text, name) is None]
    assert not unknown
