"""Rules about attention backends: legal for platform, model, device, KV type and block size. Pure.

Read from vLLM 0.32.0: ``platforms/{cuda,rocm,cpu}.py``, ``v1/attention/backends``.
"""

from collections.abc import Iterator

from specpanel.core.preflight.attention_kind import known_device, target_kind
from specpanel.core.preflight.rule import Remark, Rule, rule
from specpanel.core.preflight.surroundings import Surroundings
from specpanel.core.settings.attention_backends import (
    BACKENDS,
    BACKENDS_VERSION,
    KNOWN_NAMES,
    PREFILL_BACKENDS,
    Backend,
    ModelKind,
    backends_for,
    find_backend,
)
from specpanel.core.settings.profile import Profile


def _chosen(profile: Profile) -> Iterator[tuple[str, str]]:
    """Backends that were asked for, with the setting that did."""
    if profile.mla.attention_backend:
        yield profile.mla.attention_backend, "mla.attention_backend"
    for backend in profile.mla.backend_per_kind.values():
        yield backend, "mla.backend_per_kind"


def _found(profile: Profile, around: Surroundings) -> Iterator[tuple[Backend, str]]:
    """Chosen backends that the table has for this platform and kind of model."""
    kind = target_kind(profile, around)
    if kind is None:
        return
    for name, field in _chosen(profile):
        backend = find_backend(name, around.platform, kind)
        if backend is not None:
            yield backend, field


def _others(around: Surroundings, kind: ModelKind) -> str:
    names = ", ".join(backend.name for backend in backends_for(around.platform, kind))
    return f"Use {names}, or leave it to vLLM." if names else "Leave it to vLLM."


