"""Public reports about scraping vLLM's metrics: what the panel must make of each."""

import math
import random
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from fakes.plain_http import PlainServer, answer, vllm_answers
from tui.synthetic import synthetic_frame

from specpanel.app.cli.plain import frame_text
from specpanel.app.tui.figures import figures, trouble
from specpanel.core.engine.client import EngineClient
from specpanel.core.engine.command import build_command
from specpanel.core.engine.interpreter_facts import InterpreterFacts
from specpanel.core.engine.log_filter import LogFilter
from specpanel.core.engine.metrics import EngineCounters, ExpositionError, parse_exposition
from specpanel.core.engine.metrics_folder import (
    VARIABLE,
    forget_metrics,
    several_api_servers,
    shared_metrics,
)
from specpanel.core.monitor.frame import EngineSample, Frame, SpeculationSample
from specpanel.core.monitor.scraping import Scraper
from specpanel.core.monitor.window import (
    INCONSISTENT,
    NO_DRAFTER,
    TOKENS_BUT_NO_DRAFTS,
    Window,
)
from specpanel.core.session.summary import CounterDelta, leg_summary
from specpanel.core.settings.profile import Profile
from specpanel.core.traffic.records import RequestRecord

DATA = Path(__file__).parents[1] / "data"
REAL = (DATA / "metrics_vllm_0_32_ngram.txt").read_text(encoding="utf-8")


def body(counters: dict[str, float], engine: str = "0", model: str = "m") -> str:
    """A sample a line, as vLLM writes them, of names without their ``vllm:``."""
    return "".join(
        f'vllm:{name}{{engine="{engine}",model_name="{model}"}} {value}\n'
        for name, value in counters.items()
    )


def spec(drafts: float, drafted: float, accepted: float, **more: float) -> dict[str, float]:
    return {
        "spec_decode_num_drafts_total": drafts,
        "spec_decode_num_draft_tokens_total": drafted,
        "spec_decode_num_accepted_tokens_total": accepted,
        **more,
    }


def positions(*counts: float, engine: str = "0") -> str:
    name = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
    return "".join(
        f'{name}{{engine="{engine}",model_name="m",position="{place}"}} {count}\n'
        for place, count in enumerate(counts)
    )


def counters(text: str) -> EngineCounters:
    return parse_exposition(text).counters


def watched(*texts: str | None) -> Window:
    """A window that saw these bodies, a second apart; None is a scrape that failed."""
    window = Window()
    for second, text in enumerate(texts):
        if text is None:
            window.gap(float(second))
        else:
            window.add(float(second), counters(text))
    return window


def speculation(window: Window) -> SpeculationSample:
    found = window.speculation()
    assert found is not None
    return found


def engine(window: Window) -> EngineSample:
    found = window.engine()
    assert found is not None
    return found


def frame(window: Window) -> Frame:
    whole = synthetic_frame(60, random.Random(1))
    return replace(
        whole,
        engine=window.engine(),
        speculation=window.speculation(),
        latency=window.latency(),
        totals=window.totals(),
    )


@pytest.fixture
async def server() -> AsyncIterator[PlainServer]:
    async with PlainServer(vllm_answers(REAL.encode())) as running:
        yield running


def test_c01_labelled_counters_with_total_are_found_and_their_absence_is_no_1_0():
    total = counters(REAL).total
    assert (total.drafts, total.accepted_tokens) == (16, 25)
    bare = counters(REAL.replace("_total{", "{")).total
    assert (bare.drafts, bare.accepted_tokens, bare.generation_tokens) == (16, 25, 78)
    brace = body(spec(10, 30, 12), model='a}b\\"c')
    assert counters(brace).total.drafts == 10
    assert counters(brace).models == ('a}b"c',)
    without = watched(body({"generation_tokens_total": 5}), body({"generation_tokens_total": 9}))
    assert speculation(without).acceptance_length is None
    assert speculation(without).absent == NO_DRAFTER
    assert f"AL n/a ({NO_DRAFTER})" in frame_text(frame(without))


