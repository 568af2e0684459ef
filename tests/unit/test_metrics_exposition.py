"""Reading vLLM's ``/metrics``: bodies of a real server, samples of known traps, and arbitrary text."""

import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pace import cheapest_s

from specpanel.core.engine.metrics import ExpositionError, parse_exposition
from specpanel.core.errors import SpecpanelError
from specpanel.core.speculation.buckets import Buckets

DATA = Path(__file__).parents[1] / "data"


def read(name: str) -> str:
    return (DATA / name).read_text(encoding="utf-8")


def test_a_real_vllm_0_32_body_gives_every_figure():
    # Captured after four requests to a server with the n-gram drafter at K=4; read off by hand.
    exposition = parse_exposition(read("metrics_vllm_0_32_ngram.txt"))
    counters = exposition.counters
    total = counters.total
    assert exposition.is_vllm
    assert counters.speculates
    assert counters.models == ("smol",)
    assert counters.draft_tokens_a_step == 4
    assert [series.engine for series in counters.engines] == ["0"]
    assert (total.drafts, total.draft_tokens, total.accepted_tokens) == (16, 64, 25)
    assert total.accepted_by_position == (7, 7, 7, 4)
    assert (total.prompt_tokens, total.generation_tokens) == (187, 78)
    assert (total.prefix_cache_queries, total.prefix_cache_hits) == (187, 0)
    assert total.requests_finished == 4  # three stopped, one reached its length
    assert (total.running, total.waiting, total.preemptions) == (0, 0, 0)
    assert total.kv_cache_usage == 0.0
    assert total.ttft is not None
    assert (total.ttft.count, total.ttft.sum_s) == (4, 6.15420937538147)
    assert total.tpot is not None
    assert (total.tpot.count, total.tpot.sum_s) == (4, 0.40215709024176893)
    assert total.itl is not None
    assert dict(zip(total.itl.bounds_s, total.itl.cumulative, strict=True))[0.15] == 23
    assert total.end_to_end is not None
    assert total.end_to_end.count == 4
    assert counters.engines[0].created["drafts"] == 1.79603938585088e9


def test_engines_are_summed_and_kept_apart():
    counters = parse_exposition(read("metrics_two_engines.txt")).counters
    assert (counters.total.drafts, counters.total.draft_tokens) == (500, 1500)
    assert counters.total.accepted_tokens == 665
    assert counters.total.accepted_by_position == (340, 210, 115)
    assert [series.drafts for series in counters.engines] == [400, 100]


def test_labels_are_unescaped_and_never_end_a_line_early():
    counters = parse_exposition(read("metrics_labels.txt")).counters
    assert [series.running for series in counters.engines] == [3, 1, 2]
    assert counters.models == ('lab/"tiny" v2, beta}x', "модель-草稿 🧪", "C:\\models\\a\nb")


def test_engines_are_ordered_as_numbers():
    body = "".join(f'vllm:num_requests_running{{engine="{n}"}} {n}\n' for n in (10, 9, 2))
    engines = parse_exposition(body).counters.engines
    assert [series.engine for series in engines] == ["2", "9", "10"]


@pytest.mark.parametrize("suffix", ["", "_total"])
def test_counters_are_found_with_and_without_total(suffix: str):
    body = (
        f'# TYPE vllm:generation_tokens counter\nvllm:generation_tokens{suffix}{{engine="0"}} 7\n'
    )
    assert parse_exposition(body).counters.total.generation_tokens == 7


def test_a_histogram_whose_name_ends_in_total_is_no_counter():
    body = 'vllm:iteration_tokens_total_sum{engine="0"} 9\nvllm:prompt_tokens_total{engine="0"} 2\n'
    total = parse_exposition(body).counters.total
    assert total.counters() == {"prompt_tokens": 2}


def test_families_that_are_absent_are_none_and_mean_no_drafter():
    counters = parse_exposition('vllm:num_requests_running{engine="0"} 0\n').counters
    assert counters.total.running == 0
    assert counters.total.drafts is None
    assert counters.total.accepted_by_position is None
    assert not counters.speculates
    assert counters.draft_tokens_a_step is None


def test_a_counter_that_is_not_a_number_is_absent_for_this_scrape_only():
    body = (
        'vllm:spec_decode_num_drafts_total{engine="0"} NaN\n'
        'vllm:spec_decode_num_accepted_tokens_total{engine="0"} 5\n'
    )
    counters = parse_exposition(body).counters
    assert counters.total.drafts is None
    assert counters.total.accepted_tokens == 5
    assert counters.speculates  # the family is there


