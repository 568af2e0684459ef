"""Answers of a vendor's library from a JSON script, for the stand-ins beside this file.

``SPECPANEL_DEVICE_SCRIPT`` names the script. An answer is a plain value, or an object with one of:

- ``raise``: the vendor's error with this number; ``python``: a Python exception, with ``text``
- ``block_s``: sleep first; ``signal``: die of it; ``print``: write to the terminal first; then ``then``
- ``series``: one answer a call, the last one again and again
- ``undecodable``: bytes that are no text

In the strings of a device with ``repeat``, ``{n}`` is its number.
"""

import ctypes
import json
import os
import signal
import time


class Attributes:
    """A vendor's structure: the keys of an object as attributes."""

    def __init__(self, values):
        for name, value in values.items():
            setattr(self, name, Attributes(value) if isinstance(value, dict) else value)


class Handle:
    """A device of the script."""

    def __init__(self, answers, number, slices=()):
        self.answers = answers
        self.number = number
        self.slices = slices


def load(vendor):
    with open(os.environ["SPECPANEL_DEVICE_SCRIPT"], encoding="utf-8") as file:
        return json.load(file).get(vendor)


def _numbered(value, number):
    if isinstance(value, str):
        return value.replace("{n}", str(number))
    if isinstance(value, dict):
        return {name: _numbered(item, number) for name, item in value.items()}
    if isinstance(value, list):
        return [_numbered(item, number) for item in value]
    return value


def handles(devices):
    """One handle a device; ``repeat`` makes several of one."""
    found = []
    for spec in devices:
        for _ in range(spec.get("repeat", 1)):
            number = len(found)
            slices = [
                Handle(_numbered(one["answers"], place), place)
                for place, one in enumerate(spec.get("slices", ()))
            ]
            found.append(Handle(_numbered(spec.get("answers", {}), number), number, slices))
    return found


_calls = {}


def play(answer, key, failure):
    """Do what an answer says. ``failure`` makes the vendor's exception of a number."""
    if not isinstance(answer, dict):
        return answer
    if "series" in answer:
        place = min(_calls.get(key, 0), len(answer["series"]) - 1)
        _calls[key] = place + 1
        return play(answer["series"][place], key, failure)
    if "raise" in answer:
        raise failure(answer["raise"])
    if "python" in answer:
        raise getattr(__builtins__, "get", vars(__import__("builtins")).get)(answer["python"])(
            answer.get("text", "")
        )
    if "undecodable" in answer:
        return b"\xf8\xff".decode()
    if "block_s" in answer:
        time.sleep(answer["block_s"])
        return play(answer.get("then"), key, failure)
    if "print" in answer:
        os.write(1, (answer["print"] + "\n").encode())
        ctypes.CDLL(None).puts(answer["print"].encode())
        return play(answer.get("then"), key, failure)
    if "signal" in answer:
        os.kill(os.getpid(), getattr(signal, answer["signal"]))
    return answer
