"""What guidellm is asked, and what its report says in our units. Pure. Read from guidellm 0.8.1.

Two of its words differ from ours. Its *time per output token* is the whole request, the wait for the first
token in it, by all tokens; its *inter token latency* leaves the first one out, which is what specpanel calls
time per output token elsewhere (``schemas/base/request_stats.py``). Figures keep guidellm's names; rows of
single requests keep ours.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any

from specpanel.core.errors import SpecpanelError
from specpanel.core.printable import one_line
from specpanel.core.settings.profile import Traffic
from specpanel.core.traffic.answer import steps_in
from specpanel.core.traffic.prompts import OWN_KIND
from specpanel.core.traffic.records import Prompt, RequestRecord

VERSIONS = "0.8"
_UNKNOWN_PROMPT = "unknown"


@dataclass(frozen=True, slots=True)
class Spread:
    """Quantiles over the answers that came, in ms; None where guidellm tells none."""

    p50: float | None
    p99: float | None


@dataclass(frozen=True, slots=True)
class Report:
    """One load as guidellm saw it. ``records`` are the requests that succeeded or failed, by start."""

    version: str
    successful: int
    errored: int
    incomplete: int
    elapsed_s: float
    ttft_ms: Spread
    time_per_output_token_ms: Spread
    inter_token_latency_ms: Spread
    output_tokens_per_s: float | None
    records: tuple[RequestRecord, ...]

    @property
    def first_error(self) -> str | None:
        return next((record.error for record in self.records if record.error), None)


def scenario(
    *,
    url: str,
    model: str,
    api_key: str | None,
    data: str,
    out: str,
    traffic: Traffic,
    requests: int,
) -> dict[str, Any]:
    """guidellm's scenario for one load: ``traffic.concurrency`` streams; rows in ``data``, report in ``out``.

    No tokenizer: the server counts the tokens.
    """
    body = {"temperature": traffic.temperature, "max_tokens": traffic.max_tokens}
    backend = {
        "kind": "openai_http",
        "target": url,
        "model": model,
        "request_format": "/v1/chat/completions",
        "timeout": traffic.timeout_s,
        "extras": {"body": body},
    }
    if api_key is not None:
        backend["api_key"] = api_key
    return {
        "metadata": {"labels": {"by": "specpanel"}},
        "spec": {
            "backend": backend,
            "profile": {"kind": "concurrent", "streams": [traffic.concurrency]},
            "constraints": [{"kind": "max_requests", "count": requests}],
            "data": [{"kind": "json_file", "path": data}],
            "outputs": [{"kind": "json", "path": out}],
        },
    }


def whole_rounds(requests: int, load: int) -> int:
    """``requests``, rounded up to whole rounds of ``load``: guidellm 0.8.1 can lose those of a part round."""
    return -(-requests // load) * load


def data_rows(prompts: Sequence[Prompt], traffic: Traffic, requests: int) -> list[dict[str, Any]]:
    """Our prompts as guidellm's data, over and over: it ends with its rows. Columns are found by name.

    Told how long an answer is, guidellm has the server ignore its end, so that is said only where asked for.
    """
    length = {"output_tokens_count": traffic.max_tokens} if traffic.ignore_eos else {}
    with_system = any(one.system for one in prompts)
    return [
        {"prompt": prompt.text, "system_prompt": prompt.system or "", **length}
        if with_system
        else {"prompt": prompt.text, **length}
        for prompt in islice(cycle(prompts), requests)
    ]


def read_report(text: str, prompts: Sequence[Prompt]) -> Report:
    """The first benchmark of a report.

    Raises:
        SpecpanelError: it has another shape than that of guidellm 0.8.
    """
    try:
        table = json.loads(text)
        benchmark = table["benchmarks"][0]
        metrics = benchmark["metrics"]
        totals = metrics["request_totals"]
        return Report(
            version=one_line(str(table["metadata"]["guidellm_version"]), 40),
            successful=int(totals["successful"]),
            errored=int(totals["errored"]),
            incomplete=int(totals["incomplete"]),
            elapsed_s=float(benchmark["duration"]),
            ttft_ms=_spread(metrics["time_to_first_token_ms"]),
            time_per_output_token_ms=_spread(metrics["time_per_output_token_ms"]),
            inter_token_latency_ms=_spread(metrics["inter_token_latency_ms"]),
            output_tokens_per_s=_mean(metrics["output_tokens_per_second"]),
            records=tuple(_records(benchmark, prompts)),
        )
    except (
        LookupError,
        TypeError,
        AttributeError,
        ValueError,
        ArithmeticError,
        RecursionError,
    ) as error:
        raise SpecpanelError(
            f"the report of guidellm cannot be read: {type(error).__name__} at {one_line(str(error), 80)}",
            f"specpanel reads reports of guidellm {VERSIONS}.",
        ) from None


def _spread(metric: Mapping[str, Any]) -> Spread:
    found = metric["successful"]
    if not found or not found["count"]:
        return Spread(None, None)
    return Spread(float(found["percentiles"]["p50"]), float(found["percentiles"]["p99"]))


def _mean(metric: Mapping[str, Any]) -> float | None:
    found = metric["successful"]
    return float(found["mean"]) if found and found["count"] else None


def _records(benchmark: Mapping[str, Any], prompts: Sequence[Prompt]) -> Iterator[RequestRecord]:
    by_text = {prompt.text: prompt for prompt in prompts}
    told = benchmark["requests"]
    rows = [
        (row, failed)
        for status, failed in (("successful", False), ("errored", True))
        for row in told[status] or ()
    ]
    rows.sort(key=lambda pair: pair[0]["request_start_time"] or 0.0)
    for index, (row, failed) in enumerate(rows):
        prompt = by_text.get(_prompt_text(row.get("request_args")) or "")
        started = float(row["request_start_time"] or benchmark["start_time"])
        latency_s = row["request_latency"]
        steps = None if failed else steps_in(row.get("response_metrics"))
        yield RequestRecord(
            index=index,
            prompt_id=_UNKNOWN_PROMPT if prompt is None else prompt.id,
            kind=OWN_KIND if prompt is None else prompt.kind,
            started_unix=started,
            started_s=max(0.0, started - float(benchmark["start_time"])),
            ttft_ms=row["time_to_first_token_ms"],
            tpot_ms=None if failed else row["inter_token_latency_ms"],
            end_to_end_ms=None if failed or latency_s is None else float(latency_s) * 1000,
            prompt_tokens=row["prompt_tokens"],
            output_tokens=row["output_tokens"],
            finish_reason=None,
            error=one_line(str(row["info"]["error"] or "it failed"), 200) if failed else None,
            drafted=None if steps is None else steps[0],
            accepted=None if steps is None else steps[1],
        )


def _prompt_text(sent: object) -> str | None:
    """The user's message in what guidellm sent, as it keeps that: a JSON text."""
    try:
        content = json.loads(str(sent))["body"]["messages"][-1]["content"]
        return content if isinstance(content, str) else "".join(part["text"] for part in content)
    except (KeyError, IndexError, TypeError, ValueError, RecursionError):
        return None
