"""The tables of attention settings against the source of the vLLM that is installed, read and not run."""

import ast
import importlib.util
import re
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest

from specpanel.core.checkpoints.mla import MLA_MODEL_TYPES
from specpanel.core.settings.attention_backends import (
    BACKENDS,
    KNOWN_NAMES,
    PREFILL_BACKENDS,
    Backend,
)
from specpanel.core.settings.cache_types import KvCacheType
from specpanel.core.settings.mla import LAYER_KINDS, Mla

Read = Callable[[str], str]
MLA = "v1/attention/backends/mla"
# Where the class of each MLA backend stands, and its name.
CLASSES: dict[str, tuple[str, str]] = {
    "FLASHINFER_MLA": ("flashinfer_mla", "FlashInferMLABackend"),
    "TOKENSPEED_MLA": ("tokenspeed_mla", "TokenspeedMLABackend"),
    "CUTLASS_MLA": ("cutlass_mla", "CutlassMLABackend"),
    "FLASH_ATTN_MLA": ("flashattn_mla", "FlashAttnMLABackend"),
    "FLASHMLA": ("flashmla", "FlashMLABackend"),
    "TRITON_MLA": ("triton_mla", "TritonMLABackend"),
    "ROCM_AITER_MLA": ("rocm_aiter_mla", "AiterMLABackend"),
    "CPU_MLA": ("cpu_mla", "CPUMLABackend"),
    "FLASHMLA_SPARSE": ("flashmla_sparse", "FlashMLASparseBackend"),
    "FLASHINFER_MLA_SPARSE": ("flashinfer_mla_sparse", "FlashInferMLASparseTRTLLMBackend"),
    "FLASHINFER_MLA_SPARSE_SM120": ("flashinfer_mla_sparse", "FlashInferMLASparseSM120Backend"),
    "FLASHINFER_MLA_SPARSE_SM90": ("flashinfer_mla_sparse_sm90", "FlashInferMLASparseSM90Backend"),
    "FLASH_ATTN_MLA_SPARSE": ("flashattn_mla_sparse", "FlashAttnMLASparseBackend"),
    "ROCM_AITER_MLA_SPARSE": ("rocm_aiter_mla_sparse", "ROCMAiterMLASparseBackend"),
}


@pytest.fixture(scope="module")
def source() -> Read:
    spec = importlib.util.find_spec("vllm")
    if spec is None or spec.origin is None:
        pytest.skip("vLLM is not installed here")
    root = Path(spec.origin).parent
    return lambda name: (root / name).read_text()


def klass(text: str, name: str) -> ast.ClassDef:
    found = (n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.ClassDef) and n.name == name)
    return next(found)


def literal(text: str, name: str) -> list[str]:
    """The strings of ``NAME = Literal[...]``."""
    body = re.search(rf"^{name}(?:: TypeAlias)? = Literal\[(.*?)\]", text, re.S | re.M)
    assert body is not None, name
    return re.findall(r'"([^"]+)"', body.group(1))


def choices(name: str) -> list[str]:
    """What a setting can be, as its model declares it."""
    declared = get_args(Mla.model_fields[name].annotation)
    return [value for part in declared for value in get_args(part) if isinstance(value, str)]


