"""A session as plain text: progress while it runs, and the summary for a person. Pure."""

from collections.abc import Iterator

from specpanel.app.cli.plain_explain import choice_lines, finding_lines
from specpanel.core.monitor.frame import (
    Frame,
    Interval,
    PositionRate,
    Quantiles,
    TrafficSample,
)
from specpanel.core.session.summary import Acceptance, Comparison, Leg, Summary
from specpanel.core.speculation.quantiles import SampleQuantile

_LABEL = 22


def frame_text(frame: Frame) -> str:
    """One line of what matters now; absent figures are left out rather than shown as zero."""
    parts = [f"{frame.elapsed_s:5.0f} s", frame.server.state]
    server = frame.server
    if server.state == "starting":
        took = "" if server.phase_s is None else f" {server.phase_s:.0f} s"
        parts.append(f"{server.phase}{took}" if server.phase else "")
        parts.append(_short(server.detail or "", 60))
        return _one_line(parts)
    if frame.scrape.state == "failing" and server.state != "unreachable":
        parts.append(f"no metrics{_why(frame.scrape.error)}")
    elif frame.scrape.state == "ok" and frame.scrape.error is not None:
        parts.append(f"some metrics missing{_why(frame.scrape.error)}")
    speculation = frame.speculation
    if speculation is not None:
        length = speculation.acceptance_length
        absent = f"n/a{_why(speculation.absent)}"
        parts.append(f"AL {absent if length is None else f'{length:.2f}'}")
    if frame.engine is not None:
        if frame.engine.generation_tokens_per_s is not None:
            parts.append(f"{frame.engine.generation_tokens_per_s:.1f} tok/s")
        parts.append(f"{_count(frame.engine.running)} running")
        parts.append(f"{_count(frame.engine.waiting)} waiting")
        if frame.engine.kv_cache_usage is not None:
            parts.append(f"KV {frame.engine.kv_cache_usage:.0%}")
        elif frame.engine.kv_cache_usage_absent is not None:
            parts.append(f"KV n/a ({frame.engine.kv_cache_usage_absent})")
    if frame.latency is not None:
        parts.append(_latency("TPOT", frame.latency.tpot))
        parts.append(_latency("TTFT", frame.latency.ttft))
    if frame.traffic is not None:
        parts.append(_traffic(frame.traffic))
    if server.state in ("exited", "degraded", "unreachable") and server.detail:
        parts.append(server.detail)
    return _one_line(parts)


def _traffic(traffic: TrafficSample) -> str:
    if traffic.warming_up:
        return f"{traffic.warmups_done}/{traffic.warmups_planned} warm-ups done"
    planned = f"/{traffic.planned}" if traffic.planned else ""
    failed = f", {traffic.failed} failed" if traffic.failed else ""
    return f"{traffic.finished}{planned} done{failed}"


def _one_line(parts: list[str]) -> str:
    """The parts that say something, without control characters: some come from logs and servers."""
    return "  ".join(_printable(part) for part in parts if part)


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)


def _why(reason: str | None) -> str:
    return f" ({reason})" if reason else ""


def _ms(value: float) -> str:
    """Milliseconds with three figures or more: a GPU makes a token in a few of them."""
    digits = 2 if value < 10 else 1 if value < 100 else 0
    return f"{value:.{digits}f}"


def _count(value: int | None) -> str:
    return "?" if value is None else str(value)


