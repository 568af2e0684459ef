"""Public reports about launching vLLM with drafters and MLA: what the panel must make of each."""

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from specpanel.core.checkpoints.config import parse_config
from specpanel.core.checkpoints.weights import Weights
from specpanel.core.engine import identity
from specpanel.core.engine.chosen import ChosenReader, against, disagreements
from specpanel.core.engine.command import build_command, shell_text
from specpanel.core.engine.failures import Failure, diagnose
from specpanel.core.engine.interpreter_facts import InterpreterFacts
from specpanel.core.engine.logline import parse_line
from specpanel.core.monitor.frame import (
    EngineSample,
    Frame,
    Interval,
    ScrapeSample,
    ServerSample,
    Totals,
)
from specpanel.core.preflight.finding import Finding
from specpanel.core.preflight.rules import check
from specpanel.core.preflight.surroundings import (
    DeviceState,
    ModelState,
    PortState,
    Surroundings,
)
from specpanel.core.settings.drafters import canonical
from specpanel.core.settings.profile import Profile
from specpanel.core.speculation.paired import PairedRatio
from specpanel.core.speculation.pathologies import PathologyWatch
from specpanel.core.speculation.verdict import verdict

GIB = 1024**3
LOGS = Path(__file__).parents[1] / "data" / "logs"
TARGET: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 128256,
    "hidden_size": 8192,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
    "dtype": "bfloat16",
}
HEAD = TARGET | {"architectures": ["LlamaForCausalLMEagle3"], "num_hidden_layers": 1}
DEEPSEEK: dict[str, Any] = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "vocab_size": 129280,
    "hidden_size": 7168,
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "num_nextn_predict_layers": 1,
    "max_position_embeddings": 163840,
    "dtype": "bfloat16",
}
CUDA = InterpreterFacts(
    python="/venv/bin/python",
    python_version="3.11.7",
    distribution="vllm",
    vllm_version="0.32.0",
    platform="cuda",
    launcher="serve",
    console_script="/venv/bin/vllm",
    packages=frozenset({"vllm", "torch", "triton"}),
)
HOPPER = DeviceState("NVIDIA H100", 80 * GIB, 79 * GIB, (9, 0))


def model(values: dict[str, Any] | None = None, gib: float = 16.0) -> ModelState:
    folder = Path("/models/x")
    weights = Weights("safetensors", int(gib * GIB), 1)
    return ModelState(str(folder), "folder", parse_config(values or TARGET, folder), weights)


AROUND = Surroundings(
    interpreter=CUDA,
    platform="cuda",
    port=PortState(8230, free=True),
    target=model(),
    free_memory_bytes=79 * GIB,
    free_disk_bytes=500 * GIB,
    devices=(HOPPER,),
)


def profile(drafter: dict[str, Any] | None = None, **sections: dict[str, Any]) -> Profile:
    values: dict[str, Any] = {
        "target": {"model": "/models/x", "max_model_len": 2048},
        "engine": {"port": 8230},
        "drafter": drafter or {"method": "ngram", "k": 4},
    }
    for name, section in sections.items():
        values[name] = values.get(name, {}) | section
    return Profile.model_validate(values)


def eagle3(**more: Any) -> dict[str, Any]:
    return {"method": "eagle3", "model": "/models/head", "k": 3, **more}


def found(launch: Profile, around: Surroundings = AROUND) -> dict[str, Finding]:
    return {finding.code: finding for finding in check(launch, around)}


def diagnosed(text: str, exit_code: int | None = 1) -> Failure:
    failure = diagnose(text, exit_code)
    assert failure is not None
    return failure


def raised(exception: str, place: str = "v1/engine/core.py", process: str = "EngineCore") -> str:
    """A start that fails in an engine process, shaped as vLLM 0.32.0 writes it."""
    prefix = f"({process} pid=20) ERROR 11-30 11:00:00 [core.py:1510] "
    record = (
        "EngineCore failed to start.",
        "Traceback (most recent call last):",
        f'  File "/venv/vllm/{place}", line 1, in run',
        "    go()",
        exception,
    )
    return "\n".join(prefix + line for line in record) + "\n"


