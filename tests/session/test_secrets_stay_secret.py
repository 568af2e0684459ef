"""Secrets given to a run are in nothing that it leaves or shows; a model's folder brings no code in."""

import json
import os
from pathlib import Path

import psutil
import pytest
from fakes.engine.workbench import FAKE_PYTHON, Workbench, lives

from specpanel.core.lab.store import Store, store_path
from specpanel.core.settings.files import write_profile
from specpanel.core.settings.paths import data_folder, profiles_folder, state_folder

HUB, PROFILE, KEY = "hf_PlantedHubToken0123", "planted-profile-secret-4567", "planted-key-89ab"
SECRETS = tuple(text.encode() for text in (HUB, PROFILE, KEY))
# As the console script starts it: unlike python -m, without the current folder among the modules.
SAFE = ("-P", "-m", "specpanel.app")
ENVIRONMENT = {"HF_TOKEN": HUB, "HUGGING_FACE_HUB_TOKEN": HUB, "MY_SECRET": HUB}


def _holding(folder: Path) -> list[Path]:
    return [
        path
        for path in folder.rglob("*")
        if path.is_file() and any(secret in path.read_bytes() for secret in SECRETS)
    ]


def _titles(bench: Workbench) -> list[str]:
    pids = [*bench.left(), *(panel.process.pid for panel in bench.panels)]
    return ["\0".join(psutil.Process(pid).cmdline()) for pid in pids if lives(pid)]


def test_planted_secrets_are_in_nothing_after_a_run_that_fails(
    bench: Workbench, own_folders: Path
) -> None:
    environment = {"OTHER_PASSWORD": PROFILE, "MY_TOKEN": PROFILE}
    profile = bench.profile(environment=environment, arguments=("--api-key", KEY))
    written = write_profile(profile)
    script = {"requests": "500", "requests_good": 3, "error": f"denied: Bearer {HUB} {KEY}"}
    flags = ("run", "bench", "--json", "--requests", "2000")
    panel = bench.start(*flags, script={**script, "step_s": 0.02}, environment=ENVIRONMENT)
    panel.until("requests fail", lambda one: one.said("request", "denied"))
    titles = _titles(bench)
    assert len(titles) >= 2
    assert not any(secret.decode() in title for secret in SECRETS for title in titles)
    assert panel.end() == 1
    for told in (panel.out, panel.err):
        # The server said the key itself; it is hidden there, too.
        assert not any(secret.decode() in told for secret in SECRETS), told[-2000:]
    assert any(state_folder().rglob("*.log"))
    assert any(data_folder().rglob("*.ndjson"))
    assert [path for path in _holding(own_folders) if path != written] == []


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_the_command_to_copy_hides_them(bench: Workbench, flags: tuple[str, ...]) -> None:
    write_profile(bench.profile(environment={"MY_TOKEN": PROFILE}, arguments=("--api-key", KEY)))
    for command in (("command",), ("profile", "show")):
        panel = bench.start(*command, "bench", *flags, environment=ENVIRONMENT)
        assert panel.end() == 0, panel.err
        assert "***" in panel.out
        assert not any(secret.decode() in panel.out + panel.err for secret in SECRETS)


def test_files_are_their_owners_alone(bench: Workbench) -> None:
    old = os.umask(0o022)
    try:
        write_profile(bench.profile())
        panel = bench.start("run", "bench", "--json", "--keep-running", "--requests", "1")
        assert panel.end() == 0, panel.err
        with Store():
            pass
        files = [
            *state_folder().rglob("*.json"),
            *state_folder().rglob("*.log"),
            *data_folder().rglob("*.ndjson"),
            *profiles_folder().rglob("*.toml"),
            store_path(),
        ]
        assert len({path.suffix for path in files}) == 5
        assert {path.name: oct(path.stat().st_mode & 0o777) for path in files} == {
            path.name: "0o600" for path in files
        }
        assert bench.start("stop", "bench").end() == 0
    finally:
        os.umask(old)


def test_no_code_of_a_model_folder_is_run_even_when_started_in_it(bench: Workbench) -> None:
    """Every module that we or vLLM import first lies there, too, and would leave a mark if it were run."""
    mark = bench.folder / "executed"
    evil = f"open({str(mark)!r}, 'a').write(__file__)\n"
    names = ("json", "vllm", "argparse", "signal", "typing", "asyncio", "httpx", "sitecustomize")
    for name in (*names, "modeling_evil", "configuration_evil"):
        (bench.model / f"{name}.py").write_text(evil)
    config = json.loads((bench.model / "config.json").read_text())
    config["auto_map"] = {"AutoConfig": "configuration_evil.C", "AutoModel": "modeling_evil.M"}
    (bench.model / "config.json").write_text(json.dumps(config))
    flags = [*bench.flags(), "--requests", "1"]
    panel = bench.start("run", *flags, program=SAFE, inside=bench.model)
    assert panel.end() == 0, panel.err
    python = ("--model", ".", "--python", str(FAKE_PYTHON))
    panel = bench.start("check", *python, program=SAFE, inside=bench.model)
    assert panel.end() in (0, 1, 2), panel.err
    assert not mark.exists(), mark.read_text()


def test_a_server_listens_at_this_machine_alone_by_default(bench: Workbench) -> None:
    panel = bench.start("command", "--model", "/m", "--python", str(FAKE_PYTHON), "--json")
    assert panel.end() == 0, panel.err
    assert json.loads(panel.out)["argv"].count("--host") == 1
    argv = json.loads(panel.out)["argv"]
    assert argv[argv.index("--host") + 1] == "127.0.0.1"
