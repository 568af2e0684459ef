"""The words and numbers of the Live screen, from a Frame. Pure; absent is ``n/a`` with its reason."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from specpanel.app.tui.ink import Line, Span, clean, width_of
from specpanel.core.monitor.reasons import FIRST_SCRAPE, INCONSISTENT, NO_COUNT, NO_DRAFTS_LATELY

if TYPE_CHECKING:
    from specpanel.app.tui.charts.glyphs import Glyphs
    from specpanel.core.monitor.frame import (
        Frame,
        Quantile,
        Quantiles,
        ServerSample,
        TrafficSample,
    )

ABSENT = "n/a"
Tone = Literal["strong", "muted", "good", "warn", "bad"]

_SCRAPE_STALE_S = 5.0
_CACHE_NEARLY_FULL = 0.9
_TONES: dict[str, str] = {
    "stopped": "muted",
    "starting": "warn",
    "serving": "good",
    "degraded": "warn",
    "exited": "bad",
    "unreachable": "bad",
}


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of the strip: what it is, its value, and what to compare it with.

    ``short_note`` takes the place of a note that does not fit whole.
    """

    label: str
    short_label: str
    value: str
    note: str
    cells: int  # that label and value need at most
    short_cells: int  # the same for the short ones
    tone: Tone = "strong"
    short_value: str | None = None
    short_note: str | None = None


# What takes the place of a reason in a narrow tile.
_SHORT_REASONS = {
    "no metrics yet": "no metrics",
    "metrics failing": "failing",
    "server ended": "ended",
    "server stopped": "stopped",
    "not reported": "unreported",
    NO_COUNT: "no usable count",
    FIRST_SCRAPE: "one scrape yet",
    INCONSISTENT: "processes differ",
}


def _short_reason(reason: str) -> str:
    lately = NO_DRAFTS_LATELY.partition("{")[0]
    if reason.startswith(lately):
        return f"no drafts in {reason.removeprefix(lately)}"
    return _SHORT_REASONS.get(reason, reason)


def _absent(
    label: str, short: str, cells: int, short_cells: int, reason: str, more: str = ""
) -> Figure:
    """A number that is not there, and why."""
    return Figure(
        label,
        short,
        ABSENT,
        reason + more,
        cells,
        short_cells,
        "muted",
        short_note=_short_reason(reason),
    )


def grouped(value: float, decimals: int = 0) -> str:
    """A number with thin groups of thousands: 12 345."""
    return f"{value:,.{decimals}f}".replace(",", " ")


def milliseconds(value: float) -> str:
    """Three significant digits, never an exponent: 0.92, 14.2, 611, 2 314."""
    if value >= 1000:
        return grouped(value)
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def gibibytes(value: int) -> str:
    return f"{value / 2**30:.1f}"


def clock(seconds: float) -> str:
    """Elapsed time as 00:12:41."""
    whole = max(0, int(seconds))
    return f"{whole // 3600:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def figures(frame: "Frame | None") -> tuple[Figure, ...]:
    """The strip, most important first; what does not fit is dropped from the end."""
    return (
        _acceptance_length(frame),
        _draft_acceptance(frame),
        _output(frame),
        _quantiles("TPOT p50 / p99", "TPOT p50/p99", frame, "tpot"),
        _quantiles("TTFT p50 / p99", "TTFT p50/p99", frame, "ttft"),
        _requests(frame),
        _cache(frame),
    )


_OVER = {"exited": "server ended", "stopped": "server stopped"}


def _no_engine(frame: "Frame | None") -> str:
    if frame is None:
        return "no server"
    if frame.server.state in _OVER:
        return _OVER[frame.server.state]
    if frame.scrape.state == "not yet":
        return "no metrics yet"
    return "metrics failing" if frame.scrape.state == "failing" else "not reported"


def _acceptance_length(frame: "Frame | None") -> Figure:
    label, short = "acceptance length", "acc length"
    sample = frame.speculation if frame else None
    if sample is None:
        return _absent(label, short, 17, 10, _no_engine(frame))
    lifetime = sample.lifetime_acceptance_length
    note = f"lifetime {lifetime:.2f}" if lifetime is not None else "lifetime n/a"
    if sample.acceptance_length is None:
        more = "" if lifetime is None else f", {note}"
        return _absent(label, short, 17, 10, clean(sample.absent or "no drafts"), more)
    return Figure(label, short, f"{sample.acceptance_length:.2f}", note, 17, 10)


