"""Hidden states are looked at before anything is trained on them."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from specpanel.core.engine.command import Command
from specpanel.core.errors import ConfigurationError, SpecpanelError
from specpanel.core.training.extraction_plan import (
    extracting,
    kv_transfer,
    layers_for,
    state_dtype_bytes,
    states_bytes,
)
from specpanel.core.training.extraction_server import refuse_full, remove_stale
from specpanel.core.training.states_file import check_states

IDS = (5, 6, 7)


def write(path: Path, states: np.ndarray, ids: tuple[int, ...] = IDS) -> Path:
    save_file({"hidden_states": states, "token_ids": np.array(ids, np.int64)}, path)
    return path


def good() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((3, 4, 8)).astype(np.float32)


def test_good_states_pass_and_are_described(tmp_path: Path) -> None:
    states = good()
    facts = check_states(write(tmp_path / "a", states), IDS, 4, 8)
    assert facts.shape == (3, 4, 8)
    assert facts.dtype == "F32"
    assert facts.largest == pytest.approx(np.abs(states).max())


def test_e05_states_of_another_number_of_layers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecpanelError, match=r"shape \[3, 4, 8\] and not \[3, 6, 8\]"):
        check_states(write(tmp_path / "a", good()), IDS, 6, 8)


def test_e08_states_of_other_tokens_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecpanelError, match="other tokens"):
        check_states(write(tmp_path / "a", good(), (5, 6, 8)), IDS, 4, 8)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_refused(tmp_path: Path, value: float) -> None:
    states = good()
    states[1, 2, 3] = value
    with pytest.raises(SpecpanelError, match="not finite"):
        check_states(write(tmp_path / "a", states), IDS, 4, 8)


def test_states_that_are_all_zero_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecpanelError, match="all zero"):
        check_states(write(tmp_path / "a", np.zeros((3, 4, 8), np.float32)), IDS, 4, 8)


@pytest.mark.parametrize(("bits", "refused"), [(0x3F80, False), (0x7F80, True), (0xFFC0, True)])
def test_bfloat16_is_looked_into_without_a_library_for_it(
    tmp_path: Path, bits: int, refused: bool
) -> None:
    path = tmp_path / "a"
    header = {
        "hidden_states": {"dtype": "BF16", "shape": [1, 1, 2], "data_offsets": [0, 4]},
        "token_ids": {"dtype": "I64", "shape": [1], "data_offsets": [4, 12]},
    }
    text = json.dumps(header).encode()
    data = np.array([0xBF80, bits], "<u2").tobytes() + np.array([9], "<i8").tobytes()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    if refused:
        with pytest.raises(SpecpanelError, match="not finite"):
            check_states(path, (9,), 1, 2)
    else:
        assert check_states(path, (9,), 1, 2).largest == 1.0


def test_a_file_that_was_cut_off_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a", good())
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(SpecpanelError, match="cannot be read"):
        check_states(path, IDS, 4, 8)


def test_the_command_names_layers_and_connector_and_keeps_the_rest() -> None:
    plain = Command(("python", "-m", "server"), {"A": "1"})
    transfer = kv_transfer("file", Path("/dev/shm/x"), cpu=True)
    found = extracting(plain, layers_for(None, 30), transfer, "/mine")
    speculation = json.loads(found.argv[found.argv.index("--speculative-config") + 1])
    assert speculation["method"] == "extract_hidden_states"
    ids = speculation["draft_model_config"]["hf_config"]["eagle_aux_hidden_state_layer_ids"]
    assert ids == [2, 15, 27, 30]
    handed = json.loads(found.argv[found.argv.index("--kv-transfer-config") + 1])
    module = handed["kv_connector_module_path"]
    inside = Path(found.environment["PYTHONPATH"].split(":")[0])
    assert (inside / f"{module}.py").is_file()
    assert found.environment["PYTHONPATH"].endswith(":/mine")
    assert found.environment["A"] == "1"
    assert "--served-model-name" not in found.argv


def test_with_an_accelerator_the_connectors_are_the_stock_ones() -> None:
    assert "kv_connector_module_path" not in kv_transfer("file", Path("/x"), cpu=False)
    fp8 = kv_transfer("fp8", Path("/x"), cpu=False)
    assert fp8["kv_connector_module_path"].startswith("hs_connectors.")
    with pytest.raises(ConfigurationError, match="needs an accelerator"):
        kv_transfer("fp8", Path("/x"), cpu=True)


def test_e17_the_bytes_are_known_before_and_a_full_disk_stops(tmp_path: Path) -> None:
    # 1000 tokens, four layers of 4096 in bfloat16.
    size = state_dtype_bytes("bfloat16", cpu=False)
    assert states_bytes(1000, 4096, 4, size) == 32_768_000
    assert state_dtype_bytes(None, cpu=True) == 4
    with pytest.raises(SpecpanelError, match="GB are free and 5% are to stay free"):
        refuse_full(tmp_path, 1 << 60, 0.05, "the states")
    refuse_full(tmp_path / "not/there/yet", 0, 0.0, "nothing")


def test_files_that_nobody_fetched_are_removed(tmp_path: Path) -> None:
    for name in ("a.safetensors", "a.safetensors.lock", "other.txt"):
        (tmp_path / name).touch()
    now = (tmp_path / "a.safetensors").stat().st_mtime
    assert remove_stale(tmp_path, now - 1) == 0
    assert remove_stale(tmp_path, now + 10) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["other.txt"]
