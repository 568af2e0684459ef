"""vLLM's file connector for hidden states, for a target that runs on the CPU.

vLLM 0.32's own (``example_hidden_states_connector.py``) copies through a CUDA stream and pinned memory,
which a CPU build of torch does not have. Here the copy is made at once; everything else, and with it the
protocol that the trainer speaks, is vLLM's. Named to vLLM by ``kv_connector_module_path``.
"""

import fcntl
import os
from functools import partial
from typing import Any

import torch
from vllm.distributed.kv_transfer.kv_connector.v1.example_hidden_states_connector import (
    ExampleHiddenStatesConnector,
    extract_from_kv_cache,
)


class _CopyDone:
    """Stands in for a CUDA event: the copy was made before this exists."""

    def synchronize(self) -> None:
        return

    def query(self) -> bool:
        return True


class CpuHiddenStatesConnector(ExampleHiddenStatesConnector):  # type: ignore[misc]
    """Writes ``{hidden_states [tokens, layers, hidden], token_ids [tokens]}``, one file a request."""

    def _submit_async_write(self, pending: Any) -> None:
        if not self._is_tp_rank_zero:
            return
        blocks = torch.tensor(pending.block_ids, dtype=torch.long).reshape(-1, 1)
        slots = (blocks * self._block_size + torch.arange(self._block_size)).flatten()
        tokens = pending.token_ids.shape[0]
        # Indexing by a tensor copies: the cache's blocks may be given away from here on.
        states = extract_from_kv_cache(self._kv_cache, slots, tokens).contiguous()
        tensors = {"hidden_states": states, "token_ids": pending.token_ids.clone()}

        lock = self._lock_fds.pop(pending.req_id, None)
        os.makedirs(os.path.dirname(pending.filename), exist_ok=True)
        if lock is None and self.use_lock:
            flags = os.O_CREAT | os.O_WRONLY | os.O_TRUNC
            lock = os.open(f"{pending.filename}.lock", flags, 0o644)
            fcntl.flock(lock, fcntl.LOCK_EX)
        done = _CopyDone()
        written = self._executor.submit(self._write_tensors, tensors, done, pending.filename, lock)
        self._req_copy_events[pending.req_id] = done
        self._req_futures[pending.req_id] = written
        written.add_done_callback(partial(self._on_write_done, pending.req_id))
