"""The plain text: what is known is there with its unit, what is absent is neither zero nor None."""

from dataclasses import replace
from typing import Any

import pytest
from fakes.shapes import any_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specpanel.app.cli.plain import frame_text, summary_text
from specpanel.app.cli.progress import PlainPrinter
from specpanel.core.monitor.frame import (
    EngineSample,
    Frame,
    Interval,
    LatencySample,
    PositionRate,
    Quantile,
    Quantiles,
    ScrapeSample,
    ServerSample,
    SpeculationSample,
    TrafficSample,
)
from specpanel.core.printable import cells, clipped
from specpanel.core.session.events import FrameTaken
from specpanel.core.session.summary import Acceptance, Comparison, Leg, Summary
from specpanel.core.speculation.agreement import Agreement, Difference
from specpanel.core.speculation.paired import PairedRatio
from specpanel.core.speculation.quantiles import SampleQuantile
from specpanel.core.speculation.verdict import Verdict

RELAXED = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


def frame(server: dict[str, Any] | None = None, **samples: Any) -> Frame:
    absent = ("engine", "speculation", "latency", "totals", "host", "traffic")
    plain = ServerSample("serving", None, "http://h:1", *[None] * 9)
    return Frame(
        time_unix=1.7e9,
        elapsed_s=12.0,
        epoch=0,
        server=replace(plain, **(server or {})),
        **{
            "scrape": ScrapeSample("ok", 0.1, 2.0, None),
            **dict.fromkeys(absent),
            **samples,
        },
    )


def quantiles(p50_ms: float, *, beyond: bool = False) -> Quantiles:
    middle = Quantile(p50_ms, beyond)
    return Quantiles(9, middle, middle, middle)


SPECULATION = SpeculationSample(10.0, 20, 80, 30, 2.5, 0.375, (), 40, 2.25)
ENGINE = EngineSample(1, 2, 0, 0.125, 100.5, 42.04, 0, 0.75, 9)
LATENCY = LatencySample(10.0, quantiles(81.0), quantiles(4.256), quantiles(900.0), 4.0)


# --- one line a second ------------------------------------------------------------------------------


def test_a_full_frame_is_one_line_with_units() -> None:
    traffic = TrafficSample(10, 8, 1, 1, 24)
    found = frame(engine=ENGINE, speculation=SPECULATION, latency=LATENCY, traffic=traffic)
    assert frame_text(found) == (
        "   12 s  serving  AL 2.50  42.0 tok/s  2 running  0 waiting  KV 12%  "
        "TPOT 4.26 ms  TTFT 81.0 ms  8/24 done, 1 failed"
    )


def test_a_frame_that_knows_nothing_says_nothing() -> None:
    assert frame_text(frame()) == "   12 s  serving"


def test_absent_figures_are_left_out_or_named_and_never_zero() -> None:
    engine = EngineSample(1, *[None] * 8)
    speculation = replace(SPECULATION, acceptance_length=None, absent="no drafts yet")
    latency = LatencySample(10.0, None, None, None, None)
    text = frame_text(frame(engine=engine, speculation=speculation, latency=latency))
    assert text == "   12 s  serving  AL n/a (no drafts yet)  ? running  ? waiting"


def test_an_absence_without_a_reason_has_no_empty_brackets() -> None:
    speculation = replace(SPECULATION, acceptance_length=None)
    failing = ScrapeSample("failing", None, None, None)
    text = frame_text(frame(speculation=speculation, scrape=failing))
    assert text == "   12 s  serving  no metrics  AL n/a"


def test_a_failing_scrape_is_told_with_its_reason() -> None:
    failing = ScrapeSample("failing", 3.0, None, "no answer in time")
    assert frame_text(frame(scrape=failing)).endswith("no metrics (no answer in time)")


@pytest.mark.parametrize(
    ("server", "text"),
    [
        ({"phase": "weights", "phase_s": 3.4, "detail": "Loading"}, "weights 3 s  Loading"),
        ({"phase": "weights", "detail": "x" * 90}, "weights  " + "x" * 59 + "…"),
        ({"phase_s": 3.0}, ""),
        ({}, ""),
    ],
)
def test_a_start_shows_its_phase_as_far_as_it_is_known(server: dict[str, Any], text: str) -> None:
    found = frame({"state": "starting", **server})
    assert frame_text(found) == f"   12 s  starting  {text}".rstrip()


@pytest.mark.parametrize("state", ["exited", "degraded", "unreachable"])
def test_an_end_shows_why(state: str) -> None:
    assert frame_text(frame({"state": state, "detail": "out of memory"})).endswith(
        f"{state}  out of memory"
    )


