"""Drafters as plain text for a terminal: the table, one drafter in full, and what fits a target."""

import shlex
import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from specpanel.core.printable import one_line

if TYPE_CHECKING:
    from specpanel.core.checkpoints.config import ModelConfig
    from specpanel.core.matching.fit import Match
    from specpanel.core.settings.drafters.table import Cell, DrafterFacts
    from specpanel.core.settings.rows import Row

WIDTH = 80
MARKS = {"yes": "✓", "part": "~", "no": "–", "unknown": "?"}
_COLUMNS = (
    ("V1", "v1"),
    ("V2", "v2"),
    ("CUDA", "cuda"),
    ("ROCm", "rocm"),
    ("CPU", "cpu"),
    ("LoRA", "lora"),
    ("PP", "pipeline_parallel"),
    ("DP", "data_parallel"),
    ("PC", "prefix_caching"),
    ("SO", "structured_output"),
    ("train", "trainable"),
    ("swap", "hot_swap"),
)
CELL_TITLES = {
    "v1": "model runner V1",
    "v2": "model runner V2",
    "cuda": "CUDA",
    "rocm": "ROCm",
    "cpu": "CPU",
    "lora": "LoRA",
    "pipeline_parallel": "pipeline parallel",
    "data_parallel": "data parallel",
    "prefix_caching": "prefix caching",
    "structured_output": "structured output",
    "trainable": "trainable",
    "hot_swap": "hot-swappable",
}
_FIT_MARKS = {"yes": "✓", "perhaps": "~", "no": "✗"}


def table_lines(every: Sequence["DrafterFacts"], read_from: str) -> Iterator[str]:
    """One line a drafter, 80 columns wide, and what the marks mean."""
    name = max(len(facts.method) for facts in every) + 1
    needs = max(len(facts.needs) for facts in every) + 1
    yield f"{'drafter':<{name}}{'needs':<{needs}}" + " ".join(title for title, _ in _COLUMNS)
    for facts in every:
        cells = [
            f"{MARKS[getattr(facts, field).support]:^{len(title)}}" for title, field in _COLUMNS
        ]
        yield f"{facts.method:<{name}}{facts.needs:<{needs}}{' '.join(cells)}".rstrip()
    yield ""
    yield "✓ yes  ~ on a condition  – no  ? not tried: specpanel drafters show NAME"
    yield "V1, V2 model runners; PP, DP pipeline and data parallel; PC prefix caching;"
    yield "SO structured output; train with Speculators; swap weights while serving."
    yield f"Read from vLLM {read_from}."


def fact_lines(facts: "DrafterFacts", rows: Sequence["Row"], read_from: str) -> Iterator[str]:
    """Everything about one drafter: what it is, where it works, its settings."""
    yield f"{facts.method}: {facts.title}"
    yield from _filled(facts.about, "  ")
    yield f"  needs {facts.needs}; vLLM's method is {facts.vllm_method or 'none'}"
    yield ""
    width = max(map(len, CELL_TITLES.values()))
    for field, title in CELL_TITLES.items():
        cell: Cell = getattr(facts, field)
        first = f"  {MARKS[cell.support]} {title:<{width}}  "
        yield from _filled(cell.note or "", first) if cell.note else [first.rstrip()]
    for number, row in enumerate(rows):
        if not number:
            yield ""
            yield "settings (drafter.NAME in a profile, --set drafter.NAME=VALUE)"
        default = "needed" if row.required else "left to vLLM"
        if row.default not in (None, "", [], False):
            default = str(row.default)
        elif row.default is False:
            default = "no"
        kind = ", ".join(row.choices) if 0 < len(row.choices) <= 4 else row.bounds or row.kind
        yield f"  {row.name}  [{kind}; {default}]  {row.reference or ''}".rstrip()
        yield from _filled(row.help, "      ")
    yield ""
    yield from _filled(f"vLLM {read_from}: {', '.join(facts.source)}", "  ")


def target_line(target: "ModelConfig") -> str:
    """The target in one line."""
    parts = [one_line(target.architectures[0], 60)] if target.architectures else []
    for number, word in (
        (target.layers, "layers"),
        (target.hidden_size, "wide"),
        (target.vocab_size, "tokens of vocabulary"),
    ):
        if number is not None:
            parts.append(f"{number} {word}")
    return (
        f"{one_line(target.folder.name, 60)}: {', '.join(parts) or 'its config.json says little'}"
    )


def match_lines(matches: Sequence["Match"], model: str) -> Iterator[str]:
    """The drafters that fit and those that do not, each with its reasons."""
    width = max((len(match.method) for match in matches), default=0)
    for match in matches:
        mark = _FIT_MARKS[match.fits]
        wanted = [reason for reason in match.reasons if reason.kind == "against"]
        reasons = wanted if match.fits == "no" else match.reasons
        text = "; ".join(one_line(reason.text) for reason in reasons)
        yield from _filled(text, f"{mark} {match.method:<{width}}  ")
        if match.model is not None:
            yield f"  {'':<{width}}  {one_line(match.model, 400)}"
    best = next((match for match in matches if match.fits != "no"), None)
    if best is not None:
        yield ""
        yield f"Try the first: {one_line(shlex.join(run_command(best, model)), 2000)}"


def run_command(match: "Match", model: str) -> list[str]:
    """The command that launches the target with this drafter."""
    command = ["specpanel", "run", "--model", model, "--drafter", match.method]
    if match.model is not None:
        command += ["--draft-model", match.model]
    return [*command, "--k", str(match.k)]


def _filled(text: str, first: str) -> list[str]:
    """``text`` within the width, ``first`` before it and as much room before its other lines."""
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent=" " * len(first),
        break_long_words=False,
        break_on_hyphens=False,
    ) or [first.rstrip()]
