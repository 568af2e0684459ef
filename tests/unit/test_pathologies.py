"""Findings about acceptance: silent on healthy streams whatever chance does, loud on broken ones and soon."""

import os
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specpanel.core.monitor.frame import (
    EngineSample,
    Frame,
    LatencySample,
    ScrapeSample,
    ServerSample,
    Totals,
)
from specpanel.core.speculation.context_decay import context_decay, context_ranges
from specpanel.core.speculation.counted import Counted, CountedEpoch
from specpanel.core.speculation.pathologies import (
    Pathology,
    PathologyWatch,
    counter_pathologies,
)
from specpanel.core.speculation.pathology_causes import PATHOLOGY_CAUSES
from specpanel.core.traffic.records import RequestRecord

STREAMS = int(os.environ.get("SPECPANEL_STREAMS", "120"))  # simulated; more take longer
DRAFTS_A_STREAM = 4000
DRAFTS_A_POINT = 40
K = 4
ALARMS = {"nothing-accepted", "low-acceptance", "sudden-fall", "cliff", "sums-differ", "no-drafts"}

Chances = Callable[[random.Random], tuple[float, ...]]


def point(drafts: int, by_position: tuple[int, ...], **others: object) -> Counted:
    values: dict[str, object] = {
        "time_s": drafts / 40,
        "drafts": drafts,
        "draft_tokens": drafts * len(by_position),
        "accepted_tokens": sum(by_position),
        "by_position": by_position,
        "generation_tokens": drafts + sum(by_position),
        "requests_finished": drafts // 30,
        "running": 1,
    }
    return Counted(**{**values, **others})  # type: ignore[arg-type]


def stream(
    rng: random.Random,
    chances: Chances,
    drafts: int = DRAFTS_A_STREAM,
    start: Counted | None = None,
) -> Iterator[Counted]:
    """One request after another, each with its own chances of acceptance; a point every 40 drafts."""
    base = start or point(0, (0,) * K)
    done, finished = base.drafts, base.requests_finished or 0
    positions = list(base.by_position)
    made = base.generation_tokens or 0
    yield base
    end, left, now = done + drafts, 0, (0.0,) * K
    while done < end:
        if left <= 0:
            left, now = rng.randint(10, 60), chances(rng)
            finished += 1
            made += 1
        left -= 1
        done += 1
        made += 1
        for place in range(K):
            if rng.random() >= now[place]:
                break
            positions[place] += 1
            made += 1
        if done % DRAFTS_A_POINT == 0:
            yield point(
                done, tuple(positions), generation_tokens=made, requests_finished=finished - 1
            )


def healthy(rng: random.Random) -> tuple[float, ...]:
    """A drafter of 1.3 tokens a step and more; requests differ as widely as chance lets them."""
    first = rng.betavariate(2.0, 2.6)
    return tuple(min(0.98, first * fall) for fall in (1.0, 0.9, 0.82, 0.75))


def codes_over(points: Iterator[Counted], drafter: str = "eagle3") -> dict[str, int]:
    """Each finding's code and the number of drafts at which it was first there."""
    epoch, first = CountedEpoch(), {}
    for one in points:
        epoch.add(one)
        for found in counter_pathologies(epoch, drafter):
            first.setdefault(found.code, one.drafts)
    return first


def test_a_healthy_stream_raises_a_false_alarm_in_less_than_one_of_a_hundred():
    alarmed = 0
    for seed in range(STREAMS):
        found = codes_over(stream(random.Random(seed), healthy))
        alarmed += bool(ALARMS & found.keys())
    assert alarmed / STREAMS < 0.01  # none: one of them would be 0.8 %


def test_a_weak_but_useful_drafter_raises_no_alarm():
    """1.25 tokens a step on the average is little, and still above what is called almost nothing."""

    def weak(rng: random.Random) -> tuple[float, ...]:
        first = rng.betavariate(2.0, 8.5)
        return (first, first, first, first)

    alarmed = sum(
        bool(ALARMS & codes_over(stream(random.Random(seed), weak, 2500)).keys())
        for seed in range(60)
    )
    assert alarmed == 0


def test_a_stream_of_nothing_accepted_is_told_within_240_drafts():
    for seed in range(20):
        found = codes_over(stream(random.Random(seed), lambda _: (0.0,) * K, 1000))
        assert found["nothing-accepted"] <= 240


