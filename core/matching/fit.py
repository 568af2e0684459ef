"""Does a drafter fit a target, and which fits best. Pure.

The order tells what is likeliest to be accepted: a drafter trained for this target, its own MTP layers,
heads of the right sizes, smaller models of the same vocabulary, and then what needs no weights. Whether it
pays is told by a measurement alone.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import PurePath
from typing import Literal

from specpanel.core.checkpoints.config import ModelConfig
from specpanel.core.checkpoints.drafters import Candidate
from specpanel.core.preflight.eagle3_targets import EAGLE3_TARGETS, EAGLE3_TARGETS_VERSION
from specpanel.core.settings.drafters.table import FACTS, Device, runner_for

Verdict = Literal["yes", "perhaps", "no"]

HEADS = frozenset({"eagle", "eagle3", "p_eagle", "dflash", "dflash2", "dspark", "medusa"})
_NEED_AUX = frozenset({"eagle3", "p_eagle", "dflash", "dflash2", "dspark"})
_VLLM_GAP = 1024  # vocabularies that differ by less may differ in padding alone


@dataclass(frozen=True, slots=True)
class Reason:
    """One thing that speaks for a drafter, against it, or is to be known."""

    kind: Literal["for", "against", "note"]
    text: str


@dataclass(frozen=True, slots=True)
class Match:
    """A drafter for the target. ``model`` is None where it needs no weights of its own."""

    method: str
    model: str | None
    k: int
    fits: Verdict
    reasons: tuple[Reason, ...]
    group: int  # order among those that fit alike

    @property
    def first_reason(self) -> str:
        wanted = "against" if self.fits == "no" else "for"
        chosen = [reason.text for reason in self.reasons if reason.kind == wanted]
        return (chosen or [reason.text for reason in self.reasons] or [""])[0]


def ranked(
    target: ModelConfig,
    candidates: Iterable[Candidate],
    device: Device | None = None,
    packages: Collection[str] | None = None,
) -> tuple[Match, ...]:
    """Every drafter that was found or needs no weights, the likeliest first, the unfit last.

    Args:
        target: read from its folder without links.
        device: what vLLM will run on; None where it is not known, and nothing is said of it.
        packages: distributions beside vLLM; None where they are not known.
    """
    found = [_mtp(target, device), *_model_free(device, packages)]
    for candidate in candidates:
        if candidate.folder != target.folder:
            found.extend(_of_candidate(target, candidate, device))
    order = {"yes": 0, "perhaps": 1, "no": 2}
    return tuple(
        sorted(found, key=lambda one: (order[one.fits], one.group, one.model or "", one.method))
    )


def _of_candidate(
    target: ModelConfig, candidate: Candidate, device: Device | None
) -> Iterable[Match]:
    recognised, config = candidate.recognised, candidate.config
    if recognised is None:
        if _could_draft(target, config):
            reasons = [*_vocabulary(target, config, "draft_model"), _size(target, config)]
            yield _match("draft_model", candidate.name, 3, reasons, device, 4)
        return
    if recognised.method is None:
        yield Match("none", candidate.name, 0, "no", (Reason("against", recognised.what),), 9)
        return
    method = recognised.method
    reasons = [Reason("note", recognised.what)]
    trained = config.speculators.draft_tokens if config.speculators else None
    k = trained or ((config.block_size or 0) - 1 if (config.block_size or 0) > 1 else 3)
    group = 3
    if method in HEADS:
        reasons += _head(target, config, method)
        verifier = _verifier(target, candidate)
        if verifier is not None:
            reasons.insert(0, verifier)
            group = 1 if verifier.kind == "for" else 3
    else:
        reasons += [*_vocabulary(target, config, method), _size(target, config)]
        group = 4
    yield _match(method, candidate.name, k, reasons, device, group)


def _match(
    method: str,
    model: str | None,
    k: int,
    reasons: Iterable[Reason],
    device: Device | None,
    group: int,
) -> Match:
    every = [*reasons, *_device(method, device)]
    against = any(reason.kind == "against" for reason in every)
    sure = any(reason.kind == "for" for reason in every)
    fits: Verdict = "no" if against else "yes" if sure else "perhaps"
    return Match(method, model, k, fits, tuple(every), group)


def _device(method: str, device: Device | None) -> Iterable[Reason]:
    if device is None:
        return
    facts = FACTS[method]
    cell = {"cuda": facts.cuda, "rocm": facts.rocm, "cpu": facts.cpu}[device]
    name = {"cuda": "NVIDIA", "rocm": "ROCm", "cpu": "a CPU"}[device]
    if runner_for(method, device) is None:
        yield Reason("against", f"does not run on {name}: {cell.note or 'vLLM has no code for it'}")
    elif cell.support == "part":
        yield Reason("note", f"on {name}: {cell.note}")


def _head(target: ModelConfig, head: ModelConfig, method: str) -> Iterable[Reason]:
    expected = head.target_hidden_size or head.hidden_size
    if expected and target.hidden_size:
        fit = expected == target.hidden_size
        text = f"hidden size {expected}" + (
            "" if fit else f", and the target's is {target.hidden_size}"
        )
        yield Reason("for" if fit else "against", text)
    if method != "medusa":  # vLLM gives Medusa heads the target's vocabulary
        yield from _vocabulary(target, head, method)
    if method in _NEED_AUX:
        yield from _aux_layers(target, head)
        if target.architectures and not EAGLE3_TARGETS.intersection(target.architectures):
            yield Reason(
                "against",
                f"{target.architectures[0]} does not hand out hidden states in vLLM "
                f"{EAGLE3_TARGETS_VERSION}",
            )
    if head.max_positions and target.max_positions and head.max_positions < target.max_positions:
        yield Reason(
            "note",
            f"made for {head.max_positions} tokens of context, the target for {target.max_positions}",
        )


def _aux_layers(target: ModelConfig, head: ModelConfig) -> Iterable[Reason]:
    if not head.aux_layers or not target.layers:
        return
    listened = ", ".join(map(str, head.aux_layers))
    if max(head.aux_layers) > target.layers:
        yield Reason("against", f"listens to layers {listened}, and the target has {target.layers}")
    else:
        yield Reason("note", f"listens to layers {listened} of {target.layers}")


def _vocabulary(target: ModelConfig, draft: ModelConfig, method: str) -> Iterable[Reason]:
    ours, theirs = target.vocab_size, draft.vocab_size
    if not ours or not theirs:
        return
    if ours == theirs:
        yield Reason("for" if method in ("draft_model", "pard") else "note", f"vocabulary {ours}")
        return
    text = f"vocabulary {theirs}, and the target's is {ours}"
    if method == "draft_model" and abs(ours - theirs) > _VLLM_GAP:
        text += " (use_heterogeneous_vocab drafts the tokens that both share)"
    elif method == "draft_model":
        text += ": perhaps only padding, but vLLM compares the numbers"
    yield Reason("against", text)


def _verifier(target: ModelConfig, head: Candidate) -> Reason | None:
    """What the head says of the target that it was trained with."""
    named = head.config.speculators.verifier if head.config.speculators else None
    if not named:
        return None
    if head.verifier == target.folder:
        return Reason("for", "trained for this target")
    if PurePath(named).name == target.folder.name:
        return Reason("note", f"trained for a target of this name ({named})")
    return Reason("note", f"trained for {named}")


def _could_draft(target: ModelConfig, draft: ModelConfig) -> bool:
    """Whether it generates text at all, and is smaller; anything else is not worth a line."""
    generates = any("CausalLM" in name or "ConditionalGen" in name for name in draft.architectures)
    ours, theirs = _weight(target), _weight(draft)
    return generates and ours is not None and theirs is not None and theirs < ours


def _size(target: ModelConfig, draft: ModelConfig) -> Reason:
    ours, theirs = _weight(target), _weight(draft)
    if not ours or not theirs:
        return Reason("note", "its size against the target's is not known")
    return Reason("note", f"about {theirs / ours:.0%} of the target's work a token")


def _weight(config: ModelConfig) -> float | None:
    """Layers times the square of the width: work a token, up to a factor that like models share."""
    if not config.layers or not config.hidden_size:
        return None
    return float(config.layers) * config.hidden_size**2


def _mtp(target: ModelConfig, device: Device | None) -> Match:
    layers = target.mtp_layers or 0
    if layers:
        many = "1 MTP layer" if layers == 1 else f"{layers} MTP layers"
        reasons = [Reason("for", f"the target's checkpoint has {many}")]
        if target.model_type == "deepseek_v41":
            reasons = [Reason("against", "DeepSeek V4.1 ships DSpark stages: use dspark")]
    else:
        reasons = [Reason("against", "the target's config.json names no MTP layers")]
    return _match("mtp", None, layers or 1, reasons, device, 2)


def _model_free(device: Device | None, packages: Collection[str] | None) -> Iterable[Match]:
    free = Reason("for", "needs no weights; helps where text repeats")
    yield _match("ngram", None, 4, [free], device, 6)
    yield _match("ngram_gpu", None, 4, [free], device, 7)
    suffix = Reason("for", "needs no weights; learns from earlier answers")
    if packages is not None and "arctic-inference" not in packages:
        suffix = Reason("against", "arctic-inference is not installed beside vLLM")
    yield _match("suffix", None, 8, [suffix], device, 5)