def test_c02_series_are_looked_up_by_the_name_of_the_sample():
    assert counters(body({"generation_tokens_total": 78.0})).total.generation_tokens == 78
    typed = "# TYPE vllm:generation_tokens counter\n" + body({"generation_tokens_total": 78.0})
    assert counters(typed).total.generation_tokens == 78


@pytest.mark.parametrize("line", ['vllm:generation_tokens_total{model_name="b"}532', "532"])
def test_c04_a_value_without_a_space_before_it_is_never_a_shorter_value(line: str):
    if line == "532":
        assert counters("vllm:generation_tokens_total 532\n").total.generation_tokens == 532
        return
    with pytest.raises(ExpositionError):
        parse_exposition(line + "\n")


def test_c05_engines_are_summed_and_the_fullest_cache_stands_beside_all_of_them():
    def scrape(step: int) -> str:
        return "".join(
            body(
                spec(
                    100 * (number + 1) + step * number,
                    300,
                    50 + 2 * step * number,
                    num_requests_running=number,
                    num_requests_waiting=1,
                    kv_cache_usage_perc=number / 10,
                ),
                engine=str(number),
            )
            for number in range(8)
        )

    window = watched(scrape(0), scrape(10))
    found = engine(window)
    assert (found.engines, found.running, found.waiting) == (8, 28, 8)
    assert found.kv_cache_usage == 0.7
    assert found.kv_cache_usages == (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)
    assert speculation(window).acceptance_length == 3.0  # Σ/Σ; engine 0, idle, has none at all
    (cache,) = (one for one in figures(frame(window)) if one.label == "KV cache")
    assert cache.value == "70 %"
    assert "0 10 20 30 40 50 60 70" in cache.note


def test_c07_several_api_servers_in_turn_are_named_and_nothing_is_added_up():
    def scrape(second: int) -> str:
        made = 1000 * (second % 4 + 1) + second
        return body(spec(made, made, made, generation_tokens_total=made))

    window = watched(*map(scrape, range(16)))
    assert speculation(window).absent == speculation(window).note == INCONSISTENT
    assert engine(window).generation_tokens_per_s is None
    totals = window.totals()
    assert totals is not None
    assert (totals.generation_tokens or 0) < 4016


def test_c08_several_api_servers_get_a_local_folder_for_their_metrics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    wanting = (
        ["vllm", "serve", "m", "--api-server-count", "4"],
        ["vllm", "serve", "m", "--api-server-count=2"],
        ["vllm", "serve", "m", "--data-parallel-size", "2"],
        ["vllm", "serve", "m", "-dp", "2"],
    )
    for argv in wanting:
        found = shared_metrics(argv, {}, "id1")
        assert Path(found[VARIABLE]).parent == tmp_path
        assert Path(found[VARIABLE]).stat().st_mode & 0o777 == 0o700
        assert shared_metrics(argv, {VARIABLE: "/mine"}, "id1") == {}
    forget_metrics("id1")
    assert list(tmp_path.iterdir()) == []
    alone = ["vllm", "serve", "m", "--data-parallel-size", "2", "--api-server-count", "1"]
    assert not several_api_servers(alone)
    assert shared_metrics(["vllm", "serve", "m"], {}, "id1") == {}


async def test_c08_what_metrics_says_with_its_500_is_shown(server: PlainServer):
    server.answers["/metrics"] = answer("500 Internal Server Error", b"OSError: [Errno 5] EIO\nx")
    async with Scraper(server.url) as scraper:
        assert (await scraper.health()).well
        assert (await scraper.scrape()).error == "/metrics answers 500 (OSError: [Errno 5] EIO x)"


