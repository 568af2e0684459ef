"""Rules about memory: do weights and KV cache fit, and how long a text may be. Pure."""

from collections.abc import Iterator

from specpanel.core.preflight.memory_estimate import (
    CPU_PROCESSES_BYTES,
    GIB,
    MemoryEstimate,
    estimate,
)
from specpanel.core.preflight.rule import Remark, Rule, rule
from specpanel.core.preflight.surroundings import Surroundings
from specpanel.core.settings.profile import Profile


def _gib(size_bytes: float) -> str:
    return f"{size_bytes / GIB:.1f}"


def _weights(found: MemoryEstimate) -> int | None:
    sizes = [line.size_bytes for line in found.lines if line.name.startswith("weights")]
    return None if None in sizes else sum(size for size in sizes if size is not None)


@rule(
    "weights-too-large",
    "error",
    "The weights alone are larger than the memory that vLLM may take.",
    "Split the model over more devices, quantise it, or use a smaller one.",
)
def weights_fit(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    found = estimate(profile, around)
    weights = _weights(found)
    share = next((line for line in found.lines if line.name == "share of the device"), None)
    if weights is None or share is None or share.size_bytes is None:
        return
    if weights > share.size_bytes:
        yield Remark(
            f"the weights need {_gib(weights)} GiB on each device, and vLLM may take "
            f"{_gib(share.size_bytes)} GiB",
            "Raise tensor_parallel_size, quantise the model, or use a smaller one.",
            "engine.tensor_parallel_size",
            (share.basis,),
        )


@rule(
    "kv-cache-too-small",
    "error",
    "One request of full length does not fit into the KV cache; vLLM refuses to start.",
    "Set max_model_len to the length that fits, or give the cache more memory.",
    also=("warning",),
)
def one_request_fits(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    found = estimate(profile, around)
    length, longest, cache = found.max_model_len, found.longest, found.cache_bytes
    if length is None or longest is None or cache is None or not found.bytes_per_token:
        return
    if length <= longest:
        return
    on_cpu = around.platform == "cpu"
    # Where activations are a guess, only what fails without them is certain.
    certain = length * found.bytes_per_token > cache + found.guessed_bytes
    more = (
        "raise cpu_kv_cache_gib"
        if on_cpu
        else "raise gpu_memory_utilization or tensor_parallel_size"
    )
    about = "" if on_cpu else "about "
    yield Remark(
        f"one request of {length} tokens needs {_gib(length * found.bytes_per_token)} GiB of KV "
        f"cache, and there are {about}{_gib(cache)} GiB",
        f"Set max_model_len to {longest} or less, or {more}."
        if longest
        else f"{more[0].upper()}{more[1:]}.",
        "target.max_model_len" if longest else "engine.cpu_kv_cache_gib",
        (f"{found.bytes_per_token} B a token on each rank", *found.assumptions[:2]),
        (("target.max_model_len", longest),) if longest else (),
        "error" if certain or on_cpu else "warning",
    )


@rule(
    "memory-low",
    "warning",
    "Weights and KV cache need more memory than is free. An estimate: activations are not counted.",
    "Free memory, lower the KV cache, or use a smaller model.",
    also=("error",),
)
def memory_is_enough(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    free = around.free_memory_bytes
    found = estimate(profile, around)
    weights = _weights(found)
    if free is None or weights is None:
        return
    on_cpu = around.platform == "cpu"
    length, per_token = found.max_model_len, found.bytes_per_token
    cache = (found.cache_bytes or 0) if on_cpu else (length or 0) * (per_token or 0)
    needed = weights + cache + (CPU_PROCESSES_BYTES if on_cpu else 0)
    if needed <= free:
        return
    refused = on_cpu and cache > free
    fits = max(1, int((free - weights - CPU_PROCESSES_BYTES) // GIB))
    smaller = on_cpu and fits * GIB < cache and weights + CPU_PROCESSES_BYTES + GIB <= free
    yield Remark(
        f"weights ({_gib(weights)} GiB) and KV cache ({_gib(cache)} GiB) need about "
        f"{_gib(needed)} GiB, and {_gib(free)} GiB are free",
        f"Set cpu_kv_cache_gib to {fits}, or free memory."
        if smaller
        else "Free memory, lower max_model_len or the KV cache, or use a smaller model.",
        "engine.cpu_kv_cache_gib" if smaller else "target.model",
        found.assumptions[:2],
        (("engine.cpu_kv_cache_gib", fits),) if smaller else (),
        "error" if refused else "warning",
    )


RULES: tuple[Rule, ...] = (weights_fit, one_request_fits, memory_is_enough)
