"""Scrapes over time: rates, restarts, gaps, engines that come and go, several processes."""

import math
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specpanel.core.engine.metrics import EngineCounters, parse_exposition
from specpanel.core.monitor.frame import SpeculationSample
from specpanel.core.monitor.window import (
    INCONSISTENT,
    MOST_SCRAPES,
    NO_DRAFTER,
    NO_DRAFTS_YET,
    TOKENS_BUT_NO_DRAFTS,
    Window,
)

DATA = Path(__file__).parents[1] / "data"
POSITION = "spec_decode_num_accepted_tokens_per_pos_total"


def body(
    drafts: float | None = None,
    *,
    engine: str = "0",
    created: float | None = None,
    drafted: float | None = None,
    accepted: float | None = None,
    positions: tuple[int, ...] = (),
    generated: float | None = None,
    more: str = "",
) -> str:
    """What a server with these counts answers."""
    lines = []
    for name, value in (
        ("spec_decode_num_drafts_total", drafts),
        ("spec_decode_num_drafts_created", created),
        ("spec_decode_num_draft_tokens_total", drafted),
        ("spec_decode_num_accepted_tokens_total", accepted),
        ("generation_tokens_total", generated),
    ):
        if value is not None:
            lines.append(f'vllm:{name}{{engine="{engine}",model_name="m"}} {value}')
    for position, count in enumerate(positions):
        lines.append(f'vllm:{POSITION}{{engine="{engine}",position="{position}"}} {count}')
    return "\n".join(lines) + "\n" + more


def scrape(text: str) -> EngineCounters:
    return parse_exposition(text).counters


def speculation(window: Window) -> SpeculationSample:
    found = window.speculation()
    assert found is not None
    return found


def test_two_scrapes_of_a_real_server_give_what_happened_between_them():
    # Between the two bodies of vLLM 0.32 (n-gram, K=4), by subtraction: 10 drafts, 40 drafted,
    # 22 accepted (6, 6, 6, 4), 51 tokens made, of which 2 first ones, in 31 output events of 6.13487 s.
    window = Window()
    earlier, later = "metrics_vllm_0_32_ngram_earlier.txt", "metrics_vllm_0_32_ngram.txt"
    window.add(100.0, scrape((DATA / earlier).read_text()))
    assert speculation(window).acceptance_length is None
    window.add(104.0, scrape((DATA / later).read_text()))
    found = speculation(window)
    assert (found.drafts, found.draft_tokens, found.accepted_tokens) == (10, 40, 22)
    assert found.acceptance_length == pytest.approx(3.2)
    assert found.draft_acceptance_rate == pytest.approx(0.55)
    assert [rate.accepted for rate in found.positions] == [6, 6, 6, 4]
    assert found.lifetime_drafts == 16
    assert found.lifetime_acceptance_length == pytest.approx(1 + 25 / 16)
    assert found.absent is None
    assert found.note == (
        "only 32% of steps had a draft; the others yield one token and are not in this figure"
    )
    engine, latency, totals = window.engine(), window.latency(), window.totals()
    assert engine is not None
    assert engine.generation_tokens_per_s == pytest.approx(51 / 4)
    assert engine.prompt_tokens_per_s == pytest.approx(100 / 4)
    assert engine.prefix_cache_hit_rate == 0.0
    assert (engine.engines, engine.requests_finished, engine.preemptions) == (1, 4, 0)
    assert latency is not None
    assert latency.window_s == 4.0
    assert latency.live_tpot_ms == pytest.approx(6134.873807 / 49)
    assert latency.ttft is not None
    assert latency.ttft.count == 2
    # One within 0.25..0.5 s, one within 0.5..0.75 s.
    assert latency.ttft.p50.value_ms == pytest.approx(500.0)
    assert totals is not None
    assert (totals.drafts, totals.accepted_by_position) == (16, (7, 7, 7, 4))
    assert window.epoch == 0


def test_a_restart_between_scrapes_is_a_gap_and_a_new_epoch():
    window = Window()
    window.add(10.0, scrape(body(500, created=1.79e9, accepted=900, generated=2000)))
    window.gap(12.0)
    assert window.speculation() is None
    assert window.engine() is None
    assert window.latency() is None
    window.add(14.0, scrape(body(12, created=1.7900011e9, accepted=20, generated=40)))
    assert window.epoch == 1
    engine, totals = window.engine(), window.totals()
    assert engine is not None
    assert engine.generation_tokens_per_s is None
    assert totals is not None
    assert (totals.drafts, totals.accepted_tokens, totals.generation_tokens) == (512, 920, 2040)
    window.add(15.0, scrape(body(14, created=1.7900011e9, accepted=26, generated=48)))
    engine = window.engine()
    assert engine is not None
    assert engine.generation_tokens_per_s == 8.0
    assert speculation(window).acceptance_length == 4.0
    assert speculation(window).lifetime_drafts == 514


