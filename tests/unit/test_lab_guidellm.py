"""guidellm from outside: where it is, what it is asked, what its report says, and what becomes of both."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer

from specpanel.app.cli.sweep import Asked, sweep
from specpanel.core.engine.metrics import EngineCounters, parse_exposition
from specpanel.core.errors import ConfigurationError, SpecpanelError
from specpanel.core.lab.counter_windows import windowed_length
from specpanel.core.lab.guidellm_point import notes_on, point_of, point_sentence
from specpanel.core.lab.guidellm_program import guidellm_program, run_guidellm
from specpanel.core.lab.guidellm_report import Report, data_rows, read_report, scenario
from specpanel.core.lab.servers import Stop
from specpanel.core.settings.profile import Profile, Traffic
from specpanel.core.traffic.records import Prompt

FAKES = Path(__file__).parents[1] / "fakes" / "guidellm"
# Written by guidellm 0.8.1 over the tests' own server; cut to what is read.
SAMPLE = Path(__file__).parents[1] / "data" / "guidellm-0.8.1.json"
PROMPTS = (Prompt("a", "chat", "Say A."), Prompt("b", "code", "Say B."))


def sample() -> dict[str, Any]:
    table: dict[str, Any] = json.loads(SAMPLE.read_text(encoding="utf-8"))
    return table


def read() -> Report:
    sent = sample()["benchmarks"][0]["requests"]["successful"][0]["request_args"]
    text = json.loads(sent)["body"]["messages"][-1]["content"][0]["text"]
    return read_report(SAMPLE.read_text(encoding="utf-8"), (Prompt("known", "story", text),))


def test_a_real_report_gives_its_latencies_and_every_step_of_every_request() -> None:
    found = read()
    metrics = sample()["benchmarks"][0]["metrics"]
    assert found.version == "0.8.1"
    assert found.successful == len(found.records) > 2
    assert (
        found.ttft_ms.p50 == metrics["time_to_first_token_ms"]["successful"]["percentiles"]["p50"]
    )
    for record in found.records:
        assert record.accepted is not None
        assert record.drafted is not None
        assert record.ttft_ms is not None
        assert record.tpot_ms is not None
        assert record.end_to_end_ms is not None
        assert record.ttft_ms + record.tpot_ms * ((record.output_tokens or 0) - 1) == pytest.approx(
            record.end_to_end_ms, rel=0.1
        )
    kinds = [record.kind for record in found.records]
    assert kinds.count("story") == 1
    assert [record.started_s for record in found.records] == sorted(
        record.started_s for record in found.records
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"benchmarks": []}',
        '{"benchmarks": [{"metrics": null}]}',
        "[" * 100_000,
        json.dumps({**json.loads(SAMPLE.read_text()), "metadata": None}),
        SAMPLE.read_text().replace('"successful": ', '"successful": Infinity, "was": ', 1),
    ],
    ids=["empty", "list", "no benchmark", "no metrics", "deep", "no version", "infinite"],
)
def test_a_report_of_another_shape_is_a_sentence(text: str) -> None:
    with pytest.raises(SpecpanelError, match="the report of guidellm cannot be read") as caught:
        read_report(text, PROMPTS)
    assert "guidellm 0.8" in caught.value.fix


def test_zeros_over_nothing_are_no_latencies_and_a_failed_request_has_its_reason() -> None:
    table = sample()
    [benchmark] = table["benchmarks"]
    empty = {"mean": 0.0, "count": 0, "percentiles": {"p50": 0.0, "p99": 0.0}}
    for metric in benchmark["metrics"].values():
        metric["successful"] = empty if isinstance(metric["successful"], dict) else 0
    rows = benchmark["requests"]["successful"]
    for row in rows:
        row["info"]["error"] = "HTTP 500"
    benchmark["requests"] = {"successful": None, "errored": rows, "incomplete": None}
    found = read_report(json.dumps(table), PROMPTS)
    assert (found.ttft_ms.p50, found.output_tokens_per_s) == (None, None)
    assert found.first_error == "HTTP 500"
    assert all(record.accepted is None and record.tpot_ms is None for record in found.records)


def test_guidellm_gets_as_many_rows_as_requests_and_a_length_only_where_the_end_is_ignored() -> (
    None
):
    rows = data_rows(PROMPTS, Traffic(max_tokens=9), 5)
    assert [row["prompt"] for row in rows] == ["Say A.", "Say B."] * 2 + ["Say A."]
    assert all(row.keys() == {"prompt"} for row in rows)
    [row] = data_rows(
        (replace(PROMPTS[0], system="Be brief."),), Traffic(max_tokens=9, ignore_eos=True), 1
    )
    assert (row["system_prompt"], row["output_tokens_count"]) == ("Be brief.", 9)
    asked = scenario(
        url="http://x", model="m", api_key=None, data="d", out="o", traffic=Traffic(), requests=5
    )
    assert "api_key" not in asked["spec"]["backend"]
    assert asked["spec"]["constraints"] == [{"kind": "max_requests", "count": 5}]


def counters(*pairs: tuple[int, int]) -> list[EngineCounters]:
    """Readings with these drafts and accepted tokens, and two output tokens a draft."""
    text = """vllm:spec_decode_num_drafts_total{{model_name="m",engine="0"}} {0}
