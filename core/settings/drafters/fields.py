"""Fields that several drafters share, each with the line of vLLM 0.32.0 that declares it. Pure.

Where vLLM has a default of its own, the field is None and the help tells the default: what is None is
not written, so that another vLLM may decide otherwise.
"""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from specpanel.core.settings.drafters.schedule import schedule_words

# Version that methods, fields and source lines were read from.
READ_FROM = "vLLM 0.32.0"
FLAG = "--speculative-config"

RejectionMethod = Literal["standard", "block", "synthetic"]
SampleMethod = Literal["greedy", "probabilistic"]


def declared(line: int) -> dict[str, Any]:
    """What a drafter's field carries beside its help: vLLM's flag, and where vLLM declares it."""
    return {"flag": FLAG, "reference": f"config/speculative.py:{line}"}


def setting(default: Any, help_text: str, line: int, **constraints: Any) -> Any:
    """A field of ``--speculative-config``, declared at ``line`` of vLLM's ``config/speculative.py``."""
    return Field(
        default=default, description=help_text, json_schema_extra=declared(line), **constraints
    )


DraftTokens = Annotated[
    int,
    Field(
        gt=0,
        le=128,
        title="draft tokens (K)",
        description="Draft tokens proposed a step (K, vLLM's num_speculative_tokens).",
        json_schema_extra=declared(393),
    ),
]
DraftModel = Annotated[
    str,
    Field(
        min_length=1,
        title="draft model",
        description="Folder or hub id of the drafter's weights.",
        json_schema_extra=declared(396),
    ),
]
BatchSchedule = Annotated[
    tuple[str, ...],
    BeforeValidator(schedule_words),
    Field(
        title="K by batch size",
        description="Another K for some numbers of running requests, as FIRST-LAST:K with blanks "
        "between: 1-4:5 5-16:3 17-64:0. The first range starts at 1, 0 drafts nothing, and gaps keep "
        "the K before them. Fixed at the start; switched off by vLLM under data parallelism.",
        json_schema_extra=declared(491),
    ),
]