def test_half_a_sum_is_not_taken_for_a_sum():
    body = (
        'vllm:request_success_total{engine="0",finished_reason="stop"} NaN\n'
        'vllm:request_success_total{engine="0",finished_reason="length"} 5\n'
    )
    assert parse_exposition(body).counters.total.requests_finished is None


@pytest.mark.parametrize("value", ["-0.3875", "1.2", "NaN", "+Inf"])
def test_cache_usage_outside_0_to_1_is_absent(value: str):
    counters = parse_exposition(f'vllm:kv_cache_usage_perc{{engine="0"}} {value}\n').counters
    assert counters.total.kv_cache_usage is None


def test_cache_usage_is_that_of_the_fullest_engine():
    body = "".join(
        f'vllm:kv_cache_usage_perc{{engine="{n}"}} {usage}\n'
        for n, usage in enumerate((0.2, 0.9, -3))
    )
    assert parse_exposition(body).counters.total.kv_cache_usage == 0.9


def test_old_names_are_understood_and_new_ones_preferred():
    old = 'vllm:gpu_cache_usage_perc{engine="0"} 0.5\n'
    new = 'vllm:kv_cache_usage_perc{engine="0"} 0.25\n'
    assert parse_exposition(old).counters.total.kv_cache_usage == 0.5
    assert parse_exposition(old + new).counters.total.kv_cache_usage == 0.25
    assert parse_exposition(new + old).counters.total.kv_cache_usage == 0.25


def test_the_old_time_per_output_token_is_the_time_between_output_events():
    body = 'vllm:time_per_output_token_seconds_count{engine="0"} 3\n'
    total = parse_exposition(body).counters.total
    assert total.itl == Buckets((math.inf,), (3,))
    assert total.tpot is None


def test_histograms_of_engines_with_other_buckets_meet_on_common_bounds():
    one = {"0.1": 1, "0.2": 3, "+Inf": 4}
    other = {"0.1": 2, "0.5": 5, "+Inf": 5}
    body = "".join(
        f'vllm:time_to_first_token_seconds_bucket{{engine="{n}",le="{le}"}} {count}\n'
        for n, buckets in enumerate((one, other))
        for le, count in buckets.items()
    )
    assert parse_exposition(body).counters.total.ttft == Buckets((0.1, math.inf), (3, 9))


def test_buckets_that_fall_are_no_histogram():
    body = (
        'vllm:time_to_first_token_seconds_bucket{engine="0",le="0.1"} 5\n'
        'vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf"} 4\n'
    )
    assert parse_exposition(body).counters.total.ttft is None


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("", "empty"),
        ("  \n\n", "empty"),
        ("<!doctype html><title>Sign in</title>", "web page"),
        ('{"detail": "Not Found"}', "JSON"),
        ('python_gc_objects_collected_total{generation="0"} 1.0\n', "--disable-log-stats"),
        ("sglang:num_running_reqs 3\n", "another server"),
    ],
)
def test_a_server_that_is_not_vllm_is_told_apart(body: str, reason: str):
    exposition = parse_exposition(body)
    assert not exposition.is_vllm
    assert exposition.not_vllm is not None
    assert reason in exposition.not_vllm
    assert exposition.counters.engines == ()


@pytest.mark.parametrize(
    "line",
    [
        'vllm:num_requests_running{engine="0"}532\n',  # older parsers read 32
        'vllm:num_requests_running{engine="0"} 5.3.2\n',
        'vllm:num_requests_running{engine="0} 5\n',
        "vllm:num_requests_running{engine=0} 5\n",
        'vllm:num_requests_running{engine="0"} \n',
        'vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="last"} 5\n',
        'vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="99999"} 5\n',
        'vllm:time_to_first_token_seconds_bucket{engine="0"} 5\n',
        'vllm:time_to_first_token_seconds_bucket{engine="0",le="wide"} 5\n',
        'vllm:num_requests_running{engine="' + "0" * 70_000 + '"} 5\n',
    ],
)
def test_a_malformed_line_is_refused_in_one_sentence(line: str):
    with pytest.raises(ExpositionError) as caught:
        parse_exposition('vllm:prompt_tokens_total{engine="0"} 1\n' + line)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300
    assert caught.value.fix


def test_a_malformed_line_that_is_not_needed_does_no_harm():
    body = 'vllm:lora_requests_info{oops 1\nother{"} x\nvllm:num_requests_running{engine="0"} 5\n'
    assert parse_exposition(body).counters.total.running == 5


