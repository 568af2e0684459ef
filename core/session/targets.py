"""Turn the models that a profile names into folders and ids that vLLM understands."""

import os
from collections.abc import Callable
from pathlib import Path

from specpanel.core.demo.model import demo_model, demo_model_folder
from specpanel.core.errors import ConfigurationError
from specpanel.core.settings.profile import Profile

DEMO_PREFIX = "demo:"
DEMO_MODELS = ("smollm2",)


def uses_demo_model(profile: Profile) -> bool:
    return any(model.startswith(DEMO_PREFIX) for model in _models(profile))


def with_model_paths(
    profile: Profile, python: str, progress: Callable[[str], None] | None
) -> Profile:
    """``profile`` with ``demo:smollm2`` replaced by its folder, and ``~`` by the home folder.

    Args:
        python: the interpreter that can write the demonstration model.
        progress: told what happens while the model is made; None: make nothing, only name the folder.

    Raises:
        ConfigurationError: there is no such demonstration model.
        SpecpanelError: it could not be made.
    """
    for model in _models(profile):
        if model.startswith(DEMO_PREFIX) and model.removeprefix(DEMO_PREFIX) not in DEMO_MODELS:
            raise ConfigurationError(
                f"there is no demonstration model {model}",
                f"There is {', '.join(DEMO_PREFIX + name for name in DEMO_MODELS)}.",
            )
    if uses_demo_model(profile) and progress is not None:
        demo_model(Path(python), progress=progress)

    def place(model: str) -> str:
        if model.startswith(DEMO_PREFIX):
            return str(demo_model_folder())
        return os.path.expanduser(model) if model.startswith("~") else model

    target = profile.target.model_copy(update={"model": place(profile.target.model)})
    drafter = profile.drafter
    draft_model = drafter_model(profile)
    if draft_model is not None:
        drafter = drafter.model_copy(update={"model": place(draft_model)})
    return profile.model_copy(update={"target": target, "drafter": drafter})


def drafter_model(profile: Profile) -> str | None:
    """The drafter's folder or id, None where it has none of its own."""
    model = getattr(profile.drafter, "model", None)
    return model if isinstance(model, str) else None


def _models(profile: Profile) -> list[str]:
    drafter = drafter_model(profile)
    return [profile.target.model, *([drafter] if drafter else [])]