async def test_c10_metrics_of_engines_behind_a_router_are_added_up_without_the_dead_one():
    one, two = (body({**spec(10, 30, drafted), "num_requests_running": 1}) for drafted in (12, 18))
    async with (
        PlainServer(vllm_answers(b"router_up 1\n")) as router,
        PlainServer(vllm_answers(one.encode())) as first,
        PlainServer(vllm_answers(two.encode())) as second,
        Scraper(router.url) as alone,
        Scraper(router.url, (first.url, second.url, "http://127.0.0.1:9")) as scraper,
    ):
        assert (await alone.scrape()).counters is None
        assert "no metric of vLLM's" in str((await alone.scrape()).error)
        found = await scraper.scrape()
    assert found.counters is not None
    total = found.counters.total
    assert (total.drafts, total.accepted_tokens, total.running) == (20, 30, 2)
    assert len(found.counters.engines) == 2
    assert found.error == "1 of 3 addresses fail (http://127.0.0.1:9: connection refused)"
    shown = synthetic_frame(1, random.Random(1))
    shown = replace(shown, scrape=replace(shown.scrape, error=found.error))
    assert "some metrics missing (1 of 3" in frame_text(shown)
    assert trouble(shown) == ("warn", f"Some metrics are missing: {found.error}")


@pytest.mark.parametrize(
    ("exported", "usage"),
    [
        ({"gpu_cache_usage_perc": 0.25}, 0.25),
        ({"kv_cache_usage_perc": 0.5}, 0.5),
        ({"gpu_cache_usage_perc": 0.25, "kv_cache_usage_perc": 0.5}, 0.5),
        ({"kv_cache_usage_perc": 0.5, "gpu_cache_usage_perc": 0.25}, 0.5),
    ],
)
def test_c11_the_cache_is_found_under_both_names_and_the_new_one_preferred(
    exported: dict[str, float], usage: float
):
    assert counters(body(exported)).total.kv_cache_usage == usage


def test_c13_time_between_output_events_is_never_shown_as_time_per_token():
    """30 ms between events that carry 2.9 tokens are 10.3 ms a token."""

    def scrape(events: int) -> str:
        tokens = 1 + round(events * 2.9)
        return body(
            {
                "generation_tokens_total": tokens,
                "inter_token_latency_seconds_bucket": events,
                "inter_token_latency_seconds_sum": events * 0.030,
                "inter_token_latency_seconds_count": events,
                "time_to_first_token_seconds_sum": 1,
                "time_to_first_token_seconds_count": 1,
            }
        ).replace("_bucket{", '_bucket{le="+Inf",')

    latency = watched(scrape(0), scrape(1000)).latency()
    assert latency is not None
    assert latency.live_tpot_ms == pytest.approx(30 / 2.9, rel=0.01)
    assert latency.tpot is None
    assert "30" not in frame_text(frame(watched(scrape(0), scrape(1000)))).partition("TPOT")[2]


@pytest.mark.parametrize("exported", [-0.3875, 38.0])
def test_c14_a_cache_usage_that_is_no_share_is_a_gap_with_its_reason(exported: float):
    window = watched(body({"kv_cache_usage_perc": exported}))
    assert engine(window).kv_cache_usage is None
    assert f"{exported:g}" in str(engine(window).kv_cache_usage_absent)
    assert f"KV n/a (the server exports {exported:g}" in frame_text(frame(window))
    (cache,) = (one for one in figures(frame(window)) if one.label == "KV cache")
    assert f"{exported:g}" in cache.note
    good = engine(watched(body({"kv_cache_usage_perc": 0.3875})))
    assert (good.kv_cache_usage, good.kv_cache_usage_absent) == (0.3875, None)


def _record(
    index: int, accepted: Sequence[int] | None, finish: str, tokens: int = 12
) -> RequestRecord:
    steps = None if accepted is None else tuple(accepted)
    return RequestRecord(
        **dict.fromkeys(("ttft_ms", "tpot_ms", "end_to_end_ms"), 10.0),
        index=index,
        prompt_id=str(index),
        kind="chat",
        started_unix=0.0,
        started_s=0.0,
        prompt_tokens=8,
        output_tokens=tokens,
        finish_reason=finish,
        accepted=steps,
        drafted=None if steps is None else (5,) * len(steps),
    )


