"""``specpanel parity`` through the real command line, against a server that does as it is told."""

from pathlib import Path

import pytest
from fakes.engine.workbench import FAKE_PYTHON, Panel, Workbench
from ports import free_port

PROFILE = """schema_version = 1
[target]
model = "{model}"
max_model_len = 1024
[engine]
python = "{python}"
port = {port}
cpu_kv_cache_gib = 1
stop_timeout_s = 2
[drafter]
{drafter}
[traffic]
max_tokens = 12
concurrency = 4
"""


def parity(
    bench: Workbench,
    drafter: str = 'method = "ngram"\nk = 4',
    script: dict[str, object] | None = None,
) -> Panel:
    file: Path = bench.folder / "bench.toml"
    file.write_text(
        PROFILE.format(model=bench.model, python=FAKE_PYTHON, port=free_port(), drafter=drafter)
    )
    return bench.start("parity", file, "--json", "-n", "10", script=script)


def test_equal_answers_are_lossless_and_exit_0(bench: Workbench) -> None:
    panel = parity(bench)
    assert panel.end() == 0, panel.err
    [ended] = panel.of_kind("result")
    result = ended["result"]
    assert result["lossless"]
    assert [feature["feature"] for feature in result["features"]] == ["first time", "prefix cache"]
    assert all(feature["identical"] == feature["compared"] == 10 for feature in result["features"])
    assert "10 of 10 answers identical" in ended["conclusion"]
    assert len(panel.of_kind("launched")) == 2
    bench.assert_nothing_left()


def test_a_profile_without_a_drafter_is_refused(bench: Workbench) -> None:
    panel = parity(bench, 'method = "none"')
    assert panel.end() == 2
    assert "has none" in panel.err


def test_a_token_that_the_target_finds_far_less_likely_is_a_difference_and_exits_1(
    bench: Workbench,
) -> None:
    panel = parity(bench, script={"parts_at": 5, "gap_nats": 2.0})
    assert panel.end() == 1
    [ended] = panel.of_kind("result")
    first, _ = ended["result"]["features"]
    assert (first["compared"], first["identical"], first["real"], first["ties"]) == (10, 0, 10, 0)
    parting = first["differences"][0]
    assert (parting["place"], parting["kind"]) == (5, "difference")
    assert abs(parting["gap_nats"] - 2.0) < 1e-6
    assert parting["with_drafter"] == parting["without_drafter"] + 1
    assert not ended["result"]["lossless"]
    bench.assert_nothing_left()


@pytest.mark.long
def test_a_token_as_likely_as_the_other_is_a_tie_and_lossless(bench: Workbench) -> None:
    panel = parity(bench, script={"parts_at": 5, "gap_nats": 0.001})
    assert panel.end() == 0, panel.err
    [ended] = panel.of_kind("result")
    first, _ = ended["result"]["features"]
    assert (first["identical"], first["real"], first["ties"]) == (0, 0, 10)
    assert "part at a numerical tie" in ended["conclusion"]
