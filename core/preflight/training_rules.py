"""Rules about how the drafter was trained: K, its format, its flags, the method it was made for. Pure."""

from collections.abc import Iterator
from typing import Any

from specpanel.core.engine.interpreter_facts import version_tuple
from specpanel.core.preflight.rule import Remark, Rule, rule
from specpanel.core.preflight.surroundings import Surroundings
from specpanel.core.settings.profile import Profile

DEEP_MTP = 7
NGRAM_SHORT, NGRAM_LONG = 2, 32
# The first vLLM seen to read these flags of a head; an older one loads it and ignores them.
NORM_FLAGS_SINCE = (0, 21)
# vLLM's words for what Speculators calls its drafters (transformers_utils/configs/speculators/algos.py).
METHODS_OF_FORMATS: dict[str, tuple[str, bool]] = {
    "eagle3": ("eagle3", False),
    "peagle": ("eagle3", True),
    "dflash": ("dflash", True),
    "dflash2": ("dflash", True),
    "dspark": ("dspark", True),
}


def _spec(profile: Profile) -> dict[str, Any]:
    return profile.drafter.speculative_config() or {}


def _drafts_blocks(profile: Profile) -> bool:
    """Whether all positions are drafted at once, as many as the drafter was trained for."""
    spec = _spec(profile)
    return bool(spec.get("parallel_drafting")) or spec.get("method") in ("dflash", "dspark")


