"""The dialog that explains: what is wrong with acceptance, and what vLLM chose against what was wished."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content

from specpanel.app.tui.ink import clean, fit, text_of
from specpanel.app.tui.keys import bindings
from specpanel.app.tui.screens.dialogs import Dialog
from specpanel.core.monitor.frame import Frame
from specpanel.core.monitor.reasons import NO_DRAFTER

if TYPE_CHECKING:
    from specpanel.core.engine.chosen import Choice
    from specpanel.core.session.explaining import Explanation
    from specpanel.core.speculation.pathologies import Pathology

FEW_DRAFTS = 100
_STYLES = {"error": "$error", "warning": "$warning", "note": "$ink-muted"}


class WhyScreen(Dialog[None]):
    """Findings with their evidence and causes, then chosen against wished."""

    title_text = "Why"
    BINDINGS: ClassVar[list[BindingType]] = [
        *bindings("why"),
        Binding("down,j", "scroll_body(1)", show=False),
        Binding("up,k", "scroll_body(-1)", show=False),
        Binding("pagedown,space", "scroll_body(10)", show=False),
        Binding("pageup", "scroll_body(-10)", show=False),
    ]

    def __init__(
        self,
        findings: "Sequence[Pathology]",
        explanation: "Explanation | None" = None,
        frame: Frame | None = None,
    ) -> None:
        super().__init__()
        self._findings = tuple(findings)
        self._explanation = explanation
        self._frame = frame

    def action_scroll_body(self, rows: int) -> None:
        self.query_one(".dialog-body").scroll_relative(y=rows, animate=False)

    def body(self) -> Sequence[Content]:
        paragraphs = [_finding(found) for found in self._findings] or [
            Content(f"{_no_finding(self._frame)}\n")
        ]
        work = rejected_words(self._frame)
        if work is not None:
            paragraphs.append(Content(f"{work}\n"))
        if self._explanation is not None and self._explanation.choices:
            paragraphs.append(_choices(self._explanation.choices))
            if self._explanation.remarks:
                paragraphs.append(_remarks(self._explanation.remarks))
        return paragraphs


def _no_finding(frame: Frame | None) -> str:
    """What no finding means: it is no praise where there is nothing to judge by."""
    if frame is None or frame.totals is None:
        return "There are no figures to judge by: no server is watched, or it has not answered yet."
    if frame.server.state in ("exited", "stopped"):
        return "The server has ended: there is no acceptance to judge now."
    speculation = frame.speculation
    if speculation is None:
        return (
            "The metrics do not answer at the moment, so nothing is known of the acceptance now. "
            "What was counted before stays in the charts."
        )
    if speculation.absent == NO_DRAFTER:
        return "There is no drafter, so there is no acceptance to judge."
    if speculation.lifetime_drafts < FEW_DRAFTS:
        made = speculation.lifetime_drafts
        return f"Only {made} drafts were made so far: too few to say anything of the acceptance."
    return "Nothing is wrong with the acceptance, as far as the counters tell."


def rejected_words(frame: Frame | None) -> str | None:
    """What the target verified for nothing in the window; None where nothing was drafted."""
    sample = None if frame is None else frame.speculation
    if sample is None or not sample.draft_tokens or sample.window_s <= 0:
        return None
    rejected = sample.draft_tokens - sample.accepted_tokens
    return (
        f"In the last {sample.window_s:.0f} s {rejected / sample.window_s:.1f} draft tokens a second were "
        f"verified and rejected, {rejected / sample.draft_tokens:.0%} of those drafted."
    )


def _finding(found: "Pathology") -> Content:
    rows = [Content.styled(clean(found.sentence), _STYLES[found.severity])]
    rows += [Content.styled(clean(evidence), "$ink-muted") for evidence in found.evidence]
    for number, cause in enumerate(found.causes, start=1):
        setting = f"  {cause.setting}" if cause.setting else ""
        rows.append(Content.assemble(f"{number}. {clean(cause.text)}", (setting, "$accent")))
        rows.append(Content.styled(f"   {clean(cause.tell)}", "$ink-muted"))
    return Content("\n").join(rows) + "\n"


def _choices(choices: "Sequence[Choice]") -> Content:
    rows = [Content.styled(f"{'':<26}{'chosen':<22}wished", "bold")]
    for choice in choices:
        chosen = clean(choice.chosen or "not said")
        wished = clean(choice.wished or ("left to vLLM" if choice.setting else ""))
        style = "$error" if choice.agrees is False else "$ink-muted"
        mark = "  otherwise" if choice.agrees is False else ""
        rows.append(
            Content.assemble(
                text_of(fit(((f"{clean(choice.name)} ", ""),), 26))
                + text_of(fit(((f"{chosen} ", ""),), 22)),
                (f"{wished}{mark}", style),
            )
        )
    return Content("\n").join(rows) + "\n"


def _remarks(remarks: Sequence[str]) -> Content:
    rows = [Content.styled("vLLM's own remarks", "bold")]
    rows += [Content.styled(clean(remark), "$ink-muted") for remark in remarks]
    return Content("\n").join(rows) + "\n"
