"""What vLLM's known error texts mean, and what to change: one table. Pure data.

The texts are vLLM 0.32.0's and those of public reports on other versions, so the patterns are loose. The
first row that fits a text wins, so a row that says more stands before one that says less.
"""

from specpanel.core.engine.cause import Cause, cause
from specpanel.core.engine.causes_machine import INSTALLATION, MACHINE, MEMORY
from specpanel.core.engine.causes_model import ATTENTION, MODEL, SETTINGS
from specpanel.core.engine.causes_speculation import SPECULATION

__all__ = ["KNOWN_CAUSES", "Cause", "cause"]

# A worker's own words come before the settings that led to them; the general rows come last.
KNOWN_CAUSES: tuple[Cause, ...] = (
    *MEMORY,
    *MACHINE,
    *MODEL,
    *ATTENTION,
    *SPECULATION,
    *INSTALLATION,
    *SETTINGS,
)