def test_c16_answers_that_end_by_themselves_make_acceptance_an_upper_bound():
    """k=5; the last step of each answer counted tokens beyond the end of it."""
    short = [_record(number, (1, 5), "stop", tokens=5) for number in range(4)]
    found = leg_summary("drafter", "mtp", 5, short, 1.0, None, None, "requests").acceptance
    assert found is not None
    assert found.acceptance_length == 4.0
    assert found.tokens_a_step == 2.0  # what really came, a step: the cross-check
    assert any("upper bound" in note for note in found.notes)


def test_c17_unconditional_and_conditional_rates_stand_side_by_side():
    texts = (
        body(spec(0, 0, 0)) + positions(0, 0, 0),
        body(spec(100, 300, 128)) + positions(70, 37, 21),
    )
    rates = speculation(watched(*texts)).positions
    assert [one.rate.estimate for one in rates] == [0.70, 0.37, 0.21]
    conditional = [one.conditional.estimate for one in rates if one.conditional]
    assert conditional == pytest.approx([0.70, 37 / 70, 21 / 37])


def test_c19_one_scrape_gives_no_rate_and_a_restart_no_negative_one():
    first = watched(body({"generation_tokens_total": 5000}))
    assert engine(first).generation_tokens_per_s is None
    again = watched(
        body({"generation_tokens_total": 5000}),
        body({"generation_tokens_total": 5100}),
        body({"generation_tokens_total": 40}),
    )
    assert again.epoch == 1
    assert engine(again).generation_tokens_per_s is None
    again.add(3.0, counters(body({"generation_tokens_total": 65})))
    assert engine(again).generation_tokens_per_s == 25.0


def test_c20_throughput_comes_from_the_total_over_our_own_clock():
    window = Window()
    for second, made in ((0.0, 100), (2.5, 350)):
        window.add(second, counters(body({"generation_tokens_total": made})))
    assert engine(window).generation_tokens_per_s == 100.0


def test_c22_tokens_without_drafts_hint_that_requests_opt_out():
    window = watched(
        body(spec(40, 120, 60, generation_tokens_total=100)),
        body(spec(40, 120, 60, generation_tokens_total=400)),
    )
    assert str(speculation(window).note).startswith(TOKENS_BUT_NO_DRAFTS)
    assert "opting out of speculation" in TOKENS_BUT_NO_DRAFTS


def test_c23_no_series_is_left_out_for_the_name_of_its_model():
    text = (
        body({"num_requests_running": 2.0}, model="a")
        + body({"num_requests_running": 1.0}, engine="1", model="/models/a")
        + 'vllm:num_requests_running{engine="2",served_model="b"} 4\n'
    )
    found = counters(text)
    assert found.total.running == 7
    assert found.models == ("a", "/models/a")


async def test_c25_a_redirect_within_the_server_is_followed_and_remembered(server: PlainServer):
    server.answers["/metrics/"] = server.answers["/metrics"]
    server.answers["/metrics"] = answer("307 Temporary Redirect", b"", "Location: /metrics/")
    async with EngineClient(server.url) as client:
        for _ in range(3):
            body = await client.metrics()
            assert body.text == REAL
    assert server.asked == ["/metrics", "/metrics/", "/metrics/", "/metrics/"]


async def test_c25_a_redirect_to_another_server_is_told_and_not_followed(server: PlainServer):
    async with PlainServer(vllm_answers(REAL.encode())) as other:
        where = f"Location: {other.url}/metrics"
        server.answers["/metrics"] = answer("302 Found", b"", where)
        async with EngineClient(server.url) as client:
            found = await client.metrics()
        assert other.asked == []
    assert found.text is None
    assert str(found.error).startswith("it redirects to another server (127.0.0.1:")


def test_c26_our_own_scrapes_are_folded_out_of_the_log():
    probes = [
        f'INFO:     127.0.0.1:40000 - "GET {path} HTTP/1.1" 200 OK'.encode()
        for path in ("/metrics", "/health", "/metrics/")
    ]
    chat = b'INFO:     127.0.0.1:40001 - "POST /v1/chat/completions HTTP/1.1" 200 OK'
    failing = b'INFO:     127.0.0.1:40000 - "GET /metrics HTTP/1.1" 500 Internal Server Error'
    lines = [*probes * 100, chat, failing]
    found = LogFilter().select(b"\n".join(lines) + b"\n")
    assert [lines[place] for place in found.hits] == [chat, failing]
    assert found.folded == 300