@pytest.mark.parametrize(("rate", "within"), [(0.02, 600), (0.05, 1400)])
def test_a_drafter_that_is_almost_never_right_is_told_soon(rate, within):
    for seed in range(20):
        found = codes_over(stream(random.Random(seed), lambda _: (rate, 0.3, 0.3, 0.3), 3000))
        assert found["low-acceptance"] <= within


def test_a_fall_to_nothing_is_told_within_450_drafts_of_it():
    for seed in range(20):
        rng = random.Random(seed)
        before = list(stream(rng, healthy, 1600))
        after = stream(rng, lambda _: (0.0,) * K, 1600, before[-1])
        found = codes_over(iter([*before, *after]))
        assert 1600 < found["sudden-fall"] <= 2050


def test_a_fall_is_withdrawn_when_acceptance_comes_back():
    rng = random.Random(5)
    points = list(stream(rng, healthy, 1600))
    points += stream(rng, lambda _: (0.0,) * K, 800, points[-1])
    epoch = CountedEpoch()
    for one in points:
        epoch.add(one)
    assert "sudden-fall" in {found.code for found in counter_pathologies(epoch, "eagle3")}
    for one in stream(rng, healthy, 2400, points[-1]):
        epoch.add(one)
    assert not counter_pathologies(epoch, "eagle3") or "sudden-fall" not in {
        found.code for found in counter_pathologies(epoch, "eagle3")
    }


def test_a_cliff_is_told_at_its_position_within_400_drafts():
    for seed in range(20):
        found = codes_over(stream(random.Random(seed), lambda rng: (0.75, 0.7, 0.02, 0.5), 3000))
        assert found["cliff"] <= 400
    epoch = CountedEpoch()
    epoch.add(point(0, (0, 0, 0, 0)))
    epoch.add(point(2000, (1500, 1050, 20, 10)))
    (cliff,) = [one for one in counter_pathologies(epoch, "eagle3") if one.code == "cliff"]
    assert cliff.sentence.startswith(
        "Acceptance breaks off at position 3: 2% after 70% at position 2"
    )


def test_positions_of_short_drafts_are_no_cliff():
    """Where some steps draft fewer than K tokens, later positions are low without anything being wrong."""
    epoch = CountedEpoch()
    epoch.add(point(0, (0, 0, 0, 0)))
    epoch.add(point(2000, (1500, 1050, 20, 10), draft_tokens=4600))
    assert "cliff" not in {one.code for one in counter_pathologies(epoch, "ngram")}


@settings(max_examples=60, deadline=None)
@given(
    rates=st.lists(st.floats(0.35, 0.98), min_size=1, max_size=8),
    drafts=st.integers(1, 20_000),
)
def test_counters_without_noise_and_with_slowly_falling_rates_are_never_an_alarm(rates, drafts):
    """Conditional rates that fall by less than half from one position to the next."""
    conditional = [max(rates)]
    for rate in rates[1:]:
        conditional.append(max(rate, conditional[-1] * 0.55))
    reached, positions = float(drafts), []
    for rate in conditional:
        reached *= rate
        positions.append(round(reached))
    epoch = CountedEpoch()
    epoch.add(point(0, (0,) * len(positions)))
    for part in (1, 2, 3, 4):
        epoch.add(
            point(
                drafts * part // 4 or 1,
                tuple(hits * part // 4 for hits in positions),
                accepted_tokens=sum(hits * part // 4 for hits in positions),
            )
        )
    codes = {found.code for found in counter_pathologies(epoch, "eagle3")}
    assert not codes & {"low-acceptance", "sudden-fall", "cliff", "sums-differ"}


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 200)), min_size=1, max_size=30))
def test_whatever_counters_do_nothing_is_raised_out_of_order_or_without_causes(steps):
    epoch, drafts, accepted = CountedEpoch(), 0, 0
    for drafted, got in steps:
        drafts, accepted = drafts + drafted, accepted + got
        epoch.add(point(drafts, (accepted,), accepted_tokens=accepted))
        ranks = ["error", "warning", "note"]
        found = counter_pathologies(epoch, "eagle3")
        assert [ranks.index(one.severity) for one in found] == sorted(
            ranks.index(one.severity) for one in found
        )
        assert all(one.causes and one.evidence for one in found)


