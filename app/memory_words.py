"""The memory estimate in words, for the command line and the panel alike."""

from specpanel.core.preflight.memory_estimate import MemoryEstimate

_NOT_READ = "no weights were read"  # as the estimate says it


def memory_sentences(found: MemoryEstimate) -> tuple[str, ...]:
    """The estimate in a line or two; what is not known says why."""
    sizes = [
        f"{line.name} {size_text(line.size_bytes)}"
        for line in found.lines
        if line.name.startswith("weights") or line.name == "KV cache"
    ]
    told = [f"{', '.join(sizes)} ({found.place})"] if sizes else []
    if found.tokens is not None and found.concurrency is not None:
        told.append(
            f"{found.tokens:,} tokens fit: {found.concurrency:.1f} requests of "
            f"{found.max_model_len:,}"
        )
    elif found.unknown:
        told.append(f"how many tokens fit is not known: {found.unknown}")
    return tuple(told)


def not_judged(found: MemoryEstimate) -> tuple[str, ...]:
    """What could not be looked at, each with why: the weights of a model, how much the KV cache holds."""
    told = [
        f"{line.name} ({_why_unread(line.basis)})"
        for line in found.lines
        if line.name.startswith("weights") and line.size_bytes is None
    ]
    if found.unknown:
        told.append(f"KV cache ({found.unknown})")
    return tuple(told)


def _why_unread(basis: str) -> str:
    reason = basis.partition(", over ")[0]
    return "the model's files are not here" if reason == _NOT_READ else reason


def memory_rows(found: MemoryEstimate) -> list[str]:
    """The estimate as a table, one row a line, its assumptions below."""
    rows = [
        (line.name, size_text(line.size_bytes), line.basis) for line in found.lines if line.name
    ]
    if found.tokens is not None and found.concurrency is not None:
        basis = f"{found.concurrency:.2f} requests of {found.max_model_len:,} (max_model_len)"
        rows.append(("tokens that fit", f"{found.tokens:,}", basis))
    if found.longest is not None:
        rows.append(("longest max_model_len", f"{found.longest:,}", "one request alone"))
    names = max(len(name) for name, _, _ in rows)
    sizes = max(len(size) for _, size, _ in rows)
    table = [f"  {name:<{names}}  {size:>{sizes}}  {basis}" for name, size, basis in rows]
    heading = f"{found.place}, an estimate for each rank"
    below = [f"  assumed: {text}" for text in found.assumptions]
    if found.unknown:
        below.append(f"  not known: {found.unknown}")
    return [heading, *table, *below]


def size_text(size_bytes: int | None) -> str:
    if size_bytes is None:
        return "n/a"
    for unit, size in (("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024)):
        if size_bytes >= size:
            return f"{size_bytes / size:.2f} {unit}"
    return f"{size_bytes} B"
