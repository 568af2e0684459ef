"""Rules about the machine: interpreter, platform, port, devices, disk. Pure."""

from collections.abc import Iterator
from shlex import quote

from specpanel.core.engine.interpreter_facts import version_tuple
from specpanel.core.preflight.arguments import pipeline_parallel_size, tensor_parallel_size
from specpanel.core.preflight.rule import Remark, Rule, rule
from specpanel.core.preflight.surroundings import Surroundings
from specpanel.core.settings.attention_backends import BACKENDS_VERSION
from specpanel.core.settings.profile import Profile

GIB = 1024**3
DISK_LOW_BYTES = 1 * GIB
DEFAULT_MEMORY_SHARE = 0.92  # vLLM 0.32.0, config/cache.py


@rule(
    "vllm-missing",
    "error",
    "vLLM is not installed in the chosen interpreter.",
    "Install it there, or set engine.python.",
)
def vllm_is_there(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    facts = around.interpreter
    if facts is None or facts.distribution is None:
        python = facts.python if facts else profile.engine.python or "this interpreter"
        yield Remark(
            f"vLLM is not installed in {python}",
            "Install it there, or set engine.python to the environment that holds it.",
            "engine.python",
        )


@rule(
    "platform-mismatch",
    "error",
    "engine.platform names another platform than the installed vLLM was built for.",
    "Set engine.platform to auto, or install the other build.",
)
def vllm_is_for_the_platform(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    facts, wanted = around.interpreter, profile.engine.platform
    if facts is None or facts.distribution is None or wanted == "auto":
        return
    if facts.platform not in {wanted, "unknown"}:
        yield Remark(
            f"engine.platform is {wanted}, and the vLLM in {facts.python} is built for "
            f"{facts.platform}",
            "Set engine.platform to auto, or install the other build.",
            "engine.platform",
            (f"{facts.distribution} {facts.vllm_version}",),
            (("engine.platform", None),),
        )


@rule(
    "vllm-version",
    "note",
    "The installed vLLM is older than the one these rules were read from, or its version is not known.",
    "Expect flags and methods that it does not know.",
)
def vllm_is_recent(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    facts = around.interpreter
    if facts is None or facts.distribution is None:
        return
    found = version_tuple(facts.vllm_version)
    if found < version_tuple(BACKENDS_VERSION):
        yield Remark(
            f"the vLLM found is {facts.vllm_version or 'of an unknown version'}, and what is checked "
            f"here was read from {BACKENDS_VERSION}",
            "Expect flags and methods that it does not know.",
            "engine.python",
        )


def _address(profile: Profile, around: Surroundings) -> str:
    return f"{profile.engine.host}:{around.port.port}"


@rule(
    "cannot-listen",
    "error",
    "vLLM cannot listen at the chosen address and port.",
    "Use another port, or an address of this machine.",
)
def address_can_be_listened_at(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    port = around.port
    if not port.free and port.problem:
        yield Remark(
            f"vLLM cannot listen at {_address(profile, around)}: {port.problem}",
            _other_port(port.next_free),
            "engine.host",
            mend=() if port.next_free is None else (("engine.port", port.next_free),),
        )


@rule(
    "port-taken",
    "error",
    "Somebody listens at the port: another program, or a server that specpanel started.",
    "Use the next free port, or end the server with specpanel stop.",
)
def port_is_free(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    port = around.port
    if port.free or port.problem:
        return
    owner, fix = "a process that this user may not see", _other_port(port.next_free)
    if port.server is not None:
        owner = f"specpanel's own server {port.server} (pid {port.owner_pid})"
        fix = f"End it with: specpanel stop {quote(port.server)}. Or: {fix[0].lower()}{fix[1:]}"
    elif port.owner_pid is not None:
        owner = f"{port.owner_name or 'a process'} (pid {port.owner_pid})"
    yield Remark(
        f"port {port.port} is taken by {owner}",
        fix,
        "engine.port",
        mend=() if port.next_free is None else (("engine.port", port.next_free),),
    )


def _other_port(next_free: int | None) -> str:
    return f"Use port {next_free}, which is free." if next_free else "Use another port."


@rule(
    "device-driver",
    "error",
    "The driver does not answer, so no device can be used.",
    "Do what the reason says; after a driver's update, restart the machine.",
)
def driver_answers(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    if around.device_problem and around.devices is None and around.platform in ("cuda", "rocm"):
        yield Remark(
            f"the devices cannot be read: {around.device_problem}",
            "After a driver's update, restart the machine or reload the driver.",
            "engine.platform",
        )


@rule(
    "no-device",
    "warning",
    "vLLM is built for GPUs and none was found.",
    "Make a device visible, or use a vLLM for CPUs.",
)
def some_device_is_there(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    if around.platform in ("cuda", "rocm") and around.devices == ():
        yield Remark(
            f"vLLM is for {around.platform} and no device was found: {around.device_problem}",
            "Make a device visible, or use a vLLM for CPUs.",
            "engine.platform",
        )


@rule(
    "too-few-devices",
    "error",
    "The launch is split over more devices than vLLM will see.",
    "Lower tensor_parallel_size, or make more devices visible.",
)
def devices_are_enough(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    if not around.devices or around.platform not in ("cuda", "rocm"):
        return
    ranks, stages = tensor_parallel_size(profile), pipeline_parallel_size(profile)
    wanted, there = ranks * stages, len(around.devices)
    if wanted > there:
        yield Remark(
            f"the launch needs {wanted} device{'s' if wanted > 1 else ''} and vLLM will see {there}",
            "Lower tensor_parallel_size, or make more devices visible.",
            "engine.tensor_parallel_size",
            tuple(device.name for device in around.devices),
            (("engine.tensor_parallel_size", there),) if stages == 1 and there else (),
        )


@rule(
    "device-busy",
    "error",
    "Less device memory is free than the share that vLLM is told to take; it refuses to start.",
    "End what holds the memory, or lower gpu_memory_utilization.",
)
def devices_have_room(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    share = profile.engine.gpu_memory_utilization or DEFAULT_MEMORY_SHARE
    for number, device in enumerate(around.devices or ()):
        if number >= tensor_parallel_size(profile) * pipeline_parallel_size(profile):
            return
        if device.total_bytes is None or device.free_bytes is None:
            continue
        if device.free_bytes < share * device.total_bytes:
            possible = int(device.free_bytes / device.total_bytes * 100) / 100
            yield Remark(
                f"device {number} ({device.name}) has {device.free_bytes / GIB:.1f} of "
                f"{device.total_bytes / GIB:.1f} GiB free, and vLLM would take "
                f"{share * device.total_bytes / GIB:.1f}",
                f"End what holds the memory, or set gpu_memory_utilization to {possible:g}.",
                "engine.gpu_memory_utilization",
                device.holders,
                (("engine.gpu_memory_utilization", possible),) if possible > 0 else (),
            )


@rule(
    "device-uuid",
    "warning",
    "Devices are named by a MIG or GPU UUID, on which some versions of vLLM die.",
    "Give the device's index if the start fails.",
)
def devices_have_numbers(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    devices = profile.engine.environment.get("CUDA_VISIBLE_DEVICES", "")
    named = [part for part in devices.split(",") if part.strip().startswith(("MIG-", "GPU-"))]
    if named:
        yield Remark(
            f"CUDA_VISIBLE_DEVICES names {named[0].strip()}, which some versions of vLLM cannot read",
            "Give the device's index if the start fails.",
            "engine.environment",
        )


@rule(
    "disk-low",
    "warning",
    "Little disk is left for logs and caches.",
    "Free some space.",
)
def disk_is_enough(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    free = around.free_disk_bytes
    if free is not None and free < DISK_LOW_BYTES:
        yield Remark(
            f"only {free / 1e6:.0f} MB of disk are free for logs and caches", "Free some space."
        )


RULES: tuple[Rule, ...] = (
    vllm_is_there,
    vllm_is_for_the_platform,
    vllm_is_recent,
    address_can_be_listened_at,
    port_is_free,
    driver_answers,
    some_device_is_there,
    devices_are_enough,
    devices_have_room,
    devices_have_numbers,
    disk_is_enough,
)
