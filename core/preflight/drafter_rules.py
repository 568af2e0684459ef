"""Rules about the drafter: does the method run here, and does it fit the target. Pure.

Facts read from vLLM 0.32.0: ``config/speculative.py``, ``config/vllm.py`` (what the model runners
support) and ``v1/worker/gpu_model_runner.py``.
"""

from collections.abc import Iterator

from specpanel.core.checkpoints.config import ModelConfig
from specpanel.core.preflight.eagle3_targets import EAGLE3_TARGETS, EAGLE3_TARGETS_VERSION
from specpanel.core.preflight.finding import Finding
from specpanel.core.preflight.surroundings import Surroundings
from specpanel.core.settings.drafters import NgramDrafter
from specpanel.core.settings.profile import Profile

SUFFIX_PACKAGE = "arctic-inference"
NOT_ON_CPU: dict[str, str] = {
    "ngram_gpu": "Use the drafter ngram.",
    "dspark": "Use a drafter that runs on a CPU, such as ngram, draft_model or eagle3.",
}
EAGLE3_METHODS = frozenset({"eagle3", "p_eagle"})
HEAD_METHODS = EAGLE3_METHODS | {"dflash"}  # read the target's hidden states
BLOCK_METHODS = frozenset(
    {"p_eagle", "dflash", "dspark"}
)  # draft as many tokens as they were trained for
EAGLE3_AUX_LAYERS = 3  # vLLM's LlamaModel for EAGLE-3, unless the checkpoint says more
DEEP_MTP = 7
NGRAM_SHORT, NGRAM_LONG = 2, 32


def method_runs_here(profile: Profile, around: Surroundings) -> Iterator[Finding]:
    """The method has an implementation on the platform."""
    method = profile.drafter.method
    if around.platform == "cpu" and method in NOT_ON_CPU:
        yield Finding(
            "method-not-on-cpu",
            "error",
            f"the drafter {method} does not run on a CPU",
            NOT_ON_CPU[method],
            "drafter.method",
        )


def suffix_package_is_there(profile: Profile, around: Surroundings) -> Iterator[Finding]:
    """Suffix decoding needs a package beside vLLM, in the server's interpreter."""
    facts = around.interpreter
    if profile.drafter.method == "suffix" and facts and SUFFIX_PACKAGE not in facts.packages:
        yield Finding(
            "suffix-package-missing",
            "error",
            f"suffix decoding needs {SUFFIX_PACKAGE}, which is not installed in {facts.python}",
            f"{facts.python} -m pip install {SUFFIX_PACKAGE}==0.1.1",
            "drafter.method",
        )


def draft_tokens_fit(profile: Profile, around: Surroundings) -> Iterator[Finding]:
    """K leaves room in the context, and is what the drafter was trained for."""
    k = profile.drafter.draft_tokens
    if k is None:
        return
    length = profile.target.max_model_len
    if length is not None and k + 1 >= length:
        yield Finding(
            "k-above-context",
            "error",
            f"K {k} leaves no room in a context of {length} tokens",
            "Lower K or raise max_model_len.",
            "drafter.k",
        )
    config = around.drafter.config if around.drafter else None
    trained = config.speculators.draft_tokens if config and config.speculators else None
    if profile.drafter.method in BLOCK_METHODS and trained and k > trained:
        yield Finding(
            "k-above-training",
            "warning",
            f"K is {k}, and the drafter was trained to draft {trained} tokens",
            f"Set K to {trained}.",
            "drafter.k",
        )


def mtp_layers_are_there(profile: Profile, around: Surroundings) -> Iterator[Finding]:
    """The target's checkpoint has MTP layers, and K is a number that they can draft."""
    if profile.drafter.method != "mtp":
        return
    source = around.drafter or around.target
    if source.config is None:
        return
    layers, k = source.config.mtp_layers, profile.drafter.draft_tokens
    if not layers:
        yield Finding(
            "no-mtp-layers",
            "warning",
            f"{source.name} names no MTP layers in its config.json",
            "Use another drafter if the start fails.",
            "drafter.method",
        )
        return
    if k is None or k <= layers:
        return
    if k % layers:
        text = f"K {k} is above the checkpoint's {layers} MTP layers and no multiple of them"
        fix = f"Set K to {layers} or a multiple of it."
        yield Finding("k-not-a-multiple", "error", text, fix, "drafter.k")
    else:
        much = "far " if k > DEEP_MTP else ""
        yield Finding(
            "k-above-mtp-layers",
            "warning",
            f"K {k} is {much}above the {layers} trained MTP layer{'s' if layers > 1 else ''}, "
            "which are used again for the rest: later tokens are accepted less",
            f"Compare with K {layers}.",
            "drafter.k",
        )


def vocabularies_match(profile: Profile, around: Surroundings) -> Iterator[Finding]:
    """A draft model speaks the target's vocabulary."""
    pair = _pair(around)
    if profile.drafter.method != "draft_model" or pair is None:
        return
    target, draft = pair
    if not (target.vocab_size and draft.vocab_size) or target.vocab_size == draft.vocab_size:
        return
    gap = abs(target.vocab_size - draft.vocab_size)
    why = ""
    if gap <= 1024:
        why = f", a gap of {gap} that may be padding only, but vLLM compares the numbers"
    yield Finding(
        "vocabulary-mismatch",
        "error",
        f"the draft model's vocabulary ({draft.vocab_size}) is not the target's "
        f"({target.vocab_size}){why}",
        "Use a draft model with the same vocab_size, from the same family.",
        "drafter.model",
    )


