"""Which of vLLM's two model runners a launch gets, and what that runner cannot do. Pure.

Read from vLLM 0.32.0, ``config/vllm.py`` (``use_v2_model_runner`` and the two lists of what each runner
does not support). Rules and tables ask here, in vLLM's own terms: the object of ``--speculative-config``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from specpanel.core.preflight.arguments import is_on, variables
from specpanel.core.preflight.surroundings import Surroundings
from specpanel.core.settings.profile import Profile

SWITCH = "VLLM_USE_V2_MODEL_RUNNER"
V1_ONLY_METHODS: tuple[str, ...] = ("suffix", "medusa", "mlp_speculator", "custom_class")
CANDIDATE_HEADS: frozenset[str] = frozenset({"DFlash2DraftModel", "LiLiCorrDraftModel"})
_TRITONS: frozenset[str] = frozenset(
    {"triton", "triton-rocm", "pytorch-triton", "pytorch-triton-rocm"}
)

RunnerName = Literal["v1", "v2"]


@dataclass(frozen=True, slots=True)
class Runner:
    """The runner that vLLM picks (None: not known), whether the user forced it, and why it is that one."""

    name: RunnerName | None
    forced: bool = False
    reasons: tuple[str, ...] = ()


def runner_of(profile: Profile, around: Surroundings) -> Runner:
    """The model runner of this launch."""
    asked = variables(profile, around).get(SWITCH)
    if asked:
        return Runner("v2" if is_on(asked) else "v1", True, (f"{SWITCH} is {asked}",))
    if around.platform == "cpu":
        return Runner("v1", reasons=("runner V2 needs Triton, which has no CPU backend",))
    if around.platform not in ("cuda", "rocm"):
        return Runner(None)
    if has_triton(around) is False:
        return Runner("v1", reasons=("runner V2 needs Triton, which is not installed",))
    wanting = not_on_v2(profile.drafter.speculative_config() or {})
    if wanting:
        return Runner("v1", reasons=tuple(f"runner V2 has no {what}" for what in wanting))
    return Runner("v2")


def has_triton(around: Surroundings) -> bool | None:
    """Whether Triton is installed beside vLLM; None where the interpreter is not known."""
    facts = around.interpreter
    return None if facts is None else bool(_TRITONS & facts.packages)


def not_on_v2(spec: Mapping[str, Any]) -> tuple[str, ...]:
    """What of a speculative configuration makes vLLM fall back to runner V1."""
    method = spec.get("method")
    found = [f"{method}"] if method in V1_ONLY_METHODS else []
    if spec.get("parallel_drafting") and method not in ("dflash", "dspark"):
        found.append("parallel drafting outside DFlash and DSpark")
    if spec.get("use_heterogeneous_vocab"):
        found.append("drafts from another vocabulary")
    return tuple(found)


def not_on_v1(profile: Profile, around: Surroundings) -> tuple[str, ...]:
    """What of a launch runner V1 refuses."""
    spec = profile.drafter.speculative_config() or {}
    found: list[str] = []
    if (profile.mla.prefill_context_parallel_size or 1) > 1:
        found.append("prefill context parallelism")
    if spec.get("method") == "dspark":
        found.append("DSpark")
    if spec.get("enable_adaptive_verification"):
        found.append("adaptive verification")
    config = around.drafter.config if around.drafter else None
    candidates = config is not None and CANDIDATE_HEADS.intersection(config.architectures)
    if profile.drafter.method == "dflash2" or (spec.get("method") == "dflash" and candidates):
        found.append("DFlash heads with candidates (DFlash2)")
    if spec.get("method") == "dflash" and config is not None:
        kinds = config.layer_kinds
        if kinds is not None and kinds.sliding and kinds.growing:
            found.append("DFlash drafters that mix sliding and full attention")
    return tuple(found)
