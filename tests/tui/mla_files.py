"""What the MLA screen is shown over in tests: fixed models, a fixed vLLM, a made-up calibration."""

from pathlib import Path

from specpanel.app.tui.mla_sources import Source
from specpanel.app.tui.mla_store import save_calibration
from specpanel.core.settings.files import ProfileFile
from specpanel.core.settings.profile import Profile
from specpanel.kernels.calibrate import Calibration, Grid, Key, calibrate
from specpanel.kernels.cells import Cell, cell_of
from specpanel.kernels.dims import PRESETS
from specpanel.kernels.errors import MLAError
from specpanel.kernels.vllm_rules import Tier

SPARSE = Profile.model_validate(
    {
        "name": "sparse",
        "target": {"model": "deepseek-ai/DeepSeek-V3.2"},
        "engine": {"tensor_parallel_size": 8, "arguments": ["--max-num-batched-tokens", "4096"]},
        "drafter": {"method": "mtp", "k": 1},
        "mla": {"kv_cache_dtype": "fp8"},
    }
)
SMALL = Profile.model_validate(
    {"name": "small", "target": {"model": "/models/smollm2"}, "drafter": {"method": "none"}}
)
NOT_MLA = MLAError(
    "llama does not use multi-head latent attention: its config.json has no kv_lora_rank",
    "Give a model of the DeepSeek, GLM-5, Kimi or Mistral 4 families.",
)
NO_DRIFT = (None, "as vLLM 0.32.0 here")


def _file(profile: Profile) -> ProfileFile:
    path = Path("/home/you/.config/specpanel/profiles", f"{profile.name}.toml")
    return ProfileFile(profile.name, path, "yours", profile, None)


_SPARSE = Source(
    "sparse: deepseek-ai/DeepSeek-V3.2", PRESETS["deepseek-v3.2"].dims, None, _file(SPARSE)
)
_SMALL = Source("small: /models/smollm2", None, NOT_MLA, _file(SMALL))
_BUILT_IN = tuple(Source(name, PRESETS[name].dims) for name in ("deepseek-v3.2", "glm-5"))

SOURCES = (_SPARSE, _SMALL, *_BUILT_IN)
SOURCES_WITHOUT_MLA = (_SMALL, *_BUILT_IN)

_KEY = Key(
    "AMD EPYC", 1, "portable", "2.13.0+cpu", None, "float32", "random", 128, 64, 128, 512, 64
)


def _made_up(heads: int, query: int, context: int) -> Cell:
    """MHA costs a launch and the pairs of all keys, MQA those of 64 keys at a seventh of the rate."""
    mha = 12.0 + heads * (query * context + query * query / 2) / 2e5
    mqa = heads * query * 64 / 6e3
    turn: dict[Tier, float] = {"masked_mha": mha, "sparse_mqa": mqa}
    return cell_of(heads, query, context, [turn] * 5)


def made_up_calibration() -> Calibration:
    return calibrate(_KEY, Grid((4,), (128, 256, 512, 1024, 2048), (0, 1024)), _made_up)


def calibrated() -> None:
    """Somebody calibrated on this machine before."""
    save_calibration(made_up_calibration())
