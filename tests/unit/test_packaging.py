"""What is in the repository is what gets installed, and it tells nothing about where it was made."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("app", "core", "kernels", "themes")
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PIP = (sys.executable, "-m", "pip")
OFFLINE = ("--no-deps", "--no-index", "--quiet", "--disable-pip-version-check")
VERSION = PYPROJECT["project"]["version"]


def _shipped(folder: str) -> Iterator[Path]:
    for path in (ROOT / folder).rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc":
            yield path.relative_to(ROOT)


def _outside() -> dict[str, str]:
    """An environment that does not point back into the repository."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built without the network, from a copy that holds no build folder of an earlier day."""
    place = tmp_path_factory.mktemp("wheel")
    source = place / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    for folder in FOLDERS:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / folder, source / folder, ignore=ignored)
    built = subprocess.run(
        [*PIP, "wheel", "--no-build-isolation", *OFFLINE, "--wheel-dir", place, source],
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stderr
    (path,) = place.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def clean_environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment with the wheel, and a path to this one's libraries for what it depends on.

    Python reads ``.pth`` files only in an environment's own folder, so the editable install of the
    one that runs the tests is not visible there.
    """
    place = tmp_path_factory.mktemp("clean") / "a folder with spaces"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
    python = place / "bin" / "python"
    installed = subprocess.run(
        [*PIP, "--python", python, "install", *OFFLINE, wheel],
        capture_output=True,
        text=True,
    )
    assert installed.returncode == 0, installed.stderr
    (libraries,) = (place / "lib").glob("python*/site-packages")
    theirs = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (libraries / "dependencies.pth").write_text("\n".join(sorted(theirs)) + "\n")
    return place


def test_every_folder_with_an_init_is_listed_as_a_package() -> None:
    found = {
        "specpanel." + ".".join(init.parent.relative_to(ROOT).parts)
        for folder in FOLDERS
        for init in (ROOT / folder).rglob("__init__.py")
    }
    assert set(PYPROJECT["tool"]["setuptools"]["packages"]) == found


def test_every_folder_with_code_has_an_init() -> None:
    missing = {
        path.parent
        for folder in FOLDERS
        for path in _shipped(folder)
        if path.suffix == ".py" and not (ROOT / path.parent / "__init__.py").exists()
    }
    assert not missing


def test_the_short_names_cannot_be_imported_outside_the_repository() -> None:
    code = f"import importlib.util as u; print([n for n in {FOLDERS!r} if u.find_spec(n)])"
    found = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd="/",
        env=_outside(),
    )
    assert found.stdout.strip() == "[]"


def test_the_wheel_holds_every_file_of_the_four_folders_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        inside = {name for name in archive.namelist() if ".dist-info/" not in name}
    expected = {f"specpanel/{path}" for folder in FOLDERS for path in _shipped(folder)}
    assert inside == expected


def test_the_command_runs_from_the_wheel_in_a_clean_environment(clean_environment: Path) -> None:
    shown = subprocess.run(
        [clean_environment / "bin" / "specpanel", "--version"],
        capture_output=True,
        text=True,
        cwd="/",
        env=_outside(),
    )
    assert (shown.returncode, shown.stderr) == (0, "")
    assert VERSION in shown.stdout


def test_the_clean_environment_runs_its_own_copy(clean_environment: Path) -> None:
    found = subprocess.run(
        [
            clean_environment / "bin" / "python",
            "-c",
            "import specpanel.core as c; print(c.__file__)",
        ],
        capture_output=True,
        text=True,
        check=True,
        cwd="/",
        env=_outside(),
    )
    assert Path(found.stdout.strip()).is_relative_to(clean_environment)


@pytest.mark.parametrize("name", ["cpu", "dev", "train"])
def test_a_lock_pins_every_package_exactly_once_by_name_alone(name: str) -> None:
    lines = (ROOT / "requirements" / f"{name}.lock").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    loose = [pin for pin in pins if not re.fullmatch(r"[A-Za-z0-9_.-]+==[A-Za-z0-9.]+", pin)]
    assert not loose
    names = [re.sub(r"[-_.]+", "-", pin.split("==")[0]).lower() for pin in pins]
    assert names == sorted(names)
    assert len(names) == len(set(names))


def test_what_the_package_depends_on_is_in_the_cpu_lock() -> None:
    lock = (ROOT / "requirements" / "cpu.lock").read_text(encoding="utf-8")
    pinned = {
        re.sub(r"[-_.]+", "-", line.split("==")[0]).lower()
        for line in lock.splitlines()
        if "==" in line and not line.startswith("#")
    }
    needed = {re.split(r"[<>=]", entry)[0] for entry in PYPROJECT["project"]["dependencies"]}
    assert needed <= pinned


def _repository_texts() -> Iterator[tuple[Path, str]]:
    """Every text file that git tracks; in an unpacked archive, every file that is not hidden."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if listed.returncode == 0:
        paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    else:
        visible = (path for path in ROOT.rglob("*") if "/." not in str(path.relative_to(ROOT)))
        paths = [path for path in visible if not path.name.startswith(".")]
    for path in paths:
        if path.is_file() and not path.is_symlink() and path != Path(__file__).resolve():
            try:
                yield path.relative_to(ROOT), path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue


def _machine_paths() -> re.Pattern[str]:
    """Where people's files stand: home folders, and wherever this checkout and its Python are."""
    ordinary = {"bin", "dev", "etc", "lib", "mnt", "opt", "proc", "srv", "tmp", "usr", "var"}
    first = {ROOT.parts[1], Path(sys.prefix).parts[1]} - ordinary
    names = "|".join(sorted({"home", "root", "Users"} | {re.escape(name) for name in first}))
    # Pictures and recordings to look at were made in the home of somebody called "you".
    return re.compile(rf"(?<![\w.$/~}}*-])/(?:{names})/(?!you\b)\w")


def test_no_file_names_a_place_on_somebodys_machine() -> None:
    pattern = _machine_paths()
    found = [
        f"{path}: {match.group()}"
        for path, text in _repository_texts()
        for match in pattern.finditer(text)
    ]
    assert not found


def test_no_file_names_a_package_index() -> None:
    pattern = re.compile(
        r"https?://[\w.-]*(?:pypi|pythonhosted|whl|wheel|index|mirror|artifact|nexus|devpi)[\w.-]*"
        r"|//[\w.:-]+/(?:simple|whl)\b|--(?:extra-)?index-url|--find-links",
        re.IGNORECASE,
    )
    found = [
        f"{path}: {match.group()}"
        for path, text in _repository_texts()
        for match in pattern.finditer(text)
    ]
    assert not found
