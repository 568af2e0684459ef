"""A file gets what its user wrote, never what the environment laid over it."""

import sys
from pathlib import Path

import pytest

from specpanel.app.cli import main
from specpanel.core.settings.files import catalogue, read_profile, read_table
from specpanel.core.settings.overrides import from_environment
from specpanel.core.settings.profile import Profile
from specpanel.core.settings.rows import table_of, with_value

FILE = '[target]\nmodel = "m"\n[drafter]\nmethod = "ngram"\nk = 3\n'


def written(
    folder: Path, environment: dict[str, str], *, text: str = FILE, **edits: object
) -> Profile:
    """What a profile becomes that is opened under ``environment``, edited and written."""
    (folder / "mine.toml").write_text(text)
    file = next(
        one for one in catalogue(folder, from_environment(environment)) if one.name == "mine"
    )
    assert file.profile is not None
    table = table_of(file.profile)
    for dotted, value in edits.items():
        table = with_value(table, dotted.replace("__", "."), value)
    return file.to_write(Profile.model_validate({**table, "name": "mine"}))


def test_what_the_environment_gave_is_not_written(tmp_path: Path) -> None:
    found = written(tmp_path, {"SPECPANEL_PORT": "9000", "SPECPANEL_K": "5"}, traffic__seed=7)
    assert (found.engine.port, found.drafter.draft_tokens, found.traffic.seed) == (8000, 3, 7)


def test_what_was_edited_since_is_written(tmp_path: Path) -> None:
    found = written(tmp_path, {"SPECPANEL_PORT": "9000", "SPECPANEL_K": "5"}, engine__port=9001)
    assert (found.engine.port, found.drafter.draft_tokens) == (9001, 3)


def test_a_drafter_of_the_environment_is_written_only_where_it_was_edited(tmp_path: Path) -> None:
    other = {"SPECPANEL_DRAFTER": "suffix"}
    assert written(tmp_path, other).drafter.method == "ngram"
    assert written(tmp_path, other).drafter.draft_tokens == 3
    assert written(tmp_path, other, drafter__k=9).drafter.method == "suffix"


def test_an_edited_drafter_stays_whole_for_its_settings_belong_together(tmp_path: Path) -> None:
    found = written(tmp_path, {"SPECPANEL_K": "8"}, drafter__k_by_batch_size="1-8:6 9-64:2")
    assert found.drafter.draft_tokens == 8
    assert written(tmp_path, {"SPECPANEL_K": "8"}, traffic__seed=7).drafter.draft_tokens == 3


def test_every_drafter_setting_of_the_environment_is_left_out_where_none_was_edited(
    tmp_path: Path,
) -> None:
    file = FILE.replace('"ngram"', '"eagle3"') + 'model = "mine"\n'
    laid = {"SPECPANEL_K": "8", "SPECPANEL_DRAFT_MODEL": "theirs"}
    found = written(tmp_path, laid, text=file, traffic__seed=7).drafter
    assert (found.draft_tokens, found.model_dump()["model"]) == (3, "mine")


def test_what_is_tuned_is_written_for_the_target_that_it_was_measured_with(
    own_folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from specpanel.app.cli import options
    from specpanel.app.cli.tune import _own

    path = own_folders / "mine.toml"
    path.write_text(FILE)
    for name, value in (("MODEL", "/other"), ("K", "8"), ("PORT", "9000")):
        monkeypatch.setenv(f"SPECPANEL_{name}", value)
    measured = options.resolved_profile(str(path), {}, [], ())
    kept = _own(str(path), {}, [], measured)
    assert (kept.target.model, kept.drafter.draft_tokens, kept.engine.port) == ("/other", 8, 8000)


def test_a_new_profile_says_what_it_was_made_of_and_leaves_the_environment_out(
    own_folders: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SPECPANEL_PORT", "9000")
    for arguments, told in (
        (("copied",), "demo-ngram"),
        (("named", "--from", "demo-plain"), ""),
        (("fresh", "--set", "target.model=m"), ""),
    ):
        monkeypatch.setattr(sys, "argv", ["specpanel", "profile", "new", *arguments])
        with pytest.raises(SystemExit) as left:
            main()
        assert not left.value.code
        out, err = capsys.readouterr()
        assert told in err
        assert bool(err) == bool(told)
        path = Path(out.strip())
        assert "port" not in read_table(path)[0].get("engine", {})
        assert read_profile(path).name == arguments[0]
