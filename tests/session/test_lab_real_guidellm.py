"""The real guidellm, sent by ``specpanel run --with guidellm`` against a server that counts as vLLM does."""

import os
from pathlib import Path

import pytest
from fakes.engine.workbench import FAKE_PYTHON, Workbench
from ports import free_port

from specpanel.core.errors import ConfigurationError
from specpanel.core.lab.guidellm_program import guidellm_program

# Where it is, if neither beside this Python nor on the path.
NAMED = os.environ.get("GUIDELLM_PROGRAM")
PROFILE = """schema_version = 1
[target]
model = "{model}"
max_model_len = 1024
[engine]
python = "{python}"
port = {port}
cpu_kv_cache_gib = 1
[drafter]
method = "ngram"
k = 4
[traffic]
max_tokens = 12
"""


def real() -> str:
    try:
        return guidellm_program(NAMED)
    except ConfigurationError as error:
        pytest.skip(f"{error.message}; GUIDELLM_PROGRAM names it")


@pytest.mark.long
def test_the_real_guidellm_is_asked_and_read_as_it_wants(bench: Workbench) -> None:
    """Every request ends, none is lost or sent twice, and its report holds the steps of each."""
    program = real()
    profile = bench.folder / "ngram.toml"
    text = PROFILE.format(model=bench.model, python=FAKE_PYTHON, port=free_port())
    profile.write_text(text)
    panel = bench.start(
        *("run", profile, "--with", "guidellm", "--guidellm", Path(program), "--json"),
        *("--loads", "2", "-n", "7"),
        script={"step_s": 0.1},
    )
    assert panel.process.wait(500) == 0, panel.err
    [ended] = panel.of_kind("result")
    assert ended["result"]["guidellm_version"].startswith("0.8.")
    [point] = ended["result"]["points"]
    assert (point["requests"], point["errored"], point["incomplete"]) == (8, 0, 0), "whole rounds"
    assert point["acceptance_source"] == "requests"
    # Answers of 12 tokens: the first alone, then drafts with 4, 0, 2 and 1 accepted tokens.
    assert point["acceptance_length"] == point["counted_length"] == pytest.approx(2.75)
    assert point["counted_tokens"] == 8 * 12
    # Four steps of 0.1 s for eleven tokens after the first.
    assert point["itl_p50_ms"] >= 0.99 * 400 / 11
    assert point["ttft_p50_ms"] >= 99
    bench.assert_nothing_left()