def _draft_acceptance(frame: "Frame | None") -> Figure:
    label, short = "draft acceptance", "accepted"
    sample = frame.speculation if frame else None
    if frame is None or sample is None:
        return _absent(label, short, 16, 8, _no_engine(frame))
    if sample.draft_acceptance_rate is None:
        return _absent(label, short, 16, 8, clean(sample.absent or "no drafts"))
    note = f"{grouped(sample.drafts)} drafts"
    if frame.server.draft_tokens is not None:
        note = f"k={frame.server.draft_tokens}, {note}"
    value = f"{sample.draft_acceptance_rate * 100:.1f} %"
    return Figure(label, short, value, note, 16, 8, short_note=f"{grouped(sample.drafts)} drafts")


def _output(frame: "Frame | None") -> Figure:
    engine = frame.engine if frame else None
    if engine is None or engine.generation_tokens_per_s is None:
        return _absent("output", "output", 13, 11, _no_engine(frame))
    prompt = engine.prompt_tokens_per_s
    note = f"prompt {grouped(prompt)}/s" if prompt is not None else "prompt n/a"
    value = f"{grouped(engine.generation_tokens_per_s)} tok/s"
    return Figure("output", "output", value, note, 13, 11)


def _quantiles(label: str, short: str, frame: "Frame | None", which: str) -> Figure:
    latency = frame.latency if frame else None
    if latency is None:
        return _absent(label, short, 15, 13, _no_engine(frame))
    quantiles: Quantiles | None = latency.tpot if which == "tpot" else latency.ttft
    live = latency.live_tpot_ms
    if quantiles is None:
        if which == "tpot" and live is not None:
            note = f"live, none done in {latency.window_s:.0f} s"
            value = f"~{milliseconds(live)} ms"
            return Figure(label, short, value, note, 15, 13, short_note="live, none done")
        done = "finished" if which == "tpot" else "began"
        figure = _absent(label, short, 15, 13, f"none {done} in {latency.window_s:.0f} s")
        return replace(figure, short_note=f"none in {latency.window_s:.0f} s")
    note = f"{grouped(quantiles.count)} in {latency.window_s:.0f} s"
    if which == "tpot" and live is not None:
        note = f"live {milliseconds(live)} ms"
    low, high = _quantile(quantiles.p50), _quantile(quantiles.p99)
    value, short_value = f"{low} / {high} ms", f"{low}/{high} ms"
    return Figure(label, short, value, note, 15, 13, short_value=short_value)


def _quantile(quantile: "Quantile") -> str:
    return f"{'>' if quantile.beyond else ''}{milliseconds(quantile.value_ms)}"


def _requests(frame: "Frame | None") -> Figure:
    engine = frame.engine if frame else None
    if engine is None or (engine.running is None and engine.waiting is None):
        return _absent("requests", "run/wait", 13, 8, _no_engine(frame))
    running, waiting = _count(engine.running), _count(engine.waiting)
    finished = engine.requests_finished
    note = f"{grouped(finished)} finished" if finished is not None else "finished n/a"
    value, short_value = f"{running} run {waiting} wait", f"{running}/{waiting}"
    return Figure("requests", "run/wait", value, note, 13, 8, short_value=short_value)


def _count(value: int | None) -> str:
    return ABSENT if value is None else str(value)


