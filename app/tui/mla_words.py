"""The MLA screen's text: settings, tiers by prompt length, why, and advice, as rows of inked text. Pure."""

import math
from collections.abc import Iterator, Sequence

from rich.cells import cell_len

from specpanel.app.tui.charts.cells import runs
from specpanel.app.tui.charts.glyphs import Glyphs
from specpanel.app.tui.ink import Line, Span, clean, fit, shorten, width_of, wrap
from specpanel.app.tui.mla_map import TIER_INKS, mark_of, short, spaced
from specpanel.app.tui.mla_study import LENGTHS, Study
from specpanel.kernels.errors import MLAError
from specpanel.kernels.explain import Explanation
from specpanel.kernels.prompt_steps import Prompt, step_of
from specpanel.kernels.vllm_rules import TIER_TITLES, Tier, decide

TIERS: tuple[Tier, ...] = ("dense_mha", "masked_mha", "sparse_mqa")
NAME_CELLS = 10
_VALUE_CELLS = 14
_ALIGNED_FROM_CELLS = 40
_PROMPT_CELLS, _TIER_CELLS = 8, 13
_COST_CELLS, _NARROW_COST_CELLS = 8, 7
_PATH_FROM_CELLS = 66
_STRIP_LABEL_CELLS = 6


def setting_rows(study: Study, cursor: int, width: int, glyphs: Glyphs) -> list[Line]:
    """A row a setting. A value that differs from the profile's is marked."""
    rows: list[Line] = []
    for number, setting in enumerate(study.settings()):
        here = number == cursor
        room = width - NAME_CELLS - 5
        value = shorten(_fitting(clean(setting.value), room), room, glyphs.ellipsis)
        turn = ("<", ">") if glyphs.name == "ascii" else ("‹", "›")
        left, right = turn if here else (" ", " ")
        ink = "warn" if setting.changed else "strong" if here else "text"
        row: list[Span] = [
            (f" {setting.name:<{NAME_CELLS - 1}}", "key" if here else "muted"),
            (f"{left} ", "key"),
            (value, ink),
            (f" {right}", "key"),
        ]
        pad = max(1, _VALUE_CELLS - len(value)) if width >= _ALIGNED_FROM_CELLS else 1
        left_over = width - width_of(row) - pad
        notes = (clean(note) for note in (setting.note, setting.short_note))
        if note := next((note for note in notes if note and cell_len(note) <= left_over), None):
            row.append((" " * pad + note, "muted"))
        rows.append(fit(row, width, glyphs.ellipsis))
    return rows


def _fitting(name: str, room: int) -> str:
    """A model's name, without what stands before its last slash where there is no room for that."""
    return name if cell_len(name) <= room else name.rpartition("/")[2] or name


def problem_rows(error: MLAError, width: int, explore_key: str) -> list[Line]:
    """Why there is nothing to choose, and what can be looked at instead."""
    rows: list[Line] = [()]
    rows += [((f" {part}", "text"),) for part in wrap(clean(f"{error.message}."), width - 2)]
    if error.fix:
        rows += [((f" {part}", "muted"),) for part in wrap(clean(error.fix), width - 2)]
    rows += [(), ((" ", "text"), (explore_key, "key"), (" looks at a built-in geometry", "muted"))]
    return rows