def test_c28_a_vllm_without_steps_a_request_is_not_asked_for_them_and_counters_do():
    facts = InterpreterFacts(
        "/venv/python", "3.12", "vllm", "0.27.0", "cuda", "serve", "vllm", frozenset()
    )
    profile = Profile.model_validate(
        {"name": "p", "target": {"model": "/m"}, "drafter": {"method": "ngram", "k": 4}}
    )
    flag = "--per-request-spec-decode-metrics"
    assert flag not in build_command(profile, facts).argv
    assert flag in build_command(profile, replace(facts, vllm_version="0.32.0")).argv
    records = [_record(number, None, "length") for number in range(3)]
    delta = CounterDelta(10, 40, 15, (9, 4, 1, 1), 25)
    found = leg_summary("drafter", "ngram", 4, records, 1.0, delta, None, "requests").acceptance
    assert found is not None
    assert (found.source, found.acceptance_length) == ("counters", 2.5)
    assert (found.accepted_a_step, found.acceptance_length_interval) == ((), None)
    silent = leg_summary("drafter", "ngram", 4, records, 1.0, None, None, "requests")
    assert silent.acceptance is None


def test_c29_positions_that_come_later_reset_nothing():
    early, late = body(spec(0, 0, 0)), body(spec(40, 120, 50))
    window = watched(early, late + positions(30, 20), body(spec(80, 240, 100)) + positions(60, 40))
    assert counters(early).draft_tokens_a_step is None
    assert window.epoch == 0
    found = speculation(window)
    assert found.acceptance_length == 2.25
    assert [one.position for one in found.positions] == [1, 2]


# -- the samples -----------------------------------------------------------------------------


def test_s01_two_engines_are_pooled():
    start = "".join(body(spec(0, 0, 0), each) + positions(0, 0, 0, engine=each) for each in "01")
    window = watched(start, (DATA / "metrics_two_engines.txt").read_text())
    found = speculation(window)
    assert found.acceptance_length == pytest.approx(2.33)
    assert found.draft_acceptance_rate == pytest.approx(0.443, abs=5e-4)
    assert [one.rate.estimate for one in found.positions] == [0.68, 0.42, 0.23]
    conditional = [one.conditional.estimate for one in found.positions if one.conditional]
    assert conditional == pytest.approx([0.68, 0.618, 0.548], abs=5e-4)


def test_s02_a_restart_between_scrapes_is_a_gap_and_a_new_epoch():
    window = Window()
    before, after = spec(500, 1500, 900), spec(12, 36, 20)
    created = "spec_decode_num_drafts_created"
    window.add(10.0, counters(body({**before, created: 1.79e9})))
    window.gap(12.0)
    assert (window.speculation(), window.engine()) == (None, None)
    window.add(14.0, counters(body({**after, created: 1.7900011e9})))
    totals = window.totals()
    assert window.epoch == 1
    assert totals is not None
    assert totals.drafts == 512
    assert speculation(window).acceptance_length is None


def test_s03_before_the_first_draft_there_is_a_word_and_no_number():
    quiet = watched(body(spec(0, 0, 0, generation_tokens_total=0)))
    found = speculation(quiet)
    assert (found.absent, found.acceptance_length, found.note) == ("no drafts yet", None, None)
    busy = watched(body(spec(0, 0, 0, generation_tokens_total=9000)))
    assert speculation(busy).note == TOKENS_BUT_NO_DRAFTS
    broken = counters(body(spec(math.nan, 0, 0, generation_tokens_total=math.nan))).total
    assert (broken.drafts, broken.generation_tokens, broken.draft_tokens) == (None, None, 0)


