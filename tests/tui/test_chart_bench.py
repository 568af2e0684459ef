"""The bench server: what it replays reads like vLLM, grows while busy, and stands still while quiet."""

import importlib.util
import time
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import pytest
from prometheus_client.parser import text_string_to_metric_families

SCRIPT = Path(__file__).parents[2] / "scripts" / "bench_server.py"


@pytest.fixture
def server() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_server", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def values(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith("vllm:")
    }


def test_counters_and_buckets_never_fall(
    server: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    exposition = server.Exposition(server.EXPOSITION.read_text())
    scrapes = []
    for second in range(120):
        now[0] = float(second)
        scrapes.append(values(exposition.text()))
    drafts = next(key for key in scrapes[0] if key[0] == "vllm:spec_decode_num_drafts_total")
    assert scrapes[-1][drafts] > scrapes[0][drafts] > 0
    for before, after in pairwise(scrapes):
        assert all(
            after[key] >= before[key]
            for key in before
            if key[0].endswith(("_total", "_bucket", "_count"))
        )
    exposition.set_busy(False)
    quiet = exposition.text()
    now[0] += 60
    assert exposition.text() == quiet
    exposition.set_busy(True)
    now[0] += 5
    assert values(exposition.text())[drafts] > values(quiet)[drafts]


def test_buckets_of_a_histogram_are_cumulative(server: ModuleType) -> None:
    text = server.Exposition(server.EXPOSITION.read_text()).text()
    buckets: dict[tuple[str, tuple[tuple[str, str], ...]], list[tuple[float, float]]] = {}
    for (name, labels), value in values(text).items():
        if name.endswith("_bucket"):
            bound = float(dict(labels)["le"])
            key = name, tuple(label for label in labels if label[0] != "le")
            buckets.setdefault(key, []).append((bound, value))
    assert buckets
    for found in buckets.values():
        counts = [count for _, count in sorted(found)]
        assert counts == sorted(counts)
