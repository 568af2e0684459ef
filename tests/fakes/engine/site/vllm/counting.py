"""Counters and histograms with vLLM's names, and their text for ``/metrics``."""

import threading
import time
from collections.abc import Iterator

LATENCY_BUCKETS_S = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
_HISTOGRAMS = (
    "time_to_first_token_seconds",
    "inter_token_latency_seconds",
    "request_time_per_output_token_seconds",
    "e2e_request_latency_seconds",
)
_COUNTERS = (
    "num_preemptions",
    "prompt_tokens",
    "generation_tokens",
    "prefix_cache_queries",
    "prefix_cache_hits",
)
_SPECULATION = (
    "spec_decode_num_drafts",
    "spec_decode_num_draft_tokens",
    "spec_decode_num_accepted_tokens",
)
_NAMES_OF_0_9 = (
    ("kv_cache_usage_perc", "gpu_cache_usage_perc"),
    ("prefix_cache_", "gpu_prefix_cache_"),
    ("inter_token_latency_seconds", "time_per_output_token_seconds"),
)
_REASONS = ("stop", "length", "abort", "error", "repetition")


class Counters:
    """What the server has done since it started. Safe to use from several threads."""

    def __init__(self, model: str, draft_tokens: int, buckets: dict[str, list[float]]) -> None:
        self._lock = threading.Lock()
        self._model = model.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        self._draft_tokens = draft_tokens
        self._buckets = {name: tuple(buckets.get(_short(name), ())) for name in _HISTOGRAMS}
        self.start_over()

    def start_over(self) -> None:
        """As after a restart: everything at 0, with a new moment of creation."""
        with self._lock:
            self._created = time.time()
            self._counts = dict.fromkeys((*_COUNTERS, *_SPECULATION), 0)
            self._positions = [0] * self._draft_tokens
            self._finished = dict.fromkeys(_REASONS, 0)
            self._seen: dict[str, list[float]] = {name: [] for name in _HISTOGRAMS}
            self._running = 0

    def add(self, name: str, amount: int = 1) -> None:
        with self._lock:
            self._counts[name] += amount

    def began(self) -> None:
        with self._lock:
            self._running += 1

    def ended(self, reason: str) -> None:
        with self._lock:
            self._running -= 1
            self._finished[reason] += 1

    def drafted(self, accepted: int) -> None:
        """One step that offered all draft tokens and kept the first ``accepted``."""
        with self._lock:
            self._counts["spec_decode_num_drafts"] += 1
            self._counts["spec_decode_num_draft_tokens"] += self._draft_tokens
            self._counts["spec_decode_num_accepted_tokens"] += accepted
            for position in range(accepted):
                self._positions[position] += 1

    def observe(self, name: str, seconds: float) -> None:
        with self._lock:
            self._seen[name].append(seconds)

    def exposition(self, *, shrunk_by: int = 0, engines: int = 1, old_names: bool = False) -> str:
        """The text for ``/metrics``.

        Args:
            shrunk_by: what every counter has less than it counted, so that they run backwards.
            engines: several data-parallel engines, each with the same figures.
            old_names: as vLLM 0.9 called what has another name now.
        """
        with self._lock:
            lines = [line for engine in range(engines) for line in self._lines(engine, shrunk_by)]
        text = "".join(f"{line}\n" for line in lines)
        if old_names:
            for new, old in _NAMES_OF_0_9:
                text = text.replace(f"vllm:{new}", f"vllm:{old}")
        return text

    def _lines(self, engine: int, shrunk_by: int) -> Iterator[str]:
        labels = f'engine="{engine}",model_name="{self._model}"'
        yield "# HELP process_start_time_seconds Start time of the process since unix epoch."
        yield "# TYPE process_start_time_seconds gauge"
        yield f"process_start_time_seconds {self._created:.2f}"
        for name in _COUNTERS if not self._draft_tokens else (*_SPECULATION, *_COUNTERS):
            yield f"# TYPE vllm:{name}_total counter"
            yield f"vllm:{name}_total{{{labels}}} {float(max(0, self._counts[name] - shrunk_by))}"
            yield f"vllm:{name}_created{{{labels}}} {self._created!r}"
        for position, count in enumerate(self._positions):
            name = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
            yield f'{name}{{{labels},position="{position}"}} {float(count)}'
        for reason, count in self._finished.items():
            name = "vllm:request_success_total"
            yield f'{name}{{{labels},finished_reason="{reason}"}} {count}.0'
        yield f"vllm:num_requests_running{{{labels}}} {float(self._running)}"
        yield f"vllm:num_requests_waiting{{{labels}}} 0.0"
        yield f"vllm:kv_cache_usage_perc{{{labels}}} {0.01 * self._running}"
        for name, seen in self._seen.items():
            yield f"# TYPE vllm:{name} histogram"
            for bound in (*(self._buckets[name] or LATENCY_BUCKETS_S), float("inf")):
                edge = "+Inf" if bound == float("inf") else repr(float(bound))
                count = sum(value <= bound for value in seen)
                yield f'vllm:{name}_bucket{{{labels},le="{edge}"}} {count}.0'
            yield f"vllm:{name}_count{{{labels}}} {len(seen)}.0"
            yield f"vllm:{name}_sum{{{labels}}} {sum(seen)!r}"
            yield f"vllm:{name}_created{{{labels}}} {self._created!r}"


def _short(name: str) -> str:
    """The name that ``--custom-histogram-buckets`` uses."""
    return name.removesuffix("_seconds")
