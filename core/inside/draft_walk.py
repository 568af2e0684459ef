"""What greedy drafting would have accepted on validation answers, told by an EAGLE trainer's own predictions.

The trainer averages over every token of an answer. A server does not draft at every token: after a draft of
which three tokens were accepted it goes on four tokens later, so that easy stretches, which the average
counts token by token, are passed in a few drafts. Here each answer is walked as a server does: draft where
one is, accept what agrees, go on behind the next token. The acceptance length is tokens passed / drafts.
"""

from typing import Any

import torch


class DraftWalk:
    """Gathers, pack by pack, how many tokens a draft at each place would have had accepted."""

    def __init__(self) -> None:
        self._answers: torch.Tensor | None = None
        self._accepted: torch.Tensor | None = None
        self.drafts = 0
        self.by_position: list[int] = []
        """Drafts whose token at this position, and all before it, were accepted."""

    def agreed(self, position: int, answers: torch.Tensor, agreeing: torch.Tensor) -> None:
        """What agrees at ``position`` and at all before it.

        Shapes [1, tokens]: ``answers`` is true for the tokens of answers, ``agreeing[0, t]`` for a draft that
        begins at t. Position 0 begins a new pack.
        """
        if position == 0:
            self._pass()
            self._answers = answers[0].bool().cpu()
            self._accepted = torch.zeros(answers.shape[-1], dtype=torch.long)
        if self._accepted is None:
            return
        known = answers.shape[-1] - position
        self._accepted[:known] += agreeing[0, :known].long().cpu()
        self.by_position += [0] * (position + 1 - len(self.by_position))

    def told(self) -> dict[str, Any] | None:
        """The walk over all packs so far, which is then forgotten; None where there were none."""
        self._pass()
        found = {"drafts": self.drafts, "accepted_by_position": self.by_position}
        self.drafts, self.by_position = 0, []
        return found if found["drafts"] else None

    def _pass(self) -> None:
        """Walk the answers of the pack that is complete now."""
        if self._answers is None or self._accepted is None:
            return
        answers, accepted = self._answers.tolist(), self._accepted.tolist()
        self._answers = self._accepted = None
        place = 0
        while place < len(answers):
            if not answers[place]:
                place += 1
                continue
            self.drafts += 1
            for position in range(accepted[place]):
                self.by_position[position] += 1
            # Where an answer ends, the next one begins; a draft does not reach from one into another.
            behind = place + 1
            while behind <= place + accepted[place] and behind < len(answers) and answers[behind]:
                behind += 1
            place = behind


def walk_validation(walk: DraftWalk) -> None:
    """Have the EAGLE-3 trainer tell ``walk`` what agrees, in validation only.

    Nothing is changed where its model is compiled (CUDA): what is hooked into would be traced away.
    """
    from speculators.models.eagle3 import core

    if torch.cuda.is_available():
        return
    compute = core.compute_metrics

    def and_told(
        logits: Any,
        targets: Any,
        loss_mask: Any,
        prev_correct: Any,
        ttt_step: int,
        *rest: Any,
        **named: Any,
    ) -> Any:
        found = compute(logits, targets, loss_mask, prev_correct, ttt_step, *rest, **named)
        if not torch.is_grad_enabled() and loss_mask is not None and prev_correct is not None:
            walk.agreed(ttt_step, loss_mask, prev_correct)
        return found

    core.compute_metrics = and_told