# -- one by one ------------------------------------------------------------------------------


def of(points: list[Counted], drafter: str | None = "eagle3") -> dict[str, Pathology]:
    epoch = CountedEpoch()
    for one in points:
        epoch.add(one)
    return {found.code: found for found in counter_pathologies(epoch, drafter)}


def test_tokens_without_a_draft_are_told_after_64_of_them():
    before = point(100, (50, 20), generation_tokens=170, requests_finished=3, running=1)
    after = replace(before, generation_tokens=170 + 64, time_s=9.0)
    assert "no-drafts" not in of([before, after])  # one of them may be the first of a request
    after = replace(before, generation_tokens=170 + 66, time_s=9.0)
    found = of([before, after])["no-drafts"]
    assert found.severity == "warning"
    assert found.causes[0].text.startswith("Requests opt out")


def test_answers_of_one_token_need_no_draft():
    before = point(100, (50, 20), generation_tokens=1000, requests_finished=10, running=0)
    after = replace(before, generation_tokens=1500, requests_finished=510)
    assert "no-drafts" not in of([before, after])


@pytest.mark.parametrize("drafter", ["ngram", "suffix"])
def test_a_lookup_drafter_that_finds_nothing_is_a_note_and_only_after_many_tokens(drafter):
    before = point(100, (50, 20), generation_tokens=200, requests_finished=3)
    assert not of([before, replace(before, generation_tokens=1100)], drafter)
    found = of([before, replace(before, generation_tokens=1300)], drafter)
    assert found["nothing-proposed"].severity == "note"


def test_a_drafter_that_is_not_known_gets_the_patience_of_a_lookup():
    before = point(100, (50, 20), generation_tokens=200, requests_finished=3)
    assert not of([before, replace(before, generation_tokens=1100)], None)
    assert of([before, replace(before, generation_tokens=1300)], None)["no-drafts"]


def test_a_first_look_at_a_server_that_drafted_long_ago_is_no_alarm():
    assert not of([point(100_000, (1, 0))])


def test_sums_that_differ_once_are_a_scrape_in_between():
    points = [point(0, (0, 0)), *(point(n * 100, (n * 60, n * 20)) for n in (4, 5, 6, 7))]
    points[-1] = replace(points[-1], accepted_tokens=points[-1].accepted_tokens - 40)
    assert "sums-differ" not in of(points)


def test_sums_that_go_on_differing_are_told_with_both_figures():
    points = [
        point(0, (0, 0)),
        *(point(n * 100, (n * 60, n * 20), accepted_tokens=n * 70) for n in (4, 5, 6, 7)),
    ]
    found = of(points)["sums-differ"]
    assert found.evidence == ("560 by position, 490 in all, in 3 scrapes in a row",)


def test_a_position_that_counts_more_than_the_one_before_is_told():
    points = [point(0, (0, 0)), *(point(n * 100, (n * 20, n * 60)) for n in (4, 5, 6, 7))]
    assert "Position 2 counts more" in of(points)["sums-differ"].sentence


def test_inter_token_latency_is_explained_once_steps_yield_several_tokens():
    points = [
        point(0, (0, 0), generation_tokens=0, requests_finished=0),
        point(600, (450, 300), generation_tokens=1360, requests_finished=10, live_tpot_ms=20.0),
    ]
    found = of(points)["itl-misread"]
    assert found.severity == "note"
    assert "1349 tokens in 599 steps, 2.25 a step" in found.evidence[0]
    assert "a step about 45.0 ms" in found.evidence[0]


def test_plain_steps_make_no_word_about_latency():
    points = [
        point(0, (0,), generation_tokens=0, requests_finished=0),
        point(600, (30,), generation_tokens=1360, requests_finished=10),
    ]
    assert "itl-misread" not in of(points)


def test_every_finding_has_causes_that_say_how_to_tell_them_apart():
    for code, causes in PATHOLOGY_CAUSES.items():
        assert causes, code
        assert all(cause.text and cause.tell.endswith(".") for cause in causes), code


# -- over Frames -----------------------------------------------------------------------------


