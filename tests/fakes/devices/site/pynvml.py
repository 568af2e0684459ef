"""A stand-in for nvidia-ml-py: the same names, answers from a script.

Error classes and numbers are those of the real package, which is imported as well: so the process that
is measured carries its weight.
"""

import importlib.util
import os
import sys

import device_script

_HERE = os.path.dirname(os.path.abspath(__file__))


def _real():
    for folder in sys.path:
        path = os.path.join(folder, "pynvml.py")
        if os.path.abspath(folder or ".") != _HERE and os.path.exists(path):
            spec = importlib.util.spec_from_file_location("_real_pynvml", path)
            module = importlib.util.module_from_spec(spec)
            sys.modules[spec.name] = module
            spec.loader.exec_module(module)
            return module
    raise ModuleNotFoundError("nvidia-ml-py, whose errors the stand-in raises, is not installed")


_script = device_script.load("pynvml")
if _script is None:
    raise ModuleNotFoundError("No module named 'pynvml'", name="pynvml")

_pynvml = _real()
NVMLError = _pynvml.NVMLError
_handles = device_script.handles(_script.get("devices", ()))
_opened = False


def _answer(name, answers, key, missing=3):
    given = answers.get(key, answers.get(name, {"raise": missing}))
    return device_script.play(given, (id(answers), key), NVMLError)


def _by_uuid(uuid):
    for handle in _handles:
        for one in (handle, *handle.slices):
            if one.answers.get("nvmlDeviceGetUUID") == uuid:
                return one
    raise NVMLError(_pynvml.NVML_ERROR_NOT_FOUND)


def _call(name, *arguments):
    general = _script.get("answers", {})
    if name in ("nvmlInit", "nvmlSystemGetDriverVersion", "nvmlSystemGetNVMLVersion"):
        return device_script.play(general.get(name), name, NVMLError)
    if name == "nvmlDeviceGetCount":
        return len(_handles)
    if name == "nvmlDeviceGetHandleByIndex":
        handle = _handles[arguments[0]]
        _answer(name, {name: None, **handle.answers}, name)
        return handle
    if name == "nvmlDeviceGetHandleByUUID":
        return _by_uuid(arguments[0])
    handle, *more = arguments
    if name == "nvmlDeviceGetMigDeviceHandleByIndex":
        if more[0] < len(handle.slices):
            found = handle.slices[more[0]]
            # Memory asked for through this handle is the card's, as a program that opens the card by
            # its index sees it.
            memory = {key: handle.answers[key] for key in handle.answers if "MemoryInfo" in key}
            return device_script.Handle({**found.answers, **memory}, found.number)
        raise NVMLError(_pynvml.NVML_ERROR_NOT_FOUND)
    if name == "nvmlDeviceGetMaxMigDeviceCount":
        return 7
    key = f"{name}:{more[0]}" if more and isinstance(more[0], int) else name
    answer = _answer(name, handle.answers, key)
    if isinstance(answer, dict):
        return device_script.Attributes(answer)
    if isinstance(answer, list):
        return [device_script.Attributes(one) if isinstance(one, dict) else one for one in answer]
    return answer


def __getattr__(name):
    if name in _script.get("absent_calls", ()) or not hasattr(_pynvml, name):
        raise AttributeError(name)
    real = getattr(_pynvml, name)
    if not name.startswith("nvml") or not callable(real):
        return real

    def call(*arguments):
        return _call(name, *arguments)

    call.__name__ = name
    globals()[name] = call
    return call
