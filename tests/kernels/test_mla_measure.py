"""Measuring on this CPU: real runs of a small geometry, beside torch's attention, and what can go wrong."""

import json
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="measuring needs torch")

from click.testing import Result  # noqa: E402
from typer.testing import CliRunner  # noqa: E402

from specpanel.app.cli.root import app  # noqa: E402
from specpanel.kernels import measure  # noqa: E402
from specpanel.kernels.calibrate import Grid, Key, dump, fitted, load  # noqa: E402
from specpanel.kernels.cells import Cell, cell_of  # noqa: E402
from specpanel.kernels.dims import PRESETS  # noqa: E402
from specpanel.kernels.measure import Repeats, time_call  # noqa: E402
from specpanel.kernels.request import Request, report_of  # noqa: E402
from specpanel.kernels.request import dump as dump_request  # noqa: E402
from specpanel.kernels.sdpa import against_sdpa, peak_bytes  # noqa: E402
from specpanel.kernels.vllm_rules import Tier  # noqa: E402

SMALL = {
    "model_type": "deepseek_v32",
    "num_attention_heads": 4,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
    "index_topk": 16,
}


@pytest.fixture
def model(tmp_path: Path) -> str:
    (tmp_path / "config.json").write_text(json.dumps(SMALL))
    return str(tmp_path)


def ran(command: str, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["mla", command, *arguments])


def last(found: Result) -> dict[str, Any]:
    assert found.exit_code == 0, found.stderr
    data: dict[str, Any] = json.loads(found.stdout.splitlines()[-1])
    return data


QUICK = ("--device", "cpu", "--heads", "2", "--budget", "10")


def test_bench_times_every_exact_path_of_every_cell(model: str) -> None:
    asked = ("--model", model, "--topk", "16", "--query", "8,64", "--no-sdpa", "--json")
    found = ran("bench", *asked, *QUICK, "--budget", "300")
    best = json.loads(found.stdout.splitlines()[0])
    assert best["kind"] == "mla_ceilings"
    assert best["gemm_flop_per_s"] > 1e8
    assert best["copy_byte_per_s"] > 1e7
    data = last(found)
    assert data["kind"] == "mla_calibration"
    assert [(cell["query"], sorted(cell["timings"])) for cell in data["cells"]] == [
        (8, ["dense_mha", "masked_mha", "sparse_mqa"]),
        (64, ["masked_mha", "sparse_mqa"]),
    ]
    for cell in data["cells"]:
        assert all(timing["median_ms"] > 0 for timing in cell["timings"].values())
        assert all(timing["repeats"] >= 2 for timing in cell["timings"].values())


def test_calibrate_draws_a_map_beside_vllms_table_and_writes_what_it_measured(
    model: str, tmp_path: Path
) -> None:
    out = tmp_path / "table.json"
    found = ran(
        "calibrate",
        *("--model", model, "--topk", "16", "--query", "16,128", "--context", "0,32"),
        *("--out", str(out), *QUICK, "--budget", "30"),
    )
    calibration = load(out.read_text())
    assert {(cell.query, cell.context) for cell in calibration.cells} >= {(16, 0), (128, 32)}
    assert calibration.key.topk == 16
    if found.exit_code == 0:  # on a busy machine the measurements may contradict themselves: then 1
        assert "time of MQA over MHA" in found.stdout
        assert "pure prefills:" in found.stdout
        assert "vLLM's table" in found.stdout
    else:
        assert found.exit_code == 1
        assert "wins, loses and wins again" in found.stderr


