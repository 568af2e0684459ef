"""What a person reads before a server is ended that somebody else still needs."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from specpanel.core.engine.registry import ServerRecord


def owner_sentence(record: "ServerRecord | None") -> str:
    """Whose the server is, and what becomes of that without it; empty where nobody else needs it."""
    from specpanel.core.engine.ownership import owner_of

    owner = None if record is None else owner_of(record)
    return "" if record is None or owner is None else f"{owner.without(record.name)}."