@rule(
    "k-above-context",
    "warning",
    "K leaves no room in max_model_len; vLLM starts, and no whole draft ever fits.",
    "Lower K or raise max_model_len.",
)
def draft_tokens_fit(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    k, length = profile.drafter.draft_tokens, profile.target.max_model_len
    if k is not None and length is not None and k + 1 >= length:
        yield Remark(
            f"K {k} leaves no room in a context of {length} tokens",
            "Lower K or raise max_model_len.",
            "drafter.k",
        )


@rule(
    "k-above-training",
    "warning",
    "K is above the number of tokens that a block drafter was trained to draft.",
    "Set K to what it was trained for.",
)
def block_is_as_trained(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    k = profile.drafter.draft_tokens
    config = around.drafter.config if around.drafter else None
    if k is None or config is None or not _drafts_blocks(profile):
        return
    trained = config.speculators.draft_tokens if config.speculators else None
    if trained is None and config.block_size:
        # The block holds the token it starts from, which is not drafted; DSpark's does not.
        anchored = _spec(profile).get("method") != "dspark"
        trained = config.block_size - anchored
    if trained and k > trained:
        yield Remark(
            f"K is {k}, and the drafter was trained to draft {trained} tokens",
            f"Set K to {trained}.",
            "drafter.k",
            (f"drafter: block_size {config.block_size}",) if config.block_size else (),
            (("drafter.k", trained),),
        )


@rule(
    "no-mtp-layers",
    "warning",
    "The checkpoint names no MTP layers.",
    "Use another drafter.",
)
def mtp_layers_are_there(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    source = around.drafter or around.target
    if _spec(profile).get("method") == "mtp" and source.config and not source.config.mtp_layers:
        yield Remark(
            f"{source.name} names no MTP layers in its config.json",
            "Use another drafter if the start fails.",
            "drafter.method",
        )


def _mtp_k_and_layers(profile: Profile, around: Surroundings) -> tuple[int, int] | None:
    """K and the number of MTP layers, where K is above it."""
    source = around.drafter or around.target
    k = profile.drafter.draft_tokens
    if _spec(profile).get("method") != "mtp" or source.config is None or k is None:
        return None
    layers = source.config.mtp_layers
    return (k, layers) if layers and k > layers else None


@rule(
    "k-not-a-multiple",
    "error",
    "K is above the checkpoint's MTP layers and no multiple of them.",
    "Set K to a multiple of them.",
)
def k_is_a_multiple(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    found = _mtp_k_and_layers(profile, around)
    if found and found[0] % found[1]:
        k, layers = found
        yield Remark(
            f"K {k} is above the checkpoint's {layers} MTP layers and no multiple of them",
            f"Set K to {layers} or a multiple of it.",
            "drafter.k",
            mend=(("drafter.k", k - k % layers),),
        )


@rule(
    "k-above-mtp-layers",
    "warning",
    "K is above the trained MTP layers, which are used again for the rest.",
    "Compare with K equal to them.",
)
def k_is_trained(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    found = _mtp_k_and_layers(profile, around)
    if found and found[0] % found[1] == 0:
        k, layers = found
        much = "far " if k > DEEP_MTP else ""
        yield Remark(
            f"K {k} is {much}above the {layers} trained MTP layer{'s' if layers > 1 else ''}, "
            "which are used again for the rest: later tokens are accepted less",
            f"Compare with K {layers}.",
            "drafter.k",
            (f"num_nextn_predict_layers {layers}",),
            (("drafter.k", layers),),
        )


@rule(
    "method-not-the-drafters",
    "error",
    "The checkpoint says that it was trained for another method.",
    "Use the method that it was trained for.",
)
def method_is_the_drafters(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    config = around.drafter.config if around.drafter else None
    algorithm = config.speculators.algorithm if config and config.speculators else None
    if algorithm not in METHODS_OF_FORMATS:
        return
    spec = _spec(profile)
    method, at_once = METHODS_OF_FORMATS[algorithm]
    same = spec.get("method") == method
    if same and (method != "eagle3" or bool(spec.get("parallel_drafting")) == at_once):
        return
    ours = {"peagle": "p_eagle"}.get(algorithm, algorithm)
    yield Remark(
        f"the drafter says that it was trained as {algorithm}, and the method is "
        f"{profile.drafter.method}",
        f"Use the drafter {ours}.",
        "drafter.method",
        (f"speculators_model_type {algorithm}",),
    )


@rule(
    "mask-token-missing",
    "error",
    "A drafter of whole blocks names no mask token, which vLLM needs to draft all positions at once.",
    "Take the checkpoint's config.json from its source again.",
)
def mask_token_is_there(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    config = around.drafter.config if around.drafter else None
    if config is None or config.speculators is None or not _drafts_blocks(profile):
        return
    if not config.mask_token:
        yield Remark(
            "the drafter's config.json names no mask_token_id, which drafting all positions at once "
            "needs",
            "Take the file from the drafter's source again.",
            "drafter.model",
        )


@rule(
    "verifier-elsewhere",
    "note",
    "The drafter names its target by a path of another machine.",
    "Make sure that the target given here is the one it was trained for.",
)
def verifier_is_here(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    state = around.drafter
    config = state.config if state else None
    verifier = config.speculators.verifier if config and config.speculators else None
    if state is None or verifier is None or state.verifier_found is not False:
        return
    yield Remark(
        f"the drafter was trained for {verifier}, which is not on this machine",
        f"Make sure that {profile.target.model} is the same model.",
        "target.model",
        (f"speculators_config.verifier.name_or_path {verifier}",),
    )


@rule(
    "speculators-format",
    "error",
    "The checkpoint's Speculators section lacks what vLLM reads.",
    "Export it again with speculators.",
)
def speculators_format_is_read(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    config = around.drafter.config if around.drafter else None
    said = config.speculators if config else None
    if said is None:
        return
    if not said.layer_config and said.algorithm in METHODS_OF_FORMATS:
        yield Remark(
            "the drafter is in the Speculators format and has no transformer_layer_config",
            "Export it again with speculators.",
            "drafter.model",
            ("vLLM: Must provide transformer_layer_config",),
        )
    if said.algorithm is not None and said.algorithm not in METHODS_OF_FORMATS:
        yield Remark(
            f"the drafter's kind {said.algorithm} is not one that vLLM reads in the Speculators "
            "format",
            f"vLLM reads {', '.join(METHODS_OF_FORMATS)}.",
            "drafter.model",
            (f"speculators {said.version or 'of an unknown version'}",),
        )


@rule(
    "norm-flags",
    "warning",
    "The head asks for norms that an older vLLM ignores: it loads, and few drafts are accepted.",
    "Use a newer vLLM.",
)
def norm_flags_are_read(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    config, facts = around.drafter.config if around.drafter else None, around.interpreter
    if config is None or not config.norm_flags or facts is None or facts.vllm_version is None:
        return
    if version_tuple(facts.vllm_version) < NORM_FLAGS_SINCE:
        yield Remark(
            f"the drafter asks for {', '.join(config.norm_flags)}, which vLLM {facts.vllm_version} "
            "may ignore: few drafts would be accepted",
            "Use a newer vLLM.",
            "drafter.model",
            config.norm_flags,
        )


@rule(
    "ngram-short",
    "note",
    "A lookup of one token matches by chance.",
    "Set prompt_lookup_min to 2 or more.",
)
def ngram_window_is_not_short(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    least = _spec(profile).get("prompt_lookup_min")
    if isinstance(least, int) and least < NGRAM_SHORT:
        yield Remark(
            "a lookup of one token matches by chance, and most such drafts are rejected",
            f"Set prompt_lookup_min to {NGRAM_SHORT} or more.",
            "drafter.prompt_lookup_min",
            mend=(("drafter.prompt_lookup_min", NGRAM_SHORT),),
        )


@rule(
    "ngram-long",
    "warning",
    "Looking up long runs of tokens costs time at every step.",
    "Set prompt_lookup_max to 32 or less.",
)
def ngram_window_is_not_long(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    most = _spec(profile).get("prompt_lookup_max")
    if isinstance(most, int) and most > NGRAM_LONG:
        yield Remark(
            f"looking up runs of {most} tokens costs time at every step",
            f"Set prompt_lookup_max to {NGRAM_LONG} or less.",
            "drafter.prompt_lookup_max",
            mend=(("drafter.prompt_lookup_max", NGRAM_LONG),),
        )


RULES: tuple[Rule, ...] = (
    draft_tokens_fit,
    block_is_as_trained,
    mtp_layers_are_there,
    k_is_a_multiple,
    k_is_trained,
    method_is_the_drafters,
    mask_token_is_there,
    speculators_format_is_read,
    verifier_is_here,
    norm_flags_are_read,
    ngram_window_is_not_short,
    ngram_window_is_not_long,
)
