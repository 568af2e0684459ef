"""Why vLLM ended: logs that real starts left behind, and the texts of public reports."""

from pathlib import Path

import pytest

from specpanel.core.engine.failures import Failure, diagnose
from specpanel.core.engine.logline import parse_line

LOGS = Path(__file__).parents[1] / "data" / "logs"


def of_log(name: str, exit_code: int | None, requested_stop: bool = False) -> Failure | None:
    lines = [parse_line(raw) for raw in (LOGS / name).read_bytes().split(b"\n")]
    return diagnose(lines, exit_code, requested_stop)


def certain(failure: Failure | None) -> Failure:
    assert failure is not None
    return failure


# Each log is what vLLM 0.32.0 wrote on a CPU; the exit code is the one it left with.
REAL = [
    (
        "suffix_missing.txt",
        1,
        "suffix-package-missing",
        "Suffix decoding needs the package arctic-inference beside vLLM, and it is not there",
        "APIServer",
    ),
    (
        "len_too_large.txt",
        1,
        "max-model-len",
        "max_model_len 100000 is above what the model was made for (8192)",
        "APIServer",
    ),
    (
        "ngram_gpu_cpu.txt",
        1,
        "method-not-on-cpu",
        "The drafter ngram_gpu needs a GPU",
        "Worker",
    ),
    # The same, with --logging-config.formatter json.
    (
        "json_ngram_gpu.txt",
        1,
        "method-not-on-cpu",
        "The drafter ngram_gpu needs a GPU",
        "Worker",
    ),
    (
        "eagle3_nonsense.txt",
        1,
        "drafter-weights",
        "The drafter's checkpoint holds a tensor that its architecture has no place for (nonsense)",
        "Worker",
    ),
    (
        "module_missing.txt",
        1,
        "module-missing",
        "The Python module uvloop is missing from vLLM's environment",
        "APIServer",
    ),
    (
        "port_taken.txt",
        1,
        "port-in-use",
        "The port that vLLM wants to listen on is taken",
        "APIServer",
    ),
    (
        "bad_flag.txt",
        2,
        "bad-argument",
        "This vLLM does not know the arguments --specualtive-tokens",
        "APIServer",
    ),
    (
        "bad_json.txt",
        2,
        "bad-argument",
        "vLLM does not take --speculative-config/-sc: Value {method: mtp} cannot be converted",
        "APIServer",
    ),
    (
        "kv_too_small.txt",
        1,
        "kv-cache-too-small",
        "One request of full length needs 0.35 GiB of KV cache and there are 0.04 GiB",
        "EngineCore",
    ),
    (
        "no_model.txt",
        1,
        "model-not-found",
        "There is no such model: neither a folder with config.json nor a model of the hub",
        "APIServer",
    ),
    (
        "hub_offline.txt",
        1,
        "hub-offline",
        "The model is not on this machine and the hub cannot be reached",
        "APIServer",
    ),
    (
        "kill_start.txt",
        1,
        "process-died",
        "vLLM's process EngineCore died without a word",
        "EngineCore",
    ),
    (
        "dspark_cpu.txt",
        1,
        "runner",
        "vLLM's model runner V1, which this machine or setting chose, cannot do: dspark speculative "
        "decoding",
        "APIServer",
    ),
    (
        "adaptive_cpu.txt",
        1,
        "runner",
        "Adaptive verification needs vLLM's model runner V2, and this machine or setting has V1",
        "APIServer",
    ),
    (
        "dflash2_cpu.txt",
        1,
        "runner",
        "vLLM's model runner V1, which this machine or setting chose, cannot do: DFlash candidate-head "
        "drafts",
        "APIServer",
    ),
    (
        "runner_v2_no_triton.txt",
        1,
        "runner",
        "vLLM's model runner V2 needs Triton, which is not there",
        "APIServer",
    ),
    (
        "mtp_no_layers.txt",
        1,
        "mtp-not-in-checkpoint",
        "The target's checkpoint has no MTP layers that this vLLM knows",
        "APIServer",
    ),
    # It was ready, and died in the first step that sampled.
    (
        "synthetic_cpu.txt",
        0,
        "synthetic-on-cpu",
        "Forced (synthetic) acceptance does not run on a CPU",
        "Worker",
    ),
    # Killed while it served: vLLM's API server then left with exit code 0.
    (
        "kill_serving.txt",
        0,
        "process-died",
        "vLLM's process EngineCore died without a word",
        "EngineCore",
    ),
    (
        "plain_stopped.txt",
        0,
        "stopped-from-outside",
        "vLLM was told to stop, and not by specpanel",
        "APIServer",
    ),
]