def test_an_unbounded_quantile_is_marked() -> None:
    latency = replace(LATENCY, tpot=quantiles(40_000.0, beyond=True), ttft=None)
    assert frame_text(frame(latency=latency)).endswith("TPOT >40000 ms")


@pytest.mark.parametrize(
    ("value_ms", "text"),
    [(0.042, "0.04"), (4.256, "4.26"), (9.99, "9.99"), (56.78, "56.8"), (123.4, "123")],
)
def test_a_gpus_few_milliseconds_keep_their_digits(value_ms: float, text: str) -> None:
    latency = replace(LATENCY, tpot=quantiles(value_ms), ttft=None)
    assert frame_text(frame(latency=latency)).endswith(f"TPOT {text} ms")


def test_control_characters_of_a_log_reach_no_terminal() -> None:
    detail = "\x1b[31mred\x1b[0m\nsecond\rline\x07 \u202e"
    for state in ("starting", "exited"):
        text = frame_text(frame({"state": state, "detail": detail}))
        assert text.isprintable()
        assert "second line" in text


@settings(deadline=None, suppress_health_check=RELAXED, max_examples=50)
@given(found=any_of(Frame))
def test_every_frame_is_one_printable_line_without_none(found: Frame) -> None:
    text = frame_text(found)
    assert "None" not in text
    assert text.isprintable()


# --- the summary ------------------------------------------------------------------------------------

RATE = Interval(0.5, 0.25, 0.75)
ACCEPTANCE = Acceptance(
    source="requests",
    requests=12,
    drafts=100,
    draft_tokens=400,
    accepted_tokens=150,
    acceptance_length=2.5,
    acceptance_length_interval=Interval(2.5, 2.25, 2.75),
    draft_acceptance_rate=0.375,
    positions=(PositionRate(1, 50, RATE, RATE), PositionRate(2, 50, RATE, None)),
    accepted_a_step=(50, 50),
    counters_acceptance_length=2.4,
    tokens_a_step=1.75,
    drafted_share=0.5,
    notes=("a known bias",),
)
LEG = Leg(
    leg="drafter",
    drafter="ngram",
    draft_tokens=4,
    requests=14,
    failed=2,
    failures={"HTTP 500": 2},
    elapsed_s=4.0,
    output_tokens=400,
    output_tokens_per_s=100.0,
    ttft_ms=(SampleQuantile(0.5, 40.0, None, 50.4, 12),),
    tpot_ms=(
        SampleQuantile(0.5, 8.125, 7.0, None, 12),
        SampleQuantile(0.99, 120.0, 9.0, 130.0, 12),
    ),
    end_to_end_ms=(),
    acceptance=ACCEPTANCE,
    ready_s=30.0,
    ended_by="requests",
)
PAIRED = PairedRatio(12, 0, 8.0, 10.0, 0.8, Interval(0.8, 0.75, 0.85), 0.81, None, None)
SUMMARY = Summary(
    profile="demo-ngram",
    model="smollm2",
    drafter="ngram",
    draft_tokens=4,
    concurrency=1,
    rate_per_s=None,
    temperature=0.0,
    seed=0,
    url="http://h:1",
    log="/logs/demo-ngram.log",
    vllm_version="0.32.0",
    legs=(LEG,),
    comparison=None,
    verdict=Verdict("unknown", "no baseline was measured"),
    interrupted=False,
    failure=None,
    vllm_exit_code=None,
)


def with_leg(**changes: Any) -> str:
    return summary_text(replace(SUMMARY, legs=(replace(LEG, **changes),)))


