"""What the MLA screen can look at: the models of profiles, and geometries that are built in. Reads files."""

import os
from dataclasses import dataclass

from specpanel.app.tui.mla_study import Study, presets_with_tiers
from specpanel.core.checkpoints.config import looks_like_hub_id
from specpanel.core.engine.interpreter import resolve_python
from specpanel.core.errors import ConfigurationError, SpecpanelError
from specpanel.core.matching.scan import hub_cache
from specpanel.core.preflight.gather import model_state
from specpanel.core.session.mla_tiers import MlaChoices, choices_of, dims_of
from specpanel.core.session.targets import with_model_paths
from specpanel.core.settings.files import ProfileFile, catalogue
from specpanel.core.settings.overrides import from_environment
from specpanel.core.settings.profile import Profile
from specpanel.kernels.dims import PRESETS, MLADims
from specpanel.kernels.errors import MLAError
from specpanel.kernels.gpus import GPU


@dataclass(frozen=True, slots=True)
class Source:
    """A model with its geometry, or why it has none. ``file`` is the profile that it is of."""

    name: str
    dims: MLADims | None
    problem: MLAError | None = None
    file: ProfileFile | None = None

    @property
    def profile(self) -> Profile | None:
        return None if self.file is None else self.file.profile

    def study(self, gpu: GPU, choices: MlaChoices | None = None) -> Study:
        """A study of it, with what its profile chooses, or what was tried before."""
        profile = self.profile
        own = MlaChoices() if profile is None else choices_of(profile)
        return Study(self.name, gpu, own, choices or own, self.dims, self.problem)


def read_sources() -> tuple[Source, ...]:
    """Profiles that can be read, those with sparse MLA first, then what is built in. Belongs in a thread."""
    try:
        files = catalogue(overrides=from_environment())
    except ConfigurationError:
        files = catalogue()  # the Launch screen says what is wrong with the environment
    found = [_of_profile(file) for file in files if file.profile is not None]
    found.sort(key=lambda source: source.dims is None or source.dims.topk is None)
    return (*found, *(Source(name, PRESETS[name].dims) for name in presets_with_tiers()))


def _of_profile(file: ProfileFile) -> Source:
    profile = file.profile
    assert profile is not None
    name = f"{file.name}: {profile.target.model}"
    try:
        placed = with_model_paths(profile, resolve_python(profile.engine.python), None)
        state = model_state(
            placed.target.model, hub_cache({**os.environ, **profile.engine.environment})
        )
        if state.problem is not None:
            return Source(name, None, MLAError(state.problem, state.fix), file)
        dims = dims_of(state)
    except MLAError as error:
        return Source(name, None, error, file)
    except SpecpanelError as error:
        return Source(name, None, MLAError(error.message, error.fix), file)
    if dims is None:
        return Source(name, None, _unread(profile.target.model), file)
    return Source(name, dims, None, file)


def _unread(model: str) -> MLAError:
    what = "is not in the cache of the hub" if looks_like_hub_id(model) else "has no config.json"
    return MLAError(
        f"{model} {what}, so its geometry is not known", "Fetch the model, or name its folder."
    )
