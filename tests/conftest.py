"""What every test gets: folders of its own, a clean environment, and the real small model."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from specpanel.core.demo.model import demo_model as make_demo_model
from specpanel.core.settings.paths import cache_folder

_XDG = {
    "XDG_CONFIG_HOME": "config",
    "XDG_STATE_HOME": "state",
    "XDG_CACHE_HOME": "cache",
    "XDG_DATA_HOME": "data",
    "XDG_RUNTIME_DIR": "runtime",
}
# What programs are told about the terminal; a size there wins over that of a real one.
_TALKING = ("NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "COLUMNS", "LINES")
_REAL_CACHE_HOME = str(cache_folder().parent)
REAL = "tests/engine/"
LONGEST = f"{REAL}test_panel_flight.py"

# Time is judged through tests/pace.py: what Hypothesis asks of one example fails on a machine under load.
settings.register_profile("loaded", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("loaded")


def _isolate(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, name in _XDG.items():
        (home / name).mkdir(mode=0o700)
        monkeypatch.setenv(variable, str(home / name))
    for variable in list(os.environ):
        if variable.startswith("SPECPANEL_") or variable in _TALKING:
            monkeypatch.delenv(variable)


@pytest.fixture(scope="session", autouse=True)
def _session_folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep session-wide fixtures, too, away from the folders of whoever runs the tests."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        _isolate(tmp_path_factory.mktemp("session_xdg"), monkeypatch)
        yield


@pytest.fixture(autouse=True)
def own_folders(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give each test XDG folders of its own and none of the user's settings.

    Child processes inherit them. The value is the folder that holds ``config``, ``state``,
    ``cache``, ``data`` and ``runtime``.
    """
    home = tmp_path_factory.mktemp("xdg")
    _isolate(home, monkeypatch)
    return home


@pytest.fixture(scope="session")
def demo_model(_session_folders: None) -> Path:
    """Folder of the real SmolLM2, in the real cache; made there when it is missing.

    So a second run of the suite, and a ``specpanel demo`` afterwards, find it made.
    """
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("XDG_CACHE_HOME", _REAL_CACHE_HOME)
        return make_demo_model(Path(sys.executable), progress=print)


@pytest.fixture
def shared_cache(demo_model: Path, own_folders: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let one test's child processes use the real cache, where the model is made already."""
    monkeypatch.setenv("XDG_CACHE_HOME", _REAL_CACHE_HOME)
    return demo_model


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What starts vLLM takes longest, so it begins first.

    But for the longest flight: the process that has done all else takes it, while the other goes on.
    """
    items.sort(key=lambda item: (_turn(item.nodeid) == LONGEST, _turn(item.nodeid) != REAL))


def _turn(nodeid: str) -> str:
    """Tests of the same turn run in one process, one after another."""
    file = nodeid.partition("::")[0]
    return REAL if file.startswith(REAL) and file != LONGEST else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Side by side, a file's tests stay together, and those that start vLLM take turns in one process."""
    from xdist.scheduler import LoadScopeScheduling

    class TakingTurns(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return _turn(nodeid)

    return TakingTurns(config, log)
