"""Rules about who can reach the server, and what they could do there. Pure.

Read from vLLM 0.32.0: ``entrypoints/serve/middleware/authenticate.py`` guards only paths under /v1, /v2,
/inference and /cohere; ``entrypoints/launchers/api_server/routers.py`` adds the developer's routes.
"""

from collections.abc import Iterator

from specpanel.core.engine.api_key import keys_in
from specpanel.core.engine.command import is_swappable
from specpanel.core.preflight.arguments import argument, is_on, variables
from specpanel.core.preflight.rule import Remark, Rule, rule
from specpanel.core.preflight.surroundings import Surroundings
from specpanel.core.settings.profile import Profile

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
LOCAL = "127.0.0.1"


def _is_local(profile: Profile) -> bool:
    return profile.engine.host in LOOPBACK or profile.engine.host.startswith("127.")


def _has_key(profile: Profile, around: Surroundings) -> bool:
    return bool(variables(profile, around).get("VLLM_API_KEY")) or (
        argument(profile, "--api-key") is not None
    )


@rule(
    "listens-beyond",
    "warning",
    "vLLM listens where other machines may reach it, and asks nobody for a key.",
    "Set engine.host to 127.0.0.1, or set VLLM_API_KEY.",
)
def address_is_local(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    if not _is_local(profile) and not _has_key(profile, around):
        yield Remark(
            f"vLLM will listen at {profile.engine.host}, where other machines may reach it, without "
            "an API key",
            "Set engine.host to 127.0.0.1 unless that is meant; set VLLM_API_KEY otherwise.",
            "engine.host",
            mend=(("engine.host", LOCAL),),
        )


@rule(
    "developer-mode-exposed",
    "error",
    "vLLM's developer routes (replace weights, run code in the workers) are open to other machines; an "
    "API key does not guard them.",
    "Set engine.host to 127.0.0.1, or leave VLLM_SERVER_DEV_MODE and engine.swappable out.",
)
def developer_mode_is_local(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    asked = is_on(variables(profile, around).get("VLLM_SERVER_DEV_MODE"))
    if not _is_local(profile) and (asked or is_swappable(profile)):
        cause = "VLLM_SERVER_DEV_MODE" if asked else "engine.swappable"
        yield Remark(
            f"{cause} opens /collective_rpc, /pause and /update_weights to everybody who "
            f"reaches {profile.engine.host}; no API key guards them",
            "Set engine.host to 127.0.0.1.",
            "engine.host",
            ("authenticate.py guards /v1, /v2, /inference and /cohere",),
            (("engine.host", LOCAL),),
        )


@rule(
    "metrics-unguarded",
    "note",
    "An API key does not guard /metrics, /health and /version.",
    "Put a proxy in front of them, if they may not be read.",
)
def metrics_are_guarded(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    if not _is_local(profile) and _has_key(profile, around):
        yield Remark(
            "the API key guards /v1 and not /metrics: whoever reaches the port reads names and figures",
            "Put a proxy in front of it, if that may not be.",
            "engine.host",
        )


@rule(
    "key-in-arguments",
    "warning",
    "Several API keys on the command line can be read by every user of this machine; one alone is handed "
    "over in VLLM_API_KEY.",
    "Give one key, in VLLM_API_KEY.",
)
def key_is_not_on_the_command_line(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    if len(keys_in(profile.engine.arguments)) > 1:
        yield Remark(
            "the API keys stand on vLLM's command line, which every user of this machine can read",
            "Give one key, in VLLM_API_KEY, and leave --api-key out.",
            "engine.arguments",
        )


RULES: tuple[Rule, ...] = (
    developer_mode_is_local,
    address_is_local,
    metrics_are_guarded,
    key_is_not_on_the_command_line,
)
