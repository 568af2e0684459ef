"""The memory that preflight foretells beside what vLLM itself reports, and MLA on a CPU for real."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
TOKENS = re.compile(
    r"KV cache size: ([\d,]+) tokens, Maximum concurrency for [\d,]+ tokens per request: ([\d.]+)x"
)
MLA_SETTINGS = ("--set", "mla.attention_backend=CPU_MLA", "--set", "mla.block_size=16")


def reported(log: Path) -> tuple[int, float]:
    """Tokens and concurrency that vLLM wrote into its log."""
    found = TOKENS.search(log.read_text(errors="replace"))
    assert found is not None, log
    return int(found.group(1).replace(",", "")), float(found.group(2))


def log_of(lines: list[dict[str, Any]]) -> Path:
    return Path(next(line["log"] for line in lines if line["kind"] == "launched"))


@pytest.fixture(scope="module")
def mla_model(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mla")
    writer = [sys.executable, str(HERE / "random_mla_model.py"), str(folder), str(demo_model)]
    made = subprocess.run(writer, capture_output=True, text=True, timeout=300, check=False)
    assert made.returncode == 0, made.stderr[-2000:]
    return folder


def changed(model: Path, folder: Path, **fields: Any) -> Path:
    """A copy of the model's configuration with other fields, weights linked."""
    folder.mkdir()
    config = json.loads((model / "config.json").read_text()) | fields
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").symlink_to(model / "model.safetensors")
    return folder


def test_tokens_foretold_for_gqa_are_those_that_vllm_reports(specpanel, server) -> None:
    tokens, concurrency = reported(log_of(server.run.lines))
    checked = specpanel.run("check", "demo-ngram", "--port", "20301", "--json")
    assert checked.code == 0, checked.err
    (memory,) = (line for line in checked.lines if line["kind"] == "memory")
    assert memory["tokens"] == pytest.approx(tokens, rel=0.03)
    assert memory["concurrency"] == pytest.approx(concurrency, rel=0.03)


def test_mla_is_foretold_launched_with_its_settings_and_drafted_for(specpanel, mla_model) -> None:
    chosen = (
        *("--model", str(mla_model), "--drafter", "ngram", "--k", "4", "--port", "20302"),
        *("--set", "target.max_model_len=1000", "--set", "engine.cpu_kv_cache_gib=1"),
        *MLA_SETTINGS,
    )
    checked = specpanel.run("check", *chosen, "--json")
    assert checked.code == 0, checked.out
    assert checked.lines[-1]["attention"] == "mla"
    (memory,) = (line for line in checked.lines if line["kind"] == "memory")

    run = specpanel.run(
        *("run", *chosen, "--requests", "3", "--json", "--no-record"),
        *("--set", "traffic.max_tokens=48", "--set", "traffic.kinds=repetition"),
    )
    assert run.code == 0, run.err
    (leg,) = run.summary["legs"]
    assert leg["requests"] == 3
    assert leg["failed"] == 0
    assert leg["acceptance"]["acceptance_length"] >= 1  # verified, whatever random weights repeat
    log = log_of(run.lines)
    assert "Using CPU_MLA backend" in log.read_text(errors="replace")
    tokens, concurrency = reported(log)
    assert memory["tokens"] == pytest.approx(tokens, rel=0.03)
    assert memory["concurrency"] == pytest.approx(concurrency, rel=0.03)


def test_sparse_mla_is_refused_on_a_cpu_in_vllms_own_words(specpanel, mla_model, tmp_path) -> None:
    sparse = changed(
        mla_model,
        tmp_path / "sparse",
        architectures=["DeepseekV32ForCausalLM"],
        model_type="deepseek_v32",
        q_lora_rank=128,
        index_topk=64,
        index_n_heads=4,
        index_head_dim=128,
    )
    run = specpanel.run("run", "--model", str(sparse), "--port", "20303", "--json", "--no-record")
    assert run.code == 2
    assert "Sparse Attention is not supported on CPU" in run.err
    assert not any(line["kind"] == "launched" for line in run.lines)


def test_plain_rope_under_mla_is_refused_with_a_way_out(specpanel, mla_model, tmp_path) -> None:
    plain = changed(
        mla_model,
        tmp_path / "plain",
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
    )
    checked = specpanel.run("check", "--model", str(plain), "--port", "20304", "--json")
    assert checked.code == 2
    (finding,) = (line for line in checked.lines if line["kind"] == "finding")
    assert finding["code"] == "plain-rope-on-cpu"
    mended = json.dumps(finding["mend"]["engine.arguments"])
    assert "-rotary_embedding" in mended
    arguments = " ".join(f"'{word}'" for word in finding["mend"]["engine.arguments"])
    again = specpanel.run(
        *("check", "--model", str(plain), "--port", "20304", "--json"),
        *("--set", f"engine.arguments={arguments}"),
    )
    assert again.code == 0, again.out
