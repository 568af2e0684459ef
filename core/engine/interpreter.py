"""Ask an interpreter what it holds, in a child process that imports nothing heavy."""

import json
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
    path = Path(configured).expanduser()
    if path.is_dir():
        path = path / "bin" / "python"
    found = shutil.which(str(path))
    if found is None:
        raise ConfigurationError(
            f"the interpreter {configured} does not exist or cannot be run",
            "Set engine.python to the python of the environment that holds vLLM.",
        )
    return found


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
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        raise ConfigurationError(
            f"the interpreter {python} does not answer: {error}",
            "Set engine.python to a Python of 3.10 or newer.",
        ) from error
    names: dict[str, str] = found["names"]
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


def _distribution(names: dict[str, str], has_module: bool) -> str | None:
    if not has_module:
        return None
    if "vllm" in names:
        return "vllm"
    return next((name for name in sorted(names) if name.startswith("vllm-")), "vllm")


def _platform(distribution: str | None, names: dict[str, str]) -> Platform:
    versions = f"{names.get(distribution or '', '')} {names.get('torch', '')}"
    if distribution and (distribution.endswith("-cpu") or "+cpu" in versions):
        return "cpu"
    if "rocm" in versions or Path("/dev/kfd").exists():
        return "rocm"
    if Path("/dev/nvidiactl").exists() or Path("/proc/driver/nvidia").exists():
        return "cuda"
    return "unknown"