def frame(seconds: float, totals: Totals | None, **engine: Any) -> Frame:
    sample = {"running": 1, "waiting": 0, "requests_finished": 0, **engine}
    return Frame(
        time_unix=seconds,
        elapsed_s=seconds,
        epoch=0,
        server=ServerSample("serving", "x", "http://127.0.0.1:1", "m", "mtp", 1, *(None,) * 6),
        scrape=ScrapeSample("ok", 0.1, 1.0, None),
        engine=EngineSample(
            1, sample["running"], sample["waiting"], 0.2, None, None, 0, None,
            sample["requests_finished"],
        ),
        speculation=None,
        latency=None,
        totals=totals,
        host=None,
        traffic=None,
    )  # fmt: skip


# -- processes -------------------------------------------------------------------------------


@pytest.fixture
def orphan() -> Iterator[tuple[int, str, int]]:
    """A leader that was killed, and its child that lives on: pid, start mark, the child's pid."""
    script = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    leader = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, start_new_session=True
    )
    assert leader.stdout is not None
    child = int(leader.stdout.readline())
    mark = identity.start_mark(leader.pid)
    assert mark is not None
    leader.kill()
    leader.wait()
    leader.stdout.close()
    try:
        yield leader.pid, mark, child
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)


def test_d01_s15_what_a_killed_server_left_behind_is_found_by_its_session_and_nothing_else(orphan):
    pid, mark, child = orphan
    deadline = time.monotonic() + 60
    while identity.session_members(pid, mark) != [child] and time.monotonic() < deadline:
        os.sched_yield()
    assert identity.session_members(pid, mark) == [child]
    assert not identity.leader_lives(pid, mark)


def test_d01_s15_a_pid_that_somebody_else_has_now_is_never_touched():
    mine = os.getpid()
    assert identity.pid_was_reused(mine, "another-boot/1")
    assert identity.session_members(mine, "another-boot/1") == []


def test_d02_memory_that_others_hold_is_told_with_their_names_before_the_start():
    taken = replace(HOPPER, free_bytes=10 * GIB, holders=("VLLM::EngineCore (pid 911)",))
    around = replace(AROUND, devices=(taken,), free_memory_bytes=10 * GIB)
    text = " ".join(
        " ".join((finding.text, finding.fix, *finding.evidence))
        for finding in check(profile(), around)
    )
    assert "VLLM::EngineCore (pid 911)" in text


def test_d04_a_taken_port_is_found_before_the_start_and_a_free_one_is_offered():
    port = PortState(8230, free=False, owner_pid=7, owner_name="nginx", next_free=8231)
    finding = found(profile(), replace(AROUND, port=port))["port-taken"]
    assert finding.severity == "error"
    assert "8231" in finding.fix


def test_d04_a_clash_among_vllms_own_ports_is_not_taken_for_the_port_it_serves_on():
    serving = diagnosed(
        "Traceback (most recent call last):\n  File 'a'\nOSError: [Errno 98] Address already in use\n"
    )
    internal = diagnosed(
        raised(
            "torch.distributed.DistNetworkError: The server socket has failed to listen on any local "
            "network address. port: 29500, code: -98, name: EADDRINUSE, message: address already in use"
        )
    )
    assert (serving.code, serving.setting) == ("port-in-use", "engine.port")
    assert (internal.code, internal.setting) == ("internal-port-in-use", "engine.environment")


# -- the command -----------------------------------------------------------------------------


def test_d05_the_speculative_config_is_one_argument_of_whole_json():
    argv = build_command(profile({"method": "mtp", "k": 1}), CUDA).argv
    config = json.loads(argv[argv.index("--speculative-config") + 1])
    assert config == {"method": "mtp", "num_speculative_tokens": 1}


def test_d05_the_command_to_copy_survives_a_shell():
    command = build_command(profile(eagle3(model='/models/it\'s "odd"')), CUDA)
    words = shlex.split(shell_text(command).replace("\\\n", " "))
    config = json.loads(words[words.index("--speculative-config") + 1])
    assert config["model"] == '/models/it\'s "odd"'


def test_d05_a_second_speculative_config_by_hand_is_refused():
    with pytest.raises(ValidationError, match="has a setting of its own"):
        profile(engine={"arguments": ["--speculative-config", "{method: mtp}"]})


