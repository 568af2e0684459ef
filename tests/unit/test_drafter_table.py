"""What each drafter can do where: against vLLM's own lists, and as the command line shows it."""

import ast
import importlib.util
import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from specpanel.app.cli.root import app
from specpanel.core.preflight.runner import not_on_v2
from specpanel.core.settings.drafters import DRAFTERS, METHODS
from specpanel.core.settings.drafters.table import (
    DEVICES,
    FACTS,
    READ_FROM,
    RUNNERS,
    Device,
    Runner,
    runner_for,
    runs,
)

YES, PART, NO = "yes", "part", "no"
# Method → (V1 on a GPU, V2 on a GPU, V1 on a CPU); V2 on a CPU needs Triton and is never there.
# vLLM 0.32: config/vllm.py (both runners' lists), v1/worker/gpu_model_runner.py, platforms/cpu.py.
EXPECTED: dict[str, tuple[str, str, str]] = {
    "none": (YES, YES, YES),
    "ngram": (YES, YES, YES),
    "ngram_gpu": (YES, YES, NO),
    "suffix": (YES, NO, YES),
    "draft_model": (YES, YES, YES),
    "pard": (YES, NO, YES),
    "eagle": (YES, YES, YES),
    "eagle3": (YES, YES, YES),
    "p_eagle": (YES, NO, YES),
    "dflash": (PART, YES, PART),
    "dflash2": (NO, YES, NO),
    "dspark": (NO, YES, NO),
    "mtp": (YES, YES, YES),
    "medusa": (YES, NO, YES),
    "custom": (YES, NO, YES),
}


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("method", METHODS)
def test_a_method_runs_on_a_device_with_a_runner(
    method: str, device: Device, runner: Runner
) -> None:
    on_gpu_v1, on_gpu_v2, on_cpu_v1 = EXPECTED[method]
    expected = on_gpu_v1 if runner == "v1" else on_gpu_v2
    if device == "cpu":
        expected = on_cpu_v1 if runner == "v1" else NO
    if (method, device, runner) == ("dspark", "rocm", "v2"):
        expected = PART  # Kimi K3's is for NVIDIA
    cell = runs(method, device, runner)
    assert cell.support == expected
    if expected != YES:
        assert cell.note, "what is not simply so says why"


@pytest.mark.parametrize("method", METHODS)
def test_the_runner_is_the_one_that_vllm_takes(method: str) -> None:
    v1, v2, on_cpu = EXPECTED[method]
    expected = "v2" if v2 != NO else "v1" if v1 != NO else None
    assert runner_for(method, "cuda") == expected
    assert runner_for(method, "cpu") == (None if on_cpu == NO else "v1")


def vllm_config() -> str:
    found = importlib.util.find_spec("vllm")  # looks for it, does not import it
    if found is None or found.origin is None:
        pytest.skip("vLLM is not installed here")
    return Path(found.origin).parent.joinpath("config", "vllm.py").read_text(encoding="utf-8")


def function(name: str) -> str:
    tree = ast.parse(vllm_config())
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return ast.unparse(node)
    pytest.fail(f"{name} is gone from vLLM's config/vllm.py")


def test_runner_v2_refuses_what_the_table_says() -> None:
    source = function("_get_v2_model_runner_unsupported_features")
    listed = re.search(r"speculative_config\.method in (\([^)]*\))", source)
    assert listed is not None
    named = set(ast.literal_eval(listed[1]))
    assert "parallel_drafting" in source
    for method, facts in FACTS.items():
        parallel = "parallel_drafting" in DRAFTERS[method].vllm_extra
        refused = facts.vllm_method in named or parallel
        assert (facts.v2.support == "no") == refused, method
    assert named - {facts.vllm_method for facts in FACTS.values()} == {"mlp_speculator"}


def test_runner_v1_refuses_what_the_table_says() -> None:
    source = function("_get_v1_model_runner_unsupported_features")
    assert "'dspark'" in source
    assert "_is_dflash_candidate_draft" in source
    assert "_dflash_needs_multi_kv_group" in source
    refused = {method for method, facts in FACTS.items() if facts.v1.support != "yes"}
    assert refused == {"dspark", "dflash2", "dflash"}


@pytest.mark.parametrize("method", METHODS)
def test_preflight_and_the_table_agree_on_runner_v2(method: str) -> None:
    needed = {"model": "/d"} if FACTS[method].weights == "own" else {}
    if method == "custom":
        needed = {"proposer": "a.B"}
    if method == "dspark":
        needed = {"k": 5}
    drafter = DRAFTERS[method].model_validate({"method": method, **needed})
    wanting = not_on_v2(drafter.speculative_config() or {})
    assert bool(wanting) == (FACTS[method].v2.support == "no")


def test_the_table_has_a_row_a_drafter_and_the_name_that_vllm_knows_it_by() -> None:
    assert tuple(FACTS) == METHODS
    for method, drafter in DRAFTERS.items():
        assert FACTS[method].vllm_method == drafter.vllm_method
        assert FACTS[method].source
        weights = FACTS[method].weights
        field = drafter.model_fields.get("model")
        expected = "none" if field is None else "own" if field.is_required() else "either"
        assert weights == expected, method


# --- the command line -------------------------------------------------------------------------------


def shown(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["drafters", *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_table_fits_80_columns_and_names_every_drafter() -> None:
    lines = shown().splitlines()
    assert max(map(len, lines)) <= 80
    assert [line.split()[0] for line in lines[1 : 1 + len(METHODS)]] == list(METHODS)
    assert READ_FROM in lines[-1]


def test_the_table_as_json_is_an_object_a_drafter() -> None:
    found = [json.loads(line) for line in shown("--json").splitlines()]
    assert [one["method"] for one in found] == list(METHODS)
    for one in found:
        assert list(one)[:2] == ["schema_version", "kind"]
        assert one["cpu"]["support"] in ("yes", "part", "no", "unknown")
        assert one["read_from"] == f"vLLM {READ_FROM}"


@pytest.mark.parametrize("method", METHODS)
def test_one_drafter_in_full_names_its_settings_and_fits_the_width(method: str) -> None:
    text = shown("show", method)
    for name in DRAFTERS[method].model_fields:
        if name != "method":
            assert f"\n  {name}  [" in text
    assert max(map(len, text.splitlines())) <= 110
    (found,) = [json.loads(line) for line in shown("show", method, "--json").splitlines()]
    names = {setting["name"] for setting in found["settings"]}
    assert names == set(DRAFTERS[method].model_fields) - {"method"}


def test_another_name_shows_the_drafter_that_it_means() -> None:
    assert shown("show", "deepseek_mtp").startswith("mtp: MTP")


@pytest.mark.parametrize(
    ("name", "words"), [("mlp_speculator", "no code to run it"), ("egle3", "Did you mean eagle3")]
)
def test_a_name_that_is_no_drafter_says_what_to_do(name: str, words: str) -> None:
    result = CliRunner().invoke(app, ["drafters", "show", name])
    assert result.exit_code == 2
    assert words in result.output
    assert "Traceback" not in result.output
