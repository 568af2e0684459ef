"""A stand-in for amdsmi: the names of release 7.0.2, answers from a script."""

from enum import IntEnum

import device_script

_script = device_script.load("amdsmi")
if _script is None:
    raise ModuleNotFoundError("No module named 'amdsmi'", name="amdsmi")
device_script.play(_script.get("import"), "import", Exception)

__version__ = "7.0.2"
_PREFIX = "amdsmi_"


class AmdSmiException(Exception):  # noqa: N818 - amdsmi's own name
    pass


class AmdSmiLibraryException(AmdSmiException):
    def __init__(self, err_code):
        super().__init__(err_code)
        self.err_code = err_code

    def __str__(self):
        return f"Error code:\n\t{self.err_code} | AMDSMI_STATUS"


class AmdSmiTemperatureType(IntEnum):
    EDGE = 0
    HOTSPOT = 1
    JUNCTION = 1
    VRAM = 2
    HBM_0 = 3


class AmdSmiTemperatureMetric(IntEnum):
    CURRENT = 0


class AmdSmiClkType(IntEnum):
    GFX = 0
    MEM = 4


_handles = device_script.handles(_script.get("devices", ()))


def _call(name, *arguments):
    general = _script.get("answers", {})
    if name == "amdsmi_get_processor_handles":
        device_script.play(general.get(name), name, AmdSmiLibraryException)
        return _handles
    if not arguments:
        return device_script.play(general.get(name), name, AmdSmiLibraryException)
    handle, *more = arguments
    answers = handle.answers
    key = f"{name}:{more[0].name}" if more else name
    given = answers.get(key, answers.get(name, {"raise": 2}))
    return device_script.play(given, (id(answers), key), AmdSmiLibraryException)


def __getattr__(name):
    if not name.startswith(_PREFIX) or name in _script.get("absent_calls", ()):
        raise AttributeError(name)

    def call(*arguments):
        return _call(name, *arguments)

    call.__name__ = name
    globals()[name] = call
    return call
