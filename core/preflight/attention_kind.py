"""What a launch's attention is about: the model's kind, AMX tiles, the device's generation. Pure."""

from specpanel.core.checkpoints.config import ModelConfig
from specpanel.core.preflight.arguments import is_on, variables
from specpanel.core.preflight.surroundings import DeviceState, Surroundings
from specpanel.core.settings.attention_backends import ModelKind
from specpanel.core.settings.profile import Profile


def kind_of(config: ModelConfig | None, profile: Profile, around: Surroundings) -> ModelKind | None:
    """How the target attends; None where its config.json was not read."""
    if config is None:
        return None
    if not config.is_mla or is_on(variables(profile, around).get("VLLM_MLA_DISABLE")):
        return "gqa"
    return "sparse" if config.is_sparse_mla else "mla"


def target_kind(profile: Profile, around: Surroundings) -> ModelKind | None:
    return kind_of(around.target.config, profile, around)


def uses_amx(profile: Profile, around: Surroundings) -> bool:
    """Whether MLA on this CPU runs on AMX tiles: where there are some, unless CPU_MLA is asked for."""
    return around.amx and profile.mla.attention_backend != "CPU_MLA"


def known_device(around: Surroundings) -> DeviceState | None:
    """A device whose capability is known; vLLM's ranks are expected to be alike."""
    known = [device for device in around.devices or () if device.capability is not None]
    return known[0] if known else None