def test_a_restart_shows_by_its_stamp_even_when_counts_are_higher():
    window = Window()
    window.add(0.0, scrape(body(5, created=1.0, generated=10)))
    window.add(1.0, scrape(body(50, created=2.0, generated=100)))
    engine, totals = window.engine(), window.totals()
    assert window.epoch == 1
    assert engine is not None
    assert engine.generation_tokens_per_s is None
    assert totals is not None
    assert totals.drafts == 55


def test_before_the_first_draft_there_is_a_reason_and_no_number():
    window = Window()
    window.add(0.0, scrape(body(0, drafted=0, accepted=0, generated=0)))
    found = speculation(window)
    assert (found.acceptance_length, found.absent, found.note) == (None, NO_DRAFTS_YET, None)


def test_tokens_without_drafts_raise_a_hint():
    window = Window()
    window.add(0.0, scrape(body(0, drafted=0, accepted=0, generated=9000)))
    assert speculation(window).note == TOKENS_BUT_NO_DRAFTS
    later = Window()
    later.add(0.0, scrape(body(40, drafted=120, accepted=60, generated=100)))
    later.add(1.0, scrape(body(40, drafted=120, accepted=60, generated=300)))
    found = speculation(later)
    assert found.absent == "no drafts in the last 1 s"
    assert found.note == TOKENS_BUT_NO_DRAFTS


def test_no_families_mean_no_drafter():
    window = Window()
    window.add(0.0, scrape(body(generated=5)))
    found = speculation(window)
    assert (found.absent, found.acceptance_length, found.note) == (NO_DRAFTER, None, None)
    totals = window.totals()
    assert totals is not None
    assert totals.drafts is None


def test_a_counter_that_is_not_a_number_leaves_one_scrape_out():
    window = Window()
    window.add(0.0, scrape(body(100, accepted=100, generated=0)))
    window.add(1.0, scrape(body(math.nan, accepted=110, generated=10)))
    assert window.epoch == 0
    window.add(2.0, scrape(body(110, accepted=120, generated=20)))
    assert window.epoch == 0
    assert speculation(window).acceptance_length == 3.0


def test_rates_reach_back_ten_seconds_and_no_further():
    window = Window(window_s=10)
    made = 0
    for second in range(60):
        made += 100 if second < 40 else 10
        window.add(float(second), scrape(body(generated=made)))
    engine = window.engine()
    assert engine is not None
    assert engine.generation_tokens_per_s == pytest.approx(10.0)


def test_a_slow_rhythm_still_gives_rates_with_their_true_length():
    window = Window(window_s=10)
    window.add(0.0, scrape(body(10, accepted=10)))
    window.add(30.0, scrape(body(20, accepted=40)))
    found = speculation(window)
    assert (found.window_s, found.acceptance_length) == (30.0, 4.0)


def test_a_window_never_reaches_across_a_long_silence():
    window = Window(window_s=10)
    window.add(0.0, scrape(body(generated=0)))
    window.gap(1.0)
    window.add(300.0, scrape(body(generated=3000)))
    engine, totals = window.engine(), window.totals()
    assert engine is not None
    assert engine.generation_tokens_per_s is None
    assert totals is not None
    assert totals.generation_tokens == 3000
    window.add(301.0, scrape(body(generated=3005)))
    engine = window.engine()
    assert engine is not None
    assert engine.generation_tokens_per_s == 5.0


def test_engines_that_come_and_go_make_no_jump():
    window = Window()
    one, two = body(generated=1000, engine="0"), body(generated=900_000, engine="1")
    window.add(0.0, scrape(one))
    window.add(1.0, scrape(one + two))
    window.add(2.0, scrape(one))
    window.add(3.0, scrape(one + body(generated=900_006, engine="1")))
    engine, totals = window.engine(), window.totals()
    assert window.epoch == 0
    assert engine is not None
    assert engine.generation_tokens_per_s == 2.0
    assert totals is not None
    assert totals.generation_tokens == 901_006


def test_an_engine_back_after_a_long_absence_adds_to_totals_but_not_to_rates():
    window = Window()
    window.add(0.0, scrape(body(generated=0) + body(generated=100, engine="1")))
    for second in range(1, 100):
        window.add(float(second), scrape(body(generated=second)))
    window.add(100.0, scrape(body(generated=100) + body(generated=90_000, engine="1")))
    engine, totals = window.engine(), window.totals()
    assert engine is not None
    assert engine.generation_tokens_per_s == 1.0
    assert totals is not None
    assert totals.generation_tokens == 90_100