def rows(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


def test_a_summary_reads_from_top_to_bottom() -> None:
    assert rows(summary_text(SUMMARY)) == [
        "demo-ngram: smollm2 on vLLM 0.32.0",
        "drafter ngram K=4",
        "output 100.0 tok/s: 400 tokens of 12 requests in 4.0 s, 2 failed (2 × HTTP 500)",
        "time per output token p50 8.12 ms (7.00 … ?) p99 120 ms (9.00 … 130)",
        "time to first token p50 40.0 ms (? … 50.4)",
        "acceptance length 2.50 95 % 2.25 … 2.75 (100 drafts of 12 requests)",
        "draft acceptance rate 37.5%",
        "accepted by position 1: 50% (25 … 75) 2: 50% (25 … 75)",
        "tokens per step 1.75 (50% of the steps had a draft)",
        "note: a known bias",
        "verdict no baseline was measured",
        "log /logs/demo-ngram.log",
    ]


def test_a_summary_of_nothing_names_the_run_and_no_verdict() -> None:
    empty = replace(SUMMARY, legs=(), vllm_version=None, log=None, interrupted=True)
    assert summary_text(empty) == "demo-ngram: smollm2, interrupted"


def test_absent_figures_of_a_leg_are_named_and_never_zero() -> None:
    text = with_leg(output_tokens=None, output_tokens_per_s=None, ttft_ms=(), tpot_ms=(), failed=0)
    found = rows(text)
    assert "output n/a: an unknown number of tokens of 14 requests in 4.0 s" in found
    assert "time per output token n/a" in found
    assert "time to first token n/a" in found


def test_no_drafts_are_told_as_such() -> None:
    nothing = replace(ACCEPTANCE, acceptance_length=None, positions=())
    assert "acceptance length n/a: no drafts yet" in rows(with_leg(acceptance=nothing))


def test_a_drafter_that_nobody_could_watch_is_told_as_such() -> None:
    assert any("acceptance length n/a: neither" in row for row in rows(with_leg(acceptance=None)))
    plain = with_leg(acceptance=None, drafter="none", draft_tokens=None)
    assert "plain decoding" in rows(plain)
    assert "acceptance" not in plain


def test_counters_are_named_as_the_source() -> None:
    counted = replace(
        ACCEPTANCE, source="counters", requests=None, acceptance_length_interval=None, positions=()
    )
    found = rows(with_leg(acceptance=counted))
    assert "acceptance length 2.50 (100 drafts, the server's counters)" in found
    assert not any("accepted by position" in row for row in found)


def compared(paired: PairedRatio, agreement: Agreement | None = None) -> list[str]:
    return rows(summary_text(replace(SUMMARY, comparison=Comparison(paired, agreement))))


def test_a_comparison_shows_the_ratio_with_its_interval() -> None:
    row = "time per output token 0.800 × 95 % 0.75 … 0.85 (12 prompts, below 1 is faster)"
    assert row in compared(PAIRED)
    noted = compared(replace(PAIRED, pairs=1, ratio_interval=None, note="only 1 prompt"))
    assert "time per output token 0.800 × (1 prompt, below 1 is faster)" in noted
    assert "note: only 1 prompt" in noted


def test_a_comparison_without_pairs_says_why() -> None:
    nothing = PairedRatio(0, 3, *[None] * 6, note="no prompt was measured on both sides")
    row = "time per output token n/a (no prompt was measured on both sides)"
    assert row in compared(nothing)


def test_answers_that_part_are_shown_and_an_end_is_called_so() -> None:
    parted = [
        Difference("chat-01", 5, "token", None, 17),
        Difference("chat-02", 3, "character", "a", "\n"),
        *(Difference(f"code-{n}", 0, "token", 1, 2) for n in range(3)),
    ]
    found = compared(PAIRED, Agreement(12, 7, tuple(parted)))
    assert "same greedy answers 7 of 12" in found
    assert "chat-01: token 5 is the end, was 17" in found
    assert r"chat-02: character 3 is 'a', was '\n'" in found
    assert "and 2 more (--json lists all)" in found


def test_names_from_servers_bring_no_control_characters() -> None:
    text = with_leg(failures={"\x1b]0;title\x07": 2})
    assert all(line.isprintable() for line in text.split("\n"))


@settings(deadline=None, suppress_health_check=RELAXED, max_examples=30)
@given(found=any_of(Summary))
def test_every_summary_is_printable_and_without_none(found: Summary) -> None:
    text = summary_text(found)
    assert "None" not in text
    assert all(line.isprintable() for line in text.split("\n"))


def test_a_replay_without_pauses_is_told_every_five_seconds_of_its_own_time_and_to_its_end(
    capsys: pytest.CaptureFixture[str],
) -> None:
    printer = PlainPrinter()
    for second in range(33):
        printer(FrameTaken(replace(frame(), time_unix=1000.0 + second, elapsed_s=float(second))))
    printer.finish()
    told = [int(row.split()[0]) for row in capsys.readouterr().err.splitlines()]
    assert told == [0, 5, 10, 15, 20, 25, 30, 32]


@settings(max_examples=60)
@given(text=st.text(max_size=40), width=st.integers(1, 50))
def test_a_row_is_whole_or_cut_with_an_ellipsis_and_never_wider_than_the_terminal(
    text: str, width: int
) -> None:
    shown = clipped(text, width)
    assert cells(shown) <= width
    assert shown == text or (shown.endswith("…") and text.startswith(shown[:-1]))
