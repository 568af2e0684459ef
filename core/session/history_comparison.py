"""Two past runs side by side, with a ratio where one can be told."""

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from specpanel.core.errors import RecordingError
from specpanel.core.monitor.frame import Interval
from specpanel.core.ordinary import lines_of
from specpanel.core.session.history import PastRun
from specpanel.core.session.history_figures import Figures, Value
from specpanel.core.session.switching import Change, differences
from specpanel.core.speculation.paired import PairedRatio, paired_ratio
from specpanel.core.traffic.records import RequestRecord

# What a row is called, its unit, and the field of Figures.
_ROWS = (
    ("acceptance length", "", "acceptance_length"),
    ("draft acceptance", "", "draft_acceptance_rate"),
    ("output", "tok/s", "tokens_per_s"),
    ("TPOT p50", "ms", "tpot_p50_ms"),
    ("TPOT p99", "ms", "tpot_p99_ms"),
    ("TTFT p50", "ms", "ttft_p50_ms"),
    ("TTFT p99", "ms", "ttft_p99_ms"),
)
SAME_PROMPTS = "TPOT, same prompts"


@dataclass(frozen=True, slots=True)
class Row:
    """One figure of both. ``ratio`` is B / A; it has an interval only where prompts were paired."""

    figure: str
    unit: str
    a: Value | None
    b: Value | None
    ratio: Value | None


@dataclass(frozen=True, slots=True)
class RunComparison:
    """``settings`` is None where one of the runs did not record its settings."""

    a: PastRun
    b: PastRun
    rows: tuple[Row, ...]
    settings: tuple[Change, ...] | None
    notes: tuple[str, ...]


def compare(a: PastRun, b: PastRun) -> RunComparison:
    """B against A. Reads the requests of both from their whole files.

    Raises:
        RecordingError: one of them is broken or cannot be read.
    """
    for run in (a, b):
        if run.ended == "broken":
            raise RecordingError(f"{run.id} cannot be compared: {run.why}")
    rows = [_row(label, unit, field, a.figures, b.figures) for label, unit, field in _ROWS]
    paired = paired_ratio(measured_requests(b.path), measured_requests(a.path))
    if paired.ratio is not None:
        rows.append(_paired_row(paired))
    settings = None
    if a.settings is not None and b.settings is not None:
        settings = differences(a.settings, b.settings)
    return RunComparison(a, b, tuple(rows), settings, tuple(_notes(a, b, paired)))


def _row(label: str, unit: str, field: str, a: Figures | None, b: Figures | None) -> Row:
    before: Value | None = getattr(a, field, None)
    after: Value | None = getattr(b, field, None)
    ratio = None
    comparable = a is not None and b is not None and a.whole_run == b.whole_run
    if comparable and before is not None and after is not None and before.value > 0:
        # A quantile that is only known to be large gives no ratio.
        ratio = None if before.beyond or after.beyond else Value(after.value / before.value)
    return Row(label, unit, before, after, ratio)


def _paired_row(paired: PairedRatio) -> Row:
    return Row(
        SAME_PROMPTS,
        "ms",
        _value(paired.tpot_without_ms, None),
        _value(paired.tpot_with_ms, None),
        _value(paired.ratio, paired.ratio_interval),
    )


def _value(value: float | None, interval: Interval | None) -> Value | None:
    if value is None:
        return None
    return Value(value) if interval is None else Value(value, interval.low, interval.high)


def _notes(a: PastRun, b: PastRun, paired: PairedRatio) -> Iterator[str]:
    for name, run in (("A", a), ("B", b)):
        if run.figures is None:
            yield f"{name} has no figures: {run.why or 'nothing was measured'}"
        elif not run.figures.whole_run:
            yield f"{name} has no summary: its figures are its last moments', not the whole run's"
    if a.figures and b.figures and a.figures.whole_run != b.figures.whole_run:
        yield "last moments against a whole run: no ratio is given"
    if paired.ratio is None:
        yield f"no ratio over the same prompts: {paired.note or 'no prompt was measured in both'}"
    else:
        pairs = f"{paired.pairs} {'prompt' if paired.pairs == 1 else 'prompts'} in both"
        yield f"{pairs}; {paired.note}" if paired.note else pairs
    if a.model != b.model:
        yield "the models differ"


def measured_requests(path: Path) -> list[RequestRecord]:
    """The requests of a recording's last leg; lines that cannot be read are left out.

    Raises:
        RecordingError: the file cannot be read.
    """
    adapter: TypeAdapter[Any] = TypeAdapter(RequestRecord)
    legs: dict[str, list[RequestRecord]] = {}
    for table in _request_lines(path):
        leg = str(table.pop("leg", ""))
        table["kind"] = table.pop("prompt_kind", "")
        with suppress(ValidationError):
            legs.setdefault(leg, []).append(adapter.validate_python(table))
    return legs.get("drafter") or next(iter(legs.values()), [])


def _request_lines(path: Path) -> Iterator[dict[str, Any]]:
    try:
        for text in lines_of(path):
            if b'"kind": "request"' not in text[:80]:
                continue
            with suppress(ValueError, RecursionError):
                found = json.loads(text)
                if isinstance(found, dict) and found.get("kind") == "request":
                    yield found
    except OSError as error:
        raise RecordingError(
            f"the recording {path} cannot be read: {error.strerror or error}"
        ) from error
