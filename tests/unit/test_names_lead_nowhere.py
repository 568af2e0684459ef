"""A name that holds a path, a control code or nothing at all stays a name, or is refused."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from specpanel.core.engine.registry import find, log_path
from specpanel.core.errors import ConfigurationError, NotRunningError, SpecpanelError
from specpanel.core.lab.store import Store
from specpanel.core.session.history import find_run, recording_path
from specpanel.core.settings.files import find_profile, require_free
from specpanel.core.settings.profile import Profile, is_profile_name

NAMES = ("../evil", "/etc/passwd", "a/../../b", "..", ".", "a\0b", "\x1b[2Jx", "", "x" * 5000)


@pytest.mark.parametrize("name", NAMES)
def test_a_profile_may_not_be_called_so(name: str) -> None:
    with pytest.raises(ValidationError):
        Profile.model_validate({"name": name, "target": {"model": "/m"}})


@pytest.mark.parametrize("name", NAMES)
def test_nor_is_one_written_under_it_which_is_told_before_anything_slow(
    name: str, own_folders: Path
) -> None:
    assert not is_profile_name(name)
    with pytest.raises(ConfigurationError, match="cannot be the name of a profile"):
        require_free(name, overwrite=True)


@pytest.mark.parametrize("name", NAMES)
def test_files_made_for_a_name_lie_in_their_folder(name: str, tmp_path: Path) -> None:
    for path in (log_path(tmp_path, name[:100]), recording_path(name, tmp_path)):
        assert path.parent == tmp_path
        assert path.name.isascii()
        assert path.name.isprintable()
        assert not path.name.startswith("..")


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_found_by_it(name: str, tmp_path: Path) -> None:
    if name != "/etc/passwd":  # a path may be given to look at; delete refuses what lies elsewhere
        with pytest.raises(ConfigurationError):
            find_run(name, tmp_path)
        with pytest.raises(SpecpanelError):
            find_profile(name)
    with pytest.raises(NotRunningError):
        find(name, [])
    with Store(tmp_path / "results.sqlite") as store, pytest.raises(ConfigurationError):
        store.find(name)
