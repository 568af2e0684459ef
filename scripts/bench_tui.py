"""What the Live screen costs, beside other terminal monitors for vLLM, in one run on this machine.

    python scripts/bench_tui.py --peers VENV --out docs/measurements.md      (make bench-tui)

All programs watch the same local server: a real exposition of vLLM whose counters grow. Each runs in a
pseudo-terminal of 140x45 and is measured from outside: first paint, CPU while the server is busy and while
it is quiet, memory, bytes written. Figures are medians of ``--rounds`` rounds in which all programs take
turns. A peer that cannot run is named with what it said.
"""

import argparse
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

import psutil
from bench_page import sections
from bench_terminal import Terminal

ROOT = Path(__file__).parents[1]
SERVER = Path(__file__).with_name("bench_server.py")
PEERS = {
    "vllmstat": ("vllmstat==0.9.1", ["--url", "{url}", "--interval", "1", "--no-gpu"]),
    "vllmpytop": ("vllmpytop==0.3.0", ["--url", "{url}", "--interval", "1", "--no-gpu"]),
    "vllm-htop": ("vllm-htop==0.5.0", ["--url", "{url}", "--interval", "1", "--no-gpu-detect"]),
}
OURS = "specpanel"
TEN_MINUTES, AN_HOUR = 600, 3600
REPLAY_SPEED = 30.0

_PAINTED_CHARACTERS = 200
_PAINT_DEADLINE_S = 20.0
_ESCAPES = re.compile(
    rb"\x1b\][^\x07\x1b]*(\x07|\x1b\\)"  # OSC
    rb"|\x1b[P_^][^\x1b]*\x1b\\"  # DCS, APC, PM
    rb"|\x1b\[[0-?]*[ -/]*[@-~]|\x1b."
)


class CannotRunError(Exception):
    """A program that ended, or painted nothing, and its last words."""


@dataclass(slots=True)
class Figures:
    """One list entry a round."""

    first_paint_s: list[float] = field(default_factory=list)
    busy_cpu: list[float] = field(default_factory=list)  # per cent of one core
    quiet_cpu: list[float] = field(default_factory=list)
    memory_mb: list[float] = field(default_factory=list)  # at the end of a round
    bytes_a_redraw: list[float] = field(default_factory=list)
    redraws_a_second: list[float] = field(default_factory=list)
    failed: str | None = None


def cpu_s(process: psutil.Process) -> float:
    """CPU seconds of a process and of everything that it has started."""
    total = sum(process.cpu_times()[:4])
    for child in process.children(recursive=True):
        with suppress(psutil.Error):
            total += sum(child.cpu_times()[:2])
    return total


def memory_mb(process: psutil.Process) -> float:
    total = process.memory_info().rss
    for child in process.children(recursive=True):
        with suppress(psutil.Error):
            total += child.memory_info().rss
    return total / 2**20


def printed(raw: bytes) -> int:
    """Characters that a terminal shows of ``raw``, blanks left out."""
    return len(re.sub(r"\s", "", _ESCAPES.sub(b"", raw).decode("utf-8", "replace")))


def last_words(raw: bytes) -> str:
    text = _ESCAPES.sub(b" ", raw).decode("utf-8", "replace")
    lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
    return lines[-1][-200:] if lines else "it wrote nothing"


def wait_for_paint(terminal: Terminal) -> float:
    """Seconds from the start until a screen full of text was written.

    Raises:
        CannotRunError: the program ended before, or painted nothing in time.
    """
    while printed(terminal.raw) < _PAINTED_CHARACTERS:
        if not terminal.read(0.02) or time.monotonic() - terminal.began_s > _PAINT_DEADLINE_S:
            raise CannotRunError(last_words(terminal.raw))
    return terminal.newest_s - terminal.began_s


def share_of_core(terminal: Terminal, seconds: float) -> float:
    """CPU used over the next ``seconds``, in per cent of one core."""
    process = psutil.Process(terminal.pid)
    used, began = cpu_s(process), time.monotonic()
    terminal.read_for(seconds)
    if not terminal.alive:
        raise CannotRunError(last_words(terminal.raw))
    return 100 * (cpu_s(process) - used) / (time.monotonic() - began)


def one_round(
    argv: Sequence[str], into: Figures, *, tell: Callable[[str], None], seconds: float
) -> None:
    """Measures one start of one program. ``tell`` makes the server busy or quiet."""
    tell("busy")
    with Terminal(argv) as terminal:
        painted = wait_for_paint(terminal)
        terminal.read_for(12.0)  # figures over a window are there, and all modules are loaded
        terminal.forget()
        busy = share_of_core(terminal, seconds)
        bursts = terminal.bursts()
        memory = memory_mb(psutil.Process(terminal.pid))
        tell("quiet")
        terminal.read_for(12.0)
        quiet = share_of_core(terminal, seconds)
    into.first_paint_s.append(painted)
    into.busy_cpu.append(busy)
    into.quiet_cpu.append(quiet)
    into.memory_mb.append(memory)
    into.bytes_a_redraw.append(statistics.median(bursts) if bursts else 0.0)
    into.redraws_a_second.append(len(bursts) / seconds)


