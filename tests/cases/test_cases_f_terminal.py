"""Public reports about terminals, children and their output: what the panel must make of each.

F01 and F02 (hostile text in every widget), F04, F05, F10, F17 and F20 are proven where the screens, the
terminal and the processes are tested; their ids stand in those tests' names.
"""

import ast
import functools
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from tui.terminal import Terminal, put_down

import specpanel.app
import specpanel.core
import specpanel.kernels
from specpanel.app.cli.plain_runs import run_line
from specpanel.app.tui.ink import fit, shorten, width_of
from specpanel.core.engine.command import build_command
from specpanel.core.engine.failures import diagnose
from specpanel.core.engine.interpreter_facts import InterpreterFacts
from specpanel.core.engine.logfile import LogFollower
from specpanel.core.engine.logline import parse_line
from specpanel.core.engine.phases import PhaseTracker
from specpanel.core.printable import cells, padded
from specpanel.core.session.history import PastRun
from specpanel.core.settings.profile import Profile

PROGRAM = Path(__file__).parents[1] / "tui" / "panel_program.py"
ROOMS = [Path(one.__path__[0]) for one in (specpanel.app, specpanel.core, specpanel.kernels)]

STREAM = (
    b"\x1b[0;36m(APIServer pid=77)\x1b[0;0m INFO 09-14 09:00:00 [util.py:9] \r\n",
    b"  \xe2\x96\x88     \xe2\x96\x88   model   /data/t\r\n",
    b"Loading shards:   0% | 0/4\rLoading shards:  50% | 2/4\rLoading shards: 100% | 4/4\n",
    b"caf\xe9 \xff\xfe raw bytes\n",
    b"(EngineCore pid=78) " + b"A" * 70000 + b"\n",
    b"no newline at the end",
)
SPEC_LINES = (
    "INFO 07-02 10:11:12 metrics.py:401] Speculative metrics: Draft acceptance rate: 0.512, System "
    "efficiency: 0.430, Number of speculative tokens: 4, Number of accepted tokens: 910, Number of "
    "draft tokens: 1777, Number of emitted tokens: 1211.",
    "INFO 05-20 10:11:12 [metrics.py:77] SpecDecoding metrics: Draft acceptance rate: 41.3%, Mean "
    "acceptance length: 2.24, Accepted: 31 tokens, Drafted: 75 tokens, Per-position acceptance rate: "
    "0.640, 0.400, 0.200",
    "(APIServer pid=412) INFO 09-14 10:11:12 [metrics.py:131] SpecDecoding metrics: Mean acceptance "
    "length: 2.24, Accepted throughput: 3.10 tokens/s, Drafted throughput: 7.50 tokens/s, Accepted: 31 "
    "tokens, Drafted: 75 tokens, Per-position acceptance rate: 0.640, 0.400, 0.200, Avg Draft "
    "acceptance rate: 41.3%",
    "(APIServer pid=412) INFO 09-14 10:11:22 [metrics.py:131] SpecDecoding metrics: Mean acceptance "
    "length: 1.00, Accepted throughput: 0.00 tokens/s, Drafted throughput: 0.00 tokens/s, Accepted: 0 "
    "tokens, Drafted: 0 tokens, Per-position acceptance rate: 0.000, 0.000, 0.000, Avg Draft acceptance "
    "rate: nan%",
)


