"""Tracebacks in a log that several processes wrote at once."""

import json

from specpanel.core.engine.logline import parse_text
from specpanel.core.engine.tracebacks import Traceback, find_tracebacks


def read(text: str) -> tuple[Traceback, ...]:
    return find_tracebacks(parse_text(line) for line in text.split("\n"))


def logged(process: str, *lines: str) -> list[str]:
    return [f"({process} pid=5) ERROR 11-30 11:00:00 [core.py:1] {line}\r" for line in lines]


WORKER = logged(
    "Worker_TP0",
    "WorkerProc failed to start.",
    "Traceback (most recent call last):",
    '  File "a.py", line 1, in f',
    "    g()",
    "ValueError: one",
)
OTHER = logged(
    "Worker_TP1",
    "WorkerProc failed to start.",
    "Traceback (most recent call last):",
    '  File "b.py", line 2, in h',
    "    i()",
    "KeyError: 'two'",
)


def test_records_of_two_processes_that_interleave_are_kept_apart():
    mixed = [line for pair in zip(WORKER, OTHER, strict=True) for line in pair]
    first, second = read("\n".join(mixed))
    assert (first.process, first.final.text) == ("Worker_TP0", "ValueError: one")
    assert (second.process, second.final.text) == ("Worker_TP1", "KeyError: 'two'")
    assert first.lines[1].strip() == 'File "a.py", line 1, in f'


def test_other_processes_bare_noise_does_not_end_a_bare_traceback():
    (found,) = read(
        "Traceback (most recent call last):\n"
        '  File "a.py", line 1, in f\n'
        "Loading safetensors checkpoint shards:  50% Completed | 1/2\n"
        "(Worker pid=5) INFO 11-30 11:00:00 [a.py:1] going on\n"
        "    g()\n"
        "vllm.errors.SomeError: three\n"
    )
    assert found.final.text == "vllm.errors.SomeError: three"
    assert not found.logged
    assert len(found.lines) == 4


def test_a_bare_traceback_belongs_to_the_process_named_above_it():
    found = read(
        "Process EngineCore:\nTraceback (most recent call last):\n  File 'a'\nValueError: x\n"
        "Traceback (most recent call last):\n  File 'b'\nRuntimeError: y\n"
    )
    assert [(trace.process, trace.final.name) for trace in found] == [
        ("EngineCore", "ValueError"),
        (None, "RuntimeError"),
    ]


def test_the_next_process_does_not_run_into_the_message_before_it():
    first, second = read(
        "Traceback (most recent call last):\n  File 'a'\nValueError: x\n"
        "Process EngineCore:\nTraceback (most recent call last):\n  File 'b'\nKeyError: 'y'\n"
    )
    assert (first.process, first.final.text) == (None, "ValueError: x")
    assert (second.process, second.final.text) == ("EngineCore", "KeyError: 'y'")


def test_a_chain_is_one_traceback_with_its_first_exception_first():
    (found,) = read(
        "\n".join(
            logged(
                "EngineCore",
                "Traceback (most recent call last):",
                "  File 'a'",
                "KeyError: 'fc.weight'",
                "",
                "The above exception was the direct cause of the following exception:",
                "",
                "Traceback (most recent call last):",
                "  File 'b'",
                "RuntimeError: cannot load",
            )
        )
    )
    assert [raised.text for raised in found.chain] == [
        "KeyError: 'fc.weight'",
        "RuntimeError: cannot load",
    ]


def test_a_message_of_several_lines_is_kept():
    (found,) = read(
        "Traceback (most recent call last):\n"
        "  File 'a'\n"
        "pydantic_core.ValidationError: 1 validation error for X\n"
        "  Value error, no [type=value_error]\n"
        "\n"
        "nanobind: leaked 4 instances!\n"
    )
    assert found.final.text.startswith(
        "pydantic_core.ValidationError: 1 validation error for X Value error, no [type=value_error]"
    )


def test_an_exception_without_a_message_is_read():
    (found,) = read(
        "Traceback (most recent call last):\n  File 'a'\n    assert x\nAssertionError\n"
    )
    assert found.final.text == "AssertionError"


def test_warnings_and_ignored_exceptions_end_no_process():
    quiet = "(Worker pid=5) WARNING 11-30 11:00:00 [a.py:1] "
    assert (
        read(
            f"{quiet}Traceback (most recent call last):\n{quiet}  File 'a'\n{quiet}ImportError: x\n"
            "Exception ignored in: <function f>\n"
            "Traceback (most recent call last):\n"
            "  File 'b'\n"
            "TypeError: y\n"
        )
        == ()
    )


def test_the_rank_that_torch_writes_before_each_line_is_left_out():
    (found,) = read(
        "[rank0]: Traceback (most recent call last):\n[rank0]:   File 'a'\n[rank0]: ValueError: x\n"
    )
    assert found.final.text == "ValueError: x"


def test_a_json_record_holds_its_whole_traceback():
    frames = "".join(f'  File "a.py", line {number}\n' for number in range(500))
    record = {
        "levelname": "ERROR",
        "processName": "EngineCore",
        "process": 7,
        "message": "failed",
        "exc_info": f"Traceback (most recent call last):\n{frames}ValueError: x",
    }
    (found,) = read(json.dumps(record))
    assert (found.process, found.pid, found.final.text) == ("EngineCore", 7, "ValueError: x")


def test_a_traceback_that_was_cut_off_is_left_out():
    assert read("Traceback (most recent call last):\n  File 'a'\n") == ()
