"""``specpanel check`` and its exit statuses; a refused launch, and one that is forced and says so."""

import json
from pathlib import Path

from fakes.engine.workbench import FAKE_PYTHON, Workbench, free_port

TOO_LONG = ("--set", "target.max_model_len=4096")  # the model is made for 2048


def check(bench: Workbench, *more: str) -> tuple[int, list[dict[str, object]], str]:
    panel = bench.start(
        *("check", "--model", str(bench.model), "--drafter", "ngram", "--k", "4"),
        *("--python", str(FAKE_PYTHON), "--port", str(free_port()), *more),
    )
    code = panel.end()
    lines = [json.loads(line) for line in panel.out.splitlines() if line.startswith("{")]
    return code, lines, panel.out + panel.err


def test_a_sound_profile_ends_with_0_and_shows_what_it_will_hold(bench: Workbench) -> None:
    code, _, text = check(bench)
    assert code == 0
    assert "nothing stands in the way" in text
    # 1 GiB over 2 * 4 * 16 * 4 bytes in each of two layers.
    assert "1,048,576" in text
    assert "2 layers of 512 B" in text


def test_warnings_count_under_strict_only(bench: Workbench) -> None:
    wide = ("--set", "engine.host=0.0.0.0")
    code, _, text = check(bench, *wide)
    assert code == 0
    assert "[listens-beyond]" in text
    assert check(bench, *wide, "--strict")[0] == 1
    assert check(bench, "--strict")[0] == 0


def test_errors_end_with_2_and_say_what_mends_them(bench: Workbench) -> None:
    code, lines, _ = check(bench, *TOO_LONG, "--json")
    assert code == 2
    assert all(list(line)[:2] == ["schema_version", "kind"] for line in lines)
    assert [line["kind"] for line in lines] == ["finding", "memory", "check"]
    finding, memory, summary = lines
    assert finding["code"] == "max-model-len"
    assert finding["mend"] == {"target.max_model_len": 2048}
    assert memory["max_model_len"] == 4096
    assert (summary["errors"], summary["exit_code"], summary["attention"]) == (1, 2, "gqa")
    bench.assert_nothing_left()


def test_run_refuses_errors_and_starts_them_when_forced_and_recorded(
    bench: Workbench, tmp_path: Path
) -> None:
    refused = bench.run(*TOO_LONG)
    assert refused.end() == 2
    assert "4096 is above the 2048 positions" in refused.err
    assert refused.of_kind("launched") == []

    recording = tmp_path / "forced.ndjson"
    forced = bench.run(*TOO_LONG, "--force", "--record", recording)
    assert forced.end() == 0, forced.err
    assert [event["codes"] for event in forced.of_kind("forced")] == [["max-model-len"]]
    assert [event["code"] for event in forced.of_kind("finding")] == ["max-model-len"]
    assert forced.summary["forced"] == ["max-model-len"]
    assert '"kind": "forced"' in recording.read_text()
    assert len(forced.of_kind("launched")) == 1
    bench.assert_nothing_left()


def test_force_over_a_sound_profile_records_nothing(bench: Workbench) -> None:
    panel = bench.run("--force")
    assert panel.end() == 0, panel.err
    assert panel.of_kind("forced") == []
    assert panel.summary["forced"] == []