@pytest.mark.parametrize(("name", "exit_code", "code", "sentence", "process"), REAL)
def test_the_cause_is_named_from_a_real_log(name, exit_code, code, sentence, process):
    failure = certain(of_log(name, exit_code))
    assert (failure.code, failure.sentence, failure.process) == (code, sentence, process)
    assert failure.fix
    assert failure.exit_code == exit_code


def test_the_length_that_would_work_is_offered():
    failure = certain(of_log("len_too_large.txt", 1))
    assert failure.suggested_max_model_len == 8192
    assert failure.fix == "Set max_model_len to 8192 or less."


def test_a_real_kv_cache_that_is_too_small_offers_the_length_that_fits():
    failure = certain(of_log("kv_too_small.txt", 1))
    assert failure.suggested_max_model_len == 896
    assert failure.fix.startswith("Set max_model_len to 896 or less")


def test_the_excerpt_is_the_first_processs_own_traceback():
    failure = certain(of_log("ngram_gpu_cpu.txt", 1))
    assert failure.pid == 7971
    assert failure.excerpt[0].startswith("Traceback")
    assert failure.excerpt[-1].startswith("RuntimeError: pin_memory=True requires")
    assert not any("wait_for_engine_startup" in line for line in failure.excerpt)


def test_the_pid_of_a_process_that_died_silently_is_found():
    assert certain(of_log("kill_start.txt", 1)).pid == 10150


@pytest.mark.parametrize("exit_code", [0, -15, 143, 1, None])
def test_a_stop_that_was_asked_for_is_no_failure(exit_code):
    assert of_log("plain_stopped.txt", exit_code, requested_stop=True) is None


def test_a_server_that_runs_has_not_failed():
    assert of_log("ngram_good.txt", None) is None


def test_a_server_whose_engine_died_has_failed_though_it_still_runs():
    assert certain(of_log("kill_serving.txt", None)).process == "EngineCore"


def test_an_end_with_exit_code_0_that_nobody_asked_for_is_a_failure():
    failure = certain(of_log("ngram_good.txt", 0))
    assert failure.code == "ended"
    assert "exit code 0, though nobody asked it to" in failure.sentence


@pytest.mark.parametrize(
    ("exit_code", "name"), [(-9, "SIGKILL"), (137, "SIGKILL"), (-11, "SIGSEGV"), (-6, "SIGABRT")]
)
def test_a_signal_is_named(exit_code, name):
    failure = certain(of_log("ngram_good.txt", exit_code))
    assert failure.sentence == f"vLLM was ended by {name}"
    assert ("out of memory" in failure.fix) is (name == "SIGKILL")


def test_an_empty_log_still_gives_a_sentence():
    failure = certain(diagnose("", 1))
    assert failure.sentence
    assert failure.fix == "Its log is empty."


def engine_error(exception: str) -> str:
    """A start that fails in EngineCore, shaped as vLLM 0.32.0 writes it."""
    prefix = "(EngineCore pid=20) ERROR 11-30 11:00:00 [core.py:1510] "
    record = [
        "EngineCore failed to start.",
        "Traceback (most recent call last):",
        '  File "/venv/vllm/v1/engine/core.py", line 1, in run',
        "    engine_core = EngineCoreProc(*args)",
        exception,
    ]
    return "\n".join(prefix + line for line in record) + (
        "\nTraceback (most recent call last):\n"
        '  File "/venv/vllm/v1/engine/utils.py", line 2, in wait_for_engine_startup\n'
        "    raise RuntimeError(\n"
        "RuntimeError: Engine core initialization failed. See root cause above. "
        "Failed core proc(s): {'EngineCore': 1}\n"
    )


