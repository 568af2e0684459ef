"""Rules about what the method is called: by the profile, and by vLLM because of a path. Pure."""

from collections.abc import Iterator

from specpanel.core.preflight.rule import Remark, Rule, rule
from specpanel.core.preflight.surroundings import Surroundings
from specpanel.core.settings.drafters.names import method_by_path, name_note
from specpanel.core.settings.profile import Profile


@rule(
    "method-renamed",
    "note",
    "The profile names the method by an old or another name.",
    "Write the method's own name.",
)
def method_has_its_own_name(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    written = profile.drafter.written_as
    note = None if written is None else name_note(written)
    if note is not None:
        method = profile.drafter.method
        yield Remark(note, f"Write {method}.", "drafter.method", mend=(("drafter.method", method),))


@rule(
    "method-by-path",
    "error",
    "A word in the path of the drafter's weights makes vLLM take another method.",
    "Give the folder another name, or choose the method that vLLM finds in it.",
)
def path_keeps_the_method(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    """From ``config/speculative.py`` of vLLM 0.32.0: the path wins over the method that was given."""
    drafter = profile.drafter
    config = drafter.speculative_config() or {}
    if "model" not in type(drafter).model_fields:
        return
    path = str(config.get("model") or profile.target.model)
    other = method_by_path(str(config.get("method")), path)
    if other is not None:
        yield Remark(
            f"vLLM reads {other} in the path {path} and will take the drafter for that, not for "
            f"{drafter.method}",
            "Give the folder a name without that word, a link will do.",
            "drafter.model",
            (f"method given {config.get('method')}", f"method found in the path {other}"),
        )


RULES: tuple[Rule, ...] = (method_has_its_own_name, path_keeps_the_method)