def test_a_counter_missing_right_after_a_restart_makes_no_second_one():
    window = Window()
    window.add(0.0, scrape(body(500, created=1.0, generated=900)))
    window.add(1.0, scrape(body(3, created=2.0, generated=math.nan)))
    window.add(2.0, scrape(body(4, created=2.0, generated=10)))
    totals = window.totals()
    assert window.epoch == 1
    assert not window.inconsistent
    assert totals is not None
    assert (totals.drafts, totals.generation_tokens) == (504, 910)


def test_positions_may_appear_after_the_first_acceptance():
    window = Window()
    window.add(0.0, scrape(body(10, accepted=5, positions=(5,))))
    window.add(1.0, scrape(body(20, accepted=18, positions=(11, 7))))
    found = speculation(window)
    assert window.epoch == 0
    assert [rate.accepted for rate in found.positions] == [6, 7]


def test_drafts_of_varying_length_are_said_to_bias_the_positions():
    window = Window()
    window.add(0.0, scrape(body(0, drafted=0, accepted=0, positions=(0, 0, 0))))
    window.add(1.0, scrape(body(10, drafted=22, accepted=12, positions=(7, 3, 2))))
    assert "fewer than 3 tokens" in (speculation(window).note or "")


def test_positions_that_do_not_add_up_are_said():
    window = Window()
    window.add(0.0, scrape(body(0, drafted=0, accepted=0, positions=(0, 0))))
    window.add(1.0, scrape(body(10, drafted=20, accepted=15, positions=(7, 3))))
    assert "do not add up" in (speculation(window).note or "")


def test_several_processes_answering_in_turn_are_recognised_and_nothing_is_added_up():
    window = Window()
    for second in range(12):
        first = second % 2 == 0
        made = 10_000 + second if first else 300 + second
        window.add(float(second), scrape(body(made, accepted=made, generated=made)))
        found, engine = speculation(window), window.engine()
        assert found.acceptance_length is None
        assert engine is not None
        assert engine.generation_tokens_per_s is None
    assert (found.absent, found.note) == (INCONSISTENT, INCONSISTENT)
    totals = window.totals()
    assert totals is not None
    assert totals.generation_tokens is not None
    assert 10_000 <= totals.generation_tokens < 10_012


def test_stamps_that_move_back_are_several_processes_too():
    window = Window()
    for second in range(8):
        stamp = 5.0 + second % 2
        window.add(float(second), scrape(body(100 + second, created=stamp, accepted=9)))
    assert window.inconsistent
    totals = window.totals()
    assert totals is not None
    assert totals.drafts is not None
    assert 100 <= totals.drafts < 108


def test_one_engine_that_cannot_be_followed_leaves_no_rate_of_the_others_alone():
    window = Window()
    for second in range(12):
        torn = body(9000 if second % 2 else 50, accepted=40, generated=1)
        steady = body(second, accepted=second, generated=second, engine="1")
        window.add(float(second), scrape(torn + steady))
    engine = window.engine()
    assert window.inconsistent
    assert speculation(window).acceptance_length is None
    assert engine is not None
    assert engine.generation_tokens_per_s is None


@pytest.mark.parametrize("stamps", [(6.0, 5.0, 6.0, 5.0, 6.0), (6.0, 5.0, 4.0, 3.0, 6.0)])
def test_stamps_that_move_back_at_once_leave_the_totals_alone(stamps: tuple[float, ...]):
    window = Window()
    for drafts, stamp in zip((400, 1000, 401, 1001, 402), stamps, strict=True):
        window.add(0.0, scrape(body(drafts, created=stamp)))
    totals = window.totals()
    assert window.inconsistent
    assert totals is not None
    assert totals.drafts == 400


def test_counting_begins_again_once_one_process_is_left():
    window = Window()
    for second in range(6):
        window.add(float(second), scrape(body(1000 if second % 2 else 50, accepted=1)))
    assert window.inconsistent
    before = window.totals()
    for second in range(6, 60):
        window.add(float(second), scrape(body(1000 + second, accepted=second)))
    assert not window.inconsistent
    after = window.totals()
    assert before is not None
    assert after is not None
    assert before.drafts is not None
    assert after.drafts is not None
    assert 0 < after.drafts - before.drafts <= 54
    assert speculation(window).acceptance_length == 2.0


def test_one_restart_without_stamps_is_no_sign_of_several_processes():
    window = Window()
    window.add(0.0, scrape(body(500, accepted=500)))
    window.add(1.0, scrape(body(3, accepted=3)))
    window.add(2.0, scrape(body(9, accepted=9)))
    assert not window.inconsistent
    assert window.epoch == 1
    totals = window.totals()
    assert totals is not None
    assert totals.drafts == 509
    assert speculation(window).acceptance_length == 2.0


def test_memory_is_bounded():
    window = Window()
    counters = scrape(body(1, generated=1))
    for tick in range(5 * MOST_SCRAPES):
        window.add(tick / 1000, counters)
    assert len(window._points) <= MOST_SCRAPES


