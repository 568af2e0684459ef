"""Will this launch work, and why not: every rule over a profile and its surroundings. Pure."""

from collections.abc import Callable, Iterator

from specpanel.core.preflight import drafter_rules, machine_rules
from specpanel.core.preflight.finding import SEVERITIES, Finding
from specpanel.core.preflight.surroundings import ModelState, Surroundings
from specpanel.core.settings.profile import Profile

Rule = Callable[[Profile, Surroundings], Iterator[Finding]]

LONG_CONTEXT_SWITCH = "VLLM_ALLOW_LONG_MAX_MODEL_LEN"


def models_are_there(profile: Profile, around: Surroundings) -> Iterator[Finding]:
    """Target and drafter are checkpoints that can be read, or models of the hub."""
    named = (("target", around.target), ("drafter", around.drafter))
    for role, model in named:
        if model is None:
            continue
        if model.kind == "unusable":
            yield Finding(
                f"{role}-unusable",
                "error",
                model.problem or f"{model.name} cannot be used",
                model.fix,
                f"{role}.model",
            )
        if model.kind == "hub":
            yield _hub_note(role, model)


def _hub_note(role: str, model: ModelState) -> Finding:
    return Finding(
        f"{role}-on-hub",
        "info",
        f"{model.name} is no folder here, so vLLM will ask the hub for it, and its geometry is "
        "not checked",
        "",
        f"{role}.model",
    )


def target_is_no_drafter(profile: Profile, around: Surroundings) -> Iterator[Finding]:
    """The target is a model of its own: a drafter names its target by a path of another machine."""
    config = around.target.config
    if config and config.speculators:
        verifier = config.speculators.verifier
        trained = f", trained for {verifier}" if verifier else ""
        yield Finding(
            "target-is-drafter",
            "error",
            f"{around.target.name} holds a drafter{trained}, not a model that answers",
            "Give the target as target.model and this folder as drafter.model.",
            "target.model",
        )


def context_is_possible(profile: Profile, around: Surroundings) -> Iterator[Finding]:
    """max_model_len is no longer than what the model was made for."""
    asked, config = profile.target.max_model_len, around.target.config
    made_for = config.max_positions if config else None
    if config is None or made_for is None or asked is None or asked <= made_for:
        return
    allowed = config.scaled_rope or LONG_CONTEXT_SWITCH in profile.engine.environment
    yield Finding(
        "max-model-len",
        "warning" if allowed else "error",
        f"max_model_len {asked} is above the {made_for} positions that the model was made for",
        f"Set max_model_len to {made_for} or less.",
        "target.max_model_len",
    )


RULES: tuple[Rule, ...] = (
    machine_rules.vllm_is_there,
    machine_rules.port_is_free,
    models_are_there,
    target_is_no_drafter,
    context_is_possible,
    drafter_rules.method_runs_here,
    drafter_rules.suffix_package_is_there,
    drafter_rules.draft_tokens_fit,
    drafter_rules.mtp_layers_are_there,
    drafter_rules.vocabularies_match,
    drafter_rules.hidden_sizes_match,
    drafter_rules.draft_parallel_size_fits,
    drafter_rules.target_hands_out_hidden_states,
    drafter_rules.aux_layers_exist,
    drafter_rules.drafter_reaches_as_far,
    drafter_rules.ngram_window_is_sensible,
    machine_rules.one_request_fits,
    machine_rules.memory_is_enough,
    machine_rules.disk_is_enough,
    machine_rules.devices_have_numbers,
    machine_rules.address_is_local,
)


def check(profile: Profile, around: Surroundings) -> tuple[Finding, ...]:
    """Every finding, errors first, in the order of `RULES` within a severity."""
    found = [finding for rule in RULES for finding in rule(profile, around)]
    return tuple(sorted(found, key=lambda finding: SEVERITIES.index(finding.severity)))


def blocking(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """The errors: what keeps a launch from being tried."""
    return tuple(finding for finding in findings if finding.severity == "error")