def test_every_backend_has_the_name_that_vllm_knows(source: Read) -> None:
    enum = klass(source("v1/attention/backends/registry.py"), "AttentionBackendEnum")
    names = {
        target.id
        for node in enum.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    assert names == KNOWN_NAMES


@pytest.mark.parametrize(
    "backend", [b for b in BACKENDS if b.name in CLASSES], ids=lambda b: b.name
)
def test_a_backend_reads_the_types_that_its_class_lists(source: Read, backend: Backend) -> None:
    file, name = CLASSES[backend.name]
    body = klass(source(f"{MLA}/{file}.py"), name).body
    listed = next(
        node.value
        for node in body
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and node.target.id == "supported_kv_cache_dtypes"
    )
    assert isinstance(listed, ast.List)
    assert set(backend.kv_types) == {
        node.value for node in listed.elts if isinstance(node, ast.Constant)
    }


@pytest.mark.parametrize(
    "backend", [b for b in BACKENDS if b.name in CLASSES], ids=lambda b: b.name
)
def test_a_backend_takes_the_blocks_that_its_class_lists(source: Read, backend: Backend) -> None:
    file, name = CLASSES[backend.name]
    method = next(
        node
        for node in klass(source(f"{MLA}/{file}.py"), name).body
        if isinstance(node, ast.FunctionDef) and node.name == "get_supported_kernel_block_sizes"
    )
    numbers = {
        node.value
        for part in method.body
        for node in ast.walk(part)
        if isinstance(node, ast.List)
        for node in ast.walk(node)
        if isinstance(node, ast.Constant)
    }
    assert numbers == set(backend.blocks)


@pytest.mark.parametrize(
    "backend", [b for b in BACKENDS if b.name in CLASSES], ids=lambda b: b.name
)
def test_a_backend_runs_on_the_generations_that_its_class_lists(
    source: Read, backend: Backend
) -> None:
    file, name = CLASSES[backend.name]
    told = [
        ast.unparse(node.body[-1])
        for node in klass(source(f"{MLA}/{file}.py"), name).body
        if isinstance(node, ast.FunctionDef) and node.name == "supports_compute_capability"
    ]
    majors = re.findall(r"\d+", told[0]) if told else []
    assert {int(major) for major in majors} == set(backend.capabilities)


def test_settings_offer_what_vllm_takes(source: Read) -> None:
    assert list(get_args(KvCacheType)) == literal(source("config/cache.py"), "CacheDType")
    indexer = literal(source("config/attention.py"), "IndexerKVDType")
    assert choices("indexer_kv_dtype") == indexer
    topk = literal(source("config/kernel.py"), "SparseIndexerTopkBackend")
    assert choices("indexer_topk_backend") == topk
    kinds = klass(source("v1/kv_cache_interface.py"), "KVCacheSpecKind")
    values = {node.value.value for node in kinds.body if isinstance(node, ast.Assign)}  # type: ignore[attr-defined]
    assert set(LAYER_KINDS) == values - {"unknown"}
    prefill = klass(source(f"{MLA}/prefill/registry.py"), "MLAPrefillBackendEnum")
    names = {node.targets[0].id for node in prefill.body if isinstance(node, ast.Assign)}  # type: ignore[attr-defined]
    assert set(PREFILL_BACKENDS) == names - {"CPU", "ZEN_CPU", "CUSTOM"}
    assert choices("mla_prefill_backend") == list(PREFILL_BACKENDS)


def test_every_place_in_vllm_exists(source: Read) -> None:
    attention = klass(source("config/attention.py"), "AttentionConfig")
    keys = {node.target.id for node in attention.body if isinstance(node, ast.AnnAssign)}  # type: ignore[union-attr]
    arguments, variables = source("engine/arg_utils.py"), source("envs.py")
    for name, field in Mla.model_fields.items():
        extra = field.json_schema_extra
        assert isinstance(extra, dict)
        if "attention_key" in extra:
            assert extra["attention_key"] in keys, name
        if "flag" in extra:
            assert f'"{extra["flag"]}"' in arguments, name
        if "variable" in extra:
            assert f'"{extra["variable"]}"' in variables, name


def test_families_with_mla_are_vllms(source: Read) -> None:
    text = source("transformers_utils/model_arch_config_convertor.py")
    body = text[text.index("def is_deepseek_mla") : text.index("def is_mm_prefix_lm")]
    first = body[: body.index("# check is deepseek_v4 model")]
    assert set(re.findall(r'"([a-z0-9_]+)",', first)) == MLA_MODEL_TYPES