def frame(totals: Totals | None, *, epoch: int = 0, drafter: str | None = "eagle3", **engine: int):
    return Frame(
        time_unix=0.0,
        elapsed_s=float((totals.generation_tokens or 0) if totals else 0),
        epoch=epoch,
        server=ServerSample("serving", "x", "http://127.0.0.1:1", "m", drafter, 4, *(None,) * 6),
        scrape=ScrapeSample("ok", 0.1, 1.0, None),
        engine=EngineSample(1, 1, 0, 0.1, 1.0, 1.0, 0, None, engine.get("finished", 0)),
        speculation=None,
        latency=LatencySample(60.0, None, None, None, 20.0),
        totals=totals,
        host=None,
        traffic=None,
    )


def totals(drafts: int | None, accepted: int | None, made: int) -> Totals:
    positions = () if accepted is None else (accepted,)
    return Totals(drafts, drafts, accepted, positions, 0, made)


def test_a_new_epoch_forgets_what_was_found_before():
    watch = PathologyWatch()
    watch.take(frame(totals(0, 0, 0)))
    assert [one.code for one in watch.take(frame(totals(400, 0, 400)))][:1] == ["nothing-accepted"]
    assert watch.take(frame(totals(420, 0, 420), epoch=1)) == ()


def test_a_scrape_that_fails_changes_nothing():
    watch = PathologyWatch()
    watch.take(frame(totals(0, 0, 0)))
    watch.take(frame(totals(400, 0, 400)))
    failing = replace(frame(None), scrape=ScrapeSample("failing", 9.0, None, "refused"))
    assert [one.code for one in watch.take(failing)][:1] == ["nothing-accepted"]


def test_a_wished_drafter_whose_counters_are_not_there_at_all_is_an_error():
    watch = PathologyWatch()
    watch.take(frame(totals(None, None, 10)))
    (found,) = watch.take(frame(totals(None, None, 200)))
    assert (found.code, found.severity) == ("no-drafts", "error")


def test_plain_decoding_has_nothing_to_be_found():
    watch = PathologyWatch()
    watch.take(frame(totals(None, None, 10), drafter="none"))
    assert watch.take(frame(totals(None, None, 9000), drafter="none")) == ()


# -- with the length of the context ----------------------------------------------------------


def record(
    rng: random.Random, number: int, prompt: int, chance: Callable[[int], float]
) -> RequestRecord:
    accepted, context = [], prompt + 1
    for _ in range(30):
        got = 0
        while got < K and rng.random() < chance(context):
            got += 1
        accepted.append(got)
        context += 1 + got
    return RequestRecord(
        number, f"p{number}", "chat", 0.0, 0.0, 1.0, 1.0, 1.0, prompt, 60, "length",
        drafted=(K,) * 30, accepted=tuple(accepted),
    )  # fmt: skip


def requests(seed: int, chance: Callable[[float, int], float], count: int = 48):
    rng = random.Random(seed)
    found = []
    for number in range(count):
        own = rng.betavariate(3.0, 3.0)
        found.append(
            record(rng, number, rng.choice((64, 256, 1024, 4096)), lambda n, p=own: chance(p, n))
        )
    return found


def test_acceptance_that_does_not_depend_on_the_context_is_no_finding():
    alarms = sum(
        context_decay(requests(seed, lambda own, _: own)) is not None for seed in range(25)
    )
    assert alarms == 0


def test_acceptance_that_ends_beyond_the_drafters_length_is_told_with_both_lengths():
    for seed in range(5):
        found = context_decay(requests(seed, lambda own, n: own if n < 2048 else 0.02, 80))
        assert found is not None
        assert found.code == "context-decay"
        assert "tokens of context" in found.sentence


def test_a_few_requests_are_too_few_to_blame_the_context():
    assert context_decay(requests(1, lambda own, n: own if n < 2048 else 0.0, count=10)) is None


def test_ranges_are_in_the_order_of_the_context():
    ranges = context_ranges(requests(3, lambda own, _: own))
    assert [one.low for one in ranges] == sorted(one.low for one in ranges)
    assert sum(one.drafts for one in ranges) == 48 * 30


def test_the_page_lists_every_finding():
    page = (Path(__file__).parents[2] / "docs" / "explain.md").read_text()
    listed = {line.split("`")[1] for line in page.splitlines() if line.startswith("| `")}
    assert set(PATHOLOGY_CAUSES) <= listed
