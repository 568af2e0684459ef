"""From a profile to the exact command and environment. Pure: the same input gives the same command.

Flags were read from vLLM 0.32.0; what depends on the version stands in ``SINCE``.
"""

import json
import os
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from specpanel.core.devices.visibility import hip_environment
from specpanel.core.engine.api_key import key_in_environment
from specpanel.core.engine.interpreter_facts import InterpreterFacts, version_tuple
from specpanel.core.inside import INSIDE
from specpanel.core.settings.drafters.names import method_by_path, name_note
from specpanel.core.settings.profile import Profile

# The oldest vLLM in which a flag was seen to work; an older or unknown version gets none of them.
SINCE: dict[str, tuple[int, ...]] = {
    "--per-request-spec-decode-metrics": (0, 32),
    "--custom-histogram-buckets": (0, 32),
}

# vLLM's own smallest latency bucket is 10 ms, above what a GPU needs for a token.
LATENCY_BUCKETS_S: dict[str, tuple[float, ...]] = {
    "inter_token_latency": (
        *(0.001, 0.002, 0.003, 0.004, 0.005, 0.006, 0.008, 0.01, 0.0125, 0.015, 0.02, 0.025, 0.03),
        *(0.04, 0.05, 0.06, 0.08, 0.1, 0.125, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.75, 1.0, 1.5, 2.5),
        *(5.0, 10.0, 20.0, 40.0),
    ),
    "time_to_first_token": (
        *(0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08, 0.1, 0.125, 0.15, 0.2, 0.25, 0.3),
        *(0.4, 0.5, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0),
    ),
}

# Without these, OpenMP threads spin while they wait and starve each other on a small machine: measured
# ten times slower on two cores.
CPU_ENVIRONMENT: dict[str, str] = {
    "OMP_WAIT_POLICY": "PASSIVE",
    "GOMP_SPINCOUNT": "0",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
}
DEFAULT_CPU_KV_CACHE_GIB = 1

# Run inside vLLM's workers; its folder stands on their PYTHONPATH.
SWAP_EXTENSION = "drafter_reload.extension.DrafterReload"

_SECRET_MARKS = ("TOKEN", "KEY", "SECRET", "PASSWORD")
_SECRET_FLAG_ENDS = ("-key", "-token", "-secret", "-password")


@dataclass(frozen=True, slots=True)
class Command:
    """What is run: ``argv``, and the variables added to the inherited environment.

    ``notes`` say what was decided for the user and why, one sentence each.
    """

    argv: tuple[str, ...]
    environment: dict[str, str]
    notes: tuple[str, ...] = ()


def build_command(
    profile: Profile, facts: InterpreterFacts, inherited: Mapping[str, str] | None = None
) -> Command:
    """The command for ``profile`` on the interpreter described by ``facts``.

    Args:
        inherited: the environment that the child will inherit. A variable the user set there wins over
            our defaults; one in the profile wins over both.
    """
    notes = list(_drafter_notes(profile))
    arguments, key = key_in_environment(profile.engine.arguments)
    if key:
        notes.append(
            "the API key is handed over in VLLM_API_KEY: a command line can be read by all"
        )
    argv = [
        *_launcher(facts),
        *_section_flags(profile.target, {"model"}),
        *_section_flags(profile.engine, set()),
        *_cpu_flags(profile, facts, notes),
        *_section_flags(profile.mla, set()),
        *_attention_flags(profile),
        *_speculation_flags(profile, facts),
        *_swap_flags(profile, notes),
        *_histogram_flags(facts),
        *arguments,
    ]
    model = profile.target.model
    head = len(_launcher(facts))
    argv[head:head] = [model] if facts.launcher == "serve" else ["--model", model]
    return Command(tuple(argv), _environment(profile, facts, inherited or {}) | key, tuple(notes))


def shell_text(command: Command) -> str:
    """The command as one may paste it into a POSIX shell: environment first, everything quoted.

    Values that look like secrets are replaced by ``***``.
    """
    parts = [
        f"{shlex.quote(name)}={shlex.quote(redacted(name, value))}"
        for name, value in command.environment.items()
    ]
    lines: list[list[str]] = [["env", *parts]] if parts else []
    lines.extend(_flag_groups(redacted_argv(command.argv)))
    return " \\\n  ".join(" ".join(line) for line in lines)


def redacted(name: str, value: str) -> str:
    """``value``, or ``***`` where ``name`` says that it is a secret."""
    upper = name.upper().replace("TOKENIZER", "")  # TOKENIZERS_PARALLELISM is no secret
    return "***" if any(mark in upper for mark in _SECRET_MARKS) else value


def redacted_argv(argv: tuple[str, ...]) -> tuple[str, ...]:
    """``argv`` with the values of flags such as ``--api-key`` replaced by ``***``."""
    shown: list[str] = []
    hide = False
    for argument in argv:
        name, equals, _ = argument.partition("=")
        # vLLM takes --api_key for --api-key.
        flag = name.replace("_", "-").lower()
        secret = flag.startswith("--") and flag.endswith(_SECRET_FLAG_ENDS)
        if secret:
            shown.append(f"{name}=***" if equals else name)
        else:
            shown.append("***" if hide and not argument.startswith("--") else argument)
        hide = (secret and not equals) or (hide and not argument.startswith("--"))
    return tuple(shown)


def _launcher(facts: InterpreterFacts) -> list[str]:
    if facts.launcher == "serve" and facts.console_script:
        return [facts.console_script, "serve"]
    return [facts.python, "-m", "vllm.entrypoints.openai.api_server"]


