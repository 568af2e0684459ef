"""What each drafter becomes in vLLM, held against the declarations of the vLLM that is installed."""

import ast
import importlib.util
import re
from pathlib import Path
from typing import Any, get_args

import pytest

from specpanel.core.settings.cache_types import KvCacheType
from specpanel.core.settings.drafters import DRAFTERS, METHODS
from specpanel.core.settings.drafters.fields import RejectionMethod, SampleMethod
from specpanel.core.settings.drafters.parts import VLLM_NAMES
from specpanel.core.settings.profile import Profile
from specpanel.core.settings.rows import rows

# Every setting of every drafter, so that each key is seen.
VERIFIED: dict[str, Any] = {
    "rejection_sample_method": "synthetic",
    "synthetic_acceptance_length": 1.5,
    "synthetic_acceptance_rates": (),  # one of the two
}
SCHEDULE: dict[str, Any] = {"k_by_batch_size": ("1-4:1", "5-16:0")}
SAMPLED: dict[str, Any] = {"draft_sample_method": "greedy", "use_local_argmax_reduction": True}
PLACED: dict[str, Any] = {
    "draft_tensor_parallel_size": 1,
    "quantization": "fp8",
    "attention_backend": "FLASH_ATTN",
    "kv_cache_dtype": "fp8",
    "moe_backend": "triton",
    "max_model_len": 2048,
    "enforce_eager": True,
    "revision": "main",
    "code_revision": "main",
}
UNSURE: dict[str, Any] = {
    "draft_sample_method": "probabilistic",
    "use_local_argmax_reduction": False,
    "enable_adaptive_verification": True,
}
DROP = {"disable_eagle_block_drop": True}
PADDING = {"disable_padded_drafter_batch": True}
LOOKUP: dict[str, Any] = {"k": 4, "prompt_lookup_min": 2, "prompt_lookup_max": 5, **VERIFIED}
HEAD: dict[str, Any] = {"model": "/d", "k": 3, **VERIFIED, **SCHEDULE, **PLACED}
FILLED: dict[str, dict[str, Any]] = {
    "none": {},
    "ngram": {**LOOKUP, **SCHEDULE},
    "ngram_gpu": LOOKUP,
    "suffix": {
        "k": 8,
        "suffix_decoding_max_tree_depth": 24,
        "suffix_decoding_max_cached_requests": 100,
        "suffix_decoding_max_spec_factor": 1.5,
        "suffix_decoding_min_token_prob": 0.2,
        **VERIFIED,
    },
    "draft_model": {
        **HEAD,
        **SAMPLED,
        "enable_adaptive_verification": False,
        "use_heterogeneous_vocab": True,
    },
    "pard": {**HEAD, **SAMPLED},
    "eagle": {**HEAD, **UNSURE, **DROP, **PADDING},
    "eagle3": {**HEAD, **UNSURE, **DROP, **PADDING},
    "p_eagle": {**HEAD, **SAMPLED, **DROP},
    "dflash": {**HEAD, **UNSURE, **DROP},
    "dflash2": {**HEAD, **SAMPLED, **DROP},
    "dspark": {**HEAD, **UNSURE, **DROP, "dspark_draft_topk": 8},
    "mtp": {**HEAD, **UNSURE, **DROP, **PADDING, "index_share_for_mtp_iteration": False},
    "medusa": {
        "model": "/d",
        "k": 3,
        "revision": "main",
        "quantization": "fp8",
        "draft_tensor_parallel_size": 1,
        **VERIFIED,
    },
    "custom": {"proposer": "mine.drafting.Proposer", "k": 3, **VERIFIED, **SCHEDULE},
}
VLLM_METHODS = {
    "p_eagle": "eagle3", "pard": "draft_model", "dflash2": "dflash", "custom": "custom_class",
}  # fmt: skip


def config(method: str, settings: dict[str, Any]) -> dict[str, Any] | None:
    drafter = {"method": method, **settings}
    profile = Profile.model_validate({"target": {"model": "/m"}, "drafter": drafter})
    return profile.drafter.speculative_config()


def vllm_file(*parts: str) -> Path:
    found = importlib.util.find_spec("vllm")  # looks for it, does not import it
    if found is None or found.origin is None:
        pytest.skip("vLLM is not installed here")
    return Path(found.origin).parent.joinpath(*parts)


@pytest.fixture(scope="module")
def declarations() -> ast.Module:
    return ast.parse(vllm_file("config", "speculative.py").read_text(encoding="utf-8"))


def fields_of(module: ast.Module, name: str) -> dict[str, ast.expr | None]:
    (found,) = [n for n in module.body if isinstance(n, ast.ClassDef) and n.name == name]
    return {
        node.target.id: node.value
        for node in found.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }


def literals_of(module: ast.Module, name: str) -> set[str]:
    aliases = {
        node.targets[0].id: node.value
        for node in module.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }

    def values(node: ast.expr) -> set[str]:
        if isinstance(node, ast.Constant):
            return {str(node.value)}
        if isinstance(node, ast.Name):
            return values(aliases[node.id])
        if isinstance(node, ast.Tuple):
            return {one for element in node.elts for one in values(element)}
        assert isinstance(node, ast.Subscript), ast.dump(node)
        return values(node.slice)

    return values(aliases[name])


def test_every_drafter_is_tried_here_with_all_its_settings() -> None:
    assert set(FILLED) == set(METHODS)
    for method, drafter in DRAFTERS.items():
        assert set(FILLED[method]) == set(drafter.model_fields) - {"method"}, method


