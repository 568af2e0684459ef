"""Rules about the method: does it run on this platform and with this model runner. Pure.

They judge the object that vLLM gets as ``--speculative-config``, so a drafter that comes later needs no
rule of its own. Read from vLLM 0.32.0: ``config/speculative.py``, ``config/vllm.py``,
``v1/worker/gpu_model_runner.py``, ``utils/cpu_triton_utils.py``.
"""

from collections.abc import Iterator
from typing import Any

from specpanel.core.preflight.arguments import (
    argument,
    pipeline_parallel_size,
)
from specpanel.core.preflight.rule import Remark, Rule, rule
from specpanel.core.preflight.runner import SWITCH, has_triton, not_on_v1, not_on_v2, runner_of
from specpanel.core.preflight.surroundings import Surroundings
from specpanel.core.settings.drafters.table import FACTS, Cell
from specpanel.core.settings.profile import Profile

SUFFIX_PACKAGE = "arctic-inference"
SUFFIX_VERSION = "0.1.1"
NOT_IMPLEMENTED: frozenset[str] = frozenset({"mlp_speculator"})


def _spec(profile: Profile) -> dict[str, Any]:
    return profile.drafter.speculative_config() or {}


def _cell(profile: Profile, around: Surroundings) -> Cell | None:
    """What the table of drafters says of this method on this platform; None where it says nothing."""
    facts = FACTS.get(profile.drafter.method)
    if facts is None:
        return None
    return {"cuda": facts.cuda, "rocm": facts.rocm, "cpu": facts.cpu}.get(around.platform)