def test_a_body_cut_anywhere_is_refused_or_ends_with_a_whole_line():
    body = read("metrics_vllm_0_32_ngram.txt")
    for end in range(10, len(body), 97):
        cut = body[:end]
        if cut.endswith("\n"):
            parse_exposition(cut)
            continue
        with pytest.raises(ExpositionError, match="middle of a line"):
            parse_exposition(cut)


def test_names_inside_other_lines_are_not_taken_for_series():
    body = (
        '# HELP x vllm:num_requests_running{engine="0"} 9\n'
        'other{label="vllm:num_requests_running 7"} 1\n'
        ' \tvllm:num_requests_running{engine="0"} 5\n'
    )
    assert parse_exposition(body).counters.total.running == 5


label_values = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\r"), max_size=12
)
engine_counts = st.fixed_dictionaries(
    {
        "spec_decode_num_drafts": st.integers(0, 2**53),
        "spec_decode_num_draft_tokens": st.integers(0, 2**53),
        "spec_decode_num_accepted_tokens": st.integers(0, 2**53),
        "generation_tokens": st.integers(0, 2**53),
        "positions": st.lists(st.integers(0, 2**40), max_size=6),
        "ttft": st.lists(st.integers(0, 1000), min_size=1, max_size=6),
    }
)
engines_strategy = st.dictionaries(st.integers(0, 99).map(str), engine_counts, max_size=4)


def exposed(engines: dict, model: str) -> str:
    """The body that a server with these counts would answer."""
    escaped = model.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
    lines = ["# TYPE vllm:made_up gauge"]
    for engine, counts in engines.items():
        labels = f'engine="{engine}",model_name="{escaped}"'
        for name, value in counts.items():
            if isinstance(value, int):
                lines.append(f"vllm:{name}_total{{{labels}}} {value}")
        for position, value in enumerate(counts["positions"]):
            name = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
            lines.append(f'{name}{{{labels},position="{position}"}} {float(value)}')
        running = 0
        bounds = [*(f"{n / 10}" for n in range(1, len(counts["ttft"]))), "+Inf"]
        for bound, value in zip(bounds, counts["ttft"], strict=True):
            running += value
            lines.append(
                f'vllm:time_to_first_token_seconds_bucket{{{labels},le="{bound}"}} {running}'
            )
    return "\n".join(lines) + "\n"


@settings(max_examples=40, deadline=None)
@given(engines=engines_strategy, model=label_values)
def test_what_was_exposed_is_what_is_read(engines: dict, model: str):
    counters = parse_exposition(exposed(engines, model)).counters
    assert {series.engine for series in counters.engines} == set(engines)
    for series in counters.engines:
        counts = engines[series.engine]
        assert series.drafts == counts["spec_decode_num_drafts"]
        assert series.draft_tokens == counts["spec_decode_num_draft_tokens"]
        assert series.accepted_tokens == counts["spec_decode_num_accepted_tokens"]
        assert series.generation_tokens == counts["generation_tokens"]
        assert (series.accepted_by_position or ()) == tuple(counts["positions"])
        assert series.ttft is not None
        assert series.ttft.count == sum(counts["ttft"])
    if engines:
        assert counters.models == ((model,) if model else ())
        drafts = sum(counts["spec_decode_num_drafts"] for counts in engines.values())
        assert counters.total.drafts == drafts


hostile = st.one_of(
    st.text(),
    st.lists(
        st.sampled_from(
            [
                "vllm:num_requests_running",
                "vllm:spec_decode_num_accepted_tokens_per_pos_total",
                "vllm:time_to_first_token_seconds_bucket",
                '{engine="0"',
                ',le="0.1"',
                ',position="1"',
                "{",
                "}",
                '"',
                "\\",
                "=",
                ",",
                " ",
                "\n",
                "\r",
                "\x85",
                "9" * 400,
                "1e999",
                "NaN",
                "-1",
                "# TYPE ",
                "_",
            ]
        ),
        max_size=14,
    ).map("".join),
)


@settings(max_examples=150, deadline=None)
@given(text=hostile)
def test_no_text_whatever_raises_anything_but_a_known_error(text: str):
    try:
        parse_exposition(text)
    except SpecpanelError as error:
        assert str(error)  # noqa: PT017 - both outcomes are right; nothing else may escape


def test_ten_megabytes_of_other_families_cost_little():
    body = read("metrics_vllm_0_32_ngram.txt")
    line = 'http_request_duration_seconds_bucket{{handler="/v1/{}",le="0.1",method="POST"}} 1.0\n'
    large = body + "".join(line.format(n) for n in range(140_000))
    assert len(large) > 10_000_000
    # Parsing it all takes several seconds on the same machine.
    assert cheapest_s(lambda: parse_exposition(large), 0.5) < 0.5
