"""Which devices a program may use and which it does: its environment and arguments, made into uuids. Pure.

The rules of CUDA are NVIDIA's (CUDA programming guide, "CUDA Environment Variables"), those of ROCm are
AMD's ("GPU isolation techniques"). An index means something only in a known order, so where that is not
known the answer is "not known" and never a guess.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from specpanel.core.devices.records import Device, DeviceReading, Vendor

CUDA = "CUDA_VISIBLE_DEVICES"
HIP = "HIP_VISIBLE_DEVICES"
ROCR = "ROCR_VISIBLE_DEVICES"

_SIZES = {
    "--tensor-parallel-size": "-tp",
    "--pipeline-parallel-size": "-pp",
    "--data-parallel-size": "-dp",
}


_CPU_ONLY = "VLLM_CPU_"  # settings that only a vLLM built for the CPU reads


@dataclass(frozen=True, slots=True)
class Visible:
    """``uuids`` in the program's own order (its device 0 first); None with a ``problem``: not known."""

    uuids: tuple[str, ...] | None
    problem: str | None = None
    chosen: bool = False  # the environment names them, instead of leaving all


def visible_devices(
    devices: Sequence[Device], environment: Mapping[str, str], vendor: Vendor
) -> Visible:
    """The devices of one vendor that a program with this environment may use."""
    return (_cuda if vendor == "nvidia" else _rocm)(devices, environment)


def _cuda(devices: Sequence[Device], environment: Mapping[str, str]) -> Visible:
    cards = [one for one in devices if one.vendor == "nvidia" and one.kind == "gpu"]
    named = environment.get(CUDA)
    if named is None:
        return Visible(tuple(_usable(card, devices).uuid for card in cards))
    by_bus = environment.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
    mixed = len({card.name for card in cards}) > 1
    everything = [one for one in devices if one.vendor == "nvidia"]
    found: list[str] = []
    for entry in _entries(named):
        if entry.isdecimal():
            if mixed and not by_bus:
                problem = f"{CUDA} counts the fastest card first: set CUDA_DEVICE_ORDER=PCI_BUS_ID"
                return Visible(None, problem, True)
            card = next((one for one in cards if one.index == int(entry)), None)
            uuid = None if card is None else _usable(card, devices).uuid
        else:
            uuid = _by_prefix(entry, everything)
        if uuid is None:
            # CUDA stops at the first name that it does not know and goes on with those before it.
            return Visible(tuple(found), f"{CUDA} names {entry}, which is not here", True)
        if uuid not in found:
            found.append(uuid)
    return Visible(tuple(found), None, True)


def _usable(card: Device, devices: Sequence[Device]) -> Device:
    """The card, or its first slice: one program can use one slice of a card that is in MIG mode."""
    return next((one for one in devices if one.parent_uuid == card.uuid), card)


def _rocm(devices: Sequence[Device], environment: Mapping[str, str]) -> Visible:
    problem = contradiction(environment)
    if problem is not None:
        return Visible(None, problem, True)
    left = [one for one in devices if one.vendor == "amd" and one.hip_index is not None]
    left.sort(key=lambda one: one.hip_index or 0)
    chosen = False
    # ROCr leaves some of the devices, and HIP counts among those.
    for name in (ROCR, HIP if HIP in environment else CUDA):
        # An empty value hides everything from HIP; vLLM takes it for unset, and so do we.
        if not environment.get(name):
            continue
        chosen = True
        kept: list[Device] = []
        for entry in _entries(environment[name]):
            if entry.isdecimal():
                one = left[int(entry)] if int(entry) < len(left) else None
            else:
                uuid = _by_prefix(entry, left)
                one = next((device for device in left if device.uuid == uuid), None)
            if one is None:
                problem = f"{name} names {entry}, which is not here"
                return Visible(tuple(device.uuid for device in kept), problem, True)
            kept.append(one)
        left = kept
    return Visible(tuple(dict.fromkeys(one.uuid for one in left)), None, chosen)


def _entries(text: str) -> list[str]:
    return [entry.strip() for entry in text.split(",") if entry.strip()]


