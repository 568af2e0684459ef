"""Rules about the folders: can target and drafter be read, and is it safe to. Pure."""

from collections.abc import Iterator

from specpanel.core.preflight.rule import Remark, Rule, rule
from specpanel.core.preflight.surroundings import ModelState, Surroundings
from specpanel.core.settings.profile import Profile

LONG_CONTEXT_SWITCH = "VLLM_ALLOW_LONG_MAX_MODEL_LEN"


def _named(around: Surroundings) -> Iterator[tuple[str, ModelState]]:
    yield "target", around.target
    if around.drafter is not None:
        yield "drafter", around.drafter


def _unusable(role: str, model: ModelState | None) -> Iterator[Remark]:
    if model is not None and model.kind == "unusable":
        text = model.problem or f"{model.name} cannot be used"
        yield Remark(text, model.fix, f"{role}.model")


@rule(
    "target-unusable",
    "error",
    "The target's folder is missing, or its config.json cannot be read as data.",
    "Correct the path, or take the file from the model's source again.",
)
def target_is_there(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    yield from _unusable("target", around.target)


@rule(
    "drafter-unusable",
    "error",
    "The drafter's folder is missing, or its config.json cannot be read as data.",
    "Correct the path, or take the file from the model's source again.",
)
def drafter_is_there(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    yield from _unusable("drafter", around.drafter)


def _on_hub(role: str, model: ModelState | None) -> Iterator[Remark]:
    if model is None or model.kind != "hub":
        return
    if model.config is not None:
        yield Remark(
            f"{model.name} is a model of the hub, judged by the copy in the cache; vLLM may fetch a "
            "newer one",
            "",
            f"{role}.model",
            (str(model.config.folder),),
        )
    else:
        yield Remark(
            f"{model.name} is no folder here, so vLLM will ask the hub for it, and its geometry is "
            "not checked",
            "",
            f"{role}.model",
        )


@rule(
    "target-on-hub",
    "note",
    "The target is a hub id, which vLLM resolves; a copy in the cache is checked, or nothing.",
    "Give a folder to have it checked.",
)
def target_is_local(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    yield from _on_hub("target", around.target)


@rule(
    "drafter-on-hub",
    "note",
    "The drafter is a hub id, which vLLM resolves; a copy in the cache is checked, or nothing.",
    "Give a folder to have it checked.",
)
def drafter_is_local(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    yield from _on_hub("drafter", around.drafter)


@rule(
    "target-is-drafter",
    "error",
    "The target's folder holds a drafter: it names its own target by a path of another machine.",
    "Give the target as target.model and this folder as drafter.model.",
)
def target_is_no_drafter(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    config = around.target.config
    if config and config.speculators:
        verifier = config.speculators.verifier
        trained = f", trained for {verifier}" if verifier else ""
        yield Remark(
            f"{around.target.name} holds a drafter{trained}, not a model that answers",
            "Give the target as target.model and this folder as drafter.model.",
            "target.model",
        )


@rule(
    "remote-code",
    "warning",
    "A checkpoint brings Python code (auto_map): it runs only with trust_remote_code, and then with "
    "all rights of the server.",
    "Leave trust_remote_code off unless you have read that code.",
    also=("note",),
)
def checkpoints_bring_no_code(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    for role, model in _named(around):
        if model.config is None or not model.config.remote_code:
            continue
        evidence = (f"auto_map in {model.config.folder}/config.json",)
        if profile.target.trust_remote_code:
            yield Remark(
                f"the {role}'s checkpoint brings Python code, and trust_remote_code lets it run",
                "Turn trust_remote_code off unless you have read that code.",
                "target.trust_remote_code",
                evidence,
                (("target.trust_remote_code", None),),
            )
        else:
            yield Remark(
                f"the {role}'s checkpoint brings Python code, which will not be run",
                "If vLLM does not know the model without it: read the code, then say "
                "trust_remote_code.",
                "target.trust_remote_code",
                evidence,
                severity="note",
            )


@rule(
    "pickle-weights",
    "warning",
    "The weights are pickles (.bin, .pt) only: loading one can run code.",
    "Convert them to safetensors, or take a repository that has them.",
)
def weights_are_no_pickles(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    for role, model in _named(around):
        if model.weights is not None and model.weights.kind == "pickle":
            yield Remark(
                f"the {role}'s weights are pickles only, and loading a pickle can run code",
                "Convert them to safetensors, or take a repository that has them.",
                f"{role}.model",
                (f"{model.weights.files} file(s) in {model.name}",),
            )


@rule(
    "weights-missing",
    "error",
    "A model's folder has a config.json and no weights, or not all that its index names.",
    "Download the missing files.",
)
def weights_are_whole(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    for role, model in _named(around):
        if model.kind != "folder":
            continue
        if model.weights is None:
            if not _needs_weights(profile):
                continue
            yield Remark(
                f"the {role}'s folder holds no weights",
                "Download them, or correct the path.",
                f"{role}.model",
                (model.name,),
            )
        elif model.weights.missing:
            gone = model.weights.missing
            yield Remark(
                f"{len(gone)} of the {role}'s {model.weights.files + len(gone)} weight files are "
                f"missing, {gone[0]} among them",
                "Download the missing files.",
                f"{role}.model",
                gone[:5],
            )


def _needs_weights(profile: Profile) -> bool:
    """Not where vLLM is told to make them up (``--load-format dummy``)."""
    words = " ".join(profile.engine.arguments).replace("=", " ").replace("_", "-")
    return "--load-format dummy" not in words


@rule(
    "max-model-len",
    "error",
    "max_model_len is longer than what the model was made for.",
    "Set max_model_len to the model's own length.",
    also=("warning",),
)
def context_is_possible(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    asked, config = profile.target.max_model_len, around.target.config
    made_for = config.max_positions if config else None
    if config is None or made_for is None or asked is None or asked <= made_for:
        return
    allowed = config.scaled_rope or LONG_CONTEXT_SWITCH in profile.engine.environment
    yield Remark(
        f"max_model_len {asked} is above the {made_for} positions that the model was made for",
        f"Set max_model_len to {made_for} or less.",
        "target.max_model_len",
        (f"max_position_embeddings {made_for} in {config.folder}/config.json",),
        (("target.max_model_len", made_for),),
        "warning" if allowed else "error",
    )


RULES: tuple[Rule, ...] = (
    target_is_there,
    drafter_is_there,
    target_is_local,
    drafter_is_local,
    target_is_no_drafter,
    weights_are_whole,
    context_is_possible,
    checkpoints_bring_no_code,
    weights_are_no_pickles,
)