vllm:spec_decode_num_draft_tokens_total{{model_name="m",engine="0"}} {2}
vllm:spec_decode_num_accepted_tokens_total{{model_name="m",engine="0"}} {1}
vllm:generation_tokens_total{{model_name="m",engine="0"}} {3}
"""
    return [
        parse_exposition(text.format(drafts, accepted, 4 * drafts, 2 * drafts)).counters
        for drafts, accepted in pairs
    ]


def test_the_counters_alone_give_an_interval_over_their_seconds() -> None:
    readings = counters((0, 0), (10, 10), (20, 30), (30, 35), (30, 35), (40, 50), (50, 60))
    found = windowed_length(readings)
    assert found is not None
    assert found.estimate == pytest.approx(1 + 60 / 50)
    assert found.low < found.estimate < found.high
    assert windowed_length(readings[:4]) is None, "three seconds say nothing"


def test_a_point_without_reported_steps_has_its_acceptance_from_the_counters() -> None:
    plain = read()
    silent = replace(
        plain, records=tuple(replace(r, drafted=None, accepted=None) for r in plain.records)
    )
    readings = counters(*((10 * n, 12 * n + n % 2) for n in range(8)))
    point = point_of(3, silent, readings[0], readings[-1], readings, "unknown", None)
    assert (point.acceptance_source, point.drafts) == ("counters", 70)
    assert point.acceptance_length == pytest.approx(1 + 85 / 70)
    assert point.acceptance_length_interval is not None
    fewer, note = notes_on(point, silent, silent.successful + 1)
    assert (
        fewer
        == f"3 at a time: guidellm tells of {silent.successful} of {silent.successful + 1} requests"
    )
    assert "vLLM counted 140 output tokens" in note
    assert point_sentence(point).startswith("3 at a time: AL 2.21 (")
    nothing = point_of(3, silent, None, None, [], "none", None)
    assert (nothing.acceptance_length, nothing.drafts) == (None, None)
    assert point_sentence(nothing).startswith("3 at a time: AL n/a, ITL")


def test_guidellm_is_found_as_its_program_its_environment_or_its_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "bench" / "bin"
    folder.mkdir(parents=True)
    program = folder / "guidellm"
    program.write_text("#!/bin/sh\n")
    with pytest.raises(ConfigurationError, match="there is no guidellm at"):
        guidellm_program(str(program))
    program.chmod(0o755)
    for named in (program, folder, folder.parent, folder / "python"):
        assert guidellm_program(str(named)) == str(program)
    monkeypatch.chdir(folder.parent)
    assert guidellm_program(".") == str(program)
    for nowhere in ("/", "~nobody/x", "x" * 300, "a\0b"):
        with pytest.raises(ConfigurationError, match="there is no guidellm at"):
            guidellm_program(nowhere)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(folder))
    assert guidellm_program() == str(program)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigurationError) as caught:
        guidellm_program()
    assert "pip install 'specpanel[bench]'" in caught.value.fix
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("way", "said"),
    [
        ("fail", "guidellm ended with status 1: ValueError: the backend is out of sorts"),
        ("silent", "guidellm ended with status 3: it said nothing"),
    ],
)
async def test_a_guidellm_that_fails_is_told_with_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, said: str
) -> None:
    monkeypatch.setenv("FAKE_GUIDELLM", way)
    with pytest.raises(SpecpanelError, match=said):
        await run_guidellm(str(FAKES / "guidellm"), tmp_path / "plan.json", Stop.new())


async def test_a_guidellm_that_cannot_be_started_is_told(tmp_path: Path) -> None:
    with pytest.raises(SpecpanelError, match="cannot be started: No such file"):
        await run_guidellm(str(tmp_path / "guidellm"), tmp_path / "plan.json", Stop.new())


@pytest.mark.parametrize(
    ("change", "refused", "said"),
    [
        ({"sender": "wrk"}, {}, "--with wrk is not --with guidellm"),
        ({"sender": None, "loads": "1,2"}, {}, "--loads needs --with guidellm"),
        ({}, {"--rate": None, "--baseline": True}, "--baseline means nothing with guidellm"),
        ({"loads": "1,x"}, {}, "is no list of whole numbers"),
        ({"loads": "1,2", "concurrency": 2}, {}, "--loads and --concurrency say the same"),
        ({"program": "nowhere/at-all"}, {}, "there is no guidellm at nowhere"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_starts(
    change: dict[str, Any],
    refused: dict[str, object],
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    profile = Profile.model_validate(
        {"target": {"model": "some/model"}, "drafter": {"method": "none"}}
    )
    asked = replace(Asked(profile, "guidellm", None, None, None, None, None, None), **change)
    with pytest.raises((ConfigurationError, typer.Exit)) as caught:
        sweep(asked, refused, as_json=True)
    assert caught.value.exit_code == 2
    assert said in f"{caught.value}{capsys.readouterr().err}"
