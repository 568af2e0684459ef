"""The profiles that the Launch screen chooses from, and the edits over each. Pure."""

from collections.abc import Sequence

from pydantic import ValidationError

from specpanel.app.tui.screens.launch_draft import Draft
from specpanel.core.settings.files import ProfileFile
from specpanel.core.settings.profile import Profile, is_profile_name

_FIRST_PRESET = "demo-ngram"  # runs on any machine


class Shelf:
    """What was read from the folders of profiles; one of them is chosen."""

    def __init__(self, chosen: str | None = None) -> None:
        self.files: tuple[ProfileFile, ...] = ()
        self.chosen = chosen
        self._drafts: dict[str, Draft] = {}

    @property
    def names(self) -> list[str]:
        return [file.name for file in self.files]

    @property
    def file(self) -> ProfileFile | None:
        return next((file for file in self.files if file.name == self.chosen), None)

    @property
    def draft(self) -> Draft | None:
        """The edits over the chosen profile; None where it is broken or none is chosen."""
        file = self.file
        if file is None or file.profile is None:
            return None
        draft = self._drafts.get(file.name)
        if draft is None:
            draft = self._drafts[file.name] = Draft(file.profile)
        return draft

    @property
    def edited(self) -> list[str]:
        return [name for name, draft in self._drafts.items() if draft.edited]

    def fill(self, files: Sequence[ProfileFile], running: str | None) -> None:
        """Takes what was read anew. Edits stay; what is chosen stays where it is still there."""
        self.files = tuple(files)
        # A draft without edits says nothing that its file does not say better by now.
        self._drafts = {name: draft for name, draft in self._drafts.items() if draft.edited}
        if self.chosen not in self.names:
            self.chosen = self._first(running)

    def _first(self, running: str | None) -> str | None:
        """The profile that runs, else the first of the user's, else a preset that works anywhere."""
        good = [file for file in self.files if file.error is None]
        names = [file.name for file in good]
        wanted = (running, *(file.name for file in good if file.origin == "yours"), _FIRST_PRESET)
        return next((name for name in wanted if name in names), next(iter(names), None))

    def step(self, step: int) -> None:
        """Chooses the next profile, or one further; after the last comes the first."""
        names = self.names
        if names:
            place = names.index(self.chosen) if self.chosen in names else 0
            self.chosen = names[(place + step) % len(names)]

    def named(self, name: str) -> Profile | str:
        """What the draft says under another name, or why it cannot be written so."""
        draft, file = self.draft, self.file
        if any(file.name == name and file.origin == "preset" for file in self.files):
            return f"{name} is a preset and stays as it is; choose another name"
        if not is_profile_name(name):
            return f"{name} cannot be the name of a profile: letters, digits and . - _ +"
        try:
            profile = Profile.model_validate({**(draft.table if draft else {}), "name": name})
            return profile if file is None else file.to_write(profile)
        except ValidationError as error:
            return f"{name} cannot be written: {error.errors()[0]['msg']}"

    def forget(self, *names: str | None) -> None:
        """Drops the edits over some profiles, because they were written."""
        for name in names:
            if name is not None:
                self._drafts.pop(name, None)