@rule(
    "method-not-here",
    "error",
    "The drafting method does not run on this platform.",
    "Use another one; specpanel drafters lists which run where.",
)
def method_runs_here(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    cell = _cell(profile, around)
    if cell is None or cell.support != "no":
        return
    other = "ngram" if profile.drafter.method == "ngram_gpu" else None
    where = {"cpu": "a CPU", "cuda": "CUDA", "rocm": "ROCm"}[around.platform]
    yield Remark(
        f"the drafter {profile.drafter.method} does not run on {where}: {cell.note}",
        f"Use the drafter {other}." if other else "specpanel drafters lists those that do.",
        "drafter.method",
        (f"platform {around.platform}",),
        (("drafter.method", other),) if other else (),
    )


@rule(
    "method-caveat",
    "note",
    "The drafting method runs on this platform with a restriction.",
    "See that the restriction does not concern you.",
)
def method_runs_wholly(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    cell = _cell(profile, around)
    if around.platform != "rocm" and around.drafter and around.drafter.config:
        return  # what restricts it elsewhere is the drafter's geometry, which was judged
    if cell is not None and cell.support in ("part", "unknown") and cell.note:
        yield Remark(
            f"{profile.drafter.method} on {around.platform}: {cell.note}", "", "drafter.method"
        )


@rule(
    "method-not-implemented",
    "error",
    "vLLM takes the method's name and has no implementation of it.",
    "Use another drafter.",
)
def method_is_implemented(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    method = _spec(profile).get("method")
    if method in NOT_IMPLEMENTED:
        yield Remark(
            f"vLLM accepts the method {method} and then fails: neither model runner implements it",
            "Use another drafter.",
            "drafter.method",
        )


@rule(
    "suffix-package-missing",
    "error",
    "Suffix decoding needs arctic-inference in the server's own interpreter.",
    "Install it there.",
)
def suffix_package_is_there(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    facts = around.interpreter
    if _spec(profile).get("method") != "suffix" or facts is None or facts.distribution is None:
        return
    if SUFFIX_PACKAGE not in facts.packages:
        yield Remark(
            f"suffix decoding needs {SUFFIX_PACKAGE}, which is not installed in {facts.python}",
            f"{facts.python} -m pip install {SUFFIX_PACKAGE}=={SUFFIX_VERSION}",
            "drafter.method",
        )


@rule(
    "triton-missing",
    "warning",
    "Triton is not installed beside vLLM: the old model runner V1 is used, and much runs slower.",
    "Install the Triton that belongs to the torch there.",
)
def triton_is_there(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    facts = around.interpreter
    if around.platform not in ("cuda", "rocm") or facts is None or facts.distribution is None:
        return
    if has_triton(around) is False:
        yield Remark(
            f"Triton is not installed in {facts.python}, so vLLM uses its old model runner V1",
            "Install the Triton that belongs to the torch there.",
            "engine.python",
        )


@rule(
    "runner-v1-cannot",
    "error",
    "Something asked for exists only in model runner V2, and this launch gets V1.",
    "Leave it out, or let vLLM use runner V2.",
)
def runner_v1_can(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    runner = runner_of(profile, around)
    cell = _cell(profile, around)
    if runner.name != "v1" or (cell is not None and cell.support == "no"):
        return
    for what in not_on_v1(profile, around):
        mend = (("drafter.enable_adaptive_verification", None),) if "adaptive" in what else ()
        if "context" in what:
            mend = (("mla.prefill_context_parallel_size", None),)
        yield Remark(
            f"model runner V1 has no {what}, and this launch gets V1: {'; '.join(runner.reasons)}",
            "Leave it out, or let vLLM use runner V2.",
            mend[0][0] if mend else "drafter.method",
            runner.reasons,
            mend,
        )


@rule(
    "runner-v2-cannot",
    "error",
    "Model runner V2 is forced by the environment, and it cannot do this.",
    "Take VLLM_USE_V2_MODEL_RUNNER out of the environment.",
)
def runner_v2_can(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    runner = runner_of(profile, around)
    if runner.name != "v2" or not runner.forced:
        return
    wanting = list(not_on_v2(_spec(profile)))
    if around.platform == "cpu" or has_triton(around) is False:
        wanting.insert(0, "way to run without Triton")
    if wanting:
        left = {k: v for k, v in profile.engine.environment.items() if k != SWITCH}
        own = SWITCH in profile.engine.environment
        yield Remark(
            f"{SWITCH} forces model runner V2, which has no {', no '.join(wanting)}",
            f"Take {SWITCH} out of the environment.",
            "engine.environment",
            mend=(("engine.environment", left or None),) if own else (),
        )


@rule(
    "synthetic-on-cpu",
    "error",
    "Synthetic acceptance is not implemented for sampling on a CPU; the engine dies at the first step.",
    "Use rejection_sample_method standard.",
)
def synthetic_runs_here(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    if _spec(profile).get("rejection_sample_method") == "synthetic" and around.platform == "cpu":
        yield Remark(
            "synthetic acceptance does not work on a CPU: the engine dies at the first sampled step",
            "Use rejection_sample_method standard, or the method custom with chosen acceptance.",
            "drafter.rejection_sample_method",
            ("utils/cpu_triton_utils.py: Synthetic acceptance not supported with CPU sampling",),
            _plain_rejection(profile),
        )


def _plain_rejection(profile: Profile) -> tuple[tuple[str, Any], ...]:
    """Back to standard rejection, with the settings that only the synthetic one has."""
    names = (
        "rejection_sample_method",
        "synthetic_acceptance_rates",
        "synthetic_acceptance_length",
    )
    return tuple(
        (f"drafter.{name}", None) for name in names if getattr(profile.drafter, name, None)
    )


@rule(
    "synthetic-acceptance",
    "warning",
    "Acceptance is made up: the text is wrong, and only the speed means something.",
    "Use rejection_sample_method standard for real answers.",
)
def acceptance_is_real(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    if _spec(profile).get("rejection_sample_method") == "synthetic" and around.platform != "cpu":
        yield Remark(
            "acceptance is forced (synthetic): the answers are not the target's",
            "Use it to measure cost only.",
            "drafter.rejection_sample_method",
            mend=_plain_rejection(profile),
        )


@rule(
    "block-is-standard",
    "warning",
    "Block rejection exists in model runner V2 only; V1 silently uses the standard one.",
    "Use rejection_sample_method standard, or a launch that gets runner V2.",
)
def block_rejection_is_used(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    runner = runner_of(profile, around)
    if _spec(profile).get("rejection_sample_method") == "block" and runner.name == "v1":
        yield Remark(
            "block rejection is silently the standard one in model runner V1, and draws from the "
            "drafter's probabilities are not used",
            "Use rejection_sample_method standard.",
            "drafter.rejection_sample_method",
            runner.reasons,
            (("drafter.rejection_sample_method", None),),
        )


@rule(
    "adaptive-needs",
    "error",
    "Adaptive verification needs whole CUDA graphs, and works neither with LoRA nor with pipeline "
    "parallelism.",
    "Turn it off, or take out what it does not work with.",
)
def adaptive_verification_can(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    if not _spec(profile).get("enable_adaptive_verification"):
        return
    against = []
    if argument(profile, "--enable-lora") is not None:
        against.append("LoRA")
    if pipeline_parallel_size(profile) > 1:
        against.append("pipeline parallelism")
    if profile.engine.enforce_eager and around.platform != "cpu":
        against.append("enforce_eager, since it needs CUDA graphs")
    for what in against:
        yield Remark(
            f"adaptive verification does not work with {what}",
            "Turn it off, or take the other out.",
            "drafter.enable_adaptive_verification",
            mend=(("drafter.enable_adaptive_verification", None),),
        )


@rule(
    "draft-attention-backend",
    "note",
    "The drafter never takes the target's attention backend: vLLM chooses one for it.",
    "Set drafter.attention_backend.",
)
def drafter_has_its_backend(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    spec, chosen = _spec(profile), profile.mla.attention_backend
    if chosen and spec.get("model") and not spec.get("attention_backend"):
        yield Remark(
            f"attention_backend {chosen} is the target's alone: vLLM chooses the drafter's by itself",
            "Set drafter.attention_backend to choose it as well.",
            "drafter.attention_backend",
        )


RULES: tuple[Rule, ...] = (
    drafter_has_its_backend,
    method_runs_here,
    method_runs_wholly,
    method_is_implemented,
    suffix_package_is_there,
    triton_is_there,
    runner_v1_can,
    runner_v2_can,
    synthetic_runs_here,
    acceptance_is_real,
    block_rejection_is_used,
    adaptive_verification_can,
)
