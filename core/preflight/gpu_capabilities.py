"""CUDA compute capabilities by the names that drivers give. Data.

From NVIDIA's list, https://developer.nvidia.com/cuda-gpus. A name that is not here is unknown: rules that
need the capability stay silent.
"""

_BY_WORD: tuple[tuple[str, tuple[int, int]], ...] = (
    ("B300", (10, 3)),
    ("B200", (10, 0)),
    ("B100", (10, 0)),
    ("GB10", (12, 1)),
    ("RTX PRO", (12, 0)),
    ("RTX 50", (12, 0)),
    ("H100", (9, 0)),
    ("H200", (9, 0)),
    ("H800", (9, 0)),
    ("H20", (9, 0)),
    ("L40", (8, 9)),
    ("L20", (8, 9)),
    ("L4", (8, 9)),
    ("RTX 40", (8, 9)),
    ("A100", (8, 0)),
    ("A800", (8, 0)),
    ("A30", (8, 0)),
    ("A40", (8, 6)),
    ("A10", (8, 6)),
    ("RTX 30", (8, 6)),
    ("T4", (7, 5)),
    ("V100", (7, 0)),
)


def capability_of(name: str) -> tuple[int, int] | None:
    """Major and minor compute capability of a card; None for a name that is not known."""
    words = name.upper().replace("-", " ")
    for word, capability in _BY_WORD:
        # "L4" must not be found in "L40", nor "A10" in "A100".
        place = words.find(word)
        after = words[place + len(word) : place + len(word) + 1]
        exact = word.startswith("RTX") or not after.isdigit()
        if place >= 0 and exact:
            return capability
    return None