def _cache(frame: "Frame | None") -> Figure:
    engine = frame.engine if frame else None
    if engine is None or engine.kv_cache_usage is None:
        wrong = engine.kv_cache_usage_absent if engine else None
        return _absent("KV cache", "KV", 8, 6, clean(wrong) if wrong else _no_engine(frame))
    usage = engine.kv_cache_usage
    note = ""
    if engine.prefix_cache_hit_rate is not None:
        note = f"hits {engine.prefix_cache_hit_rate * 100:.0f} %"
    if engine.kv_cache_usages:
        each = (ABSENT if one is None else f"{one * 100:.0f}" for one in engine.kv_cache_usages)
        note = f"engines {' '.join(each)}"
    if engine.preemptions:
        note = f"{grouped(engine.preemptions)} preempted"
    full = usage >= _CACHE_NEARLY_FULL
    short_note = f"{grouped(engine.preemptions)} out" if engine.preemptions else None
    value = f"{usage * 100:.1f} %" if 0 < usage < 0.1 else f"{usage * 100:.0f} %"
    tone: Tone = "warn" if full else "strong"
    shown = f"! {value}" if full else value
    return Figure("KV cache", "KV", shown, note, 8, 6, tone, short_note=short_note)


def server_state(
    frame: "Frame | None",
    glyphs: "Glyphs",
    *,
    wide: bool,
    whole: bool = True,
    timed: bool = True,
    coming: Line = (),
) -> Line:
    """The server in the top bar: glyph and word, where, drafter, time.

    ``wide`` has the drafter and the time, ``whole`` the host and the phase of a start, too. What is
    ``coming``, the start of another server, takes the place of drafter and time.
    """
    if frame is None:
        return coming or ((f"{glyphs.states['stopped']} no server", "muted"),)
    server = frame.server
    tone = _TONES[server.state]
    word = _state_word(server, phase=wide and whole)
    spans: list[Span] = [(f"{glyphs.states[server.state]} {word}", tone)]
    if frame.scrape.state == "failing" and server.state in ("serving", "degraded"):
        spans.append((f" {glyphs.states['warning']} metrics failing", "warn"))
    address = server.url.rsplit("/", 1)[-1]
    # A phase, or what is coming, is longer than drafter and time: then the port must do.
    roomy = wide and whole and not coming and server.state != "starting"
    spans.append((f"  {clean(address)}" if roomy else f" {_port(address)}", "text"))
    if coming:
        return (*spans, ("  ", "text"), *coming)
    if wide:
        if server.drafter:
            k = f" k={server.draft_tokens}" if server.draft_tokens is not None else ""
            spans.append((f"  {clean(server.drafter)}{k}", "text"))
        counted = _counted_time(frame) if timed else ""
        if counted:
            spans.append((f"  {counted}", "muted"))
    return tuple(spans)


def _counted_time(frame: "Frame") -> str:
    """How long the server is up, or for how long it is watched; a start has its phase instead."""
    if frame.server.state not in ("serving", "degraded"):
        return ""
    if frame.server.up_s is not None:
        return f"up {clock(frame.server.up_s)}"
    return f"watched {clock(frame.elapsed_s)}"


def _port(address: str) -> str:
    host, colon, port = clean(address).rpartition(":")
    return f":{port}" if colon and host else address


def _state_word(server: "ServerSample", *, phase: bool) -> str:
    if server.state == "starting":
        # The whole start's time: a phase's own stands on the board, beside its name.
        took_s = server.phase_s if server.up_s is None else server.up_s
        took = "" if took_s is None else f" {took_s:.0f} s"
        named = clean(server.phase) if phase and server.phase else ""
        return f"starting{took}" + (f", {named}" if named else "")
    if server.state == "exited" and server.exit_code is not None:
        return f"exited {server.exit_code}"
    return server.state