KNOWN = [
    (
        "ValueError: Free memory on device cuda:0 (31.44/47.38 GiB) on startup is less than desired GPU "
        "memory utilization (0.95, 45.01 GiB). Decrease GPU memory utilization.",
        "memory-taken",
        "Only 31.44 of 47.38 GiB are free on cuda:0, and gpu_memory_utilization 0.95 asks for 45.01 GiB",
    ),
    (
        "ValueError: No valid attention backend found for cuda with AttentionSelectorConfig("
        "head_size=576, use_mla=True). Reasons: {FLASHMLA: [kv_cache_dtype not supported], "
        "TRITON_MLA: [block_size not supported]}.",
        "attention-backend",
        "No attention backend fits these settings on cuda: {FLASHMLA: [kv_cache_dtype not supported], "
        "TRITON_MLA: [block_size not supported]}",
    ),
    (
        "ValueError: Selected backend FLASHMLA is not valid for this configuration. Reason: "
        "['compute capability not supported']",
        "attention-backend",
        "The attention backend FLASHMLA cannot do this: ['compute capability not supported']",
    ),
    (
        "RuntimeError: Model does not support EAGLE3 interface but aux_hidden_state_outputs was "
        "requested",
        "eagle3-interface-missing",
        "vLLM's class for this target does not hand out the hidden states that EAGLE-3 drafters need",
    ),
    (
        "AssertionError: Error in memory profiling. Initial free memory 80.10 GiB, current free memory "
        "88.00 GiB.",
        "memory-moved",
        "Another process freed device memory while vLLM was measuring it (80.10 GiB free, then 88.00)",
    ),
    (
        "RuntimeError: Insufficient space in /dev/shm for shared-memory allocation: 160 MiB required, "
        "0 MiB free. Increase /dev/shm (e.g. --shm-size or --ipc=host).",
        "shared-memory-full",
        "/dev/shm has 0 MiB free, and vLLM's processes need 160 MiB of it to talk to each other",
    ),
    (
        "ValueError: invalid literal for int() with base 10: 'MIG-1111'",
        "device-uuid",
        "This vLLM reads device numbers only, and CUDA_VISIBLE_DEVICES names MIG-1111",
    ),
    (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        "out-of-memory",
        "The memory does not hold weights, KV cache and one step together",
    ),
    (
        "ValueError: Model Runner V1 does not support: dspark speculative decoding",
        "runner",
        "vLLM's model runner V1, which this machine or setting chose, cannot do: dspark speculative "
        "decoding",
    ),
    (
        "ValueError: Target and draft model should have the same vocabulary size. Target model "
        "vocab_size=152064. Draft model vocab_size=151936. Using models with different tokenizers.",
        "vocabulary-mismatch",
        "The draft model's vocabulary (151936) is not the target's (152064)",
    ),
    (
        "NotImplementedError: Sparse Attention is not supported on CPU.",
        "sparse-attention-on-cpu",
        "Models with sparse attention do not run on a CPU",
    ),
    (
        "huggingface_hub.errors.GatedRepoError: 401 Client Error. Cannot access gated repo for url x.",
        "model-gated",
        "The hub gives this model to signed-in users only",
    ),
    (
        "ValueError: num_speculative_tokens:5 must be divisible by n_predict=2",
        "draft-tokens",
        "K must be a multiple of the checkpoint's 2 draft layers",
    ),
    (
        "torch.AcceleratorError: CUDA error: an illegal memory access was encountered",
        "illegal-access",
        "A kernel read or wrote outside its memory (this is not a lack of memory)",
    ),
]


@pytest.mark.parametrize(("exception", "code", "sentence"), KNOWN)
def test_a_known_text_becomes_a_sentence(exception, code, sentence):
    failure = certain(diagnose(engine_error(exception), 1))
    assert (failure.code, failure.sentence) == (code, sentence)
    assert failure.fix
    assert failure.exception == exception


@pytest.mark.parametrize(
    ("exception", "length"),
    [
        (
            "ValueError: To serve at least one request with the model's max seq len (262144), "
            "(24.00 GiB KV cache is needed, which is larger than the available KV cache memory "
            "(9.97 GiB). Based on the available memory, the estimated maximum model length is 40960. Try",
            40960,
        ),
        (
            "ValueError: To serve at least one request with the model's max seq len (262144), "
            "(24.00 GiB KV cache is needed, which is larger than the available KV cache memory "
            "(9.97 GiB). Try increasing `gpu_memory_utilization`",
            None,
        ),
        (
            "ValueError: The model's max seq len (32768) is larger than the maximum number of tokens "
            "that can be stored in KV cache (20912). Try",
            20912,
        ),
    ],
)
def test_a_kv_cache_that_is_too_small_offers_the_length_that_fits(exception, length):
    failure = certain(diagnose(engine_error(exception), 1))
    assert failure.code == "kv-cache-too-small"
    assert failure.suggested_max_model_len == length
    if length:
        assert str(length) in failure.fix


def test_of_an_unknown_exception_its_own_words_are_shown():
    failure = certain(diagnose(engine_error("ZeroDivisionError: division by zero"), 1))
    assert (failure.code, failure.sentence) == (
        "unknown-error",
        "ZeroDivisionError: division by zero",
    )


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (
            "api_server.py: error: argument --speculative-config: Value {method: mtp} cannot be "
            "converted to <function loads at 0x7f6318d8eb60>.",
            "vLLM does not take --speculative-config: Value {method: mtp} cannot be converted",
        ),
        (
            "vllm serve: error: argument --port/-p: invalid int value: 'eighty'",
            "vLLM does not take --port/-p: invalid int value: 'eighty'",
        ),
        (
            "api_server.py: error: unrecognized arguments: --specualtive-tokens 3",
            "This vLLM does not know the arguments --specualtive-tokens 3",
        ),
    ],
)
def test_a_usage_error_names_the_argument(line, sentence):
    failure = certain(diagnose(f"usage: api_server.py [-h]\n{line}\n", 2))
    assert (failure.code, failure.sentence, failure.exit_code) == ("bad-argument", sentence, 2)


