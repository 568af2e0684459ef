"""Text from outside, made fit to be shown."""


def one_line(text: str, limit: int = 200) -> str:
    """``text`` as one printable line of at most ``limit`` characters."""
    flat = " ".join(text[: 4 * limit].split())
    shown = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in flat)
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"