def _section_flags(section: BaseModel, skip: set[str]) -> Iterator[str]:
    """Flags of every field that names one, from the section's own declarations."""
    for name, field in type(section).model_fields.items():
        extra = field.json_schema_extra
        flag = extra.get("flag") if isinstance(extra, dict) else None
        value = getattr(section, name)
        if not isinstance(flag, str) or name in skip or value is None or value is False:
            continue
        yield flag
        if value is not True:
            yield str(value)


def _cpu_flags(profile: Profile, facts: InterpreterFacts, notes: list[str]) -> Iterator[str]:
    if platform_of(profile, facts) != "cpu":
        return
    if profile.target.dtype is None:
        notes.append("CPU: --dtype float32, since bfloat16 is far slower without AVX-512 or AMX")
        yield from ("--dtype", "float32")
    if profile.engine.enforce_eager is None:
        notes.append("CPU: --enforce-eager, since compiling takes minutes and gains little here")
        yield "--enforce-eager"


def _attention_flags(profile: Profile) -> Iterator[str]:
    """What of the attention settings has no flag of its own."""
    if config := profile.mla.attention_config():
        yield from ("--attention-config", json.dumps(config))


def _speculation_flags(profile: Profile, facts: InterpreterFacts) -> Iterator[str]:
    config = profile.drafter.speculative_config()
    if config is None:
        return
    yield from ("--speculative-config", json.dumps(config))
    flag = "--per-request-spec-decode-metrics"
    if profile.engine.per_request_metrics and _has(flag, facts):
        yield from (flag, "detailed")


def _swap_flags(profile: Profile, notes: list[str]) -> Iterator[str]:
    """What replacing the drafter's weights in the running server needs."""
    if not is_swappable(profile):
        return
    notes.append(
        f"developer routes are open at {profile.engine.host}:{profile.engine.port}, so that the drafter "
        "can be replaced: every program on this machine may pause the server and run code in it"
    )
    yield from ("--worker-extension-cls", SWAP_EXTENSION)


def _swap_variables(profile: Profile, inherited: Mapping[str, str]) -> dict[str, str]:
    if not is_swappable(profile):
        return {}
    before = profile.engine.environment.get("PYTHONPATH", inherited.get("PYTHONPATH", ""))
    path = os.pathsep.join(part for part in (str(INSIDE), before) if part)
    return {"VLLM_SERVER_DEV_MODE": "1", "PYTHONPATH": path}


def is_swappable(profile: Profile) -> bool:
    """Whether the drafter's weights may be replaced while vLLM runs: asked for, and it has some."""
    return profile.engine.swappable and bool(getattr(profile.drafter, "model", None))


def _drafter_notes(profile: Profile) -> Iterator[str]:
    """What was read differently from how the profile writes it."""
    written = profile.drafter.written_as
    if written is not None and (note := name_note(written)):
        yield note
    config = profile.drafter.speculative_config() or {}
    with_weights = "model" in type(profile.drafter).model_fields
    path = config.get("model") or profile.target.model
    other = method_by_path(str(config.get("method")), path) if with_weights else None
    if other is not None:
        yield (
            f"vLLM finds {other} in the path {path} and will take the drafter for that, whatever the "
            "method says: give the folder another name"
        )


def _histogram_flags(facts: InterpreterFacts) -> Iterator[str]:
    flag = "--custom-histogram-buckets"
    if _has(flag, facts):
        buckets: dict[str, Any] = {name: list(edges) for name, edges in LATENCY_BUCKETS_S.items()}
        yield from (flag, json.dumps(buckets))


def _has(flag: str, facts: InterpreterFacts) -> bool:
    return version_tuple(facts.vllm_version) >= SINCE[flag]


def platform_of(profile: Profile, facts: InterpreterFacts) -> str:
    """What vLLM will run on: the profile's word, else the interpreter's."""
    return facts.platform if profile.engine.platform == "auto" else profile.engine.platform


def _environment(
    profile: Profile, facts: InterpreterFacts, inherited: Mapping[str, str]
) -> dict[str, str]:
    wanted = {"VLLM_NO_USAGE_STATS": "1", "NO_COLOR": "1", "PYTHONUNBUFFERED": "1"}
    # Else python -m takes modules from the folder that it is started in, and that may be a model's.
    wanted["PYTHONSAFEPATH"] = "1"
    platform = platform_of(profile, facts)
    if platform == "cpu":
        space = profile.engine.cpu_kv_cache_gib or DEFAULT_CPU_KV_CACHE_GIB
        wanted |= CPU_ENVIRONMENT | {"VLLM_CPU_KVCACHE_SPACE": str(space)}
    if platform == "cuda":
        # Else CUDA numbers the fastest device first and tools that list by bus show another one.
        wanted["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    if all(_is_path(model) for model in _models(profile)):
        wanted["HF_HUB_OFFLINE"] = "1"
    kept = {name: value for name, value in wanted.items() if name not in inherited}
    if profile.engine.cpu_kv_cache_gib is not None and platform == "cpu":
        kept["VLLM_CPU_KVCACHE_SPACE"] = str(profile.engine.cpu_kv_cache_gib)
    if platform == "rocm":
        kept |= hip_environment({**inherited, **profile.engine.environment})
    return (
        kept
        | profile.mla.variables()
        | profile.engine.environment
        | _swap_variables(profile, inherited)
    )


def _models(profile: Profile) -> list[str]:
    drafter = getattr(profile.drafter, "model", None)
    return [profile.target.model, *([drafter] if drafter else [])]


def _is_path(model: str) -> bool:
    return model.startswith(("/", "./", "../", "~"))


def _flag_groups(argv: tuple[str, ...]) -> Iterator[list[str]]:
    """The launcher on one line, then each flag with its values."""
    group: list[str] = []
    for index, argument in enumerate(argv):
        if argument.startswith("--") and index and group:
            yield group
            group = []
        group.append(shlex.quote(argument))
    if group:
        yield group