def test_a_port_that_is_taken_is_named():
    text = (
        "Traceback (most recent call last):\n"
        '  File "/venv/vllm/entry.py", line 1, in create_server_socket\n'
        "    sock.bind(addr)\n"
        "OSError: [Errno 98] Address already in use\n"
    )
    assert certain(diagnose(text, 1)).code == "port-in-use"


def test_a_settings_error_is_told_in_vllms_words():
    text = (
        "Traceback (most recent call last):\n"
        '  File "/venv/pydantic/dataclasses.py", line 1, in __init__\n'
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for CacheConfig\n"
        "block_size\n"
        "  Value error, block_size must be a power of two [type=value_error, input_value=3]\n"
        "    For further information visit https://errors.pydantic.dev\n"
    )
    failure = certain(diagnose(text, 1))
    assert failure.code == "bad-setting"
    assert (
        failure.sentence
        == "vLLM refuses the settings (CacheConfig): block_size must be a power of two"
    )


def test_exit_code_0_after_a_fatal_error_of_the_engine_is_a_failure():
    prefix = "(EngineCore pid=20) ERROR 11-30 11:00:00 [core.py:2663] "
    text = "\n".join(
        prefix + line
        for line in (
            "EngineCore encountered a fatal error.",
            "Traceback (most recent call last):",
            '  File "/venv/vllm/v1/engine/core.py", line 1, in step',
            "AssertionError: Synthetic acceptance not supported with CPU sampling",
        )
    )
    failure = certain(diagnose(text, 0))
    assert (failure.code, failure.process, failure.exit_code) == (
        "synthetic-on-cpu",
        "EngineCore",
        0,
    )


@pytest.mark.parametrize(
    ("line", "process", "sentence"),
    [
        (
            "(EngineCore pid=20) ERROR 11-30 11:00:00 [multiproc_executor.py:316] Worker proc "
            "VllmWorker-1 died unexpectedly (exit code: -9), shutting down executor.",
            "VllmWorker-1",
            "vLLM's process VllmWorker-1 was ended by SIGKILL",
        ),
        (
            "(APIServer pid=1) ERROR 11-30 11:00:00 [utils.py:590] Exception occurred: "
            "Process RustFrontend (PID: 55) died with exit code 2",
            "RustFrontend",
            "vLLM's process RustFrontend ended with exit code 2",
        ),
        (
            "RuntimeError: Engine core initialization failed. See root cause above. "
            "Failed core proc(s): {'EngineCore': -9}",
            "EngineCore",
            "vLLM's process EngineCore was ended by SIGKILL",
        ),
    ],
)
def test_the_process_that_died_first_is_named(line, process, sentence):
    failure = certain(diagnose(line, 1))
    assert (failure.process, failure.sentence) == (process, sentence)


def test_a_worker_that_was_killed_explains_the_engines_traceback_after_it():
    killed = (
        "(EngineCore pid=20) ERROR 11-30 11:00:00 [multiproc_executor.py:316] Worker proc "
        "VllmWorker-0 died unexpectedly (exit code: -9), shutting down executor.\n"
    )
    failure = certain(diagnose(killed + engine_error("RuntimeError: queue is broken"), 1))
    assert (failure.code, failure.process) == ("killed", "VllmWorker-0")


def test_an_error_of_one_request_does_not_explain_a_kill():
    prefix = "(APIServer pid=1) ERROR 11-30 11:00:00 [serving.py:9] "
    text = "\n".join(
        prefix + line
        for line in (
            "Error in preprocessing",
            "Traceback (most recent call last):",
            "KeyError: 'x'",
        )
    )
    assert certain(diagnose(text, -9)).code == "killed"


def test_what_ended_the_server_counts_more_than_an_earlier_error_of_one_request():
    prefix = "(APIServer pid=1) ERROR 11-30 11:00:00 [serving.py:9] "
    request = "\n".join(
        prefix + line
        for line in ("Traceback (most recent call last):", "  File 'a'", "KeyError: 'x'")
    )
    fatal = "\nTraceback (most recent call last):\n  File 'b'\nZeroDivisionError: y\n"
    assert certain(diagnose(request + fatal, 1)).sentence == "ZeroDivisionError: y"


def test_an_interrupt_that_nobody_here_sent_is_told_as_one():
    text = "Traceback (most recent call last):\n  File 'a'\nKeyboardInterrupt: terminated\n"
    assert certain(diagnose(text, 1)).code == "stopped-from-outside"


def test_a_long_exception_is_cut_in_the_sentence():
    failure = certain(diagnose(engine_error("ValueError: " + "no " * 500), 1))
    assert len(failure.sentence) <= 400