def test_d05_what_vllm_says_of_mangled_json_is_explained():
    failure = diagnosed((LOGS / "bad_json.txt").read_text(), 2)
    assert (failure.code, failure.setting) == ("bad-argument", "drafter.method")


def test_d07_both_lookup_lengths_are_always_written():
    config = profile({"method": "ngram", "prompt_lookup_max": 4}).drafter.speculative_config()
    assert config is not None
    assert (config["prompt_lookup_min"], config["prompt_lookup_max"]) == (2, 4)


@pytest.mark.parametrize(("low", "high", "code"), [(1, 4, "ngram-short"), (2, 500, "ngram-long")])
def test_d08_lookup_lengths_that_disappoint_are_warned_of(low, high, code):
    launch = profile({"method": "ngram", "prompt_lookup_min": low, "prompt_lookup_max": high})
    assert found(launch)[code].field in ("drafter.prompt_lookup_min", "drafter.prompt_lookup_max")


# -- drafter and target ----------------------------------------------------------------------


def test_d10_hidden_sizes_that_differ_are_an_error_before_the_start():
    around = replace(AROUND, drafter=model(HEAD | {"hidden_size": 4096}, 1.0))
    finding = found(profile(eagle3()), around)["hidden-size-mismatch"]
    assert finding.severity == "error"
    assert "4096" in finding.text
    assert "8192" in finding.text


def test_d10_hidden_sizes_that_differ_deep_in_the_load_are_called_so():
    failure = diagnosed(
        raised(
            "RuntimeError: mat1 and mat2 shapes cannot be multiplied (8x4096 and 12288x4096)",
            "v1/spec_decode/eagle.py",
            "Worker_TP0",
        )
    )
    assert (failure.code, failure.setting) == ("drafter-shapes", "drafter.model")


def test_d11_a_target_without_the_eagle3_interface_is_warned_of_and_classified():
    target = TARGET | {"architectures": ["NobodyKnowsForCausalLM"]}
    around = replace(AROUND, target=model(target), drafter=model(HEAD, 1.0))
    assert found(profile(eagle3()), around)["eagle3-target-unknown"].severity == "warning"
    failure = diagnosed(
        raised(
            "RuntimeError: Model does not support EAGLE3 interface but aux_hidden_state_outputs was "
            "requested"
        )
    )
    assert (failure.code, failure.setting) == ("eagle3-interface-missing", "drafter.method")


def test_d13_a_drafter_that_is_shorter_than_the_target_is_warned_of():
    around = replace(AROUND, drafter=model(HEAD | {"max_position_embeddings": 4096}, 1.0))
    launch = profile(eagle3(), target={"max_model_len": 100_000})
    finding = found(launch, around)["drafter-short"]
    assert "4096" in finding.text


def test_d13_acceptance_that_falls_to_nothing_while_drafts_go_on_blames_the_length_first():
    watch = PathologyWatch()
    watch.take(frame(0, Totals(0, 0, 0, (0,), 0, 0)))
    for step in range(1, 20):  # well, and from 1000 drafts on nothing
        drafts = step * 100
        accepted = min(drafts, 1000) * 7 // 10
        watch.take(
            frame(step, Totals(drafts, drafts, accepted, (accepted,), 0, drafts + accepted),
                  requests_finished=step)
        )  # fmt: skip
    fall = watch.found[0]
    assert fall.code == "sudden-fall"
    assert "longer than the drafter was made for" in fall.causes[0].text
    assert fall.causes[0].setting == "target.max_model_len"


def test_d14_a_head_of_2048_positions_suggests_the_length_that_works():
    around = replace(AROUND, drafter=model(HEAD | {"max_position_embeddings": 2048}, 1.0))
    finding = found(profile(eagle3(), target={"max_model_len": 8192}), around)["drafter-short"]
    assert "2048" in finding.fix
    assert dict(finding.mend).get("target.max_model_len") == 2048