def _short(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def _latency(name: str, quantiles: Quantiles | None) -> str:
    if quantiles is None:
        return ""
    mark = ">" if quantiles.p50.beyond else ""
    return f"{name} {mark}{_ms(quantiles.p50.value_ms)} ms"


def summary_text(summary: Summary) -> str:
    """The summary as a person reads it, without a line end at its end."""
    return "\n".join(_printable(line) for line in _summary_lines(summary))


def _summary_lines(summary: Summary) -> Iterator[str]:
    version = f" on vLLM {summary.vllm_version}" if summary.vllm_version else ""
    ended = ", interrupted" if summary.interrupted else ""
    yield f"{summary.profile}: {summary.model}{version}{ended}"
    for leg in summary.legs:
        yield from _leg_lines(leg)
    if summary.comparison is not None:
        yield from _comparison_lines(summary.comparison)
    if summary.legs:
        yield _row("verdict", summary.verdict.sentence)
    for line in choice_lines(summary.chosen):
        yield f"  {line}"
    for found in summary.findings:
        for line in finding_lines(found):
            yield f"  {line}"
    if summary.log:
        yield _row("log", summary.log)


def _row(label: str, text: str) -> str:
    return f"  {label:<{_LABEL}}{text}"


def _leg_lines(leg: Leg) -> Iterator[str]:
    k = f" K={leg.draft_tokens}" if leg.draft_tokens else ""
    name = "plain decoding" if leg.drafter == "none" else f"drafter {leg.drafter}{k}"
    if leg.drafter == "unknown":
        name = f"drafter not known{k}: the server was started elsewhere"
    yield f"{name}"
    speed = "n/a" if leg.output_tokens_per_s is None else f"{leg.output_tokens_per_s:.1f} tok/s"
    tokens = "an unknown number of" if leg.output_tokens is None else leg.output_tokens
    failed = f", {leg.failed} failed ({_failures(leg)})" if leg.failed else ""
    yield _row(
        "output",
        f"{speed}: {tokens} tokens of {leg.requests - leg.failed} requests "
        f"in {leg.elapsed_s:.1f} s{failed}",
    )
    yield _row("time per output token", _quantile_text(leg.tpot_ms))
    yield _row("time to first token", _quantile_text(leg.ttft_ms))
    if leg.acceptance is not None:
        yield from _acceptance_lines(leg.acceptance)
    elif leg.drafter != "none":
        yield _row("acceptance length", "n/a: neither the answers nor the server's counters tell")


def _failures(leg: Leg) -> str:
    return "; ".join(f"{count} × {name}" for name, count in leg.failures.items())


def _quantile_text(quantiles: tuple[SampleQuantile, ...]) -> str:
    if not quantiles:
        return "n/a"
    return "   ".join(
        f"p{quantile.share * 100:g} {_ms(quantile.value_ms)} ms ({_ends(quantile)})"
        for quantile in quantiles
    )


def _ends(quantile: SampleQuantile) -> str:
    low = "?" if quantile.low_ms is None else _ms(quantile.low_ms)
    high = "?" if quantile.high_ms is None else _ms(quantile.high_ms)
    return f"{low} … {high}"


def _acceptance_lines(found: Acceptance) -> Iterator[str]:
    if found.acceptance_length is None:
        yield _row("acceptance length", "n/a: no drafts yet")
        return
    where = f"{found.drafts} drafts, the server's counters"
    if found.source == "requests":
        where = f"{found.drafts} drafts of {_count(found.requests)} requests"
    length = f"{found.acceptance_length:.2f}"
    if found.acceptance_length_interval is not None:
        length += f"  95 % {_range(found.acceptance_length_interval)}"
    yield _row("acceptance length", f"{length}   ({where})")
    if found.draft_acceptance_rate is not None:
        yield _row("draft acceptance rate", f"{found.draft_acceptance_rate:.1%}")
    if found.positions:
        yield _row("accepted by position", "   ".join(_position(rate) for rate in found.positions))
    if found.tokens_a_step is not None and found.drafted_share is not None:
        yield _row(
            "tokens per step",
            f"{found.tokens_a_step:.2f}   ({found.drafted_share:.0%} of the steps had a draft)",
        )
    for note in found.notes:
        yield _row("", f"note: {note}")


def _position(rate: PositionRate) -> str:
    return (
        f"{rate.position}: {rate.rate.estimate:.0%} "
        f"({rate.rate.low * 100:.0f} … {rate.rate.high * 100:.0f})"
    )


def _range(interval: Interval) -> str:
    return f"{interval.low:.2f} … {interval.high:.2f}"


def _comparison_lines(comparison: Comparison) -> Iterator[str]:
    paired = comparison.paired
    yield "drafter against plain decoding, the same prompts"
    if paired.ratio is None:
        yield _row("time per output token", f"n/a{_why(paired.note)}")
    else:
        prompts = "prompt" if paired.pairs == 1 else "prompts"
        interval = f"  95 % {_range(paired.ratio_interval)}" if paired.ratio_interval else ""
        yield _row(
            "time per output token",
            f"{paired.ratio:.3f} ×{interval}   ({paired.pairs} {prompts}, below 1 is faster)",
        )
        if paired.note:
            yield _row("", f"note: {paired.note}")
    agreed = comparison.agreement
    if agreed is not None:
        yield _row("same greedy answers", f"{agreed.identical} of {agreed.compared}")
        for difference in agreed.differences[:3]:
            yield _row(
                "",
                f"{difference.prompt_id}: {difference.unit} {difference.place} is "
                f"{_item(difference.with_drafter)}, was {_item(difference.without_drafter)}",
            )
        if len(agreed.differences) > 3:
            yield _row("", f"and {len(agreed.differences) - 3} more (--json lists all)")


def _item(item: int | str | None) -> str:
    """A token or a character of an answer; nothing where the answer had ended."""
    return "the end" if item is None else repr(item)
