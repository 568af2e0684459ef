"""What is mirrored of vLLM is compared with the one that is installed, and every difference is an alarm."""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from specpanel.kernels import vllm_source
from specpanel.kernels.errors import MLAError
from specpanel.kernels.vllm_backends import FLASH_ATTN, FLASHINFER, FLASHMLA
from specpanel.kernels.vllm_rules import THRESHOLDS, use_masked_mha

ROOT = vllm_source.installed_root()
needs_vllm = pytest.mark.skipif(ROOT is None, reason="vLLM is not installed here")


@needs_vllm
def test_the_installed_vllm_is_the_one_that_is_mirrored() -> None:
    assert ROOT is not None
    installed = vllm_source.read(ROOT)
    assert installed.version == "0.32.0"
    assert vllm_source.drift_text(installed) is None
    assert installed.table == THRESHOLDS


def _lookup_of(root: Path) -> object:
    """vLLM's own ``_use_masked_mha``, taken out of its source and run over its own table."""
    tree = ast.parse((root / "model_executor/layers/attention/mla_attention.py").read_text())
    wanted = {"_MaskedMHARanges", "_MASKED_MHA_THRESHOLDS", "_use_masked_mha"}
    kept = [
        node
        for node in tree.body
        if (isinstance(node, ast.FunctionDef) and node.name in wanted)
        or (
            isinstance(node, ast.Assign | ast.AnnAssign)
            and any(isinstance(n, ast.Name) and n.id in wanted for n in ast.walk(node))
        )
    ]
    space: dict[str, object] = {}
    exec(compile(ast.Module(kept, []), "vllm", "exec"), space)
    return space["_use_masked_mha"]


@needs_vllm
def test_the_table_is_looked_up_as_vllms_own_code_does() -> None:
    assert ROOT is not None
    theirs = _lookup_of(ROOT)
    assert callable(theirs)
    lengths = [
        1,
        511,
        512,
        1024,
        1536,
        2048,
        2049,
        4096,
        4097,
        8192,
        10240,
        16384,
        32768,
        33024,
        65536,
    ]
    asked = fired = 0
    for qk, v in ((192, 128), (256, 256), (128, 128)):
        for backend in (FLASHMLA, FLASHINFER, FLASH_ATTN):
            for tp in (1, 2, 3, 4, 8):
                for query in lengths:
                    for sequence in (length for length in lengths if length >= query):
                        for context in (False, True):
                            ours = use_masked_mha(
                                backend=backend,
                                tensor_parallel=tp,
                                qk=qk,
                                v=v,
                                query_len=query,
                                seq_len=sequence,
                                has_context=context,
                            )
                            assert ours == theirs(
                                backend_name=backend,
                                tensor_parallel_size=tp,
                                qk_head_dim=qk,
                                v_head_dim=v,
                                query_len=query,
                                seq_len=sequence,
                                has_context=context,
                            )
                            asked += 1
                            fired += ours
    assert asked > 10_000
    assert fired > 500


@pytest.fixture
def copy_of_vllm(tmp_path: Path) -> Path:
    """The mirrored files of the installed vLLM in a folder of their own, to be changed."""
    if ROOT is None:
        pytest.skip("vLLM is not installed here")
    target = tmp_path / "vllm"
    for file in (*vllm_source.MIRRORED, "__init__.py"):
        (target / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, target / file)
    return target


def drift(root: Path) -> list[tuple[str, str]]:
    return [(item.name, item.state) for item in vllm_source.read(root).drifted]


TABLE_FILE = "model_executor/layers/attention/mla_attention.py"


def change(root: Path, file: str, before: str, after: str) -> None:
    text = (root / file).read_text()
    assert before in text
    (root / file).write_text(text.replace(before, after, 1))


def test_a_changed_threshold_raises_the_alarm(copy_of_vllm: Path) -> None:
    assert drift(copy_of_vllm) == []
    change(copy_of_vllm, TABLE_FILE, "(4096, 4096)", "(8192, 4096)")
    assert drift(copy_of_vllm) == [("_MASKED_MHA_THRESHOLDS", "changed")]
    installed = vllm_source.read(copy_of_vllm)
    assert installed.table is not None
    assert installed.table[(192, 128)]["FLASHMLA_SPARSE"][1][0] == ((2048, 1536), (8192, 4096))
    assert "_MASKED_MHA_THRESHOLDS (changed)" in (vllm_source.drift_text(installed) or "")


def test_a_changed_rule_raises_the_alarm_and_a_changed_comment_does_not(copy_of_vllm: Path) -> None:
    file = "model_executor/layers/attention/sparse_mla_attention.py"
    change(copy_of_vllm, file, "# GLM-5.3-Flash: NoPE", "# Something else")
    assert drift(copy_of_vllm) == []
    change(
        copy_of_vllm, file, "is_device_capability_family(100)", "is_device_capability_family(90)"
    )
    assert drift(copy_of_vllm) == [("_is_masked_mha_available", "changed")]


def test_a_table_of_another_shape_is_no_table_and_says_why(copy_of_vllm: Path) -> None:
    change(
        copy_of_vllm, TABLE_FILE, '(192, 128): {\n        "FLASHMLA', 'load(): {\n        "FLASHMLA'
    )
    installed = vllm_source.read(copy_of_vllm)
    assert installed.table is None
    assert installed.reason == "_MASKED_MHA_THRESHOLDS is no longer a table of plain numbers"


def test_missing_and_broken_files_are_drift_and_not_a_traceback(copy_of_vllm: Path) -> None:
    (copy_of_vllm / "platforms/rocm.py").unlink()
    (copy_of_vllm / TABLE_FILE).write_text("def broken(:\n")
    states = dict(drift(copy_of_vllm))
    assert states["_MASKED_MHA_THRESHOLDS"] == "missing"
    assert states["_use_masked_mha"] == "missing"


def test_a_folder_that_is_no_vllm_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MLAError, match="not the folder of a vLLM package"):
        vllm_source.read(tmp_path)


def test_explaining_imports_neither_torch_nor_triton_nor_vllm() -> None:
    modules = (
        "dims",
        "gpus",
        "cost",
        "vllm_rules",
        "vllm_backends",
        "vllm_source",
        "explain",
        "dispatch",
    )
    code = (
        "import importlib, sys\n"
        f"for name in {modules!r}: importlib.import_module('specpanel.kernels.' + name)\n"
        "from specpanel.kernels import vllm_source\n"
        "root = vllm_source.installed_root()\n"
        "if root: vllm_source.read(root)\n"
        "print(sorted({'torch', 'triton', 'vllm', 'numpy'} & set(sys.modules)))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=dict(os.environ)
    )
    assert ran.stdout.strip() == "[]", ran.stderr
