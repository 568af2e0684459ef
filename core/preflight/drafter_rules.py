"""Rules about drafter and target: does the one fit the other. Pure.

They look at ``config.json`` of both and at the names and shapes of the drafter's tensors. Facts read from
vLLM 0.32.0: ``config/speculative.py``, ``model_executor/models/llama_eagle3.py``,
``transformers_utils/configs/speculators``.
"""

from collections.abc import Iterator
from typing import Any

from specpanel.core.checkpoints.config import ModelConfig
from specpanel.core.preflight.eagle3_targets import EAGLE3_TARGETS, EAGLE3_TARGETS_VERSION
from specpanel.core.preflight.rule import Remark, Rule, rule
from specpanel.core.preflight.surroundings import ModelState, Surroundings
from specpanel.core.settings.profile import Profile

PADDING = 1024  # vocabularies that differ by no more are likely the same, padded differently
HEAD_METHODS: frozenset[str] = frozenset({"eagle", "eagle3", "dflash", "dspark", "medusa"})
BLOCK_METHODS: frozenset[str] = frozenset({"dflash", "dspark"})
EAGLE3_AUX_LAYERS = 3  # vLLM's LlamaModel for EAGLE-3, unless the checkpoint says more


def _spec(profile: Profile) -> dict[str, Any]:
    return profile.drafter.speculative_config() or {}


def _method(profile: Profile) -> str | None:
    method = _spec(profile).get("method")
    return method if isinstance(method, str) else None


def pair(around: Surroundings) -> tuple[ModelConfig, ModelConfig] | None:
    """Target and drafter, where both were read."""
    if around.target.config is None or around.drafter is None or around.drafter.config is None:
        return None
    return around.target.config, around.drafter.config


def _both(name: str, target: object, drafter: object) -> tuple[str, str]:
    return f"target: {name} {target}", f"drafter: {name} {drafter}"


