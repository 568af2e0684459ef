"""What of a profile its user wrote, where the environment lies over its file. Pure."""

from collections.abc import Iterable
from typing import Any

from specpanel.core.settings.profile import Profile
from specpanel.core.settings.rows import Table, table_of, with_value


def without_laid_over(
    edited: Profile, laid: Profile, own: Profile, names: Iterable[str]
) -> Profile:
    """``edited`` as it is to be written: settings that only the environment gave are those of the file.

    One that was changed since stays changed, and a drafter whose settings were changed stays whole.

    Args:
        laid: the file's profile with the environment over it, where the edits began.
        own: what the file says by itself.
        names: dotted names of what the environment gave.
    """
    table, before, file = table_of(edited), table_of(laid), table_of(own)
    method = before["drafter"]["method"] != file["drafter"]["method"]
    if method and table["drafter"] == before["drafter"]:
        table["drafter"] = file["drafter"]
    drafter_stays = method or table["drafter"] != before["drafter"]
    for dotted in names:
        if drafter_stays and dotted.startswith("drafter."):
            continue
        if _value(table, dotted) != _value(before, dotted):
            continue
        table = with_value(table, dotted, _value(file, dotted))
    return Profile.model_validate({**table, "name": edited.name})


def _value(table: Table, dotted: str) -> Any:
    section, _, name = dotted.partition(".")
    return table.get(section, {}).get(name)
