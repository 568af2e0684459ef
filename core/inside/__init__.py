"""Programs that run inside another interpreter (vLLM's or the trainer's), never in the panel."""

from pathlib import Path

# Where the programs lie: run by path, for the other interpreter need not hold specpanel.
INSIDE = Path(__file__).parent
