"""Two past runs side by side: a ratio where one can be told, an interval only where there is one."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from tui.synthetic import synthetic_frames

from specpanel.core.errors import RecordingError
from specpanel.core.monitor.frame import Quantile
from specpanel.core.monitor.recording import frame_line, line
from specpanel.core.session.events import RequestDone, SettingsChosen, event_line
from specpanel.core.session.history import PastRun, read_run
from specpanel.core.session.history_comparison import (
    SAME_PROMPTS,
    Row,
    RunComparison,
    compare,
    measured_requests,
)
from specpanel.core.session.history_figures import Value
from specpanel.core.settings.profile import Profile
from specpanel.core.speculation.paired import paired_ratio
from specpanel.core.traffic.records import RequestRecord

REAL = Path(__file__).parents[1] / "data" / "recordings"


def recorded(path: Path, *lines: str) -> PastRun:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return read_run(path)


def request(prompt: str, tpot_ms: float, **more: Any) -> RequestRecord:
    plain = RequestRecord(
        0, prompt, "chat", 0.0, 0.0, 100.0, tpot_ms, 1000.0, 5, 21, "length", first_chunk_tokens=1
    )
    return replace(plain, **more)


def run_of(path: Path, *requests: RequestRecord, leg: str = "drafter") -> PastRun:
    frames = [frame_line(frame) for frame in synthetic_frames(3)]
    return recorded(path, *frames, *(event_line(RequestDone(leg, one)) for one in requests))


def row(found: RunComparison, figure: str) -> Row | None:
    return next((row for row in found.rows if row.figure == figure), None)


def test_real_runs_of_the_same_prompts_have_a_paired_ratio_with_its_interval() -> None:
    plain, ngram = read_run(REAL / "demo-plain.ndjson"), read_run(REAL / "demo-ngram.ndjson")
    found = compare(plain, ngram)
    paired = paired_ratio(measured_requests(ngram.path), measured_requests(plain.path))
    assert paired.ratio is not None
    assert paired.ratio_interval is not None
    same = row(found, SAME_PROMPTS)
    assert same is not None
    assert same.ratio == Value(paired.ratio, paired.ratio_interval.low, paired.ratio_interval.high)
    assert any(f"{paired.pairs} prompts in both" in note for note in found.notes)
    length = row(found, "acceptance length")
    assert length is not None
    assert length.a is None, "plain decoding has no acceptance length"
    assert length.ratio is None
    assert found.settings is not None
    assert "drafter.method" in {change.setting for change in found.settings}


def test_only_the_paired_ratio_has_an_interval() -> None:
    a, b = read_run(REAL / "demo-plain.ndjson"), read_run(REAL / "demo-ngram.ndjson")
    for one in compare(a, b).rows:
        if one.figure != SAME_PROMPTS and one.ratio is not None:
            assert (one.ratio.low, one.ratio.high) == (None, None)


def test_a_run_against_itself_is_one() -> None:
    run = read_run(REAL / "demo-ngram.ndjson")
    found = compare(run, run)
    assert {one.ratio.value for one in found.rows if one.ratio is not None} == {1.0}
    assert found.settings == ()


def test_the_paired_ratio_is_b_over_a_and_leaves_the_warm_up_out(tmp_path: Path) -> None:
    prompts = [f"p{number}" for number in range(10)]
    a = run_of(
        tmp_path / "a.ndjson",
        request("p0", 900.0, warmup=True),
        *(request(prompt, 40.0) for prompt in prompts),
    )
    b = run_of(tmp_path / "b.ndjson", *(request(prompt, 20.0) for prompt in prompts))
    same = row(compare(a, b), SAME_PROMPTS)
    assert same is not None
    assert same.a is not None
    assert same.ratio is not None
    assert same.a.value == pytest.approx(40.0)
    assert same.ratio.value == pytest.approx(0.5)


def test_other_prompts_give_no_paired_row_and_the_reason(tmp_path: Path) -> None:
    a = run_of(tmp_path / "a.ndjson", request("p1", 40.0))
    b = run_of(tmp_path / "b.ndjson", request("p2", 20.0))
    found = compare(a, b)
    assert row(found, SAME_PROMPTS) is None
    assert any("no ratio over the same prompts" in note for note in found.notes)


def test_one_pair_gives_a_ratio_without_an_interval(tmp_path: Path) -> None:
    a = run_of(tmp_path / "a.ndjson", request("p", 40.0))
    b = run_of(tmp_path / "b.ndjson", request("p", 30.0))
    same = row(compare(a, b), SAME_PROMPTS)
    assert same is not None
    assert same.ratio == Value(0.75)


def test_of_a_run_with_a_baseline_the_drafter_leg_is_compared(tmp_path: Path) -> None:
    lines = [frame_line(frame) for frame in synthetic_frames(2)]
    lines += [event_line(RequestDone("baseline", request("p", 80.0)))]
    lines += [event_line(RequestDone("drafter", request("p", 20.0)))]
    run = recorded(tmp_path / "a.ndjson", *lines)
    assert [one.tpot_ms for one in measured_requests(run.path)] == [20.0]


def test_last_moments_against_a_whole_run_give_no_ratio(tmp_path: Path) -> None:
    moments = run_of(tmp_path / "a.ndjson")
    found = compare(moments, read_run(REAL / "demo-ngram.ndjson"))
    assert all(one.ratio is None for one in found.rows)
    assert any("no ratio is given" in note for note in found.notes)


def test_a_bound_gives_no_ratio(tmp_path: Path) -> None:
    [frame] = synthetic_frames(1)
    assert frame.latency is not None
    assert frame.latency.tpot is not None
    beyond = replace(frame.latency.tpot, p50=Quantile(160.0, beyond=True))
    a = recorded(
        tmp_path / "a.ndjson",
        frame_line(replace(frame, latency=replace(frame.latency, tpot=beyond))),
    )
    found = row(compare(a, run_of(tmp_path / "b.ndjson")), "TPOT p50")
    assert found is not None
    assert found.ratio is None


def test_settings_that_one_side_did_not_record_are_unknown_not_equal(tmp_path: Path) -> None:
    profile = Profile.model_validate({"name": "x", "target": {"model": "m"}})
    chosen = event_line(SettingsChosen(profile.model_dump(mode="json")))
    a = recorded(tmp_path / "a.ndjson", chosen, *(frame_line(f) for f in synthetic_frames(2)))
    assert compare(a, run_of(tmp_path / "b.ndjson")).settings is None


def test_broken_runs_are_refused_and_hostile_requests_left_out(tmp_path: Path) -> None:
    good = run_of(tmp_path / "good.ndjson", request("p", 40.0))
    with good.path.open("a") as file:
        file.write(line("request", {"leg": "drafter", "tpot_ms": "fast"}) + "\n")
        file.write(
            json.dumps({"schema_version": 1, "kind": "request", **asdict(request("p", 1.0))})
        )
        file.write('\n{"schema_version": 1, "kind": "request", \n')
    assert [one.tpot_ms for one in measured_requests(good.path)] == [40.0]
    with pytest.raises(RecordingError, match="cannot be compared"):
        compare(good, recorded(tmp_path / "bad.ndjson", "nonsense"))
