"""The start of vLLM as phases: a real CPU log, and the texts that a GPU start writes."""

from pathlib import Path

import pytest

from specpanel.core.engine.logline import parse_line
from specpanel.core.engine.phases import Phase, PhaseTracker

LOGS = Path(__file__).parents[1] / "data" / "logs"


def replay(name: str) -> tuple[PhaseTracker, list[Phase]]:
    """Feed a recorded log, one second a line; the phases in the order in which they were entered."""
    tracker = PhaseTracker()
    changes = []
    for second, raw in enumerate((LOGS / name).read_bytes().split(b"\n"), start=1):
        if change := tracker.feed(parse_line(raw), second):
            changes.append(change.phase)
    return tracker, changes


def follow(*messages: str) -> tuple[PhaseTracker, list[Phase]]:
    tracker = PhaseTracker()
    entered = [tracker.feed(message, second) for second, message in enumerate(messages, start=1)]
    return tracker, [change.phase for change in entered if change]


def test_a_real_start_on_a_cpu_goes_through_the_phases_in_order():
    _, phases = replay("ngram_good.txt")
    assert phases == [
        Phase.CONFIG,
        Phase.ENGINE,
        Phase.WEIGHTS,
        Phase.DRAFTER,
        Phase.KV_CACHE,
        Phase.HTTP,
        Phase.READY,
    ]


def test_facts_are_collected_from_a_real_start():
    facts = replay("ngram_good.txt")[0].facts
    assert facts.vllm_version == "0.32.0"
    assert facts.architecture == "LlamaForCausalLM"
    assert facts.drafter_architecture is None
    assert facts.max_model_len == 1024
    assert facts.kv_cache_tokens == 23_296
    assert facts.kv_cache_dtype == "auto"
    assert facts.weights_s == pytest.approx(1.17)
    assert facts.drafter_weights_s is None
    assert facts.engine_init_s == pytest.approx(1.77)
    assert facts.compile_s is None
    assert facts.url == "http://127.0.0.1:8101"
    assert facts.attention_backend is None  # this version does not say it on a CPU


def test_a_start_without_a_drafter_skips_that_phase():
    assert Phase.DRAFTER not in replay("plain_stopped.txt")[1]


def test_a_start_that_dies_while_the_drafter_loads_stays_in_that_phase():
    tracker, _ = replay("eagle3_nonsense.txt")
    assert tracker.current is Phase.DRAFTER
    assert tracker.facts.drafter_architecture is not None


GPU_START = (
    "(APIServer pid=1) INFO 11-30 11:00:00 [api_utils.py:286] non-default args: {'model': 'm'}",
    "(APIServer pid=1) INFO 11-30 11:00:01 [model.py:733] Resolved architecture: Qwen3ForCausalLM",
    "(APIServer pid=1) INFO 11-30 11:00:01 [model.py:2152] Using max model len 40960",
    "(APIServer pid=1) INFO 11-30 11:00:02 [model.py:733] Resolved architecture: Eagle3Speculator",
    "(APIServer pid=1) INFO 11-30 11:00:02 [cache.py:354] Using fp8_e4m3 data type to store kv cache. "
    "It reduces the GPU memory footprint",
    "(EngineCore pid=2) INFO 11-30 11:00:09 [core.py:133] Initializing a V1 LLM engine (v0.32.0) with "
    "config: model='m', kv_cache_dtype=fp8_e4m3, seed=0",
    "(EngineCore pid=2) INFO 11-30 11:00:12 [gpu_model_runner.py:5040] Starting to load model m...",
    "(EngineCore pid=2) INFO 11-30 11:00:12 [cuda.py:506] Using FLASH_ATTN attention backend out of "
    "potential backends: ['FLASH_ATTN', 'FLASHINFER'].",
    "Loading safetensors checkpoint shards:  50% Completed | 1/2 [00:01<00:01,  1.0s/it]",
    "(EngineCore pid=2) INFO 11-30 11:00:15 [default_loader.py:501] Loading weights took 2.50 seconds",
    "(EngineCore pid=2) INFO 11-30 11:00:15 [gpu_model_runner.py:5071] Loading drafter model...",
    "(EngineCore pid=2) INFO 11-30 11:00:16 [default_loader.py:501] Loading weights took 0.40 seconds",
    "(EngineCore pid=2) INFO 11-30 11:00:20 [backends.py:1167] Dynamo bytecode transform time: 4.00 s",
    "(EngineCore pid=2) INFO 11-30 11:00:30 [backends.py:399] Compiling a graph for compile range "
    "(1, 2048) takes 9.50 s",
    "(EngineCore pid=2) INFO 11-30 11:00:31 [gpu_worker.py:760] Available KV cache memory: 60.10 GiB",
    "(EngineCore pid=2) INFO 11-30 11:00:31 [kv_cache_utils.py:2327] GPU KV cache size: 437,568 tokens, "
    "Maximum concurrency for 40,960 tokens per request: 10.68x",
    "Capturing CUDA graphs (mixed prefill-decode, PIECEWISE):  40%|████      | 20/51",
    "(EngineCore pid=2) INFO 11-30 11:00:36 [gpu_model_runner.py:6582] Graph capturing finished in "
    "5 secs, took 0.60 GiB",
    "(EngineCore pid=2) INFO 11-30 11:00:37 [core.py:394] init engine (profile, create kv cache, "
    "warmup model) took 20.50 s (compilation: 13.50 s)",
    "(APIServer pid=1) INFO 11-30 11:00:37 [entry.py:136] Supported tasks: ['generate']",
    "INFO:     Application startup complete.",
)


