"""The terminal's keys, read when there are some.

Textual's own thread looks ten times a second whether a lone Escape was a key or the start of a sequence.
That has to be asked right after input only; a panel that nobody touches pays for it all day.
"""

import codecs
import os
import selectors
import threading
import time
from contextlib import suppress

from textual._xterm_parser import XTermParser
from textual.app import App
from textual.drivers.linux_driver import LinuxDriver

_LOOK_S = 0.1  # whether a sequence goes on, for as long after input as any may take
_GOES_ON_S = 2.0
_READ_BYTES = 4096


class _Ending(threading.Event):
    """An event that wakes who waits for a file."""

    def __init__(self) -> None:
        super().__init__()
        self.reader, self._writer = os.pipe()
        os.set_blocking(self.reader, False)

    def set(self) -> None:
        super().set()
        os.write(self._writer, b"\0")

    def clear(self) -> None:
        super().clear()
        with suppress(BlockingIOError):
            os.read(self.reader, _READ_BYTES)


class PatientDriver(LinuxDriver):
    """Textual's driver, whose input thread sleeps until there is input."""

    def __init__(
        self,
        app: App[object],
        *,
        debug: bool = False,
        mouse: bool = True,
        size: tuple[int, int] | None = None,
    ) -> None:
        super().__init__(app, debug=debug, mouse=mouse, size=size)
        self._ending = _Ending()
        self.exit_event = self._ending

    def run_input_thread(self) -> None:
        parser = XTermParser(self._debug)
        decode = codecs.getincrementaldecoder("utf-8")().decode
        newest_s = time.monotonic()
        with selectors.SelectSelector() as selector:
            selector.register(self.fileno, selectors.EVENT_READ)
            selector.register(self._ending.reader, selectors.EVENT_READ)
            while not self._ending.is_set():
                settled = time.monotonic() - newest_s > _GOES_ON_S
                ready = selector.select(None if settled else _LOOK_S)
                if any(key.fd == self.fileno for key, _ in ready):
                    newest_s = time.monotonic()
                    raw = os.read(self.fileno, _READ_BYTES)
                    if not raw:  # the terminal is gone, which the panel sees by itself
                        self._ending.wait(_LOOK_S)
                        continue
                    text = decode(raw)
                    for event in parser.feed(text) if text else ():
                        self.process_message(event)
                for event in parser.tick():
                    self.process_message(event)
