"""The panes of the MLA screen: what is tried, the tiers and why, the maps, the advice."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from specpanel.app.tui.charts.glyphs import BRAILLE, Glyphs
from specpanel.app.tui.ink import Line, clean, fit, wrap
from specpanel.app.tui.mla_map import (
    LABEL_CELLS,
    Axes,
    Gain,
    Taken,
    b200_takes,
    estimated_gain,
    gain_map,
    measured_axes,
    measured_gain,
    ours_takes,
    query_axis,
    scale_line,
    tier_map,
    vllm_takes,
    wide_axes,
)
from specpanel.app.tui.mla_study import LENGTHS, Study
from specpanel.app.tui.mla_words import (
    advice_rows,
    key_row,
    problem_rows,
    progress_rows,
    setting_rows,
    strip_rows,
    table_rows,
    why_rows,
)
from specpanel.app.tui.widgets.pane import Pane
from specpanel.kernels.calibrate import Calibration

_LEAST_BLOCK_CELLS = 30
_GAP = "  "


class MlaPane(Pane):
    """A pane that shows the study; its keys are named as they are bound."""

    def __init__(self, title: str, *, glyphs: Glyphs = BRAILLE, id: str) -> None:
        super().__init__(title, glyphs=glyphs, id=id)
        self.study: Study | None = None

    def show(self, study: Study) -> None:
        self.study = study
        self.redraw()


class SettingsPane(MlaPane):
    """The settings being tried, and below them what they come to."""

    def __init__(self, *, glyphs: Glyphs) -> None:
        super().__init__("Serving", glyphs=glyphs, id="mla-settings")
        self.cursor = 1
        self.profile = ""
        self.selected = True
        self.assumed_gpu = False

    def legend(self) -> Line:
        if self.study is None:
            return ()
        changed = (" *", "warn") if self.study.changed else ("", "muted")
        return ((clean(self.profile) or "no profile", "muted"), changed)

    def place_at(self, row: int) -> int | None:
        place = row - 1
        return place if self.study is not None and 0 <= place < len(self.study.settings()) else None

    def compose_inside(self, width: int, height: int) -> Sequence[Line]:
        if self.study is None:
            return [((" reading the profiles", "muted"),)]
        rows = setting_rows(self.study, self.cursor, width, self.glyphs)
        found = self.study.explanation
        if found is not None:
            limit = found.deployment.decode_threshold
            told = f"up to {limit:,} new tokens count as decoding"
            if self.assumed_gpu:
                told = f"no known GPU was found here: {self.study.gpu.name} is assumed; {told}"
            rows += [(), *(((f" {part}", "muted"),) for part in wrap(told, width - 2))]
            for rejection in found.passed_over:
                text = f"passed over {rejection.backend}: {rejection.reason}"
                rows += [((f" {part}", "muted"),) for part in wrap(text, width - 2)]
        return rows[:height]


class TiersPane(MlaPane):
    """Which tier a prompt takes by its length, what each would cost, and why."""

    def __init__(self, *, glyphs: Glyphs) -> None:
        super().__init__("Tiers", glyphs=glyphs, id="mla-tiers")
        self.cursor = LENGTHS.index(4096)
        self.explore_key = "p"

    def legend(self) -> Line:
        found = None if self.study is None else self.study.explanation
        return () if found is None else (("ms a layer and rank, estimated", "muted"),)

    def compose_inside(self, width: int, height: int) -> Sequence[Line]:
        if self.study is None:
            return []
        found = self.study.explanation
        if found is None:
            error = self.study.error
            return [] if error is None else problem_rows(error, width, self.explore_key)
        strip = strip_rows(found, width, self.cursor, self.glyphs)
        why = why_rows(found, self.cursor, width, self.glyphs)
        room = height - len(strip) - 2 - min(len(why), max(2, height // 3))
        table = table_rows(
            found, self.cursor, width, max(2, min(room, len(LENGTHS) + 1)), self.glyphs
        )
        head = [key_row(found, self.glyphs), *strip, *table]
        return [*head, (), *why][:height] if height > len(head) + 1 else head[:height]


class AdvicePane(MlaPane):
    """What could be changed; one advice is chosen."""

    def __init__(self, *, glyphs: Glyphs) -> None:
        super().__init__("Advice", glyphs=glyphs, id="mla-advice")
        self.chosen = 0
        self.apply_key = "a"
        self.drift: str | None = None
        self.drift_known = ""

    def legend(self) -> Line:
        if self.drift:
            return ((f"{self.glyphs.states['warning']} another vLLM", "bad"),)
        return ((self.drift_known, "muted"),) if self.drift_known else ()

    def compose_inside(self, width: int, height: int) -> Sequence[Line]:
        rows: list[Line] = []
        if self.drift:
            mark = self.glyphs.states["warning"]
            parts = wrap(clean(self.drift), max(1, width - 4))
            rows += [
                ((f" {mark if number == 0 else ' '} ", "bad"), (part, "bad"))
                for number, part in enumerate(parts)
            ]
        if self.study is not None:
            rows += advice_rows(self.study, self.chosen, width, self.apply_key, self.glyphs)
        if not rows:
            words = wrap("none while there is nothing to choose", max(1, width - 2))
            rows = [((f" {part}", "muted"),) for part in words]
        if len(rows) > height > 1:
            hidden = len(rows) - height + 1
            return [
                *rows[: height - 1],
                ((f" {self.glyphs.ellipsis} {hidden} more lines", "muted"),),
            ]
        return rows[:height]


@dataclass(slots=True)
class Progress:
    """A calibration that is under way."""

    text: str = "starting"
    done: int = 0
    of: int = 0
    cells: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Block:
    title: str
    gain: Gain | None = None
    taken: Taken | None = None


class MapPane(MlaPane):
    """New tokens by cached tokens: estimated or measured gain, our thresholds, vLLM's choice."""

    def __init__(self, *, glyphs: Glyphs) -> None:
        super().__init__("MQA / MHA", glyphs=glyphs, id="mla-map")
        self.calibration: Calibration | None = None
        self.measured = False
        self.progress: Progress | None = None
        self.in_colors = True

    @property
    def heads(self) -> int | None:
        """Of the calibration, the number of heads that is shown."""
        if self.calibration is None or not self.calibration.cells:
            return None
        return min(cell.heads for cell in self.calibration.cells)

    def legend(self) -> Line:
        if self.progress is not None:
            return (("calibrating", "warn"),)
        found = self.calibration
        if self.measured and found is not None:
            return (
                (
                    f"measured: {clean(found.key.device)}, {found.key.engine}, {self.heads} heads",
                    "muted",
                ),
            )
        return (("estimated, by new and by cached tokens", "muted"),)

    def compose_inside(self, width: int, height: int) -> Sequence[Line]:
        if self.progress is not None:
            seen = self.progress
            return list(
                progress_rows(seen.text, seen.done, seen.of, seen.cells, width, height, self.glyphs)
            )
        blocks = self._blocks()
        if not blocks or height < 4:
            return [((" no map without tiers to choose from", "muted"),)] if not blocks else []
        room = width - 1
        beside = max(1, min(len(blocks), (room + len(_GAP)) // (_LEAST_BLOCK_CELLS + len(_GAP))))
        stacked = -(-len(blocks) // beside)
        block_width = (room - len(_GAP) * (beside - 1)) // beside
        block_height = (height - 1) // stacked
        rows: list[Line] = []
        for first in range(0, len(blocks), beside):
            drawn = [
                self._draw(block, block_width, block_height)
                for block in blocks[first : first + beside]
            ]
            for parts in zip(*drawn, strict=True):
                row: Line = ((" ", "text"),)
                for number, part in enumerate(parts):
                    row = (*row, *(((_GAP, "text"),) if number else ()), *fit(part, block_width))
                rows.append(row)
        rows.append(
            ((" ", "text"), *scale_line(self.glyphs, colors=self.in_colors), *self._regret())
        )
        return rows

    def _regret(self) -> Line:
        regret = self.calibration.regret() if self.measured and self.calibration else None
        if regret is None:
            return ()
        return (
            (f"   thresholds lose {regret[0]:.1%} on average, {regret[1]:.1%} at worst", "muted"),
        )

    def _blocks(self) -> list[_Block]:
        found, heads = self.calibration, self.heads
        if self.measured and found is not None and heads is not None:
            cells = [cell for cell in found.cells if cell.heads == heads]
            ours = [_Block("ours: calibrated thresholds", taken=ours_takes(found, heads))]
            return [
                _Block("time of MQA over MHA", gain=measured_gain(cells)),
                *(ours if heads in found.rows else []),
                _Block("vLLM's table (B200)", taken=b200_takes(found, heads)),
            ]
        explanation = None if self.study is None else self.study.explanation
        if explanation is None:
            return []
        return [
            _Block("time of MQA over MHA", gain=estimated_gain(explanation)),
            _Block(f"vLLM on {explanation.serving.gpu.name}", taken=vllm_takes(explanation)),
        ]

    def _axes(self, columns: int, rows: int) -> Axes:
        found, heads = self.calibration, self.heads
        if self.measured and found is not None and heads is not None:
            cells = [cell for cell in found.cells if cell.heads == heads]
            return measured_axes(cells, columns, rows)
        return wide_axes(columns, rows)

    def _draw(self, block: _Block, width: int, height: int) -> list[Line]:
        rows = max(1, height - 2)
        columns = max(2, width - LABEL_CELLS)
        axes = self._axes(columns, rows * (2 if self.in_colors else 1))
        if block.gain is not None:
            body = gain_map(axes, block.gain, self.glyphs, colors=self.in_colors)
        else:
            assert block.taken is not None
            body = tier_map(axes, block.taken, self.glyphs, colors=self.in_colors)
        title: Line = ((f"{'':>{LABEL_CELLS}}{block.title}", "text"),)
        return [title, *body, query_axis(axes, self.glyphs)]