@rule(
    "backend-unknown",
    "warning",
    "No attention backend of that name is known.",
    "Correct the name, or leave it to vLLM.",
)
def backend_is_known(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    for name, field in _chosen(profile):
        if name not in KNOWN_NAMES:
            yield Remark(
                f"vLLM {BACKENDS_VERSION} knows no attention backend {name}",
                "Correct the name, unless a plugin or a newer vLLM brings it.",
                field,
                mend=((field, None),),
            )


@rule(
    "backend-not-here",
    "error",
    "The attention backend is for another platform, or for another kind of model.",
    "Use one of those listed, or leave it to vLLM.",
)
def backend_is_for_the_model(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    kind = target_kind(profile, around)
    if kind is None or around.platform == "unknown":
        return
    words = {"gqa": "without MLA", "mla": "with dense MLA", "sparse": "with sparse MLA"}
    for name, field in _chosen(profile):
        if field != "mla.attention_backend" and kind != "gqa":
            continue  # layers of several kinds: each has a backend of its own
        entries = [backend for backend in BACKENDS if backend.name == name]
        if not entries or any(b.platform == around.platform and b.kind == kind for b in entries):
            continue
        places = ", ".join(f"{b.platform} models {words[b.kind]}" for b in entries)
        yield Remark(
            f"{name} is for {places}, and this is a model {words[kind]} on {around.platform}",
            _others(around, kind),
            field,
            mend=((field, None),),
        )


@rule(
    "backend-capability",
    "error",
    "The attention backend does not run on this generation of GPU.",
    "Use one of those listed, or leave it to vLLM.",
)
def backend_runs_on_the_device(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    device, kind = known_device(around), target_kind(profile, around)
    if device is None or device.capability is None or kind is None:
        return
    major = device.capability[0]
    for backend, field in _found(profile, around):
        if backend.capabilities and major not in backend.capabilities:
            legal = [
                other.name
                for other in backends_for(around.platform, kind)
                if not other.capabilities or major in other.capabilities
            ]
            yield Remark(
                f"{backend.name} runs on compute capability "
                f"{', '.join(f'{c}.x' for c in backend.capabilities)}, and {device.name} has "
                f"{major}.{device.capability[1]}",
                f"Use {', '.join(legal)}, or leave it to vLLM." if legal else "Leave it to vLLM.",
                field,
                mend=((field, None),),
            )


@rule(
    "backend-kv-type",
    "error",
    "The attention backend cannot read that type of KV cache.",
    "Use a type that it reads, or another backend.",
)
def backend_reads_the_cache(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    asked = profile.mla.kv_cache_dtype or "auto"
    for backend, field in _found(profile, around):
        if backend.kv_types and asked not in backend.kv_types:
            wrong = "mla.kv_cache_dtype" if profile.mla.kv_cache_dtype else field
            yield Remark(
                f"{backend.name} reads a KV cache of {', '.join(backend.kv_types)}, not of {asked}",
                f"Use one of these types, or: {_others(around, backend.kind)}",
                wrong,
                mend=((wrong, None),),
            )


@rule(
    "backend-block-size",
    "error",
    "The attention backend cannot work with that block size.",
    "Leave block_size out: vLLM takes one that fits.",
)
def backend_takes_the_blocks(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    size = profile.mla.block_size
    if size is None or around.platform == "cpu":
        return
    for backend, _ in _found(profile, around):
        if not backend.allows_block(size):
            allowed = " or ".join(map(str, backend.blocks))
            yield Remark(
                f"{backend.name} needs blocks of a multiple of {allowed} tokens, not of {size}",
                "Leave block_size out: vLLM takes one that fits.",
                "mla.block_size",
                mend=(("mla.block_size", None),),
            )


@rule(
    "no-backend-for-cache",
    "error",
    "No MLA backend of the platform takes this KV type and block size together.",
    "Leave one of them out.",
)
def some_backend_fits(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    kind = target_kind(profile, around)
    if kind not in ("mla", "sparse") or any(True for _ in _chosen(profile)):
        return
    if around.platform == "cpu":
        return  # blocks are overridden there, and the type has a rule of its own
    asked, size, device = profile.mla.kv_cache_dtype or "auto", profile.mla.block_size, None
    device = known_device(around)
    fits = [
        backend
        for backend in backends_for(around.platform, kind)
        if (not backend.kv_types or asked in backend.kv_types)
        and (size is None or backend.allows_block(size))
        and (
            device is None
            or device.capability is None
            or not backend.capabilities
            or device.capability[0] in backend.capabilities
        )
    ]
    if fits or not backends_for(around.platform, kind):
        return
    field = "mla.block_size" if size is not None else "mla.kv_cache_dtype"
    with_blocks = f" in blocks of {size}" if size is not None else ""
    on = device.name if device else around.platform
    yield Remark(
        f"no MLA backend on {on} takes a KV cache of {asked}{with_blocks}",
        "Leave block_size or kv_cache_dtype out.",
        field,
        tuple(
            f"{backend.name}: {', '.join(backend.kv_types)}; blocks {backend.blocks}"
            for backend in backends_for(around.platform, kind)
        ),
        ((field, None),),
    )


@rule(
    "prefill-backend-not-here",
    "error",
    "The MLA prefill backend is for another platform or GPU; a CPU ignores it.",
    "Leave it to vLLM.",
    also=("note",),
)
def prefill_backend_is_for_the_platform(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    name = profile.mla.mla_prefill_backend
    if name is None or around.platform == "unknown":
        return
    platform, capabilities = PREFILL_BACKENDS[name]
    device, field = known_device(around), "mla.mla_prefill_backend"
    mend = ((field, None),)
    if around.platform == "cpu":
        text = f"a CPU ignores mla_prefill_backend {name} and uses its own"
        yield Remark(text, "Leave it out.", field, mend=mend, severity="note")
    elif platform != around.platform:
        text = f"the MLA prefill backend {name} is for {platform}, not for {around.platform}"
        yield Remark(text, "Leave it to vLLM.", field, mend=mend)
    elif device and device.capability and capabilities and device.capability[0] not in capabilities:
        text = f"the MLA prefill backend {name} needs Blackwell, and this is a {device.name}"
        yield Remark(text, "Leave it to vLLM.", field, mend=mend)


RULES: tuple[Rule, ...] = (
    backend_is_known,
    backend_is_for_the_model,
    backend_runs_on_the_device,
    backend_reads_the_cache,
    backend_takes_the_blocks,
    some_backend_fits,
    prefill_backend_is_for_the_platform,
)