@pytest.mark.parametrize("method", FILLED)
def test_vllm_knows_every_key_and_the_method(method: str, declarations: ast.Module) -> None:
    found = config(method, FILLED[method])
    if method == "none":
        assert found is None
        return
    assert found is not None
    assert set(found) <= set(fields_of(declarations, "SpeculativeConfig"))
    assert found["method"] in literals_of(declarations, "SpeculativeMethod")


def test_every_key_of_vllms_belongs_to_a_drafter(declarations: ast.Module) -> None:
    written = {
        VLLM_NAMES.get(name, name)
        for drafter in DRAFTERS.values()
        for name in (*drafter.model_fields, *drafter.vllm_extra)
    }
    filled_in_by_vllm = {
        *("target_model_config", "target_parallel_config"),
        *("draft_model_config", "draft_parallel_config"),
    }
    a_trap = {"tensor_parallel_size"}  # refused: draft_tensor_parallel_size is meant
    left_out = {"draft_load_config"}  # docs/drafters.md
    known = set(fields_of(declarations, "SpeculativeConfig"))
    assert known - written == filled_in_by_vllm | a_trap | left_out


def test_the_defaults_told_in_the_help_are_vllms(declarations: ast.Module) -> None:
    fields = fields_of(declarations, "SpeculativeConfig")
    told = 0
    for drafter in DRAFTERS.values():
        for name, info in drafter.model_fields.items():
            if match := re.search(r"\(vLLM: ([\d.]+)\)", info.description or ""):
                told += 1
                default = fields[name]
                if isinstance(default, ast.Call):  # Field(default=24, …)
                    default = next(k.value for k in default.keywords if k.arg == "default")
                assert isinstance(default, ast.Constant)
                assert default.value == float(match.group(1)), name
    assert told >= 4


def test_every_setting_stands_where_its_reference_says() -> None:
    """The file and line beside a setting are those of the vLLM that it was read from."""
    lines = vllm_file("config", "speculative.py").read_text(encoding="utf-8").splitlines()
    seen = 0
    for method in METHODS:
        for row in rows({"target": {"model": "m"}, "drafter": {"method": method}}):
            if row.section != "drafter":
                continue
            file, _, line = str(row.reference).partition(":")
            assert file == "config/speculative.py", row.dotted
            declared = lines[int(line) - 1].strip().partition(":")[0]
            assert declared == VLLM_NAMES.get(row.name, row.name), row.dotted
            seen += 1
    assert seen > 100


def test_the_choices_of_a_setting_are_vllms(declarations: ast.Module) -> None:
    cache = ast.parse(vllm_file("config", "cache.py").read_text(encoding="utf-8"))
    assert set(get_args(KvCacheType)) == literals_of(cache, "CacheDType")
    assert set(get_args(RejectionMethod)) == literals_of(declarations, "RejectionSampleMethod")
    assert set(get_args(SampleMethod)) == literals_of(declarations, "DraftSampleMethod")


@pytest.mark.parametrize("method", [method for method in FILLED if method != "none"])
def test_method_and_settings_are_always_written(method: str) -> None:
    found = config(method, FILLED[method])
    expected = {name: value for name, value in FILLED[method].items() if value not in ((), False)}
    if method == "mtp":  # here False is not vLLM's default
        expected["index_share_for_mtp_iteration"] = False
    expected["num_speculative_tokens"] = expected.pop("k")
    if expected.pop("k_by_batch_size", None):
        expected["num_speculative_tokens_per_batch_size"] = [[1, 4, 1], [5, 16, 0]]
    if method == "custom":
        expected["model"] = expected.pop("proposer")
    if method in ("p_eagle", "pard"):
        expected["parallel_drafting"] = True
    assert found == {"method": VLLM_METHODS.get(method, method), **expected}


@pytest.mark.parametrize("method", ["ngram", "ngram_gpu"])
def test_both_ends_of_the_lookup_are_written_when_neither_is_said(method: str) -> None:
    assert config(method, {}) == {
        "method": method,
        "num_speculative_tokens": 4,
        "prompt_lookup_min": 2,
        "prompt_lookup_max": 4,
    }


def test_what_is_left_to_vllm_is_not_written() -> None:
    assert config("dspark", {"model": "/d"}) == {"method": "dspark", "model": "/d"}
    assert config("suffix", {}) == {"method": "suffix", "num_speculative_tokens": 8}
    assert config("mtp", {}) == {"method": "mtp", "num_speculative_tokens": 1}


def test_the_baseline_is_the_same_launch_without_a_drafter() -> None:
    drafter = {"method": "ngram"}
    profile = Profile.model_validate({"target": {"model": "/m"}, "drafter": drafter})
    plain = profile.without_drafter()
    assert plain.drafter.method == "none"
    assert plain.drafter.draft_tokens is None
    assert (plain.target, plain.engine, plain.traffic, plain.name) == (
        profile.target, profile.engine, profile.traffic, profile.name,
    )  # fmt: skip


def test_vllm_knows_every_flag_that_a_setting_names() -> None:
    arguments = [vllm_file("engine", "arg_utils.py")]
    arguments += vllm_file("entrypoints").rglob("cli_args.py")
    known = "".join(path.read_text(encoding="utf-8") for path in arguments)
    flags = [
        extra["flag"]
        for section in Profile.model_fields.values()
        for info in getattr(section.annotation, "model_fields", {}).values()
        if isinstance(extra := info.json_schema_extra, dict) and "flag" in extra
    ]
    ours = ["--speculative-config", "--attention-config", "--model"]
    ours += ["--per-request-spec-decode-metrics", "--custom-histogram-buckets"]
    assert len(flags) > 10
    unknown = [
        flag
        for flag in (*flags, *ours)
        if not re.search(rf"\b{str(flag)[2:].replace('-', '[-_]')}\b", known)
    ]
    assert unknown == []