def test_s04_nasty_labels_are_unescaped_and_end_no_line_early():
    found = counters((DATA / "metrics_labels.txt").read_text(encoding="utf-8"))
    assert [one.running for one in found.engines] == [3, 1, 2]
    assert set(found.models) >= {'lab/"tiny" v2, beta}x', "модель-草稿 🧪", "C:\\models\\a\nb"}


def test_s06_quantiles_are_those_of_the_buckets_and_never_infinite():
    name = "vllm:request_time_per_output_token_seconds"

    def histogram(counts: dict[str, int], engine: str = "0") -> str:
        lines = "".join(
            f'{name}_bucket{{engine="{engine}",le="{bound}",model_name="m"}} {count}\n'
            for bound, count in counts.items()
        )
        total = counts["+Inf"]
        sample = f'{{engine="{engine}",model_name="m"}}'
        return f"{lines}{name}_count{sample} {total}\n{name}_sum{sample} {total * 0.031}\n"

    def latency(*texts: str) -> object:
        found = watched(*texts).latency()
        assert found is not None
        assert found.tpot is not None
        return found.tpot

    zero = {"0.01": 0, "0.025": 0, "0.05": 0, "0.1": 0, "+Inf": 0}
    full = {"0.01": 0, "0.025": 40, "0.05": 90, "0.1": 100, "+Inf": 100}
    found = latency(histogram(zero), histogram(full))
    assert found.count == 100  # type: ignore[attr-defined]
    assert found.p50.value_ms == pytest.approx(30.0)  # type: ignore[attr-defined]
    assert found.p99.value_ms == pytest.approx(95.0)  # type: ignore[attr-defined]
    beyond = latency(histogram(zero), histogram({**zero, "+Inf": 3}))
    assert (beyond.p50.value_ms, beyond.p50.beyond) == (100.0, True)  # type: ignore[attr-defined]
    other = {"0.05": 9, "0.1": 10, "+Inf": 10}
    nothing = dict.fromkeys(other, 0)
    both = latency(
        histogram(zero) + histogram(nothing, "1"), histogram(full) + histogram(other, "1")
    )
    assert both.count == 110  # type: ignore[attr-defined]
    assert both.p50.value_ms < 50  # type: ignore[attr-defined]


ERRORS = {
    "empty": (answer("200 OK"), "the metrics are empty"),
    "login page": (answer("200 OK", b"<html>sign in</html>"), "a web page"),
    "python only": (answer("200 OK", b"python_gc_objects_total 3\n"), "no metric of vLLM's"),
    "401": (answer("401 Unauthorized", b"{}"), "/metrics answers 401"),
    "404": (answer("404 Not Found", b'{"detail":"Not Found"}'), "/metrics answers 404"),
    "500": (answer("500 Internal Server Error", b"boom"), "/metrics answers 500 (boom)"),
    "cut": (answer("200 OK", REAL.encode()[:9000]), "end in the middle of a line"),
    "12 MB": (answer("200 OK", b"# \n" * (13 << 20)), "/metrics is larger than 32 MiB"),
    "reset": (b"", "connection closed without an answer"),
}


@pytest.mark.parametrize("name", ERRORS)
async def test_s18_every_behaviour_of_metrics_has_a_calm_word_of_its_own(
    name: str, server: PlainServer
):
    server.answers["/metrics"], words = ERRORS[name]
    async with Scraper(server.url, deadline_s=120) as scraper:
        found = await scraper.scrape()
    assert found.counters is None
    assert words in str(found.error)
    assert "Traceback" not in str(found.error)
    assert len(str(found.error)) < 300


async def test_s18_twelve_megabytes_of_good_metrics_are_read(server: PlainServer):
    other = b'python_thing{place="%d"} 1\n'
    padding = b"".join(other % number for number in range(420_000))
    assert len(padding) > 12e6
    server.answers["/metrics"] = answer("200 OK", padding + REAL.encode())
    async with Scraper(server.url, deadline_s=120) as scraper:
        found = await scraper.scrape()
    assert found.counters is not None
    assert found.counters.total.drafts == 16