def test_calibrate_never_writes_over_a_file(model: str, tmp_path: Path) -> None:
    out = tmp_path / "there.json"
    out.write_text("mine")
    found = ran("calibrate", "--model", model, "--out", str(out), *QUICK)
    assert found.exit_code == 2
    assert out.read_text() == "mine"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--engine", "cuda"), "--engine 'cuda' is unknown"),
        (("--pattern", "odd"), "--pattern 'odd' is unknown"),
        (("--dtype", "int8"), "--dtype 'int8' is unknown"),
        (("--query", "0"), "not a length in tokens"),
        (("--model", "kimi-k9"), "neither a file or folder nor a model"),
        (("--python", "/nowhere/python"), "cannot be started"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_status_2(
    arguments: tuple[str, ...], sentence: str
) -> None:
    found = ran("bench", "--device", "cpu", *arguments)
    assert found.exit_code == 2
    assert sentence in found.stderr
    assert "Traceback" not in found.stderr


def interpreter(tmp_path: Path, body: str) -> str:
    file = tmp_path / "python"
    file.write_text(f"#!/bin/sh\n{body}\n")
    file.chmod(0o755)
    return str(file)


def test_an_interpreter_without_torch_is_named_with_what_to_install(tmp_path: Path) -> None:
    code = (
        "import sys, runpy; sys.modules['torch'] = None; "
        "runpy.run_module('specpanel.kernels', run_name='__main__')"
    )
    python = interpreter(tmp_path, f'exec "{sys.executable}" -c "{code}"')
    found = ran("bench", "--device", "cpu", "--python", python)
    assert found.exit_code == 1
    assert "has no torch, which measures" in found.stderr


def test_a_measuring_process_that_dies_is_told_with_its_status(tmp_path: Path) -> None:
    found = ran("bench", "--device", "cpu", "--python", interpreter(tmp_path, "exit 7"))
    assert found.exit_code == 1
    assert "ended with status 7" in found.stderr


def test_a_measuring_process_that_writes_nonsense_is_told(tmp_path: Path) -> None:
    python = interpreter(tmp_path, "read line; echo nonsense")
    found = ran("bench", "--device", "cpu", "--python", python)
    assert found.exit_code == 1
    assert "wrote 'nonsense" in found.stderr


def program(tmp_path: Path, cells: list[Cell]) -> Path:
    """A program that tells a measurement as the real one does, at once."""
    key = Key("somewhere", 2, "portable", "2.0", None, "float32", "random", 16, 8, 16, 32, 16)
    text = tmp_path / "calibration.json"
    text.write_text(dump(fitted(key, cells)))
    file = tmp_path / "program.py"
    file.write_text(
        "import json, sys\n"
        "request = json.loads(sys.stdin.readline())\n"
        "def tell(kind, **content): print(json.dumps({'kind': kind, **content}), flush=True)\n"
        "tell('stage', text='importing torch', done=0, of=0)\n"
        "tell('stage', text='measuring: 2 heads', done=1, of=3)\n"
        f"tell('calibration', text=open({str(text)!r}).read())\n"
    )
    return file


@pytest.fixture
def told(tmp_path: Path) -> str:
    turns: list[dict[Tier, float]] = [{"masked_mha": 2.0, "sparse_mqa": 3.0}] * 5
    file = program(tmp_path, [cell_of(2, 64, 0, turns)])
    return interpreter(tmp_path, f'exec "{sys.executable}" "{file}"')


def test_progress_is_told_from_the_first_moment(told: str) -> None:
    found = ran("bench", "--device", "cpu", "--python", told)
    assert found.exit_code == 0
    assert found.stderr.splitlines() == ["importing torch", "[1/3] measuring: 2 heads"]
    assert "2.000" in found.stdout


def test_measurements_that_contradict_themselves_are_refused_and_kept(tmp_path: Path) -> None:
    clear: list[dict[Tier, float]] = [{"masked_mha": 2.0, "sparse_mqa": 3.0}] * 5
    other: list[dict[Tier, float]] = [{"masked_mha": 3.0, "sparse_mqa": 2.0}] * 5
    cells = [cell_of(2, 64 << n, 0, turns) for n, turns in enumerate((clear, other, clear))]
    out = tmp_path / "table.json"
    python = interpreter(tmp_path, f'exec "{sys.executable}" "{program(tmp_path, cells)}"')
    found = ran("calibrate", "--device", "cpu", "--python", python, "--out", str(out))
    assert found.exit_code == 1
    assert "wins, loses and wins again as queries grow (64: 1.50x, 128: 0.67x" in found.stderr
    kept = load(out.read_text())
    assert len(kept.cells) == 3
    assert not kept.rows


def test_the_recorded_calibration_of_a_cpu_halved_its_crossing_and_loses_little() -> None:
    found = load(
        (Path(__file__).parents[2] / "docs/recordings/mla-calibration-cpu.json").read_text()
    )
    assert not found.refused
    regret = found.regret()
    assert regret is not None
    assert regret.worst <= 0.05
    (crossing,) = found.crossings()
    assert crossing.until / crossing.after < 1.05  # its grid has steps of 2
    # What is read is what the times say: thresholds are fitted again from them.
    assert fitted(found.key, found.cells).rows == found.rows


def test_the_command_itself_imports_no_torch(told: str) -> None:
    code = (
        "import sys\n"
        "from specpanel.app.cli import main\n"
        f"sys.argv = ['specpanel', 'mla', 'bench', '--device', 'cpu', '--python', {told!r}]\n"
        "try: main()\n"
        "except SystemExit as end: assert not end.code\n"
        "print(sorted({'torch', 'triton', 'numpy'} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert found.stdout.splitlines()[-1] == "[]", found.stderr


def test_a_measurement_ends_with_whoever_asked_for_it(model: str) -> None:
    dims = replace(PRESETS["deepseek-v3.2"].dims, topk=64)
    request = Request(dims, Grid((128,), (8192,)), refine=False, device="cpu", budget_s=600)
    child = subprocess.Popen(
        [sys.executable, "-m", "specpanel.kernels"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(dump_request(request) + "\n")
    child.stdin.flush()
    assert report_of(child.stdout.readline()).kind == "stage"
    child.stdin.close()
    assert child.wait(60) == 130
    child.stdout.close()


def test_timing_stops_when_the_median_is_known_and_says_how_often_it_ran() -> None:
    calls = []
    steady = time_call(
        lambda: calls.append(sum(range(20_000))), "cpu", Repeats(2, 5, 50, noise=1.0)
    )
    assert steady.repeats == 5
    assert len(calls) == 7
    assert steady.median_ms > 0


def test_one_thread_is_timed_by_what_it_computes_and_several_by_what_elapses() -> None:
    clock = measure.turn_clock()  # of one thread, as all tests of kernels have it
    waited = threading.Event()
    assert measure.once_ms(lambda: waited.wait(0.2), "cpu", clock) < 100
    torch.set_num_threads(2)
    try:
        assert measure.once_ms(lambda: waited.wait(0.2), "cpu", measure.turn_clock()) >= 200
    finally:
        torch.set_num_threads(1)


def test_the_peak_of_a_call_is_what_it_allocates_for_a_while() -> None:
    size = 64 * 2**20
    grown = peak_bytes(lambda: torch.ones(size // 4))
    if grown is None:
        pytest.skip("the kernel tells no peak here")
    assert 0.9 * size < grown < 1.5 * size


@pytest.mark.long
def test_portable_masked_mha_keeps_up_with_torchs_attention_in_half_its_memory() -> None:
    found = against_sdpa(rounds=2)
    assert (found.heads, found.tokens, found.topk) == (8, 2048, 512)
    (alone,) = found.by_threads
    assert (alone.threads, alone.rounds) == (1, 2)
    assert alone.processor.ratio <= 1.15  # elapsed time tells of other work, too
    if found.memory_ratio is None:
        pytest.skip("the kernel tells no peak here")
    assert found.memory_ratio <= 0.5


def test_a_key_says_what_was_measured_where() -> None:
    key = measure.key_of(PRESETS["deepseek-v3.2"].dims, "portable", "cpu", "float32", "random")
    assert key.device
    assert key.compute_units == torch.get_num_threads()
    assert key.triton is None
