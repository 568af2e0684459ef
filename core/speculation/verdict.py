"""Whether speculation pays, in one word and one honest sentence.

The word comes from measured cost alone: time per output token with the drafter over without. Acceptance
says how many tokens a step yields, not how much longer the step became, so it never makes a verdict.
"""

from dataclasses import dataclass
from typing import Literal

from specpanel.core.monitor.frame import Interval
from specpanel.core.speculation.paired import FEW_PAIRS, PairedRatio

Word = Literal["pays", "neutral", "costs", "unknown"]

PHRASES: dict[Word, str] = {
    "pays": "speculation pays",
    "neutral": "speculation makes no difference to speak of",
    "costs": "speculation costs",
    "unknown": "unknown, the interval reaches to both sides of 1",
}
NEUTRAL_BAND = 0.03  # a difference within 3 % is none that a user would feel


Source = Literal["baseline", "measured", "break-even", "none"]
"""The run's own baseline, an experiment at this load, the break-even curve, or nothing yet."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """``word`` for programs, ``sentence`` for people, without a full stop at its end.

    ``ratio`` is time per output token with the drafter over without; ``experiment`` names the result in
    the store that it comes from.
    """

    word: Word
    sentence: str
    ratio: float | None = None
    interval: Interval | None = None
    source: Source = "none"
    experiment: str | None = None


def verdict(paired: PairedRatio | None, *, acceptance_length: float | None = None) -> Verdict:
    """What a comparison with plain decoding shows; "unknown" where there is none.

    Args:
        paired: the comparison; ``None`` when no baseline was measured.
        acceptance_length: named in the sentence when there is no baseline, and never decisive.
    """
    if paired is None or paired.ratio is None:
        return Verdict("unknown", _without_baseline(paired, acceptance_length))
    interval = paired.ratio_interval
    if interval is None:
        return Verdict(
            "unknown",
            f"unknown: {paired.ratio:.2f} times the time per output token on one prompt, "
            "too little to tell",
            ratio=paired.ratio,
            source="baseline",
        )
    word = word_of(interval)
    sentence = f"{PHRASES[word]}: {_figures(interval, paired.pairs)}"
    return Verdict(word, sentence, paired.ratio, interval, "baseline")


def word_of(interval: Interval) -> Word:
    """What the interval of a ratio of times per output token shows; below 1 speculation pays."""
    if interval.low >= 1 - NEUTRAL_BAND and interval.high <= 1 + NEUTRAL_BAND:
        return "neutral"
    if interval.high < 1:
        return "pays"
    return "costs" if interval.low > 1 else "unknown"


def _figures(interval: Interval, pairs: int) -> str:
    text = (
        f"an output token takes {interval.estimate:.2f} times as long as without the drafter "
        f"(95 % interval {interval.low:.2f} to {interval.high:.2f}, {pairs} prompts)"
    )
    return text if pairs >= FEW_PAIRS else f"{text}; so few prompts are a hint, no proof"


def _without_baseline(paired: PairedRatio | None, acceptance_length: float | None) -> str:
    if paired is not None:
        return f"unknown: {paired.note or 'nothing to compare'}"
    text = "unknown: nothing was measured without the drafter, which run --baseline does"
    if acceptance_length is None:
        return text
    return f"{text}; {acceptance_length:.2f} tokens a step say nothing of how long a step takes"