def hidden_sizes_match(profile: Profile, around: Surroundings) -> Iterator[Finding]:
    """A head was trained on hidden states as wide as the target's."""
    pair = _pair(around)
    if profile.drafter.method not in HEAD_METHODS or pair is None:
        return
    target, draft = pair
    expected = draft.target_hidden_size or draft.hidden_size
    if target.hidden_size and expected and expected != target.hidden_size:
        yield Finding(
            "hidden-size-mismatch",
            "error",
            f"the drafter was made for hidden states of {expected}, and the target's are "
            f"{target.hidden_size} wide",
            "Use a drafter that was trained for this target.",
            "drafter.model",
        )


def aux_layers_exist(profile: Profile, around: Surroundings) -> Iterator[Finding]:
    """The layers that an EAGLE-3 head listens to are the target's, and as many as vLLM expects."""
    pair = _pair(around)
    if profile.drafter.method not in EAGLE3_METHODS or pair is None or not pair[1].aux_layers:
        return
    target, chosen = pair[0], pair[1].aux_layers or ()
    if len(chosen) != EAGLE3_AUX_LAYERS:
        yield Finding(
            "aux-layers",
            "warning",
            f"the drafter listens to {len(chosen)} layers, and vLLM expects {EAGLE3_AUX_LAYERS} "
            "unless the checkpoint's format tells it",
            "Look at the drafter's first acceptance figures before you trust it.",
            "drafter.model",
        )
    if target.layers and max(chosen) >= target.layers:
        yield Finding(
            "aux-layers",
            "warning",
            f"the drafter listens to layer {max(chosen)}, and the target has {target.layers} "
            "(numbered from 0)",
            "Make sure that the drafter was trained for this target.",
            "drafter.model",
        )


def target_hands_out_hidden_states(profile: Profile, around: Surroundings) -> Iterator[Finding]:
    """vLLM's class for the target has the interface that EAGLE-3 heads need."""
    config = around.target.config
    if profile.drafter.method not in EAGLE3_METHODS or config is None:
        return
    if config.architectures and not EAGLE3_TARGETS.intersection(config.architectures):
        yield Finding(
            "eagle3-target-unknown",
            "warning",
            f"{config.architectures[0]} is not among the targets that vLLM "
            f"{EAGLE3_TARGETS_VERSION} supports for EAGLE-3",
            "It may fail after the weights are loaded; another vLLM may support it.",
            "drafter.method",
        )


def drafter_reaches_as_far(profile: Profile, around: Surroundings) -> Iterator[Finding]:
    """The drafter's longest context is the target's: past it, drafts are worthless."""
    pair = _pair(around)
    if pair is None:
        return
    target, draft = pair
    served = profile.target.max_model_len or target.max_positions
    if served and draft.max_positions and draft.max_positions < served:
        yield Finding(
            "drafter-short",
            "warning",
            f"the drafter was made for {draft.max_positions} tokens of context and {served} will be "
            "served: past that its drafts are worth nothing, or the engine fails",
            f"Set max_model_len to {draft.max_positions}, or use a drafter with a longer context.",
            "target.max_model_len",
        )


def draft_parallel_size_fits(profile: Profile, around: Surroundings) -> Iterator[Finding]:
    """A drafter runs on one device or on as many as the target."""
    chosen = getattr(profile.drafter, "draft_tensor_parallel_size", None)
    ranks = profile.engine.tensor_parallel_size or 1
    if chosen is not None and chosen not in {1, ranks}:
        yield Finding(
            "draft-parallel-size",
            "error",
            f"draft_tensor_parallel_size is {chosen}, and only 1 or the target's {ranks} will do",
            f"Set it to 1{'' if ranks == 1 else f' or {ranks}'}.",
            "drafter.draft_tensor_parallel_size",
        )


def ngram_window_is_sensible(profile: Profile, around: Surroundings) -> Iterator[Finding]:
    """The n-gram window neither matches by chance nor searches for long."""
    drafter = profile.drafter
    if not isinstance(drafter, NgramDrafter):
        return
    if drafter.prompt_lookup_min < NGRAM_SHORT:
        yield Finding(
            "ngram-short",
            "info",
            "a lookup of one token matches by chance, and most such drafts are rejected",
            f"Set prompt_lookup_min to {NGRAM_SHORT} or more.",
            "drafter.prompt_lookup_min",
        )
    if drafter.prompt_lookup_max > NGRAM_LONG:
        yield Finding(
            "ngram-long",
            "warning",
            f"looking up runs of {drafter.prompt_lookup_max} tokens costs time at every step",
            f"Set prompt_lookup_max to {NGRAM_LONG} or less.",
            "drafter.prompt_lookup_max",
        )


def _pair(around: Surroundings) -> tuple[ModelConfig, ModelConfig] | None:
    """Target and drafter, where both were read."""
    if around.target.config is None or around.drafter is None or around.drafter.config is None:
        return None
    return around.target.config, around.drafter.config
