"""The plugin changes vLLM's thresholds only where every guard holds, and never stops vLLM."""

import copy
import logging
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from specpanel.kernels import vllm_plugin
from specpanel.kernels.calibrate import Calibration, Key, dump
from specpanel.kernels.dispatch import HeadRows
from specpanel.kernels.errors import MLAError
from specpanel.kernels.vllm_plugin import Surroundings, overriding, put
from specpanel.kernels.vllm_rules import THRESHOLDS, use_masked_mha

KEY = Key(
    "NVIDIA B200",
    148,
    "vllm:FLASHMLA_SPARSE",
    "2.13",
    None,
    "bfloat16",
    "random",
    128,
    64,
    128,
    512,
    2048,
)
ROWS = {128: HeadRows(((6144, 2048),), ((4096, 3000),)), 16: HeadRows(((32768, 512),), ())}
GOOD = Calibration(KEY, (), ROWS)
HERE = Surroundings("0.32.0", None, "NVIDIA B200")


def test_measured_rows_replace_vllms_for_their_tensor_parallel_sizes_alone() -> None:
    table: Any = copy.deepcopy(THRESHOLDS)
    put(overriding(GOOD, HERE), table)
    asked = {"backend": "FLASHMLA_SPARSE", "qk": 192, "v": 128, "has_context": False}
    step: Any = {**asked, "query_len": 6144, "seq_len": 6144}
    assert use_masked_mha(tensor_parallel=1, table=table, **step)
    assert not use_masked_mha(tensor_parallel=1, **step)
    assert table[(192, 128)]["FLASHMLA_SPARSE"][2] == THRESHOLDS[(192, 128)]["FLASHMLA_SPARSE"][2]
    assert table[(256, 256)] == THRESHOLDS[(256, 256)]


def test_cached_context_takes_its_own_measured_rows() -> None:
    table: Any = copy.deepcopy(THRESHOLDS)
    put(overriding(GOOD, HERE), table)
    step: Any = {
        "backend": "FLASHMLA_SPARSE",
        "qk": 192,
        "v": 128,
        "seq_len": 4096,
        "has_context": True,
    }
    assert use_masked_mha(tensor_parallel=1, query_len=3000, table=table, **step)
    assert not use_masked_mha(tensor_parallel=8, query_len=4000, table=table, **step)


@pytest.mark.parametrize(
    ("calibration", "here", "reason"),
    [
        (GOOD, replace(HERE, version="0.32.1"), "vLLM is 0.32.1 and not 0.32.0"),
        (GOOD, replace(HERE, version=None), "vLLM is None"),
        (GOOD, replace(HERE, drift="it differs"), "it differs"),
        (
            GOOD,
            replace(HERE, device="NVIDIA H200"),
            "measured on NVIDIA B200 and this is NVIDIA H200",
        ),
        (
            replace(GOOD, key=replace(KEY, engine="triton")),
            HERE,
            "of triton kernels and not of vLLM's own",
        ),
        (replace(GOOD, key=replace(KEY, engine="portable")), HERE, "of portable kernels"),
        (replace(GOOD, key=replace(KEY, engine="vllm:TRITON_MLA")), HERE, "not of vLLM's own"),
        (replace(GOOD, key=replace(KEY, lora=256)), HERE, "no masked kernel"),
        (replace(GOOD, complete=False), HERE, "cut short"),
        (replace(GOOD, refused={64: "noise"}), HERE, "refused itself: noise"),
        (replace(GOOD, rows={}), HERE, "no thresholds"),
        (replace(GOOD, rows={96: ROWS[16]}), HERE, "cannot be 96 a rank"),
    ],
)
def test_each_guard_refuses_with_its_reason(
    calibration: Calibration, here: Surroundings, reason: str
) -> None:
    with pytest.raises(MLAError, match=reason):
        overriding(calibration, here)


def test_a_table_that_is_not_the_mirrored_one_is_left_alone() -> None:
    table: Any = copy.deepcopy(THRESHOLDS)
    table[(192, 128)]["FLASHMLA_SPARSE"][1] = (((1, 1),), None)
    before = copy.deepcopy(table)
    with pytest.raises(MLAError, match="not the one that is mirrored"):
        put(overriding(GOOD, HERE), table)
    assert table == before


def test_without_the_variable_it_returns_and_imports_nothing_of_vllm() -> None:
    code = (
        "import sys; from specpanel.kernels import vllm_plugin; vllm_plugin.register(); "
        "print(sorted({'vllm', 'torch'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.stdout.strip() == "[]", ran.stderr


@pytest.mark.parametrize("text", [None, "nonsense", dump(replace(GOOD, complete=False))])
def test_a_refusal_is_one_line_of_the_log_and_no_error(
    text: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    file = tmp_path / "table.json"
    if text is not None:
        file.write_text(text)
    monkeypatch.setenv(vllm_plugin.VARIABLE, str(file))
    with caplog.at_level(logging.WARNING):
        vllm_plugin.register()
    (record,) = caplog.records
    assert "vLLM keeps its own MLA thresholds" in record.getMessage()


def test_the_packages_entry_point_is_the_plugin() -> None:
    import tomllib

    root = Path(__file__).resolve().parents[2]
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    plugins = project["entry-points"]["vllm.general_plugins"]
    assert plugins == {"specpanel_mla": "specpanel.kernels.vllm_plugin:register"}
    assert callable(vllm_plugin.register)
