"""Why a drafter may serve worse than its trainer foretold: each known cause, looked at. Pure.

The causes are those of public reports: another chat template, answers that are not the target's own, rows
that were cut off, a quantised target, a window that is shorter than the answers, a draft vocabulary of other
data (speculators#738, #751, #613; SpecForge#534).
"""

from collections.abc import Iterator
from dataclasses import dataclass

from specpanel.core.training.judging import LARGEST_GAP
from specpanel.core.training.records import CauseCheck

_FEW_COVERED = 0.95
_NOTHING = 1.1  # acceptance length below which next to nothing is accepted


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What is known of training and of serving; None where it is not.

    ``prompt_tokens`` are (in the rows, as served) of the same validation prompts. ``served_tokens`` is the
    mean length of a served answer. ``window`` is the drafter's, None with full attention.
    ``token_weighted`` is what was served as a trainer averages that counts tokens; None where it did not.
    """

    tokenizer_then: str | None
    tokenizer_now: str | None
    prompt_tokens: tuple[tuple[int, int], ...]
    answers: str
    temperature: float
    seq_length: int
    truncated_share: float | None
    longest_row: int | None
    served_tokens: float | None
    quantization: str | None
    window: int | None
    mapping_then: str | None
    mapping_now: str | None
    coverage: float | None
    served_length: float | None
    token_weighted: float | None
    predicted: float | None


def is_large(gap: float | None) -> bool:
    """Whether serving is worse than foretold by more than noise."""
    return gap is not None and gap < -LARGEST_GAP


def causes(found: Circumstances) -> tuple[CauseCheck, ...]:
    """All known causes, those that are likely to be it first."""
    checks = (
        _averaging(found),
        _template(found),
        _regenerated(found),
        _lengths(found),
        _quantised(found),
        _window(found),
        *_vocabulary(found),
    )
    return tuple(sorted(checks, key=lambda one: ("differs", "unknown", "same").index(one.state)))


def _averaging(found: Circumstances) -> CauseCheck:
    name = "averaging"
    if not found.token_weighted or not found.predicted or not found.served_length:
        return CauseCheck(name, "same", "the prediction counts drafts, as serving does")
    rest = found.token_weighted / found.predicted - 1
    shown = (
        "the trainer averages over tokens, serving over drafts, of which hard prompts take more: over tokens "
        f"serving shows {found.token_weighted:.2f}, {rest:+.1%} of what was foretold"
    )
    explains = found.token_weighted - found.served_length
    missing = found.predicted - found.served_length
    return CauseCheck(name, "differs" if explains > missing / 3 else "same", shown)


def _template(found: Circumstances) -> CauseCheck:
    name = "chat template"
    if found.tokenizer_then and found.tokenizer_now and found.tokenizer_then != found.tokenizer_now:
        return CauseCheck(name, "differs", "the target's tokenizer is not the one of the training")
    other = [pair for pair in found.prompt_tokens if pair[0] != pair[1]]
    if other:
        return CauseCheck(
            name,
            "differs",
            f"{len(other)} of {len(found.prompt_tokens)} prompts have another number of tokens when served "
            f"(such as {other[0][1]} instead of {other[0][0]})",
        )
    if not found.prompt_tokens:
        return CauseCheck(name, "unknown", "no prompt of the training was served")
    return CauseCheck(name, "same", "prompts have as many tokens as in training")


def _regenerated(found: Circumstances) -> CauseCheck:
    name = "answers"
    if found.answers != "target":
        return CauseCheck(
            name,
            "differs",
            "the answers came with the data, and a drafter must imitate the target's own "
            "(data.answers = target)",
        )
    if found.temperature > 0:
        return CauseCheck(
            name,
            "differs",
            f"the answers were sampled at temperature {found.temperature:g}, and measured greedy",
        )
    return CauseCheck(name, "same", "the target answered itself, greedy")


def _lengths(found: Circumstances) -> CauseCheck:
    name = "lengths"
    if found.truncated_share:
        return CauseCheck(
            name,
            "differs",
            f"{found.truncated_share:.0%} of the rows were cut off at data.seq_length {found.seq_length}",
        )
    if found.served_tokens is None or found.longest_row is None:
        return CauseCheck(name, "unknown", "the lengths of the rows are not known")
    if found.served_tokens > found.longest_row:
        return CauseCheck(
            name,
            "differs",
            f"served answers have {found.served_tokens:.0f} tokens on average, the longest row had "
            f"{found.longest_row}",
        )
    return CauseCheck(name, "same", "served answers are no longer than the rows")


def _quantised(found: Circumstances) -> CauseCheck:
    if found.quantization:
        return CauseCheck(
            "quantised target",
            "differs",
            f"the target is quantised ({found.quantization}): states of the extraction server and of a "
            "server with other kernels may differ",
        )
    return CauseCheck("quantised target", "same", "the target is not quantised")


def _window(found: Circumstances) -> CauseCheck:
    name = "sliding window"
    if found.window is None:
        return CauseCheck(name, "same", "the drafter sees everything")
    if found.served_tokens is None:
        return CauseCheck(name, "unknown", f"the drafter sees {found.window} tokens")
    if found.window < found.served_tokens:
        return CauseCheck(
            name, "differs", f"the drafter sees {found.window} tokens, and answers are longer"
        )
    return CauseCheck(
        name, "same", f"the drafter's window of {found.window} tokens holds the answers"
    )


def _vocabulary(found: Circumstances) -> Iterator[CauseCheck]:
    name = "draft vocabulary"
    if found.mapping_then is None:
        yield CauseCheck(name, "same", "the drafter drafts from the whole vocabulary")
        return
    if found.mapping_now is not None and found.mapping_now != found.mapping_then:
        yield CauseCheck(
            name,
            "differs",
            "the map of the draft vocabulary (d2t) was made anew since: its tokens mean others",
        )
    elif found.served_length is not None and found.served_length < _NOTHING:
        yield CauseCheck(
            name,
            "differs",
            "next to nothing is accepted, and the draft vocabulary is a reduced one: see that the server "
            "kept the checkpoint's own head and map (lm_head, d2t), not the target's in their place",
        )
    elif found.coverage is not None and found.coverage < _FEW_COVERED:
        yield CauseCheck(
            name,
            "differs",
            f"it holds {found.coverage:.0%} of the trained tokens: raise algorithm.draft_vocab_size",
        )
    else:
        yield CauseCheck(name, "same", "the map of the draft vocabulary is that of the training")