def test_d16_speculation_over_pipeline_stages_is_refused_and_can_be_forced():
    launch = profile(
        {"method": "mtp", "k": 1}, engine={"arguments": ["--pipeline-parallel-size", "2"]}
    )
    finding = found(launch, replace(AROUND, devices=(HOPPER, HOPPER)))["pipeline-parallel"]
    assert finding.severity == "error"
    assert "--force" in finding.fix


@pytest.mark.parametrize("k", [4, 13])
def test_d17_more_draft_tokens_than_trained_layers_are_warned_of(k):
    around = replace(AROUND, target=model(DEEPSEEK))
    finding = found(profile({"method": "mtp", "k": k}), around)["k-above-mtp-layers"]
    assert finding.field == "drafter.k"
    assert str(k) in finding.text


def test_d19_speculation_that_costs_is_called_so_whatever_its_acceptance():
    slower = Interval(1.31, 1.2, 1.4)
    paired = PairedRatio(64, 0, 26.2, 20.0, 1.31, slower, 1.31, slower)
    said = verdict(paired, acceptance_length=2.2)
    assert said.word == "costs"


def test_d20_the_suffix_package_is_looked_for_where_vllm_runs():
    launch = profile({"method": "suffix"})
    assert found(launch)["suffix-package-missing"].severity == "error"
    there = replace(CUDA, packages=CUDA.packages | {"arctic-inference"})
    assert "suffix-package-missing" not in found(launch, replace(AROUND, interpreter=there))


# -- MLA -------------------------------------------------------------------------------------


def test_d22_a_block_size_that_the_mla_backend_does_not_take_is_refused():
    around = replace(AROUND, target=model(DEEPSEEK))
    launch = profile(mla={"attention_backend": "FLASHMLA", "block_size": 16})
    assert found(launch, around)["backend-block-size"].severity == "error"
    assert "--block-size" not in build_command(profile(), CUDA).argv


def test_d22_the_reshape_error_of_a_wrong_block_size_is_called_so():
    failure = diagnosed(
        raised(
            "RuntimeError: shape '[-1, 64, 1, 576]' is invalid for input of size 589824",
            "v1/attention/backends/mla/flashmla.py",
            "Worker",
        )
    )
    assert (failure.code, failure.setting) == ("block-size", "mla.block_size")


def test_d23_a_cache_type_that_vllm_dropped_stands_beside_the_one_wished():
    reader = ChosenReader()
    for line in (
        "(EngineCore pid=5) INFO 11-30 11:00:00 [core.py:133] Initializing a V1 LLM engine (v0.32.0) with "
        "config: model='x', speculative_config=None, dtype=torch.bfloat16, kv_cache_dtype=auto, seed=0",
        "(Worker pid=6) INFO 11-30 11:00:01 [cuda.py:507] Using TRITON_MLA attention backend out of "
        "potential backends: ['TRITON_MLA'].",
    ):
        reader.feed(parse_line(line.encode()))
    wished = profile(
        {"method": "none"}, mla={"kv_cache_dtype": "fp8", "attention_backend": "FLASHMLA"}
    )
    otherwise = disagreements(against(wished, reader.chosen))
    assert {choice.setting: (choice.wished, choice.chosen) for choice in otherwise} == {
        "mla.kv_cache_dtype": ("fp8", "auto (bfloat16)"),
        "mla.attention_backend": ("FLASHMLA", "TRITON_MLA"),
    }


def test_d25_an_illegal_access_is_no_lack_of_memory_and_shows_the_last_drafts():
    dump = (
        "(EngineCore pid=20) ERROR 11-30 11:00:00 [dump_input.py:79] Dumping scheduler output for model "
        "execution: SchedulerOutput(scheduled_new_reqs=[], num_scheduled_tokens={'a': 6}, "
        "total_num_scheduled_tokens=6, scheduled_spec_decode_tokens={'a': [-1, -1, -1, -1, -1]}, "
        "scheduled_encoder_inputs={})\n"
        "(EngineCore pid=20) ERROR 11-30 11:00:00 [dump_input.py:81] Dumping scheduler stats: "
        "SchedulerStats(num_running_reqs=12, kv_cache_usage=0.26)\n"
    )
    failure = diagnosed(
        dump
        + raised("torch.AcceleratorError: CUDA error: an illegal memory access was encountered"),
        0,
    )
    assert (failure.code, failure.setting) == ("illegal-access", "drafter.k")
    assert "not a lack of memory" in failure.sentence
    assert "all of them -1" in failure.evidence[0]
    assert failure.evidence[1] == "KV cache 26% full, 12 requests running"


