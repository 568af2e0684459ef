"""The server that gives hidden states: which layers, how they are handed over, what they weigh. Pure.

Both sides take the layers from here: the server writes them and the trainer is told the same.
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from specpanel.core.engine.command import Command
from specpanel.core.engine.interpreter_facts import version_tuple
from specpanel.core.errors import ConfigurationError
from specpanel.core.inside import INSIDE

_FEW_LAYERS = 6
# vLLM's reports about extraction together with chunked prefill end with 0.22 (pull requests 43805, 52074);
# it was run here with 0.32.
CHUNKS_SINCE = (0, 23)


@dataclass(frozen=True, slots=True)
class Layers:
    """Layers of the target, counted from 1: state k is the residual stream after k layers.

    ``target`` goes to the trainer. ``written`` is what the server writes: the same and the last layer,
    from which the trainer computes what the target would have said.
    """

    target: tuple[int, ...]
    written: tuple[int, ...]


def layers_for(wanted: tuple[int, ...] | None, count: int) -> Layers:
    """The layers to extract from a target of ``count`` layers.

    Raises:
        ConfigurationError: a layer that is not there, twice, or the last, which is written anyway.
    """
    if wanted is None:
        # Speculators' own choice; with very few layers it would name one twice.
        wanted = (
            (2, count // 2, count - 3)
            if count >= _FEW_LAYERS
            else (1, max(1, count // 2), max(1, count - 1))
        )
    for layer in wanted:
        if not 1 <= layer < count:
            last = " (the last is always extracted besides)" if layer == count else ""
            raise ConfigurationError(
                f"algorithm.target_layer_ids names layer {layer} of a target of {count} layers{last}",
                f"Use layers from 1 to {count - 1}.",
            )
    return Layers(tuple(wanted), (*wanted, count))


def kv_transfer(backend: str, folder: Path, *, cpu: bool) -> dict[str, Any]:
    """vLLM's ``--kv-transfer-config`` for a way to hand states over.

    Raises:
        ConfigurationError: the way does not work on a CPU, or needs a service that we do not start.
    """
    if cpu and backend != "file":
        raise ConfigurationError(
            f"extraction.backend {backend} needs an accelerator", "Use file on a CPU."
        )
    stored = {"shared_storage_path": str(folder)}
    if cpu:
        return {
            "kv_connector": "CpuHiddenStatesConnector",
            "kv_role": "kv_producer",
            "kv_connector_module_path": "cpu_hidden_states",
            "kv_connector_extra_config": stored,
        }
    if backend == "fp8":
        return {
            "kv_connector": "FP8HiddenStatesConnector",
            "kv_role": "kv_producer",
            "kv_connector_module_path": "hs_connectors.fp8_hidden_states_connector",
            "kv_connector_extra_config": stored,
        }
    if backend == "mooncake":
        return {
            "kv_connector": "MooncakeHiddenStatesConnector",
            "kv_role": "kv_producer",
            "kv_connector_module_path": "hs_connectors.mooncake_hidden_states_connector",
            "kv_connector_extra_config": {"mooncake": {}},
        }
    return {
        "kv_connector": "ExampleHiddenStatesConnector",
        "kv_role": "kv_producer",
        "kv_connector_extra_config": stored,
    }


def extracting(
    command: Command,
    layers: Layers,
    transfer: dict[str, Any],
    python_path: str | None,
    vllm_version: str | None = None,
) -> Command:
    """``command`` for a plain server, made one that extracts hidden states.

    Args:
        python_path: PYTHONPATH that the child would inherit.
        vllm_version: before 0.23 prompts are not cut in chunks, which spoilt the states.
    """
    speculation = {
        "method": "extract_hidden_states",
        "num_speculative_tokens": 1,
        "draft_model_config": {
            "hf_config": {"eagle_aux_hidden_state_layer_ids": list(layers.written)}
        },
    }
    argv = (
        *command.argv,
        "--speculative-config",
        json.dumps(speculation),
        "--kv-transfer-config",
        json.dumps(transfer),
        "--no-enable-prefix-caching",
        *whole_prompts(vllm_version),
    )
    environment = dict(command.environment)
    if transfer.get("kv_connector_module_path") == "cpu_hidden_states":
        old = environment.get("PYTHONPATH", python_path)
        environment["PYTHONPATH"] = f"{INSIDE}:{old}" if old else str(INSIDE)
    return replace(command, argv=argv, environment=environment)


def whole_prompts(vllm_version: str | None) -> tuple[str, ...]:
    """The flag that keeps a prompt in one step, where chunks are not known to be safe."""
    version = version_tuple(vllm_version)
    return ("--no-enable-chunked-prefill",) if version and version < CHUNKS_SINCE else ()


def states_bytes(tokens: int, hidden: int, layers: int, dtype_bytes: int) -> int:
    """Bytes that the states of so many tokens take: tokens · layers · hidden · bytes of a number."""
    return tokens * layers * hidden * dtype_bytes


def state_dtype_bytes(dtype: str | None, *, cpu: bool) -> int:
    """Bytes of a number of the states: the target runs in float32 on a CPU unless told otherwise."""
    if dtype is None or dtype == "auto":
        return 4 if cpu else 2
    return 4 if dtype == "float32" else 2
