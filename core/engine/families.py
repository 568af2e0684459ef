"""The metric families that specpanel reads, and what vLLM called each of them in which version."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Kind = Literal["counter", "gauge", "positions", "histogram"]
Part = Literal["value", "created", "bucket", "sum", "count"]


@dataclass(frozen=True, slots=True)
class Family:
    """One figure, the names that vLLM gave it (newest first), and the versions they were read in."""

    figure: str
    kind: Kind
    names: tuple[tuple[str, str], ...]


# From vllm/v1/metrics/loggers.py and vllm/v1/spec_decode/metrics.py. "since" marks where a rename was
# announced in those files; a plain version is the one in which the name was seen on a running server.
FAMILIES: tuple[Family, ...] = (
    Family("drafts", "counter", (("vllm:spec_decode_num_drafts", "0.32.0"),)),
    Family("draft_tokens", "counter", (("vllm:spec_decode_num_draft_tokens", "0.32.0"),)),
    Family("accepted_tokens", "counter", (("vllm:spec_decode_num_accepted_tokens", "0.32.0"),)),
    Family(
        "accepted_by_position",
        "positions",
        (("vllm:spec_decode_num_accepted_tokens_per_pos", "0.32.0"),),
    ),
    Family("prompt_tokens", "counter", (("vllm:prompt_tokens", "0.32.0"),)),
    Family("generation_tokens", "counter", (("vllm:generation_tokens", "0.32.0"),)),
    Family("preemptions", "counter", (("vllm:num_preemptions", "0.32.0"),)),
    Family(
        "prefix_cache_queries",
        "counter",
        (
            ("vllm:prefix_cache_queries", "since 0.9.2"),
            ("vllm:gpu_prefix_cache_queries", "until 0.9.1, on request until 0.11"),
        ),
    ),
    Family(
        "prefix_cache_hits",
        "counter",
        (
            ("vllm:prefix_cache_hits", "since 0.9.2"),
            ("vllm:gpu_prefix_cache_hits", "until 0.9.1, on request until 0.11"),
        ),
    ),
    Family("requests_finished", "counter", (("vllm:request_success", "0.32.0"),)),
    Family("running", "gauge", (("vllm:num_requests_running", "0.32.0"),)),
    Family("waiting", "gauge", (("vllm:num_requests_waiting", "0.32.0"),)),
    Family(
        "kv_cache_usage",
        "gauge",
        (
            ("vllm:kv_cache_usage_perc", "since 0.9.2"),
            ("vllm:gpu_cache_usage_perc", "until 0.9.1, on request until 0.11"),
        ),
    ),
    Family("ttft", "histogram", (("vllm:time_to_first_token_seconds", "0.32.0"),)),
    Family("tpot", "histogram", (("vllm:request_time_per_output_token_seconds", "0.32.0"),)),
    Family(
        "itl",
        "histogram",
        (
            ("vllm:inter_token_latency_seconds", "since 0.11"),
            # Despite its name this was the time between output events, not per token of a request.
            ("vllm:time_per_output_token_seconds", "until 0.10, on request until 0.12"),
        ),
    ),
    Family("end_to_end", "histogram", (("vllm:e2e_request_latency_seconds", "0.32.0"),)),
)

COUNTERS = tuple(family.figure for family in FAMILIES if family.kind == "counter")
HISTOGRAMS = tuple(family.figure for family in FAMILIES if family.kind == "histogram")
SPECULATION = ("drafts", "draft_tokens", "accepted_tokens", "accepted_by_position")


@dataclass(frozen=True, slots=True)
class Role:
    """What a sample's name says: its figure, its place among the aliases (0 is newest), its part."""

    figure: str
    kind: Kind
    rank: int
    part: Part


def _roles() -> Iterator[tuple[str, Role]]:
    for family in FAMILIES:
        for rank, (name, _) in enumerate(family.names):
            suffixes: dict[str, Part] = {"": "value"}
            if family.kind == "histogram":
                suffixes = {"_bucket": "bucket", "_sum": "sum", "_count": "count"}
            elif family.kind != "gauge":
                suffixes["_total"] = "value"
            if family.kind != "gauge":
                suffixes["_created"] = "created"
            for suffix, part in suffixes.items():
                yield name + suffix, Role(family.figure, family.kind, rank, part)


ROLES: dict[str, Role] = dict(_roles())