def test_d26_a_quantised_target_with_a_plain_head_is_noted_and_its_missing_weight_classified():
    target = TARGET | {"quantization_config": {"quant_method": "fp8"}}
    around = replace(AROUND, target=model(target), drafter=model(HEAD, 1.0))
    assert found(profile(eagle3()), around)["quantised-target"].severity == "note"
    failure = diagnosed(
        raised(
            "KeyError: 'layers.0.mlp.gate_proj.weight_scale'",
            "model_executor/models/llama_eagle3.py",
            "Worker",
        )
    )
    assert (failure.code, failure.setting) == ("drafter-weights", "drafter.model")


# -- memory and the end ----------------------------------------------------------------------


def test_d28_memory_that_another_process_freed_meanwhile_means_wait_and_start_again():
    failure = diagnosed(
        raised(
            "AssertionError: Error in memory profiling. Initial free memory 80.10 GiB, current free "
            "memory 88.00 GiB. This happens when other processes free memory."
        )
    )
    assert failure.code == "memory-moved"
    assert "80.10 GiB free, then 88.00" in failure.sentence
    assert "Wait until the memory in use is steady" in failure.fix


def test_d29_the_length_that_fits_is_offered():
    failure = diagnosed(
        raised(
            "ValueError: To serve at least one request with the model's max seq len (262144), 24.00 GiB "
            "KV cache is needed, which is larger than the available KV cache memory (9.97 GiB). Based on "
            "the available memory, the estimated maximum model length is 40960."
        )
    )
    assert failure.suggested_max_model_len == 40960
    assert failure.setting == "target.max_model_len"


def test_d31_an_engine_that_is_well_and_does_nothing_is_called_stalled_after_a_minute():
    watch = PathologyWatch()
    stuck = Totals(100, 100, 70, (70,), 900, 4000)
    for second in range(60):
        watch.take(frame(second, stuck, running=0, waiting=3))
    assert "stalled" not in {one.code for one in watch.found}
    watch.take(frame(60, stuck, running=0, waiting=3))
    stalled = next(one for one in watch.found if one.code == "stalled")
    assert stalled.severity == "error"
    assert "0 requests running, 3 waiting" in stalled.evidence[0]
    watch.take(frame(61, replace(stuck, generation_tokens=4001), running=1, waiting=2))
    assert "stalled" not in {one.code for one in watch.found}


def test_d31_an_idle_server_is_not_stalled():
    watch = PathologyWatch()
    for second in range(0, 300, 5):
        watch.take(frame(second, Totals(1, 1, 1, (1,), 9, 9), running=0, waiting=0))
    assert watch.found == ()


def test_d32_exit_code_0_that_nobody_asked_for_is_a_failure():
    failure = diagnosed((LOGS / "synthetic_cpu.txt").read_text(), 0)
    assert failure.exit_code == 0
    assert failure.code == "synthetic-on-cpu"
    last = (
        "(EngineCore pid=5) ERROR 11-30 11:00:00 [core.py:1] EngineCore encountered a fatal error."
    )
    assert diagnose(last, 0) is not None


@pytest.mark.parametrize("name", ["deepseek_mtp", "qwen3_next_mtp", "glm4_moe_mtp"])
def test_d34_a_models_own_name_of_mtp_is_taken_and_written_as_vllm_wants_it(name):
    assert canonical(name) == "mtp"
    launch = profile({"method": name, "k": 1})
    config = launch.drafter.speculative_config()
    assert config is not None
    assert config["method"] == "mtp"
    assert found(launch, replace(AROUND, target=model(DEEPSEEK)))["method-renamed"]


def test_d35_norm_flags_that_an_older_vllm_ignores_are_warned_of():
    head = HEAD | {"norm_before_fc": True, "norm_output": True}
    around = replace(
        AROUND,
        drafter=model(head, 1.0),
        interpreter=replace(CUDA, vllm_version="0.18.0"),
    )
    finding = found(profile(eagle3()), around)["norm-flags"]
    assert "norm_before_fc" in " ".join((finding.text, *finding.evidence))


