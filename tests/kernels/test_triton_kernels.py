"""Our Triton kernels, in processes of their own: interpreted on this CPU, and compiled for absent GPUs.

``triton_checks.py`` and ``triton_compile.py`` hold the checks. Each runs once here, and every check of theirs
is a test of this file, under its own name.
"""

import os
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

import pytest

torch = pytest.importorskip("torch", reason="the kernels need torch")
pytest.importorskip("triton", reason="Triton is not installed (requirements/dev.lock has it)")

HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one check."""

    state: str
    text: str


@cache
def outcomes(file: str, interpreted: bool, only: str = "") -> dict[str, Outcome]:
    """Every check of ``file``, or those whose names hold ``only``, by name, from one run of pytest."""
    report = Path(os.environ["PYTEST_TRITON_REPORTS"]) / f"{file}{only}.xml"
    environment = {
        **os.environ,
        "TRITON_CACHE_DIR": str(report.with_suffix(".cache")),
        "TRITON_DEFAULT_FP_FUSION": "1",
        "OMP_NUM_THREADS": "1",
    }
    environment.pop("TRITON_INTERPRET", None)
    if interpreted:
        environment["TRITON_INTERPRET"] = "1"
    ran = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", HERE / file, "-q", f"--junitxml={report}"),
            *("-p", "no:cacheprovider", "--timeout=0", f"--rootdir={HERE.parents[1]}"),
            *(("-k", only) if only else ()),
        ],
        capture_output=True,
        text=True,
        env=environment,
        cwd=HERE.parents[1],
    )
    assert report.exists(), ran.stdout[-3000:] + ran.stderr[-3000:]
    found = {}
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        bad = next(
            (case.find(name) for name in ("failure", "error") if case.find(name) is not None), None
        )
        skipped = case.find("skipped")
        reason = bad if bad is not None else skipped
        state = "passed" if reason is None else "failed" if bad is not None else "skipped"
        text = "" if reason is None else f"{reason.get('message')}\n{reason.text or ''}"
        found[case.get("name", "")] = Outcome(state, text)
    assert found, ran.stdout[-3000:]
    return found


@pytest.fixture(scope="session", autouse=True)
def _reports(tmp_path_factory: pytest.TempPathFactory) -> None:
    os.environ["PYTEST_TRITON_REPORTS"] = str(tmp_path_factory.mktemp("triton"))


def hold(found: Outcome) -> None:
    if found.state == "skipped":
        pytest.skip(found.text.strip())
    assert found.state == "passed", found.text


CHECKS = [
    "test_this_process_interprets_on_the_cpu_or_runs_on_a_gpu",
    *(
        f"test_in_float32_every_kernel_is_the_reference[{name}]"
        for name in (
            "ragged",
            "cached context",
            "below top-k",
            "an empty neighbour",
            "no rotary part",
            "odd widths",
        )
    ),
    "test_in_half_precision_every_kernel_holds_its_tolerance[torch.float16]",
    "test_in_half_precision_every_kernel_holds_its_tolerance[torch.bfloat16]",
    "test_rows_that_select_nothing_repeat_themselves_or_point_nowhere",
    "test_queries_need_not_be_contiguous",
    "test_rows_of_the_cache_that_nobody_selected_may_hold_anything",
    "test_another_requests_rows_may_hold_anything",
    "test_ids_beyond_2_to_15_and_rows_beyond_2_to_31_elements_are_found",
    "test_whole_paths_agree_with_each_other",
]
KERNELS = ("masked MHA of DeepSeek", "masked MHA of GLM", "plain MQA", "swapped MQA")
TARGETS = (
    "sm_90",
    pytest.param("sm_100", marks=pytest.mark.long),
    pytest.param("gfx942", marks=pytest.mark.long),
)


@pytest.mark.parametrize("name", CHECKS)
def test_interpreted(name: str) -> None:
    hold(outcomes("triton_checks.py", interpreted=True)[name])


def test_no_interpreted_check_is_left_out() -> None:
    assert set(outcomes("triton_checks.py", interpreted=True)) == set(CHECKS)


def test_natively_on_the_gpu_of_this_machine() -> None:
    if not torch.cuda.is_available():
        pytest.skip("there is no GPU here that torch can use")
    found = outcomes("triton_checks.py", interpreted=False)
    assert set(CHECKS) < set(found)
    bad = {name: outcome.text for name, outcome in found.items() if outcome.state != "passed"}
    assert not bad


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", KERNELS)
def test_compiled_offline_within_limits(name: str, target: str) -> None:
    found = outcomes("triton_compile.py", interpreted=False, only=target)
    check = "test_it_compiles_with_matrix_instructions_within_shared_memory_and_without_spills"
    hold(found[f"{check}[{name}-{target}]"])