@contextmanager
def serving(port: int) -> Iterator[Callable[[str], None]]:
    """The server on ``port``; gives a function that makes it busy or quiet."""
    process = subprocess.Popen([sys.executable, str(SERVER), str(port)], stdin=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"

    def tell(what: str) -> None:
        urllib.request.urlopen(f"{url}/bench/{what}", timeout=5).read()

    try:
        deadline = time.monotonic() + 10
        while True:
            try:
                tell("busy")
                break
            except OSError:
                if time.monotonic() > deadline or process.poll() is not None:
                    raise
                time.sleep(0.05)
        yield tell
    finally:
        process.terminate()
        process.wait()


def install_peers(folder: Path) -> None:
    """A virtual environment with the peers, apart from ours; an existing one is used as it is."""
    if not (folder / "bin" / "python").exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-input"]
    for name, (pinned, _) in PEERS.items():
        if not (folder / "bin" / name).exists():
            ran = subprocess.run([*pip, pinned], capture_output=True, text=True)
            if ran.returncode:
                sys.stderr.write(f"{pinned} cannot be installed: {ran.stderr.strip()[-200:]}\n")


def recording_of(url: str, folder: Path, frames: int) -> Path:
    """Real Frames of the server, repeated until there are ``frames`` of them."""
    source = folder / "source.ndjson"
    script = Path(sys.executable).with_name(OURS)
    command = [str(script), "watch", url, "--duration", "62", "--record", str(source)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    found = [json.loads(line) for line in source.read_text().splitlines()]
    block = [frame for frame in found if frame["kind"] == "frame"][:TEN_MINUTES]
    path = folder / f"replay-{frames}.ndjson"
    with path.open("w") as file:
        for number in range(frames):
            frame = block[number % len(block)]
            times = {
                "elapsed_s": float(number + 1),
                "time_unix": block[0]["time_unix"] + number,
            }
            file.write(json.dumps({**frame, **times}) + "\n")
    return path


def memory_over_time(url: str, folder: Path) -> tuple[float, float]:
    """Memory in MB after ten minutes of Frames, and how much it grew over the hour after them."""
    path = recording_of(url, folder, TEN_MINUTES + AN_HOUR)
    script = str(Path(sys.executable).with_name(OURS))
    argv = [script, "watch", "--replay", str(path), "--speed", f"{REPLAY_SPEED:g}", "--tui"]
    with Terminal(argv) as terminal:
        wait_for_paint(terminal)
        process = psutil.Process(terminal.pid)
        terminal.read_for(TEN_MINUTES / REPLAY_SPEED + 1)
        early = memory_mb(process)
        late, deadline_s = early, time.monotonic() + AN_HOUR / REPLAY_SPEED * 3
        while b"end of replay" not in terminal.raw:  # reading how the run ended is not watching
            late = memory_mb(process)
            if time.monotonic() > deadline_s or not terminal.read(0.5):
                raise TimeoutError("the replay never came to its end")
            terminal.read_for(0.5)
        return early, late - early


def machine() -> str:
    model = platform.processor() or platform.machine()
    with suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(line.partition(":")[2].strip() for line in lines if "model name" in line)
    load = os.getloadavg()[0]
    return (
        f"{platform.system()} {platform.release().partition('-')[0]}, {os.cpu_count()} cores, {model}, "
        f"Python {platform.python_version()}; load average when it began {load:.1f}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", type=Path, help="virtual environment for the peers")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "measurements.md")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each CPU measurement")
    parser.add_argument("--port", type=int, default=8350)
    parser.add_argument("--no-replay", action="store_true", help="leave out memory over time")
    chosen = parser.parse_args()
    host = machine()
    url = f"http://127.0.0.1:{chosen.port}"
    with tempfile.TemporaryDirectory() as scratch, serving(chosen.port) as tell:
        folder = chosen.peers or Path(scratch) / "peers"
        install_peers(folder)
        programs = {OURS: [str(Path(sys.executable).with_name(OURS)), "watch", url, "--tui"]}
        for name, (_, arguments) in PEERS.items():
            found = shutil.which(name, path=str(folder / "bin"))
            given = [argument.format(url=url) for argument in arguments]
            programs[name] = [found or name, *given]
        figures = {name: Figures() for name in programs}
        for argv in programs.values():  # Python compiles what it has not yet compiled
            with suppress(CannotRunError), Terminal(argv) as terminal:
                wait_for_paint(terminal)
        for number in range(chosen.rounds):
            for name, argv in programs.items():
                sys.stderr.write(f"round {number + 1} of {chosen.rounds}: {name}\n")
                try:
                    one_round(argv, figures[name], tell=tell, seconds=chosen.seconds)
                except (CannotRunError, OSError) as error:
                    figures[name].failed = str(error)
        tell("busy")
        replayed = None if chosen.no_replay else memory_over_time(url, Path(scratch))
    from bench_report import report

    versions = {OURS: f"{version('specpanel')}, Textual {version('textual')}"}
    versions |= {name: pinned.partition("==")[2] for name, (pinned, _) in PEERS.items()}
    text = report(figures, versions, host, chosen.rounds, chosen.seconds, replayed)
    chosen.out.write_text(text + sections(chosen.out), encoding="utf-8")
    sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
