"""Rules about splitting over ranks: do heads divide, and has the CPU room for the ranks. Pure.

Read from vLLM 0.32.0: ``ModelConfig.verify_with_parallel_config`` refuses attention heads that the tensor
parallel size does not divide, of the target and, with the drafter's own size, of the drafter.
``QKVParallelLinear`` (``model_executor/layers/linear.py``) divides KV heads over fewer ranks and copies
them to more, evenly both times; MLA keeps one latent and has no KV heads to divide. A drafter's layers
are made in the target's group of ranks, whatever size the drafter was given. On a CPU each rank is bound to
a NUMA node of its own (``utils/ompmultiprocessing.py``), unless threads are bound by hand or nodes simulated.
"""

from collections.abc import Iterator

from specpanel.core.checkpoints.config import ModelConfig
from specpanel.core.preflight.arguments import (
    pipeline_parallel_size,
    tensor_parallel_size,
    variables,
)
from specpanel.core.preflight.rule import Remark, Rule, rule
from specpanel.core.preflight.surroundings import Surroundings
from specpanel.core.settings.profile import Profile

FIELD = "engine.tensor_parallel_size"
# Drafters whose layers are not attention over the group's ranks.
_WITHOUT_HEADS: frozenset[str] = frozenset({"medusa", "mlp_speculator"})


def _models(around: Surroundings) -> Iterator[tuple[str, ModelConfig]]:
    """What is split, and its config.json, where it was read."""
    if around.target.config is not None:
        yield "target", around.target.config
    drafter = None if around.drafter is None else around.drafter.config
    if drafter is not None and drafter.model_type not in _WITHOUT_HEADS:
        yield "drafter", drafter


def _heads_divide(config: ModelConfig, ranks: int) -> bool:
    return config.attention_heads is None or config.attention_heads % ranks == 0


def _kv_heads_divide(config: ModelConfig, ranks: int) -> bool:
    heads = config.kv_heads
    if config.is_mla or not heads:
        return True
    return ranks % heads == 0 if ranks >= heads else heads % ranks == 0


def _possible(profile: Profile, around: Surroundings) -> int:
    """The largest size up to what is asked, and to the devices there are, over which all models divide."""
    most = tensor_parallel_size(profile)
    if around.devices:
        most = min(most, max(1, len(around.devices) // pipeline_parallel_size(profile)))
    return next(
        size
        for size in range(most, 0, -1)
        if all(
            _heads_divide(config, size) and _kv_heads_divide(config, size)
            for _, config in _models(around)
        )
    )


def _undivided(text: str, seen: str, profile: Profile, around: Surroundings) -> Remark:
    possible = _possible(profile, around)
    return Remark(
        text,
        f"Set tensor_parallel_size to {possible}.",
        FIELD,
        (seen,),
        ((FIELD, possible if possible > 1 else None),),
    )


@rule(
    "heads-undivided",
    "error",
    "The attention heads of target or drafter cannot be divided over the ranks; vLLM refuses to start.",
    "Set tensor_parallel_size to a divisor of the number of heads.",
)
def heads_divide(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    ranks = tensor_parallel_size(profile)
    for role, config in _models(around):
        if not _heads_divide(config, ranks):
            yield _undivided(
                f"the {role}'s {config.attention_heads} attention heads cannot be divided over "
                f"{ranks} ranks",
                f"num_attention_heads {config.attention_heads} in {config.folder}/config.json",
                profile,
                around,
            )


@rule(
    "kv-heads-undivided",
    "error",
    "The KV heads of target or drafter can be neither divided over the ranks nor copied to them evenly; the "
    "start fails while the model is made.",
    "Set tensor_parallel_size to a divisor or a multiple of the number of KV heads.",
)
def kv_heads_divide(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    ranks = tensor_parallel_size(profile)
    for role, config in _models(around):
        if _heads_divide(config, ranks) and not _kv_heads_divide(config, ranks):
            how = "copied evenly to" if ranks >= (config.kv_heads or 0) else "divided over"
            yield _undivided(
                f"the {role}'s {config.kv_heads} KV heads cannot be {how} {ranks} ranks",
                f"num_key_value_heads {config.kv_heads} in {config.folder}/config.json",
                profile,
                around,
            )


@rule(
    "ranks-on-cpu",
    "warning",
    "vLLM would run on the CPU, and the launch asks for more ranks than the CPU has places for: a NUMA node "
    "for each.",
    "Launch it on a machine with so many devices, or lower tensor_parallel_size.",
)
def cpu_has_room_for_the_ranks(profile: Profile, around: Surroundings) -> Iterator[Remark]:
    ranks, stages = tensor_parallel_size(profile), pipeline_parallel_size(profile)
    wanted, nodes, cores = ranks * stages, around.cpu_nodes, around.cores
    if around.platform != "cpu" or nodes is None or cores is None:
        return
    set_here = variables(profile, around)
    by_hand = set_here.get("VLLM_CPU_OMP_THREADS_BIND", "auto") != "auto"
    simulated = set_here.get("VLLM_CPU_SIM_MULTI_NUMA", "0") != "0"
    if wanted > (cores if by_hand or simulated else nodes):
        yield Remark(
            f"the launch needs {wanted} ranks and vLLM would run on this machine's CPU, which has "
            f"{_counted(nodes, 'NUMA node')} and {_counted(cores, 'core')}: each rank takes a node",
            f"Launch it on a machine with {wanted} devices, or lower tensor_parallel_size.",
            FIELD,
            (f"tensor parallel {ranks}, pipeline stages {stages}", "no accelerator is used"),
        )


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


RULES: tuple[Rule, ...] = (heads_divide, kv_heads_divide, cpu_has_room_for_the_ranks)