def strip_rows(found: Explanation, width: int, cursor: int, glyphs: Glyphs) -> list[Line]:
    """The tiers of prompts from the shortest to the longest in a row, and the lengths below it.

    Where chunks of one prompt take different tiers there is a row for the first and one for the last.
    """
    parted = any(len(prompt.tiers) > 1 for prompt in found.prompts)
    label = _STRIP_LABEL_CELLS if parted else 1
    lengths = spaced(LENGTHS[0], LENGTHS[-1], max(8, width - label - 1))
    rows: list[Line] = []
    for name, last in (("first", False), ("last", True)) if parted else (("", False),):
        cells: list[Span] = []
        for tokens in lengths:
            done = (tokens - 1) // found.chunk_tokens * found.chunk_tokens if last else 0
            query = min(tokens - done, found.chunk_tokens)
            tier = decide(found.deployment, step_of(query, done)).tier
            cells.append((mark_of(tier, glyphs), TIER_INKS[tier]))
        rows.append(((f"{name:<{label}}", "muted"), *runs(cells)))
    chosen = LENGTHS[cursor]
    pointer = "^" if glyphs.name == "ascii" else "▲"
    below: list[Span] = [(" ", "axis")] * len(lengths)
    taken = _write_length(below, lengths, chosen, f"{pointer}{short(chosen)}", "key", range(0))
    for tokens in LENGTHS:
        if tokens & (tokens - 1) == 0:
            _write_length(below, lengths, tokens, short(tokens), "axis", taken)
    return [*rows, ((" " * label, "text"), *runs(below))]


def _write_length(
    cells: list[Span], lengths: Sequence[int], tokens: int, name: str, ink: str, taken: range
) -> range:
    """Put a length's name where it stands, unless that is taken; where it was put."""
    at = min(range(len(lengths)), key=lambda place: abs(math.log(lengths[place] / tokens)))
    at = min(at, len(cells) - len(name))
    if at + len(name) >= taken.start and at <= taken.stop and len(taken):
        return taken
    for place, char in enumerate(name, start=at):
        cells[place] = (char, ink)
    return range(at, at + len(name))


def key_row(found: Explanation, glyphs: Glyphs) -> Line:
    """What the marks of the tiers mean; one that cannot fire here is faint."""
    spans: list[Span] = []
    for tier in TIERS:
        fires = tier in found.can_fire
        spans.append((f" {mark_of(tier, glyphs)}", TIER_INKS[tier] if fires else "faint"))
        spans.append((f" {TIER_TITLES[tier]}{'' if fires else ': never'} ", "muted"))
    return tuple(spans)