@functools.cache
def _calls() -> list[tuple[Path, ast.Call, str]]:
    return [
        (path, node, _name(node.func))
        for path in sorted(path for room in ROOMS for path in room.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
    ]


def _name(called: ast.expr) -> str:
    if isinstance(called, ast.Attribute):
        return f"{_name(called.value)}.{called.attr}"
    return called.id if isinstance(called, ast.Name) else "?"


STARTS = re.compile(r"subprocess\.(Popen|run|call|check_call|check_output)|create_subprocess_exec$")


def test_f07_every_child_gets_an_input_of_its_own_and_none_a_shell():
    """A child that reads the panel's terminal takes its keys; DEVNULL, a pipe or given bytes are fine."""
    started = [(path, call) for path, call, name in _calls() if STARTS.search(name)]
    assert len(started) >= 8
    for path, call in started:
        given = {word.arg for word in call.keywords}
        assert given & {"stdin", "input"}, f"{path}:{call.lineno} inherits standard input"
        assert "shell" not in given, f"{path}:{call.lineno} uses a shell"
    banned = re.compile(r"os\.(system|popen|fork|spawn\w*)|create_subprocess_shell|getoutput")
    assert [f"{path}:{call.lineno}" for path, call, name in _calls() if banned.search(name)] == []


def test_f08_s08_no_byte_stops_the_reader_or_the_child(tmp_path: Path):
    log = tmp_path / "server.log"
    flood = b"\xc7" * 50 + b"\n"
    with log.open("wb") as out:
        child = subprocess.run(
            [sys.executable, "-c", "import sys; sys.stdout.buffer.write(sys.stdin.buffer.read())"],
            input=b"".join((*STREAM[:-1], flood, STREAM[-1])),
            stdout=out,
            timeout=60,
        )
    assert child.returncode == 0
    lines = [parse_line(raw) for raw in LogFollower(log).rest()]
    first, logo, shards, raw, long, *_, bad, last = lines
    assert (first.process, first.pid, first.source) == ("APIServer", 77, "util.py:9")
    assert logo.text == "  █     █   model   /data/t"
    assert shards.text == "Loading shards: 100% | 4/4"
    assert raw.text == "caf\ufffd \ufffd\ufffd raw bytes"
    assert (long.process, long.cut, len(long.text) <= 4096) == ("EngineCore", True, True)
    assert set(bad.text) == {"\ufffd"}
    assert last.text == "no newline at the end"


def test_f11_children_are_asked_for_no_colour_and_read_with_and_without():
    facts = InterpreterFacts("py", "3.12", "vllm", "0.32.0", "cuda", "serve", "vllm", frozenset())
    profile = Profile.model_validate({"name": "p", "target": {"model": "/m"}})
    assert build_command(profile, facts).environment["NO_COLOR"] == "1"
    coloured = (
        b"\x1b[0;36m(APIServer pid=9)\x1b[0;0m INFO 09-14 09:00:00 [a.py:1] ready\x1b]0;t\x07"
    )
    plain = b"(APIServer pid=9) INFO 09-14 09:00:00 [a.py:1] ready"
    assert parse_line(coloured) == parse_line(plain)


@pytest.mark.parametrize("text", SPEC_LINES)
def test_f13_s07_lines_about_speculation_of_every_generation_do_no_harm(text: str):
    """The counters of /metrics are read instead; such a line is neither a phase nor a failure."""
    line = parse_line(text.encode())
    assert line.level == "INFO"
    assert line.message.startswith("Spec")
    assert PhaseTracker(0.0).feed(line, 1.0) is None
    found = diagnose([text], exit_code=None)
    assert found is None or text[:40] not in found.sentence


def test_f14_doctor_names_the_terminal():
    done = subprocess.run(
        [sys.executable, "-m", "specpanel.app", "doctor"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "TERM": "screen-odd", "COLORTERM": "24bit", "LC_ALL": "C.UTF-8"},
    )
    assert "TERM=screen-odd COLORTERM=24bit utf-8" in done.stdout


def _left_on(raw: bytes) -> set[bytes]:
    """Modes of the terminal that were turned on and not off again."""
    on: set[bytes] = set()
    for modes, sign in re.findall(rb"\x1b\[\?([\d;]+)([hl])", raw):
        for mode in modes.split(b";"):
            (on.add if sign == b"h" else on.discard)(mode)
    keyboard = raw.count(b"\x1b[>1u") - raw.count(b"\x1b[<u")
    return (on - {b"25", b"2026", b"7"}) | ({b"kitty keyboard"} if keyboard > 0 else set())


@pytest.mark.terminal
@pytest.mark.parametrize("numbers", [(signal.SIGTERM,), (signal.SIGINT,) * 5, (signal.SIGHUP,) * 2])
def test_f16_no_mode_of_the_terminal_stays_on_after_a_burst_of_signals(
    numbers: tuple[signal.Signals, ...],
):
    terminal = Terminal(str(PROGRAM), "--history", "10")
    try:
        terminal.sees("Acceptance length")
        assert {b"1000", b"1049", b"2004"} <= _left_on(terminal.raw)
        for number in numbers:
            terminal.child.kill(number)
        if numbers[0] == signal.SIGINT:
            terminal.child.send("q")
        terminal.ends()
        assert _left_on(terminal.raw) == set()
        assert b"Traceback" not in terminal.raw
    finally:
        put_down(terminal.child)


@pytest.mark.terminal
@pytest.mark.parametrize(("columns", "rows"), [(1, 1), (3, 2), (19, 4)])
def test_f17_a_window_of_a_few_cells_is_no_error(columns: int, rows: int):
    terminal = Terminal(str(PROGRAM), "--history", "10", columns=columns, rows=rows)
    try:
        terminal.until(lambda: b"\x1b[?1049h" in terminal.raw)
        terminal.child.setwinsize(30, 100)
        terminal.screen.resize(30, 100)
        terminal.sees("cceptance")
        terminal.child.send("q")
        assert terminal.ends() == 0
    finally:
        put_down(terminal.child)


WIDE = ("模型-草稿", "🧪🧪 lab", "ｆｕｌｌ", "e\u0301tude", "한국어 모델", "plain")


@pytest.mark.parametrize("name", WIDE)
def test_f19_wide_characters_leave_tables_straight(name: str):
    assert cells(padded(name, 24)) == 24
    assert width_of(fit(((name, "text"),), 24)) == 24
    assert width_of(((shorten(name, 5), "text"),)) <= 5
    run = PastRun(Path(f"{name}.ndjson"), 10, name, "broken", "because", 1.0)
    straight = PastRun(Path("plain.ndjson"), 10, "plain", "broken", "because", 1.0)
    place = run_line(run, 20).index("✗")
    assert cells(run_line(run, 20)[:place]) == run_line(straight, 20).index("✗")


def test_f05_a_closed_terminal_leaves_no_process_of_a_headless_watch(tmp_path: Path):
    """SIGHUP while nothing answers yet: the command ends and nothing of it stays."""
    child = subprocess.Popen(
        [sys.executable, "-m", "specpanel.app", "devices", "--watch", "--json"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert child.stdout is not None
    child.stdout.readline()
    others = psutil.Process(child.pid).children(recursive=True)
    os.killpg(child.pid, signal.SIGHUP)
    child.wait(60)
    _, alive = psutil.wait_procs(others, timeout=20)
    assert alive == []
    child.stdout.close()
