"""A recipe in a few rows, and which devices serve, extract and train. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

from specpanel.app.tui.train_words import Fact, share, short_target
from specpanel.core.training.line_values import number

_VISIBLE = "CUDA_VISIBLE_DEVICES"


def plan_facts(
    recipe: Mapping[str, Any], *, free: float | None = None, folder: str = ""
) -> Iterator[Fact]:
    """The rows. ``free`` is the free share of the place where hidden states are handed over."""
    algorithm, data, extraction, trainer, engine = (
        _section(recipe, name) for name in ("algorithm", "data", "extraction", "trainer", "engine")
    )
    target = _section(recipe, "target").get("model")
    yield Fact("target", short_target(str(target)) if target else "not named yet", "strong")
    yield Fact("algorithm", _algorithm(algorithm))
    yield Fact("data", f"{_shown(data, 'source')}, answers: {_shown(data, 'answers')}")
    yield Fact("steps", f"{_shown(trainer, 'steps')} of {_shown(trainer, 'total_seq_len')} tokens")
    mode = str(extraction.get("mode") or "online")
    backend = str(extraction.get("backend") or "file")
    handing = f"{mode}, {backend}"
    if free is not None:
        handing += f"; its folder is {share(1 - free)} used"
    least = number(extraction.get("free_share"))
    near = free is not None and free < max(0.1, 2 * (least or 0.0))
    yield Fact("states", handing, "warn" if near else "text")
    yield from _devices(engine, trainer, mode)
    if folder:
        yield Fact("folder", folder, "muted")


def _devices(engine: Mapping[str, Any], trainer: Mapping[str, Any], mode: str) -> Iterator[Fact]:
    """Which GPUs are given to whom, as the recipe says."""
    environment = _section(engine, "environment")
    serving = environment.get(_VISIBLE)
    if engine.get("platform") == "cpu" or engine.get("cpu_kv_cache_gib") is not None:
        threads = trainer.get("threads")
        yield Fact("serve", "on the CPU: answers, then hidden states")
        yield Fact("train", f"on the CPU, {threads or 'all'} threads")
        return
    yield Fact("serve", f"on GPU {serving}" if serving else "on every GPU that vLLM sees")
    devices, processes = trainer.get("devices"), trainer.get("processes") or 1
    many = f", {processes} processes" if processes != 1 else ""
    sharded = ", FSDP" if trainer.get("fsdp") else ""
    where = f"on GPU {devices}" if devices else "on every GPU that torch sees"
    shared = mode == "online" and (
        not devices or not serving or bool(_ids(devices) & _ids(serving))
    )
    told = "; shares them with the server" if shared else ""
    yield Fact("train", f"{where}{many}{sharded}{told}", "warn" if shared else "text")


def _ids(text: Any) -> set[str]:
    return set(str(text).split(",")) - {""}


def _algorithm(table: Mapping[str, Any]) -> str:
    parts = [str(table.get("type") or "eagle3")]
    for name, word in (
        ("ttt_steps", "K={}"),
        ("num_depths", "K={}"),
        ("block_size", "block {}"),
        ("num_layers", "{} layers"),
        ("draft_vocab_size", "{} draft tokens"),
    ):
        value = table.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            text = word.format(value)
            parts.append("1 layer" if text == "1 layers" else text)
    return ", ".join(parts)


def _section(table: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = table.get(name)
    return found if isinstance(found, Mapping) else {}


def _shown(table: Mapping[str, Any], name: str) -> str:
    value = table.get(name)
    return "as preset" if value is None else str(value)