def trouble(frame: "Frame | None") -> tuple[str, str] | None:
    """What the reader must know above the charts, as (ink, text); ``None`` when all is well."""
    if frame is None:
        return None
    server, scrape = frame.server, frame.scrape
    detail = clean(server.detail or "")
    match server.state:
        case "exited":
            code = "" if server.exit_code is None else f" with code {server.exit_code}"
            return "bad", f"The server ended{code}" + (f": {detail}" if detail else "")
        case "unreachable":
            return "bad", f"Nothing answers at {clean(server.url)}" + (
                f": {detail}" if detail else ""
            )
        case "degraded":
            return "warn", "The server is degraded" + (f": {detail}" if detail else "")
        case "starting":
            phase = f", {clean(server.phase)}" if server.phase else ""
            took = f" {server.phase_s:.0f} s" if server.phase_s is not None else ""
            return "warn", f"Starting{phase}{took}" + (f": {detail}" if detail else "")
        case "stopped":
            return "muted", "The server is stopped" + (f": {detail}" if detail else "")
    if scrape.state == "failing":
        age = f" for {scrape.age_s:.0f} s" if scrape.age_s is not None else ""
        why = f": {clean(scrape.error)}" if scrape.error else ""
        return "warn", f"The server is up, but its metrics cannot be read{age}{why}"
    if scrape.error:
        return "warn", f"Some metrics are missing: {clean(scrape.error)}"
    if scrape.age_s is not None and scrape.age_s > _SCRAPE_STALE_S:
        return "warn", f"These numbers are {scrape.age_s:.0f} s old"
    if frame.speculation is not None and frame.speculation.note:
        return "muted", clean(frame.speculation.note)
    return None


def host_line(frame: "Frame | None", glyphs: "Glyphs", width: int) -> Line:
    """CPU and memory of the machine and of the server's processes; whole facts, as many as fit."""
    host = None if frame is None else frame.host
    if host is None:
        reason = "no server is watched" if frame is None else "not reported"
        return (("host ", "muted"), (f"{ABSENT} ({reason})", "muted"))
    parts: list[Line] = []
    if host.cpu_percent is not None:
        cores = f" of {host.cores} cores" if host.cores else ""
        parts.append((("cpu ", "muted"), (f"{host.cpu_percent:.0f} %", "strong"), (cores, "muted")))
    if host.memory_used_bytes is not None:
        total = host.memory_total_bytes
        of = f"/{gibibytes(total)}" if total else ""
        used = f"{gibibytes(host.memory_used_bytes)}{of} GiB"
        parts.append((("memory ", "muted"), (used, "strong")))
    server: list[Span] = []
    if host.server_cpu_percent is not None:
        server += [(f"{host.server_cpu_percent:.0f} %", "strong"), (" cpu ", "muted")]
    if host.server_memory_bytes is not None:
        server.append((f"{gibibytes(host.server_memory_bytes)} GiB", "strong"))
    if server:
        parts.append((("server ", "muted"), *server))
    while len(parts) > 1 and width_of(_joined(parts, glyphs)) > width:
        parts.pop()
    if not parts:
        return (("host ", "muted"), (f"{ABSENT} (this system does not tell)", "muted"))
    return _joined(parts, glyphs)


def traffic_line(traffic: "TrafficSample | None", glyphs: "Glyphs", bar_cells: int) -> Line:
    """How far the requests are that specpanel sends itself; empty when it sends none."""
    if traffic is None:
        return ()
    spans: list[Span] = [("traffic ", "muted")]
    done = traffic.finished + traffic.failed
    warmed = f"{traffic.warmups_done}/{traffic.warmups_planned} warm-ups"
    if traffic.warming_up:
        spans.append((f"{warmed} done", "strong"))
    elif traffic.planned:
        share = min(1.0, done / traffic.planned)
        steps = len(glyphs.bar)
        full, part = divmod(round(share * bar_cells * steps), steps)
        bar = glyphs.bar[-1] * full + (glyphs.bar[part - 1] if part else "")
        spans += [(bar, "gauge"), (glyphs.bar_track * (bar_cells - len(bar)), "grid")]
        spans.append((f" {done}/{traffic.planned}", "strong"))
    else:
        spans.append((f"{done} done", "strong"))
    spans.append((f" {glyphs.dot} {traffic.in_flight} in flight", "muted"))
    if done == 0 and traffic.warmups_done and not traffic.warming_up:
        spans.append((f" {glyphs.dot} after {traffic.warmups_done} warm-ups", "muted"))
    if traffic.failed:
        spans.append((f" {glyphs.dot} {glyphs.states['warning']} {traffic.failed} failed", "bad"))
    return tuple(spans)


def _joined(parts: Sequence[Line], glyphs: "Glyphs") -> Line:
    spans: list[Span] = []
    for part in parts:
        if spans:
            spans.append((f" {glyphs.dot} ", "grid"))
        spans += part
    return tuple(spans)
