"""Comparison with plain decoding: paired ratio, verdict and agreement of the answers."""

from dataclasses import replace

import pytest

from specpanel.core.monitor.frame import Interval
from specpanel.core.speculation.agreement import Difference, agreement
from specpanel.core.speculation.paired import PairedRatio, paired_ratio
from specpanel.core.speculation.verdict import Word, verdict
from specpanel.core.traffic.records import RequestRecord


def request(prompt: str, tpot_ms: float | None, tokens: int = 11, **more: object) -> RequestRecord:
    base = RequestRecord(
        index=0,
        prompt_id=prompt,
        kind="chat",
        started_unix=0.0,
        started_s=0.0,
        ttft_ms=10.0,
        tpot_ms=tpot_ms,
        end_to_end_ms=100.0,
        prompt_tokens=5,
        output_tokens=tokens,
        finish_reason="stop",
    )
    return replace(base, **more)  # type: ignore[arg-type]


def prompts(*tpots_ms: float, tokens: int = 11) -> list[RequestRecord]:
    return [request(f"p{n}", tpot_ms, tokens) for n, tpot_ms in enumerate(tpots_ms)]


def test_the_ratio_is_of_pooled_time_over_pooled_tokens():
    treated = [request("a", 10.0, 101), request("b", 40.0, 11)]
    plain = [request("a", 20.0, 101), request("b", 20.0, 11)]
    found = paired_ratio(treated, plain)
    # (100 * 10 + 10 * 40) / 110 = 12.73 ms against 20 ms; each prompt alike: sqrt(0.5 * 2) = 1.
    assert found.tpot_with_ms == pytest.approx(1400 / 110)
    assert found.tpot_without_ms == pytest.approx(20.0)
    assert found.ratio == pytest.approx(1400 / 110 / 20)
    assert found.geometric_mean == pytest.approx(1.0)
    assert found.pairs == 2


def test_the_interval_knows_the_pairing():
    # Prompts differ tenfold, the ratio is 0.8 on every one: the interval has no width.
    plain = prompts(*(float(n) for n in range(10, 100, 5)))
    treated = [replace(one, tpot_ms=(one.tpot_ms or 0) * 0.8) for one in plain]
    found = paired_ratio(treated, plain)
    assert found.ratio_interval is not None
    assert found.ratio_interval.low == pytest.approx(0.8)
    assert found.ratio_interval.high == pytest.approx(0.8)
    assert found.note is None


def test_repeated_prompts_are_one_pair():
    treated = [request("a", 10.0), request("a", 30.0)]
    found = paired_ratio(treated, [request("a", 20.0)])
    assert found.pairs == 1
    assert found.ratio == pytest.approx(1.0)
    assert found.ratio_interval is None


def test_requests_that_measure_nothing_are_left_out_and_said():
    treated = [
        request("a", 10.0),
        request("b", 10.0),
        request("c", None, 1),
        request("d", 10.0, warmup=True),
        request("e", 10.0, error="timeout"),
    ]
    found = paired_ratio(treated, [request(name, 20.0) for name in "abcde"])
    assert (found.pairs, found.unpaired) == (2, 3)
    assert found.note is not None
    assert "only 2 prompts" in found.note
    assert "3 prompts were measured on one side only" in found.note


def test_no_pair_is_no_ratio():
    found = paired_ratio([request("a", 10.0)], [request("b", 10.0)])
    assert (found.pairs, found.ratio, found.ratio_interval) == (0, None, None)
    assert verdict(found).word == "unknown"


def measured(ratio: float, low: float, high: float, pairs: int = 20) -> PairedRatio:
    interval = Interval(ratio, low, high)
    return PairedRatio(pairs, 0, 10 * ratio, 10.0, ratio, interval, ratio, interval)


@pytest.mark.parametrize(
    ("ratio", "low", "high", "word"),
    [
        (0.61, 0.55, 0.68, "pays"),
        (0.95, 0.91, 0.99, "pays"),
        (1.00, 0.98, 1.02, "neutral"),
        (0.985, 0.98, 0.99, "neutral"),  # real, but nobody would feel it
        (1.30, 1.20, 1.41, "costs"),
        (1.04, 1.01, 1.08, "costs"),
        (0.95, 0.80, 1.10, "unknown"),
    ],
)
def test_the_word_follows_the_interval(ratio: float, low: float, high: float, word: Word):
    found = verdict(measured(ratio, low, high), acceptance_length=3.9)
    assert found.word == word
    assert f"{ratio:.2f} times as long" in found.sentence
    assert f"{low:.2f} to {high:.2f}" in found.sentence


def test_few_prompts_are_said_to_be_few():
    assert "no proof" in verdict(measured(0.5, 0.4, 0.6, pairs=3)).sentence
    assert "no proof" not in verdict(measured(0.5, 0.4, 0.6, pairs=8)).sentence


def test_one_prompt_makes_no_verdict():
    alone = paired_ratio([request("a", 10.0)], [request("a", 20.0)])
    assert verdict(alone).word == "unknown"


def test_acceptance_alone_is_never_a_speed_up():
    found = verdict(None, acceptance_length=4.9)
    assert found.word == "unknown"
    assert "4.90 tokens a step" in found.sentence
    assert "pays" not in found.sentence
    assert verdict(None).word == "unknown"


def test_identical_answers_agree():
    same = [request("a", 1.0, token_ids=(1, 2, 3)), request("b", 1.0, text="yes")]
    found = agreement(same, same)
    assert (found.compared, found.identical, found.differences) == (2, 2, ())


def test_the_first_differing_token_is_named():
    treated = [request("a", 1.0, token_ids=(1, 2, 9, 4)), request("b", 1.0, token_ids=(1,))]
    plain = [request("a", 1.0, token_ids=(1, 2, 3, 4)), request("b", 1.0, token_ids=(1, 2))]
    found = agreement(treated, plain)
    assert (found.compared, found.identical) == (2, 0)
    assert found.differences == (
        Difference("a", 2, "token", 9, 3),
        Difference("b", 1, "token", None, 2),
    )


def test_texts_are_compared_where_token_ids_are_missing():
    treated = [request("a", 1.0, text="the cat", token_ids=(1,))]
    found = agreement(treated, [request("a", 1.0, text="the dog")])
    assert found.differences == (Difference("a", 4, "character", "c", "d"),)


def test_only_good_answers_to_common_prompts_are_compared():
    treated = [request("a", 1.0, text="x"), request("b", 1.0, text="x", error="timeout")]
    plain = [request("b", 1.0, text="y"), request("c", 1.0, text="z")]
    assert agreement(treated, plain).compared == 0