def _by_prefix(entry: str, devices: Sequence[Device]) -> str | None:
    """The uuid that ``entry`` is, or begins and no other does."""
    if len(entry) < len("GPU-") + 1:
        return None
    found = [one.uuid for one in devices if one.uuid.lower().startswith(entry.lower())]
    exact = [uuid for uuid in found if uuid.lower() == entry.lower()]
    found = exact or found
    return found[0] if len(found) == 1 else None


def contradiction(environment: Mapping[str, str]) -> str | None:
    """Why ROCm would refuse, or misread, the visible devices of an environment; None where it does not.

    vLLM refuses HIP and CUDA variables that differ (vllm/platforms/rocm.py); ROCr's variable renumbers
    what the other two count.
    """
    hip, cuda, rocr = (environment.get(name) or None for name in (HIP, CUDA, ROCR))
    if hip is not None and cuda is not None and hip != cuda:
        return f"{HIP}={hip} and {CUDA}={cuda} contradict each other: set only {HIP}"
    inner = hip if hip is not None else cuda
    if rocr is None or inner is None:
        return None
    left = len(_entries(rocr))
    beyond = [entry for entry in _entries(inner) if entry.isdecimal() and int(entry) >= left]
    if beyond:
        other = HIP if hip is not None else CUDA
        return f"{ROCR}={rocr} leaves {left} device{'s' * (left != 1)}, and {other} names number {beyond[0]}"
    return None


def hip_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """What a start on AMD adds: HIP's own variable, where devices were chosen by CUDA's name alone.

    Libraries below vLLM read HIP's, some when they are imported. vLLM wants the two to agree, so CUDA's may
    stay; an empty one counts as unset for it. ROCr's is left alone: it numbers what the others count.
    """
    chosen = environment.get(CUDA)
    if not chosen or environment.get(HIP) or environment.get(ROCR):
        return {}
    return {HIP: chosen}


def devices_wanted(arguments: Sequence[str]) -> int | None:
    """How many devices a vLLM command line asks for on this machine; None where it cannot be told."""
    total = 1
    for long, short in _SIZES.items():
        value = _value(arguments, long, short)
        if value is not None:
            if not value.isdecimal():
                return None
            total *= max(1, int(value))
    return total


def _value(arguments: Sequence[str], *names: str) -> str | None:
    for place, argument in enumerate(arguments):
        head, equals, tail = argument.partition("=")
        if head.replace("_", "-") in names:
            return tail if equals else next(iter(arguments[place + 1 : place + 2]), None)
    return None


def used_by(
    devices: Sequence[Device],
    readings: Sequence[DeviceReading],
    *,
    environment: Mapping[str, str],
    arguments: Sequence[str],
    pids: Sequence[int],
) -> tuple[str, ...] | None:
    """The devices that a running server uses; None where that is not known.

    A process list that names the server's processes is proof. Without one, its arguments and environment
    tell: ``--device-ids`` before ``CUDA_VISIBLE_DEVICES``, because a vLLM that has it leaves the variable
    alone and its ranks are not places in it. A vLLM that was given settings of the CPU build uses none.
    """
    ours = set(pids)
    proved = tuple(
        reading.uuid
        for reading in readings
        if any(process.pid in ours for process in reading.processes or ())
    )
    if proved:
        return proved
    if any(name.startswith(_CPU_ONLY) for name in environment):
        return ()
    vendors = {device.vendor for device in devices}
    if len(vendors) != 1:
        return None
    visible = visible_devices(devices, environment, vendors.pop())
    if visible.uuids is None or visible.problem is not None:
        return None
    named = _value(arguments, "--device-ids")
    if named is not None:
        return _chosen(named, visible.uuids, devices)
    wanted = devices_wanted(arguments)
    if wanted is None or wanted > len(visible.uuids):
        return None
    return visible.uuids[:wanted]


def _chosen(
    named: str, visible: tuple[str, ...], devices: Sequence[Device]
) -> tuple[str, ...] | None:
    found = []
    for entry in _entries(named):
        if entry.isdecimal() and int(entry) < len(visible):
            found.append(visible[int(entry)])
        elif (uuid := _by_prefix(entry, devices)) is not None:
            found.append(uuid)
        else:
            return None
    return tuple(found)