@pytest.mark.parametrize(
    ("exception", "code"),
    [
        (
            "huggingface_hub.errors.GatedRepoError: 401 Client Error. Cannot access gated repo for url "
            "https://huggingface.co/x/y/resolve/main/config.json?token=hf_AbCdEfGhIjKlMn.",
            "model-gated",
        ),
        (
            "OSError: We couldn't connect to 'https://huggingface.co' to load the files",
            "hub-offline",
        ),
        (
            "huggingface_hub.errors.RepositoryNotFoundError: 404 Client Error.",
            "model-not-found",
        ),
    ],
)
def test_d37_why_a_model_cannot_be_had_is_told_and_no_token_with_it(exception, code):
    failure = diagnosed(raised(exception))
    assert failure.code == code
    assert "hf_" not in repr(failure)


def test_d37_a_token_in_an_unknown_error_is_hidden_too():
    failure = diagnosed(raised("ZeroDivisionError: with hf_AbCdEfGhIjKlMn and Bearer abc.def"))
    assert failure.sentence == "ZeroDivisionError: with *** and Bearer ***"
    assert "hf_" not in repr(failure)


def test_d37_a_drafter_that_is_not_there_points_at_the_drafter():
    failure = diagnosed(
        raised(
            "huggingface_hub.errors.RepositoryNotFoundError: 404 Client Error.",
            "config/speculative.py",
            "APIServer",
        )
    )
    assert (failure.code, failure.setting) == ("model-not-found", "drafter.model")


def test_d38_the_process_that_died_first_is_named():
    line = (
        "(APIServer pid=1) ERROR 11-30 11:00:00 [utils.py:590] Exception occurred: "
        "Process RustFrontend (PID: 55) died with exit code 2"
    )
    failure = diagnosed(line, 2)
    assert (failure.process, failure.pid) == ("RustFrontend", 55)


# -- the shapes of S17 -----------------------------------------------------------------------

S17 = [
    (
        "ValueError: Free memory on device cuda:0 (31.44/47.38 GiB) on startup is less than desired GPU "
        "memory utilization (0.95, 45.01 GiB)",
        "memory-taken",
    ),
    (
        "ValueError: 24.00 GiB KV cache is needed, which is larger than the available KV cache memory "
        "(9.97 GiB) ... estimated maximum model length is 40960",
        "kv-cache-too-small",
    ),
    (
        "ValueError: No valid attention backend found for cuda with AttentionSelectorConfig(... "
        "use_mla=True ...). Reasons: {FLASHMLA: [kv_cache_dtype not supported], TRITON_MLA: [block_size "
        "not supported]}",
        "attention-backend",
    ),
    ("OSError: [Errno 98] error while attempting to bind: address already in use", "port-in-use"),
    ("RuntimeError: LlamaModel does not support EAGLE3 interface", "eagle3-interface-missing"),
    (
        "AssertionError: Error in memory profiling. Initial free memory 80.10 GiB, current free memory "
        "88.00 GiB",
        "memory-moved",
    ),
    ("ValueError: invalid literal for int() with base 10: 'MIG-1111'", "device-uuid"),
]


@pytest.mark.parametrize(("text", "code"), S17)
def test_s17_each_shape_has_one_short_cause_and_one_change(text, code):
    failure = diagnosed(raised(text))
    assert failure.code == code
    assert failure.fix
    assert len(failure.sentence) < 400


def test_s17_a_value_that_cannot_be_converted_names_its_setting():
    failure = diagnosed(
        "usage: api_server.py [-h]\napi_server.py: error: argument --speculative-config: Value {method: "
        "mtp} cannot be converted to <function loads at 0x7f>.\n",
        2,
    )
    assert (failure.code, failure.setting) == ("bad-argument", "drafter.method")


def test_s17_exit_code_0_with_a_fatal_engine_is_a_failure():
    text = (
        "(EngineCore pid=9) ERROR 11-30 11:00:00 [core.py:1] EngineCore encountered a fatal error."
    )
    assert diagnosed(text, 0).exit_code == 0
