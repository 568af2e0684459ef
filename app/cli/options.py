"""Flags that several commands share, and how they become settings."""

from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from specpanel.core.errors import ConfigurationError


def _profile_names(incomplete: str) -> list[str]:
    from specpanel.core.settings.files import PRESETS
    from specpanel.core.settings.paths import profiles_folder

    files = [path for folder in (profiles_folder(), PRESETS) for path in folder.glob("*.toml")]
    return sorted({path.stem for path in files if path.stem.startswith(incomplete)})


def recording_names(incomplete: str) -> list[str]:
    from specpanel.core.session.history import SUFFIX, recordings_folder

    found = recordings_folder().glob(f"*{SUFFIX}")
    return sorted(path.stem for path in found if path.stem.startswith(incomplete))


def recording_called(name: str) -> Path:
    """The file of a recording: a path, else the run of that name.

    Raises:
        ConfigurationError: ``name`` is empty, or there is neither such a file nor such a run.
        RecordingError: the folder of recordings cannot be read.
    """
    if not name.strip():
        raise ConfigurationError(
            f"no recording is called {name!r}", "specpanel runs lists them; last is the newest."
        )
    path = Path(name)
    # What exists and cannot be read is told by whoever reads it, with its own reason.
    with suppress(OSError, ValueError):
        if path.exists():
            return path
    from specpanel.core.session.history import find_run

    return find_run(name).path


def _methods(incomplete: str) -> list[str]:
    from specpanel.core.settings.drafters import METHODS

    return [method for method in METHODS if method.startswith(incomplete)]


def _server_names(incomplete: str) -> list[str]:
    from specpanel.core.engine.process import running_servers

    return [record.name for record in running_servers() if record.name.startswith(incomplete)]


ProfileName = Annotated[
    str | None,
    typer.Argument(
        metavar="PROFILE",
        help="Name of a profile (specpanel profile list), or a .toml file.",
        autocompletion=_profile_names,
        show_default=False,
    ),
]
ServerName = Annotated[
    str | None,
    typer.Argument(
        metavar="NAME",
        help="Name, pid or port of a running server.",
        autocompletion=_server_names,
        show_default=False,
    ),
]
Model = Annotated[str | None, typer.Option("--model", help="Folder or hub id of the target.")]
DrafterMethod = Annotated[
    str | None,
    typer.Option("--drafter", help="Drafter: none, ngram, eagle3, …", autocompletion=_methods),
]
DraftModelOption = Annotated[
    str | None, typer.Option("--draft-model", help="Folder or hub id of the drafter.")
]
DraftTokens = Annotated[int | None, typer.Option("--k", "-k", help="Draft tokens a step.")]
Port = Annotated[int | None, typer.Option("--port", help="Port that vLLM listens on.")]
Python = Annotated[
    str | None, typer.Option("--python", help="Interpreter of the environment that holds vLLM.")
]
Assignments = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Any setting, for example engine.port=8001."),
]
Duration = Annotated[float | None, typer.Option("--duration", help="Seconds to send requests for.")]
Requests = Annotated[int | None, typer.Option("--requests", "-n", help="Requests to send.")]
Concurrency = Annotated[int | None, typer.Option("--concurrency", "-c", help="Requests in flight.")]
Rate = Annotated[
    float | None, typer.Option("--rate", help="Requests a second, arriving at random.")
]
Prompts = Annotated[
    Path | None, typer.Option("--prompts", help="File of prompts: JSONL, or text, one a line.")
]
Capture = Annotated[
    Path | None,
    typer.Option(
        "--capture",
        metavar="FILE",
        help="Keep prompts and answers in this file, yours alone, to train a drafter on.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, one object a line.")]
NoMouse = Annotated[
    bool,
    typer.Option("--no-mouse", help="Leave the mouse to the terminal, to select and copy text."),
]

# Flag of ours → the setting that it overrides.
FLAGS: dict[str, str] = {
    "--model": "target.model",
    "--drafter": "drafter.method",
    "--draft-model": "drafter.model",
    "--k": "drafter.k",
    "--port": "engine.port",
    "--python": "engine.python",
    "--duration": "traffic.duration_s",
    "--requests": "traffic.requests",
    "--concurrency": "traffic.concurrency",
    "--rate": "traffic.rate_per_s",
    "--prompts": "traffic.prompts",
    "--capture": "traffic.capture",
}


def resolved_profile(
    name: str | None,
    flags: dict[str, Any],
    assignments: list[str] | None,
    for_vllm: tuple[str, ...],
    *,
    environment: bool = True,
) -> Any:
    """The profile that flags, environment and file give together.

    Args:
        flags: value by flag, None where it was not given.
        for_vllm: what stood after ``--``; added to the profile's own arguments for vLLM.
        environment: whether ``SPECPANEL_…`` variables count; not where the profile is written to a file.

    Raises:
        ConfigurationError: something of it cannot be.
    """
    from specpanel.core.settings.overrides import Overrides, from_assignments, from_environment
    from specpanel.core.settings.profile import SETTINGS_OF_FLAGS, contradicting_flag
    from specpanel.core.settings.resolve import resolve

    given = {flag: value for flag, value in flags.items() if value is not None}
    typed = Overrides(
        {FLAGS[flag]: value for flag, value in given.items()}, {FLAGS[flag]: flag for flag in given}
    )
    overrides = typed.over(from_assignments(assignments or []))
    if environment:
        overrides = overrides.over(from_environment())
    profile = resolve(name, overrides)
    if not for_vllm:
        return profile
    if flag := contradicting_flag(for_vllm):
        raise ConfigurationError(
            f"{flag} after -- would contradict the profile",
            f"Use specpanel's own setting, {SETTINGS_OF_FLAGS[flag]} (specpanel run --help).",
        )
    engine = profile.engine.model_copy(update={"arguments": (*profile.engine.arguments, *for_vllm)})
    return profile.model_copy(update={"engine": engine})
