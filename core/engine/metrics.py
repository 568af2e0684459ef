"""vLLM's ``/metrics`` as records: text in, counters, gauges and histograms of every engine out. Pure.

Series are matched by the name of the sample, with or without ``_total``, because parsers disagree on
whether that suffix belongs to the family. Labels are read by prometheus_client's parser, never by hand.
A value that cannot be (NaN, a negative counter, a cache usage outside 0..1) is absent for this scrape.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from specpanel.core.engine.exposition import (
    SAMPLE_LIKE,
    Key,
    Place,
    Sample,
    refuse_truncated,
    samples_of,
    why_not_vllm,
)
from specpanel.core.engine.exposition import ExpositionError as ExpositionError
from specpanel.core.engine.families import COUNTERS, FAMILIES, HISTOGRAMS, SPECULATION
from specpanel.core.speculation.buckets import Buckets, merged


@dataclass(frozen=True, slots=True)
class EngineSeries:
    """What one engine exports, or all engines together; ``None`` is a family or value that is absent.

    Counters count since the engine started. ``accepted_by_position[0]`` belongs to the first draft
    token. ``created`` holds when each family's counters began, in Unix seconds, by figure. ``itl`` is
    the time between output events, each of which carries several tokens under speculation.
    """

    engine: str
    drafts: int | None = None
    draft_tokens: int | None = None
    accepted_tokens: int | None = None
    accepted_by_position: tuple[int, ...] | None = None
    prompt_tokens: int | None = None
    generation_tokens: int | None = None
    preemptions: int | None = None
    prefix_cache_queries: int | None = None
    prefix_cache_hits: int | None = None
    requests_finished: int | None = None
    running: int | None = None
    waiting: int | None = None
    kv_cache_usage: float | None = None
    kv_cache_usage_wrong: float | None = None  # what was exported instead of a share
    ttft: Buckets | None = None
    tpot: Buckets | None = None
    itl: Buckets | None = None
    end_to_end: Buckets | None = None
    created: Mapping[str, float] = field(default_factory=dict)

    def counters(self) -> dict[str, int]:
        """The counters that are present, by figure."""
        return {name: value for name in COUNTERS if (value := getattr(self, name)) is not None}

    def histograms(self) -> dict[str, Buckets]:
        """The histograms that are present, by figure."""
        return {name: value for name in HISTOGRAMS if (value := getattr(self, name)) is not None}


@dataclass(frozen=True, slots=True)
class EngineCounters:
    """One scrape: every engine, and all of them together (cache usage is the fullest engine's).

    ``speculates`` is whether the families of speculative decoding are there at all: vLLM registers
    them only with a drafter.
    """

    engines: tuple[EngineSeries, ...]
    total: EngineSeries
    models: tuple[str, ...]
    speculates: bool

    @property
    def draft_tokens_a_step(self) -> int | None:
        """K as far as the exported positions tell; ``None`` before the first or without a drafter."""
        positions = self.total.accepted_by_position
        return len(positions) if positions else None


@dataclass(frozen=True, slots=True)
class Exposition:
    """A metrics body that could be read. ``not_vllm`` says why it is no vLLM server's."""

    counters: EngineCounters
    not_vllm: str | None = None

    @property
    def is_vllm(self) -> bool:
        return self.not_vllm is None


def parse_exposition(text: str) -> Exposition:
    """Read a ``/metrics`` body in the Prometheus text format.

    Raises:
        ExpositionError: the body ends in the middle of a line, or a line that is needed is malformed.
    """
    return refuse_or_explain(text) or exposition_of(samples_of(text))


def refuse_or_explain(text: str) -> Exposition | None:
    """What a body is that is not vLLM's; None where it is.

    Raises:
        ExpositionError: the body ends in the middle of a line.
    """
    not_vllm = why_not_vllm(text)
    if not_vllm is None or SAMPLE_LIKE.match(text):
        refuse_truncated(text)
    return None if not_vllm is None else Exposition(_summarise({}, ()), not_vllm)


def exposition_of(samples: Iterable[Sample]) -> Exposition:
    """What the samples of a body add up to."""
    raw: dict[Key, _Raw] = {}
    models: dict[str, None] = {}
    for place, value in samples:
        if place.model is not None:
            models[place.model] = None
        one = raw.get(place.key)
        if one is None:
            one = raw[place.key] = _Raw()
        one.take(place, value)
    return Exposition(_summarise(raw, tuple(models)))


# --- what the samples of one figure of one engine add up to -----------------------------------------


@dataclass(slots=True)
class _Raw:
    """All samples of one figure of one engine. One bad sample makes the figure absent: half a sum would
    look like a counter that fell."""

    values: list[float] = field(default_factory=list)
    by_label: dict[float, int] = field(default_factory=dict)  # position or upper bound
    count: int | None = None
    sum_s: float | None = None
    created: float | None = None
    broken: bool = False

    def take(self, place: Place, sample: float) -> None:
        value, role, label = _finite(sample), place.role, place.label
        if role.part == "created":
            if value is not None:
                self.created = value if self.created is None else min(self.created, value)
        elif role.part == "sum":
            self.sum_s = None if value is None else (self.sum_s or 0.0) + value
        elif value is None or (role.kind != "gauge" and value < 0):
            self.broken = True
        elif role.part == "count":
            self.count = (self.count or 0) + round(value)
        elif label is not None:
            self.by_label[label] = self.by_label.get(label, 0) + round(value)
        else:
            self.values.append(value)

    def counter(self) -> int | None:
        return None if self.broken or not self.values else round(sum(self.values))

    def usage(self) -> float | None:
        good = [value for value in self.values if 0 <= value <= 1]
        return max(good, default=None)

    def wrong_usage(self) -> float | None:
        return next((value for value in self.values if not 0 <= value <= 1), None)

    def positions(self) -> tuple[int, ...] | None:
        if self.broken or 0 not in self.by_label:
            return None
        count = next(n for n in range(len(self.by_label) + 1) if n not in self.by_label)
        return tuple(self.by_label[position] for position in range(count))

    def buckets(self) -> Buckets | None:
        counts = dict(self.by_label)
        if self.count is not None:
            counts.setdefault(math.inf, self.count)
        if self.broken or math.inf not in counts:
            return None
        bounds = tuple(sorted(counts))
        try:
            return Buckets(bounds, tuple(counts[bound] for bound in bounds), self.sum_s)
        except ValueError:
            return None  # counts that fall from one bound to the next: corrupt, so absent


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _summarise(raw: Mapping[Key, _Raw], models: tuple[str, ...]) -> EngineCounters:
    newest: dict[str, int] = {}
    for key in raw:
        newest[key.figure] = min(key.rank, newest.get(key.figure, key.rank))
    figures: dict[str, dict[str, _Raw]] = {}
    for key, one in raw.items():
        if key.rank == newest[key.figure]:
            figures.setdefault(key.engine, {})[key.figure] = one
    engines = tuple(_series(name, figures[name]) for name in sorted(figures, key=_engine_order))
    return EngineCounters(
        engines=engines,
        total=total_of(engines),
        models=models,
        speculates=any(figure in newest for figure in SPECULATION),
    )


def _engine_order(name: str) -> tuple[bool, int, str]:
    number = name.isascii() and name.isdigit() and len(name) <= 9
    return not number, int(name) if number else 0, name


def _series(engine: str, raw: Mapping[str, _Raw]) -> EngineSeries:
    found: dict[str, object] = {}
    for family in FAMILIES:
        one = raw.get(family.figure)
        if one is None:
            continue
        if family.figure == "kv_cache_usage":
            found[family.figure] = one.usage()
            found["kv_cache_usage_wrong"] = one.wrong_usage()
        elif family.kind == "positions":
            found[family.figure] = one.positions()
        elif family.kind == "histogram":
            found[family.figure] = one.buckets()
        else:
            found[family.figure] = one.counter()
    created = {figure: one.created for figure, one in raw.items() if one.created is not None}
    return EngineSeries(engine=engine, created=created, **found)  # type: ignore[arg-type]


def total_of(engines: tuple[EngineSeries, ...]) -> EngineSeries:
    """All engines together: counts and gauges added up, of cache usage the fullest engine's."""
    found: dict[str, object] = {}
    for family in FAMILIES:
        values = [one for each in engines if (one := getattr(each, family.figure)) is not None]
        if not values:
            continue
        if family.figure == "kv_cache_usage":
            found[family.figure] = max(values)
        elif family.kind == "positions":
            longest = max(map(len, values))
            padded = (one + (0,) * (longest - len(one)) for one in values)
            found[family.figure] = tuple(map(sum, zip(*padded, strict=True)))
        elif family.kind == "histogram":
            found[family.figure] = merged(values)
        else:
            found[family.figure] = sum(values)
    wrong = (each.kv_cache_usage_wrong for each in engines)
    found["kv_cache_usage_wrong"] = next((one for one in wrong if one is not None), None)
    return EngineSeries(engine="all", **found)  # type: ignore[arg-type]