def table_rows(
    found: Explanation, cursor: int, width: int, height: int, glyphs: Glyphs
) -> list[Line]:
    """A row a prompt: what takes its chunks and its estimated cost, beside that of each tier alone."""
    wide = width >= _PATH_FROM_CELLS
    cells = _COST_CELLS if wide else _NARROW_COST_CELLS
    head = f"{'prompt':>{_PROMPT_CELLS - 1}}  {'vLLM takes':<{_TIER_CELLS}}"
    costs = "".join(f"{name:>{cells}}" for name in ("taken", "dense", "masked", "sparse"))
    rows: list[Line] = [((head + costs + (" ms" if wide else ""), "muted"),)]
    room = max(1, height - 1)
    top = max(0, min(cursor - room // 2, len(found.prompts) - room))
    for number, prompt in enumerate(found.prompts[top : top + room], start=top):
        rows.append(_prompt_row(prompt, glyphs, here=number == cursor, wide=wide))
    return rows


def _prompt_row(prompt: Prompt, glyphs: Glyphs, *, here: bool, wide: bool) -> Line:
    first = prompt.tiers[0]
    spans: list[Span] = [
        (
            f"{'>' if here else ' '}{prompt.tokens:>{_PROMPT_CELLS - 2},}  ",
            "key" if here else "text",
        )
    ]
    spans.append((f"{_taken(prompt, glyphs):<{_TIER_CELLS}}", TIER_INKS[first]))
    cells = _COST_CELLS if wide else _NARROW_COST_CELLS
    spans.append((f"{_ms(prompt.taken_ms):>{cells}}", "strong"))
    alone = [prompt.alone_ms(tier) for tier in TIERS]
    least = min((cost for cost in alone if cost is not None), default=None)
    for cost in alone:
        ink = "faint" if cost is None else "good" if cost == least else "muted"
        spans.append((f"{_ms(cost):>{cells}}", ink))
    if wide:
        spans.append((f"  {_path(prompt)}", "muted"))
    return tuple(spans)


def _taken(prompt: Prompt, glyphs: Glyphs) -> str:
    """The tier of its chunks: the first one's and, where they differ, the last one's."""
    if len(prompt.tiers) == 1:
        return TIER_TITLES[prompt.tiers[0]]
    arrow = ">" if glyphs.name == "ascii" else "→"
    ends = (prompt.tiers[0], prompt.tiers[-1])
    return arrow.join(TIER_TITLES[tier].partition(" ")[0] for tier in ends)


def _path(prompt: Prompt) -> str:
    """How many chunks it takes, those of the first tier apart from the rest."""
    steps = len(prompt.steps)
    if steps == 1:
        return ""
    if len(prompt.tiers) == 1:
        return f"{steps} chunks"
    first = next(n for n, step in enumerate(prompt.steps) if step.decision.tier != prompt.tiers[0])
    return f"{first} + {steps - first} chunks"


def _ms(value: float | None) -> str:
    if value is None:
        return "n/a"
    return f"{value:.3f}" if value < 10 else f"{value:.1f}"


def why_rows(found: Explanation, cursor: int, width: int, glyphs: Glyphs) -> list[Line]:
    """Why the chosen prompt takes its tier and no other, and how a long one goes on."""
    prompt = found.prompts[cursor]
    rows: list[Line] = []
    seen: list[Tier] = []
    for step in prompt.steps:
        taken = step.decision.tier
        if taken in seen[-1:]:
            continue
        seen.append(taken)
        when = f" {prompt.tokens:,} tokens" if not step.context_len else ""
        if step.context_len:
            when = f" then {step.query_len:,} after {step.context_len:,}"
        rows.append(
            (
                (f"{when}: ", "strong"),
                (TIER_TITLES[taken], TIER_INKS[taken]),
                *_decoding(step.decision.decoding),
            )
        )
        for tier in ("dense_mha", "masked_mha"):
            if failed := step.why_not(tier):
                reasons = "; ".join(condition.text for condition in failed)
                mark = (f"  {glyphs.states['exited']} ", "bad")
                rows += _hanging(mark, f"{TIER_TITLES[tier]}: {reasons}", width)
    return rows


def _decoding(decoding: bool) -> Line:
    return ((", because it counts as decoding", "muted"),) if decoding else ()


def advice_rows(
    study: Study, chosen: int, width: int, apply_key: str, glyphs: Glyphs
) -> list[Line]:
    """Advice, that which can be tried first; the chosen one carries the key."""
    rows: list[Line] = []
    for number, advice in enumerate(study.offers):
        here = number == chosen and advice.setting is not None
        mark: Span = (f" {apply_key} ", "key") if here else (f" {glyphs.dot} ", "muted")
        rows += _hanging(mark, advice.text, width, "text" if here else "muted")
        if advice.setting:
            rows += _hanging(("   ", "text"), advice.setting, width, "title-selected")
    return rows


def _hanging(mark: Span, text: str, width: int, ink: str = "muted") -> list[Line]:
    parts = wrap(clean(text), max(1, width - len(mark[0]) - 1))
    return [
        (mark if number == 0 else (" " * len(mark[0]), "text"), (part, ink))
        for number, part in enumerate(parts)
    ]


def progress_rows(
    text: str, done: int, of: int, cells: Sequence[str], width: int, height: int, glyphs: Glyphs
) -> Iterator[Line]:
    """A calibration under way: what is measured now, how far it is, the newest figures."""
    yield ()
    yield ((f" {clean(text)}", "text"),)
    bar = max(4, min(40, width - 14))
    full = 0 if not of else round(bar * min(1.0, done / of))
    block = glyphs.bar[-1]
    share = f" {done}/{of}" if of else ""
    yield (
        (" ", "text"),
        (block * full, "bar"),
        (glyphs.bar_track * (bar - full), "faint"),
        (share, "muted"),
    )
    yield ()
    for cell in cells[-max(0, height - 4) :]:
        yield ((f" {clean(cell)}", "muted"),)
