"""A profile while it is being edited: what the file says, what was changed, what is wrong. Pure."""

import copy
from collections.abc import Iterable

from specpanel.core.preflight.finding import Mend
from specpanel.core.settings.mla import Subject
from specpanel.core.settings.profile import Profile
from specpanel.core.settings.rows import (
    Parsed,
    Row,
    Table,
    parse,
    rows,
    table_of,
    text_of,
    validated,
    with_value,
)


class Draft:
    """The edits over one profile. Each can be undone; the profile itself stays as it is."""

    def __init__(self, profile: Profile) -> None:
        self.saved: Table = table_of(profile)
        self.table: Table = self.saved
        self._past: list[Table] = []
        self._refused: dict[str, Parsed] = {}
        # Until the model was looked at, its form is that of most models: without MLA.
        self._subject = Subject("gqa")
        self._look()

    def _look(self) -> None:
        found = validated(self.table)
        self.profile: Profile | None = found if isinstance(found, Profile) else None
        """What the settings say now, None while something is wrong with them."""
        self.errors: dict[str, str] = {} if isinstance(found, Profile) else found
        """What is wrong, by dotted name."""
        self.rows: tuple[Row, ...] = rows(self.table, self.saved, self._subject)
        for row in self.rows:
            refused = self._refused.get(row.dotted)
            if refused is not None and refused.error and row.value == refused.value:
                self.errors[row.dotted] = refused.error

    @property
    def name(self) -> str:
        return str(self.saved.get("name", ""))

    @property
    def edited(self) -> bool:
        return self.table != self.saved

    def first_error(self) -> tuple[str, str] | None:
        """The topmost setting that is wrong, and why."""
        order = [row.dotted for row in self.rows if row.dotted in self.errors]
        for dotted in (*order, *self.errors):
            return dotted, self.errors[dotted]
        return None

    def give(self, row: Row, text: str) -> None:
        """Sets what was typed; a text that is no value is kept, and told among the errors."""
        parsed = parse(row, text)
        self._refused[row.dotted] = parsed
        saved_drafter = self.saved.get("drafter", {})
        if row.dotted == "drafter.method" and parsed.value == saved_drafter.get("method"):
            self._change({**self.table, "drafter": copy.deepcopy(saved_drafter)})
        else:
            self._change(with_value(self.table, row.dotted, parsed.value))

    def toggle(self, row: Row) -> None:
        """The next of yes and no; of a setting that may be absent, of yes, no and absent."""
        order: Iterable[object] = (True, False, None) if row.optional else (True, False)
        turns = list(order)
        now = row.value if row.value is not None or row.optional else row.default
        place = turns.index(now) if now in turns else -1
        self.give(row, text_of(row, turns[(place + 1) % len(turns)]))

    def reset(self, row: Row) -> None:
        """Back to the default."""
        if row.value is not None:
            self._change(with_value(self.table, row.dotted, None))

    def mend(self, mends: Iterable[Mend]) -> None:
        """Sets what ends a finding, in one edit."""
        table = self.table
        for dotted, value in mends:
            table = with_value(table, dotted, value)
        self._change(table)

    def is_about(self, subject: Subject) -> bool:
        """Offers the settings that mean something for this model and platform; whether that is news."""
        if subject == self._subject:
            return False
        self._subject = subject
        self._look()
        return True

    def undo(self) -> bool:
        """Takes the last edit back; False where there is none."""
        if not self._past:
            return False
        self.table = self._past.pop()
        self._look()
        return True

    def _change(self, table: Table) -> None:
        if table != self.table:
            self._past.append(self.table)
            self.table = table
        self._look()