growth = st.tuples(st.integers(0, 50), st.integers(0, 200))
events = st.lists(
    st.one_of(
        st.tuples(st.just("grow"), st.lists(growth, min_size=3, max_size=3)),
        st.tuples(st.just("restart"), st.integers(0, 2)),
        st.tuples(st.just("gap"), st.integers(0, 40)),
        st.tuples(st.just("hide"), st.integers(0, 2)),
    ),
    max_size=40,
)


@settings(max_examples=60, deadline=None)
@given(events=events)
def test_totals_are_all_that_was_counted_whatever_restarts_and_gaps(events: list):
    """Three engines grow, restart, hide and go unseen; every scraped count is in the totals once."""
    window = Window()
    counts = [[0, 0] for _ in range(3)]
    stamps = [1.0] * 3
    closed = [0, 0]
    scraped = [[0, 0] for _ in range(3)]
    second, seen_totals, epochs = 0.0, [], [0]
    for kind, value in events:
        second += 1
        hidden = None
        if kind == "gap":
            second += value
            window.gap(second)
            continue
        if kind == "grow":
            for engine, (drafts, tokens) in enumerate(value):
                counts[engine][0] += drafts
                counts[engine][1] += tokens
        elif kind == "restart":
            closed = [total + last for total, last in zip(closed, scraped[value], strict=True)]
            counts[value], stamps[value] = [0, 0], stamps[value] + 1
            scraped[value] = [0, 0]
        else:
            hidden = value
        text = ""
        for engine in range(3):
            if engine == hidden:
                continue
            drafts, tokens = counts[engine]
            scraped[engine] = [drafts, tokens]
            text += body(
                drafts,
                engine=str(engine),
                created=stamps[engine],
                accepted=drafts,
                generated=tokens,
            )
        window.add(second, scrape(text))
        totals, engine_sample = window.totals(), window.engine()
        assert totals is not None
        assert totals.drafts == closed[0] + sum(drafts for drafts, _ in scraped)
        assert totals.generation_tokens == closed[1] + sum(tokens for _, tokens in scraped)
        assert engine_sample is not None
        rate = engine_sample.generation_tokens_per_s
        assert rate is None or rate >= 0
        length = speculation(window).acceptance_length
        assert length is None or length == 2.0
        seen_totals.append(totals.generation_tokens)
        epochs.append(window.epoch)
    assert not window.inconsistent
    assert all(before <= after for before, after in pairwise(seen_totals))
    assert all(before <= after for before, after in pairwise(epochs))


STEPS = [
    body(10, created=1.0, accepted=5, positions=(3, 2), generated=20),
    body(14, created=1.0, accepted=9, positions=(5, 4), generated=40),
    body(2, created=2.0, accepted=1, positions=(1,), generated=3),
    body(2, created=1.5, accepted=1, positions=(1,), generated=3),
    body(9, accepted=4, generated=30),
    body(20, created=1.0, accepted=9, generated=40) + body(3, engine="1", accepted=1),
]


@settings(max_examples=80, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(range(len(STEPS))), st.integers(1, 6), st.integers(0, 15)),
        max_size=12,
    )
)
def test_scrapes_that_are_the_same_object_count_like_those_that_only_look_the_same(
    events: list[tuple[int, int, int]],
) -> None:
    quick, thorough = Window(), Window()
    second = 0.0
    for step, times, gap_s in events:
        counters = scrape(STEPS[step])
        for _ in range(times):
            second += 1
            quick.add(second, counters)
            thorough.add(second, scrape(STEPS[step]))
            for figure in ("engine", "speculation", "latency", "totals"):
                assert getattr(quick, figure)() == getattr(thorough, figure)()
            assert quick.epoch == thorough.epoch
        if gap_s:
            second += gap_s
            quick.gap(second)
            thorough.gap(second)


def test_over_a_window_in_which_nothing_moves_the_figures_are_the_same_objects() -> None:
    window = Window(window_s=5.0, latency_window_s=8.0)
    moving = [scrape(body(drafts=10 * n, accepted=20 * n, generated=40 * n)) for n in range(1, 4)]
    for second, counters in enumerate(moving):
        window.add(float(second), counters)
    before = window.speculation(), window.engine(), window.latency()
    for second in range(3, 16):
        window.add(second + (0.01 if second % 2 else 0.0), moving[-1])
    resting = window.speculation(), window.engine(), window.latency()
    assert resting != before
    assert resting[0] is not None
    assert resting[0].drafts == 0
    window.add(16.0, moving[-1])
    assert all(
        now is then
        for now, then in zip(
            (window.speculation(), window.engine(), window.latency()), resting, strict=True
        )
    )
    window.add(17.0, scrape(body(drafts=60, accepted=120, generated=240)))
    again = window.speculation()
    assert again is not None
    assert again.drafts == 30
    assert window.totals() is not None
