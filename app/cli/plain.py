"""A session as plain text: progress while it runs, and the summary for a person. Pure."""

from collections.abc import Iterator

from specpanel.core.monitor.frame import Frame, Interval, PositionRate, Quantiles
from specpanel.core.session.summary import Acceptance, Comparison, Leg, Summary
from specpanel.core.speculation.quantiles import SampleQuantile

_LABEL = 22


def frame_text(frame: Frame) -> str:
    """One line of what matters now; absent figures are left out rather than shown as zero."""
    parts = [f"{frame.elapsed_s:5.0f} s", frame.server.state]
    server = frame.server
    if server.state == "starting":
        parts.append(f"{server.phase or 'imports'} {server.phase_s or 0:.0f} s")
        return "  ".join([*parts, _short(server.detail or "", 60)]).rstrip()
    if frame.scrape.state == "failing":
        parts.append(f"no metrics ({frame.scrape.error})")
    speculation = frame.speculation
    if speculation is not None:
        length = speculation.acceptance_length
        parts.append(f"AL {length:.2f}" if length is not None else f"AL n/a ({speculation.absent})")
    if frame.engine is not None:
        if frame.engine.generation_tokens_per_s is not None:
            parts.append(f"{frame.engine.generation_tokens_per_s:.1f} tok/s")
        parts.append(f"{_count(frame.engine.running)} running")
        parts.append(f"{_count(frame.engine.waiting)} waiting")
        if frame.engine.kv_cache_usage is not None:
            parts.append(f"KV {frame.engine.kv_cache_usage:.0%}")
    if frame.latency is not None:
        parts.append(_latency("TPOT", frame.latency.tpot))
        parts.append(_latency("TTFT", frame.latency.ttft))
    if frame.traffic is not None:
        planned = f"/{frame.traffic.planned}" if frame.traffic.planned else ""
        failed = f", {frame.traffic.failed} failed" if frame.traffic.failed else ""
        parts.append(f"{frame.traffic.finished}{planned} done{failed}")
    if server.state in ("exited", "degraded", "unreachable") and server.detail:
        parts.append(server.detail)
    return "  ".join(part for part in parts if part)


def _count(value: int | None) -> str:
    return "?" if value is None else str(value)


def _short(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def _latency(name: str, quantiles: Quantiles | None) -> str:
    if quantiles is None:
        return ""
    mark = ">" if quantiles.p50.beyond else ""
    return f"{name} {mark}{quantiles.p50.value_ms:.0f} ms"


def summary_text(summary: Summary) -> str:
    """The summary as a person reads it, without a line end at its end."""
    return "\n".join(_summary_lines(summary))


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
    if summary.log:
        yield _row("log", summary.log)


def _row(label: str, text: str) -> str:
    return f"  {label:<{_LABEL}}{text}"


def _leg_lines(leg: Leg) -> Iterator[str]:
    k = f" K={leg.draft_tokens}" if leg.draft_tokens else ""
    name = "plain decoding" if leg.drafter == "none" else f"drafter {leg.drafter}{k}"
    yield f"{name}"
    speed = "n/a" if leg.output_tokens_per_s is None else f"{leg.output_tokens_per_s:.1f} tok/s"
    failed = f", {leg.failed} failed ({_failures(leg)})" if leg.failed else ""
    yield _row(
        "output",
        f"{speed}: {leg.output_tokens} tokens of {leg.requests - leg.failed} requests "
        f"in {leg.elapsed_s:.1f} s{failed}",
    )
    yield _row("time per output token", _quantile_text(leg.tpot_ms))
    yield _row("time to first token", _quantile_text(leg.ttft_ms))
    if leg.acceptance is not None:
        yield from _acceptance_lines(leg.acceptance)


def _failures(leg: Leg) -> str:
    return "; ".join(f"{count} × {name}" for name, count in leg.failures.items())


def _quantile_text(quantiles: tuple[SampleQuantile, ...]) -> str:
    if not quantiles:
        return "n/a"
    return "   ".join(
        f"p{quantile.share * 100:g} {quantile.value_ms:.0f} ms ({_ends(quantile)})"
        for quantile in quantiles
    )


def _ends(quantile: SampleQuantile) -> str:
    low = "?" if quantile.low_ms is None else f"{quantile.low_ms:.0f}"
    high = "?" if quantile.high_ms is None else f"{quantile.high_ms:.0f}"
    return f"{low} … {high}"


def _acceptance_lines(found: Acceptance) -> Iterator[str]:
    if found.acceptance_length is None:
        yield _row("acceptance length", "n/a: no drafts yet")
        return
    where = (
        f"{found.drafts} drafts of {found.requests} requests"
        if found.source == "requests"
        else f"{found.drafts} drafts, the server's counters"
    )
    length = f"{found.acceptance_length:.2f}"
    if found.acceptance_length_interval is not None:
        length += f"  95 % {_range(found.acceptance_length_interval)}"
    yield _row("acceptance length", f"{length}   ({where})")
    if found.draft_acceptance_rate is not None:
        yield _row("draft acceptance rate", f"{found.draft_acceptance_rate:.1%}")
    yield _row("accepted by position", "   ".join(_position(rate) for rate in found.positions))
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
        yield _row("time per output token", f"n/a: {paired.note}")
    else:
        interval = f"  95 % {_range(paired.ratio_interval)}" if paired.ratio_interval else ""
        yield _row(
            "time per output token",
            f"{paired.ratio:.3f} ×{interval}   ({paired.pairs} prompts, below 1 is faster)",
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
                f"{difference.with_drafter!r}, was {difference.without_drafter!r}",
            )
        if len(agreed.differences) > 3:
            yield _row("", f"and {len(agreed.differences) - 3} more (--json lists all)")