@rule(
    "eagle3-target-unknown",
    "warning",
    "vLLM's class for the target has no EAGLE-3 interface, as far as this version was read; the launch "
    "then fails after the weights are loaded.",
    "Use a drafter that does not read hidden states, or another vLLM.",
)
def target_hands_out_hidden_states(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    config = around.target.config
    if _method(profile) != "eagle3" or config is None:
        return
    if config.architectures and not EAGLE3_TARGETS.intersection(config.architectures):
        yield Remark(
            f"{config.architectures[0]} is not among the targets that vLLM "
            f"{EAGLE3_TARGETS_VERSION} supports for EAGLE-3",
            "It may fail after the weights are loaded; another vLLM may support it.",
            "drafter.method",
            (f"architectures {', '.join(config.architectures)}",),
        )


@rule(
    "hidden-size-mismatch",
    "error",
    "The head was made for hidden states of another width than the target's.",
    "Use a drafter that was trained for this target.",
)
def hidden_sizes_match(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    both = pair(around)
    if _method(profile) not in HEAD_METHODS or both is None:
        return
    target, draft = both
    expected = draft.target_hidden_size or draft.hidden_size
    own = around.drafter is not None and _has(around.drafter, "embed_tokens.weight")
    if draft.target_hidden_size is None and own and _method(profile) in BLOCK_METHODS:
        return  # an embedding of its own may have a width of its own
    if target.hidden_size and expected and expected != target.hidden_size:
        yield Remark(
            f"the drafter was made for hidden states of {expected}, and the target's are "
            f"{target.hidden_size} wide",
            "Use a drafter that was trained for this target.",
            "drafter.model",
            _both("hidden_size", target.hidden_size, expected),
        )


@rule(
    "fc-width-mismatch",
    "error",
    "The head's first layer (fc) takes another width than the target's hidden size times the layers it "
    "listens to.",
    "Use a drafter that was trained for this target.",
)
def fc_is_as_wide(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    both = pair(around)
    state = around.drafter
    if _method(profile) != "eagle3" or both is None or state is None or state.weights is None:
        return
    target, draft = both
    shape = state.weights.shape_of("fc.weight")
    hidden = draft.target_hidden_size or target.hidden_size
    if shape is None or len(shape) != 2 or not hidden:
        return
    listens = len(draft.aux_layers) if draft.aux_layers else EAGLE3_AUX_LAYERS
    wanted = hidden * listens
    if shape[1] != wanted:
        yield Remark(
            f"the head's fc takes {shape[1]} values, and {listens} layers of {hidden} give {wanted}",
            "Use a drafter that was trained for this target.",
            "drafter.model",
            (f"fc.weight has the shape {list(shape)}", f"target: hidden_size {hidden}"),
        )


@rule(
    "aux-layers",
    "warning",
    "The layers that the head listens to are not the usual number, or lie beyond the target's.",
    "Look at the first acceptance figures before you trust it.",
)
def aux_layers_exist(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    both = pair(around)
    if _method(profile) != "eagle3" or both is None or not both[1].aux_layers:
        return
    target, chosen = both[0], both[1].aux_layers or ()
    evidence = (f"drafter: auxiliary layers {list(chosen)}", f"target: {target.layers} layers")
    if len(chosen) != EAGLE3_AUX_LAYERS:
        width = f" (fc takes {target.hidden_size * len(chosen)})" if target.hidden_size else ""
        yield Remark(
            f"the drafter listens to {len(chosen)} layers{width}, and vLLM expects "
            f"{EAGLE3_AUX_LAYERS} unless the checkpoint's format tells it",
            "Look at the drafter's first acceptance figures before you trust it.",
            "drafter.model",
            evidence,
        )
    if target.layers and max(chosen) >= target.layers:
        yield Remark(
            f"the drafter listens to layer {max(chosen)}, and the target has {target.layers} "
            "(numbered from 0)",
            "Make sure that the drafter was trained for this target.",
            "drafter.model",
            evidence,
        )


@rule(
    "vocabulary-mismatch",
    "error",
    "A draft model has another vocabulary than the target.",
    "Use a draft model of the same family, or use_heterogeneous_vocab.",
)
def vocabularies_match(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    both = pair(around)
    if _method(profile) != "draft_model" or both is None:
        return
    target, draft = both
    if not (target.vocab_size and draft.vocab_size) or target.vocab_size == draft.vocab_size:
        return
    if _spec(profile).get("use_heterogeneous_vocab"):
        return
    gap = abs(target.vocab_size - draft.vocab_size)
    why = ""
    if gap <= PADDING:
        why = f", a gap of {gap} that may be padding only, but vLLM compares the numbers"
    yield Remark(
        f"the draft model's vocabulary ({draft.vocab_size}) is not the target's "
        f"({target.vocab_size}){why}",
        "Use a draft model with the same vocab_size, from the same family.",
        "drafter.model",
        _both("vocab_size", target.vocab_size, draft.vocab_size),
    )


@rule(
    "head-vocabulary",
    "error",
    "A head proposes tokens that the target does not have, or its smaller vocabulary has no map (d2t).",
    "Use a drafter that was trained for this target.",
)
def head_vocabulary_maps(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    both, state = pair(around), around.drafter
    if _method(profile) not in HEAD_METHODS or both is None or state is None:
        return
    target, draft = both
    small = draft.draft_vocab_size or draft.vocab_size
    if not (target.vocab_size and small):
        return
    evidence = _both("vocab_size", target.vocab_size, small)
    if small > target.vocab_size + PADDING:
        yield Remark(
            f"the head drafts from {small} tokens, and the target knows {target.vocab_size}",
            "Use a drafter that was trained for this target.",
            "drafter.model",
            evidence,
        )
    elif small < target.vocab_size and draft.draft_vocab_size and _has(state, "d2t") is False:
        yield Remark(
            f"the head drafts from {small} of {target.vocab_size} tokens, and its weights hold no "
            "map (d2t) from the ones to the others",
            "Take a checkpoint that holds d2t: without it nearly every draft is rejected.",
            "drafter.model",
            (*evidence, "no tensor d2t"),
        )


def _has(state: ModelState, ending: str) -> bool | None:
    return None if state.weights is None else state.weights.has(ending)


@rule(
    "tokenizer-differs",
    "warning",
    "Draft model and target bring different tokenizer files, though their vocabularies have one size.",
    "Compare the two files: one more special token is harmless, another vocabulary is not.",
)
def tokenizers_match(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    both, draft = pair(around), around.drafter
    if _method(profile) != "draft_model" or both is None or draft is None:
        return
    mine, theirs = around.target.tokenizer, draft.tokenizer
    if mine is None or theirs is None or mine == theirs or both[0].vocab_size != both[1].vocab_size:
        return
    if mine.split(":")[0] == theirs.split(":")[0]:
        yield Remark(
            "the draft model's tokenizer file is not the target's: where token numbers differ, "
            "drafts are rejected",
            "Compare the two files: one more special token is harmless, another vocabulary is not.",
            "drafter.model",
            (f"target {mine[:30]}…", f"drafter {theirs[:30]}…"),
        )


@rule(
    "drafter-short",
    "warning",
    "The drafter was made for a shorter context than will be served: beyond it acceptance falls to zero.",
    "Set max_model_len to the drafter's, or use a drafter with a longer context.",
)
def drafter_reaches_as_far(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    both = pair(around)
    if both is None:
        return
    target, draft = both
    served = profile.target.max_model_len or target.max_positions
    if served and draft.max_positions and draft.max_positions < served:
        yield Remark(
            f"the drafter was made for {draft.max_positions} tokens of context and {served} will be "
            "served: past that its drafts are worth nothing, or the engine fails",
            f"Set max_model_len to {draft.max_positions}, or use a drafter with a longer context.",
            "target.max_model_len",
            _both("max_position_embeddings", target.max_positions, draft.max_positions),
            (("target.max_model_len", draft.max_positions),),
        )


@rule(
    "draft-max-model-len",
    "error",
    "The drafter's max_model_len is longer than the drafter's or the target's own.",
    "Lower drafter.max_model_len, or leave it out.",
)
def draft_length_is_possible(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    asked = _spec(profile).get("max_model_len")
    if not isinstance(asked, int) or around.target.config is None:
        return
    drafter = around.drafter.config if around.drafter else None
    limits = {
        "target's": profile.target.max_model_len or around.target.config.max_positions,
        "drafter's": drafter.max_positions if drafter else None,
    }
    for whose, limit in limits.items():
        if limit is not None and asked > limit:
            yield Remark(
                f"the drafter's max_model_len {asked} is above the {whose} {limit}",
                f"Set it to {limit} or less.",
                "drafter.max_model_len",
                mend=(("drafter.max_model_len", limit),),
            )
            return


@rule(
    "quantised-target",
    "note",
    "The target is quantised and the drafter was trained on its unquantised hidden states.",
    "Expect a little less acceptance; compare with the unquantised target.",
)
def hidden_states_are_as_trained(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    both = pair(around)
    if _method(profile) not in HEAD_METHODS or both is None:
        return
    target, draft = both
    how = profile.target.quantization or target.quantization
    if how and not draft.quantization and not _spec(profile).get("quantization"):
        yield Remark(
            f"the target is quantised ({how}) and the drafter is not: it was likely trained on "
            "unquantised hidden states",
            "Expect a little less acceptance.",
            "drafter.model",
            (f"target: {how}", f"drafter: {draft.dtype or 'no dtype named'}"),
        )


@rule(
    "drafter-dtype",
    "note",
    "The drafter is stored in another type than the target is served in; vLLM converts it.",
    "Nothing to do, unless acceptance is lower than expected.",
)
def drafter_dtype_fits(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    both = pair(around)
    if both is None:
        return
    target, draft = both
    chosen = profile.target.dtype
    served = target.dtype if chosen in (None, "auto") else chosen
    if around.platform == "cpu" and chosen is None:
        return  # float32 holds every stored type
    if served and draft.dtype and served != draft.dtype and served != "float32":
        yield Remark(
            f"the drafter is stored in {draft.dtype} and will run in the target's {served}",
            "",
            "target.dtype",
            _both("dtype", served, draft.dtype),
        )


RULES: tuple[Rule, ...] = (
    target_hands_out_hidden_states,
    hidden_sizes_match,
    fc_is_as_wide,
    aux_layers_exist,
    vocabularies_match,
    head_vocabulary_maps,
    tokenizers_match,
    drafter_reaches_as_far,
    draft_length_is_possible,
    hidden_states_are_as_trained,
    drafter_dtype_fits,
)
