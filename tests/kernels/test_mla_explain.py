"""``specpanel mla explain``: the tiers of DeepSeek-V3.2 by GPU, the reasons, the advice and bad input."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from specpanel.app.cli.root import app
from specpanel.kernels.dims import PRESETS
from specpanel.kernels.errors import MLAError
from specpanel.kernels.explain import explain, tiers_that_can_fire
from specpanel.kernels.gpus import gpu
from specpanel.kernels.vllm_backends import Serving, choose

DEEPSEEK = PRESETS["deepseek-v3.2"].dims
LENGTHS = (512, 1024, 1025, 2048, 2049, 4096, 4097, 8192, 16384)
D, M, S = "dense_mha", "masked_mha", "sparse_mqa"


def ran(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["mla", *arguments])


def said(*arguments: str) -> dict[str, Any]:
    found = ran("explain", *arguments, "--json")
    assert found.exit_code == 0, found.stderr
    (text,) = found.stdout.splitlines()
    data: dict[str, Any] = json.loads(text)
    assert list(data)[:2] == ["schema_version", "kind"]
    return data


# From vLLM 0.32.0's source: decode thresholds 1024/128/256/128/1, top-k 2048, the rows of the table.
TIERS = {
    ("B200", 1): (S, S, D, D, S, M, S, S, S),
    ("B200", 2): (D, D, D, D, M, M, M, M, S),
    ("B200", 4): (D, D, D, D, M, M, M, M, M),
    ("B200", 8): (D, D, D, D, M, M, M, M, M),
    ("H200", 1): (D, D, D, D, S, S, S, S, S),
    ("H200", 8): (D, D, D, D, S, S, S, S, S),
    ("MI300X", 1): (D, D, D, D, S, S, S, S, S),
    ("MI300X", 8): (D, D, D, D, S, S, S, S, S),
}


@pytest.mark.parametrize(("where", "wanted"), TIERS.items(), ids=[f"{g}-TP{tp}" for g, tp in TIERS])
def test_tiers_of_deepseek_by_prompt_length_are_those_of_vllms_source(
    where: tuple[str, int], wanted: tuple[str, ...]
) -> None:
    name, tensor_parallel = where
    found = explain(Serving(DEEPSEEK, gpu(name), tensor_parallel), LENGTHS, chunk_tokens=16384)
    assert tuple(prompt.steps[0].decision.tier for prompt in found.prompts) == wanted
    assert found.can_fire == ((D, M, S) if name == "B200" else (D, S))


@pytest.mark.parametrize(
    ("name", "tensor_parallel", "wanted"),
    [
        ("B200", 1, (S, D, M, S)),
        ("B200", 8, (D, D, M, M)),
        ("H200", 8, (D, D, S, S)),
        ("MI300X", 8, (D, D, S, S)),
    ],
)
def test_the_command_says_the_same_as_json(
    name: str, tensor_parallel: int, wanted: tuple[str, ...]
) -> None:
    lengths = ("--prompt-tokens", "512,2048,4096,8192")
    data = said("deepseek-v3.2", "--gpu", name, "--tp", str(tensor_parallel), *lengths)
    assert tuple(prompt["tiers"][0] for prompt in data["prompts"]) == wanted
    assert data["vllm_version"] == "0.32.0"
    for prompt in data["prompts"]:
        for step in prompt["steps"]:
            for tier in (D, M):
                failed = step["why_not"][tier]
                assert failed or tier == step["tier"] or step["tier"] == D
                assert all(not condition["holds"] and condition["text"] for condition in failed)


def test_a_long_prompt_is_told_step_by_step() -> None:
    found = explain(Serving(DEEPSEEK, gpu("b200"), 8), [40_000])
    (prompt,) = found.prompts
    assert [(step.query_len, step.context_len) for step in prompt.steps] == [
        (16384, 0),
        (16384, 16384),
        (7232, 32768),
    ]
    assert prompt.tiers == (M, S)


def codes(serving: Serving, *tokens: int, chunk: int | None = None) -> dict[str, str | None]:
    found = explain(serving, tokens, chunk_tokens=chunk)
    return {advice.code: advice.setting for advice in found.advice}


def test_a_small_chunk_that_keeps_masked_mha_away_is_named_with_the_size_that_it_needs() -> None:
    advice = codes(Serving(DEEPSEEK, gpu("b200"), 4), 16384, chunk=4096)
    assert advice["chunk"] == "--max-num-batched-tokens 16384"
    assert "chunk" not in codes(Serving(DEEPSEEK, gpu("b200"), 4), 16384, chunk=16384)


def test_fp8_against_masked_is_told_only_where_masked_would_fire() -> None:
    fp8 = Serving(DEEPSEEK, gpu("b200"), 8, kv_dtype="fp8")
    assert codes(fp8, 8192)["fp8-or-masked"] == "--kv-cache-dtype bfloat16"
    assert "fp8-or-masked" not in codes(fp8, 2048)
    assert "fp8-or-masked" not in codes(Serving(DEEPSEEK, gpu("h200"), 8, kv_dtype="fp8"), 8192)


def test_tensor_parallel_against_data_parallel_attention() -> None:
    assert "--tensor-parallel-size" in (
        codes(Serving(DEEPSEEK, gpu("b200")), 16384)["parallelism"] or ""
    )
    assert "parallelism" not in codes(Serving(DEEPSEEK, gpu("b200"), 8), 16384)


def test_a_backend_without_a_row_is_named_with_one_that_has_it() -> None:
    serving = Serving(DEEPSEEK, gpu("b200"), 4, backend="FLASHINFER_MLA_SPARSE")
    assert codes(serving, 4096)["no-row"] == "--attention-backend FLASHMLA_SPARSE"


def test_what_can_fire_follows_from_the_chunk() -> None:
    deployment, _ = choose(Serving(DEEPSEEK, gpu("b200")))
    assert tiers_that_can_fire(deployment, 16384) == (D, M, S)
    assert tiers_that_can_fire(deployment, 2048) == (D, S)
    assert tiers_that_can_fire(deployment, 512) == (S,)


def test_nonsense_lengths_are_refused() -> None:
    with pytest.raises(MLAError, match="at least one token"):
        explain(Serving(DEEPSEEK, gpu("b200")), [0])


def test_the_text_names_the_tiers_the_reasons_and_the_settings() -> None:
    found = ran(
        "explain", "deepseek-v3.2", "--gpu", "H200", "--tp", "8", "--prompt-tokens", "2048,8192"
    )
    assert found.exit_code == 0
    assert "Tiers that can fire: dense MHA, sparse MQA." in found.stdout
    assert "not masked MHA: H200 is sm90" in found.stdout
    assert "FLASH_ATTN_MLA_SPARSE" in found.stdout


def test_a_config_json_and_its_folder_give_the_same_as_the_preset(tmp_path: Path) -> None:
    config = {
        "model_type": "deepseek_v32",
        "num_attention_heads": 128,
        "q_lora_rank": 1536,
        "kv_lora_rank": 512,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "index_topk": 2048,
        "index_n_heads": 64,
        "index_head_dim": 128,
    }
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"text_config": config}))
    arguments = ("--gpu", "b200", "--prompt-tokens", "4096")
    by_name = said("deepseek-ai/DeepSeek-V3.2", *arguments)
    for model in (str(file), str(tmp_path)):
        found = said(model, *arguments)
        assert {**found, "model": ""} == {**by_name, "model": ""}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("nothing/here", "--gpu", "b200"), "neither a file or folder nor a model"),
        (("deepseek-v3.2", "--gpu", "gtx"), "nothing is known here of a GPU"),
        (("deepseek-v3.2", "--gpu", "b200", "--tp", "3"), "cannot be divided among 3 ranks"),
        (("deepseek-v3.2", "--gpu", "b200", "--kv-dtype", "int3"), "not one that sparse MLA knows"),
        (("deepseek-v3.2", "--gpu", "b200", "--prompt-tokens", "4k"), "not a length in tokens"),
        (("deepseek-v3.2", "--gpu", "b200", "--prompt-tokens", ""), "not a length in tokens"),
        (("kimi-k2", "--gpu", "b200"), "no indexer"),
        (
            ("deepseek-v3.2", "--gpu", "h200", "--kv-dtype", "nvfp4_ds_mla"),
            "no sparse MLA backend for this on H200",
        ),
    ],
)
def test_bad_input_is_one_sentence_and_exit_status_2(
    arguments: tuple[str, ...], sentence: str
) -> None:
    found = ran("explain", *arguments)
    assert found.exit_code == 2
    assert found.stdout == ""
    assert sentence in found.stderr
    assert "Traceback" not in found.stderr


def test_a_model_without_an_mha_form_is_refused_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "deepseek_v4", "compress_ratios": [4]}')
    found = ran("explain", str(tmp_path), "--gpu", "b200")
    assert found.exit_code == 2
    assert "has no MHA form" in found.stderr


def test_explaining_imports_no_torch_and_takes_little_time() -> None:
    code = (
        "import sys, time\n"
        "from specpanel.app.cli import main\n"
        "sys.argv = ['specpanel', 'mla', 'explain', 'deepseek-v3.2', '--gpu', 'b200', '--json']\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'triton', 'vllm', 'numpy', 'textual'} & set(sys.modules)\n"
        "print(sorted(heavy), time.process_time() < 3)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert found.stdout.splitlines()[-1] == "[] True", found.stderr