def test_a_compiled_start_on_a_gpu_goes_through_every_phase():
    tracker, phases = follow(*GPU_START)
    assert phases == [phase for phase in Phase if phase is not Phase.IMPORTS]
    facts = tracker.facts
    assert (facts.architecture, facts.drafter_architecture) == (
        "Qwen3ForCausalLM",
        "Eagle3Speculator",
    )
    assert (facts.weights_s, facts.drafter_weights_s) == (2.5, 0.4)
    assert (facts.attention_backend, facts.kv_cache_dtype) == ("FLASH_ATTN", "fp8_e4m3")
    assert (facts.engine_init_s, facts.compile_s) == (20.5, 13.5)
    assert facts.kv_cache_tokens == 437_568


def test_compilation_may_come_after_the_kv_cache_as_well():
    _, phases = follow(
        "Auto set (2.0/8.21) GiB for KV cache on node 0, with 4.0 GiB requested memory",
        "Warming up model for the compilation...",
        "Supported tasks: ['generate']",
    )
    assert phases == [Phase.KV_CACHE, Phase.COMPILE, Phase.HTTP]


def test_a_phase_that_was_left_is_not_entered_again():
    tracker, phases = follow(
        "Available KV cache memory: 60.10 GiB",
        "Warming up model for the compilation...",
        "GPU KV cache size: 437,568 tokens, Maximum concurrency for 1,024 tokens per request: 9x",
    )
    assert phases == [Phase.KV_CACHE, Phase.COMPILE]
    assert tracker.current is Phase.COMPILE
    assert tracker.facts.kv_cache_tokens == 437_568


def test_phases_never_go_back():
    tracker, phases = follow(*GPU_START, *GPU_START)
    assert len(phases) == len(set(phases))
    assert tracker.current is Phase.READY


def test_the_weights_of_the_drafter_do_not_reopen_the_weights():
    tracker, _ = follow(*GPU_START[:12])
    assert tracker.current is Phase.DRAFTER


def test_unknown_lines_change_nothing():
    tracker, phases = follow(*GPU_START[:6])
    before = (tracker.current, tracker.facts, tracker.detail)
    assert tracker.feed("[b + 3 ] Loading something that nobody knows: 50% \x1b[31m", 99) is None
    assert tracker.feed("", 100) is None
    assert (tracker.current, tracker.facts, tracker.detail) == before
    assert phases[-1] is Phase.ENGINE


def test_progress_within_a_phase_is_the_detail():
    tracker, _ = follow(*GPU_START[:9])
    assert tracker.detail == "1/2 files, 50 %"


def test_every_phase_says_how_long_it_took():
    tracker = PhaseTracker(started_s=100.0)
    tracker.feed("non-default args: {}", 103.0)
    change = tracker.feed("Starting to load model /m...", 110.0)
    assert change is not None
    assert (change.previous, change.previous_s) == (Phase.CONFIG, 7.0)
    spans = [(span.phase, span.seconds) for span in tracker.history]
    assert spans == [(Phase.IMPORTS, 3.0), (Phase.CONFIG, 7.0), (Phase.WEIGHTS, None)]
    assert tracker.elapsed_in_phase(112.5) == 2.5


def test_a_clock_that_steps_back_gives_no_negative_seconds():
    tracker = PhaseTracker(started_s=10.0)
    tracker.feed("non-default args: {}", 5.0)
    assert all(span.seconds is None or span.seconds >= 0 for span in tracker.history)
    assert tracker.elapsed_in_phase(4.0) == 0.0
