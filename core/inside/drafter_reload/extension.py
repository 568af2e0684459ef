"""The methods that vLLM's workers gain; ``/collective_rpc`` calls them on every worker.

Two steps, so that nothing changes on any worker before all of them can take the checkpoint, and so that the
server need only be paused for the second::

    specpanel_prepare_drafter(folder)   read, check, load and pack beside the running weights
    specpanel_commit_drafter(digest)    copy into place (between /pause?mode=keep and /resume)
    specpanel_undo_drafter()            bring back what the last commit replaced
    specpanel_forget_drafter()          free what is kept for either
    specpanel_drafter_status()          what runs now

Only text travels as an argument. None of them raises: the answer says ``ok`` or why not.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from . import checkpoint, ownership, staging
from .exchange import Exchange, State
from .fingerprint import fingerprint
from .refusal import RefusedError

Answer = dict[str, Any]


@dataclass(slots=True)
class _Prepared:
    folder: str
    digest: str
    fingerprint: str
    exchange: Exchange


@dataclass(slots=True)
class _Replaced:
    folder: str
    exchange: Exchange


class DrafterReload:
    """vLLM's workers inherit from this, so no name may be one of theirs."""

    model_runner: Any
    vllm_config: Any

    def specpanel_drafter_status(self) -> Answer:
        return _answered(self, lambda: _status(self))

    def specpanel_prepare_drafter(self, folder: str) -> Answer:
        return _answered(self, lambda: _prepare(self, folder))

    def specpanel_commit_drafter(self, digest: str) -> Answer:
        return _answered(self, lambda: _commit(self, digest))

    def specpanel_undo_drafter(self) -> Answer:
        return _answered(self, lambda: _undo(self))

    def specpanel_forget_drafter(self) -> Answer:
        return _answered(self, lambda: _forget(self))


def _answered(worker: Any, act: Callable[[], Answer]) -> Answer:
    """What ``act`` tells, or why it could not; a worker must not end because a checkpoint is bad."""
    began_s = time.perf_counter()
    answer: Answer = {"rank": getattr(worker, "rank", 0)}
    try:
        with torch.no_grad():
            answer |= {"ok": True, **act()}
    except RefusedError as refusal:
        answer |= {"ok": False, "refused": True, "reason": str(refusal)}
    except Exception as error:  # noqa: BLE001 - told, with its type; the caller decides
        reason = f"{type(error).__name__}: {error}"
        answer |= {"ok": False, "refused": False, "reason": reason}
    answer["seconds"] = round(time.perf_counter() - began_s, 4)
    return answer


def _kept(worker: Any) -> dict[str, Any]:
    """What this extension keeps on the worker between calls."""
    found: dict[str, Any] = worker.__dict__.setdefault("specpanel_drafter_kept", {})
    return found


def _models(worker: Any) -> tuple[Any, nn.Module]:
    draft = worker.model_runner.get_draft_model()
    if not isinstance(draft, nn.Module):
        raise RefusedError("this server has no drafter with weights")
    return draft, worker.model_runner.get_model()


def _served(worker: Any) -> str:
    """The folder whose weights run."""
    started = worker.vllm_config.speculative_config.draft_model_config.model
    return str(_kept(worker).get("folder", started))


def _status(worker: Any) -> Answer:
    draft, target = _models(worker)
    speculative = worker.vllm_config.speculative_config
    return {
        "drafter": type(draft).__name__,
        "method": speculative.method,
        "draft_tokens": speculative.num_speculative_tokens,
        "folder": _served(worker),
        "fingerprint": fingerprint(ownership.owned_modules(draft, target).values()),
    }


def _prepare(worker: Any, folder: str) -> Answer:
    draft, target = _models(worker)
    owned = ownership.owned_modules(draft, target)
    _kept(worker).pop("prepared", None)
    found = _checked(worker, Path(folder), draft, target)
    to_load, left = ownership.without_shared(found.tensors, draft, target)
    live = fingerprint(owned.values())
    before = State(owned.values())
    try:
        after, staged, new = _loaded(worker, draft, owned, to_load)
    finally:
        before.put_back()
    _kept(worker)["prepared"] = _Prepared(folder, found.digest, new, Exchange(before, after))
    return {
        "folder": folder,
        "digest": found.digest,
        "live_fingerprint": live,
        "fingerprint": new,
        "loaded": len(to_load),
        "shared": left,
        "parameter_bytes": sum(one.tensor.numel() * one.tensor.element_size() for one in staged),
    }


def _checked(worker: Any, folder: Path, draft: Any, target: nn.Module) -> checkpoint.Checkpoint:
    """The checkpoint, once all is known of it that can be known without the model."""
    running = worker.vllm_config.speculative_config.draft_model_config
    found = checkpoint.read(folder)
    checkpoint.check_config(
        folder, running.hf_config, trust_remote_code=bool(running.trust_remote_code)
    )
    shared = ownership.names_of_shared(draft, target)
    checkpoint.compare_with_served(found.tensors, Path(_served(worker)), shared)
    checkpoint.check_mapping(found.tensors, worker.vllm_config.model_config.get_vocab_size())
    return found


def _loaded(
    worker: Any, draft: Any, owned: dict[str, nn.Module], tensors: dict[str, torch.Tensor]
) -> tuple[State, list[staging.Staged], str]:
    """The state of the drafter's modules with the new weights, which the caller takes out again."""
    from vllm.config import set_current_vllm_config

    with set_current_vllm_config(worker.vllm_config):
        staged = staging.lay_out(owned)
        staging.load(draft, tensors, staged)
        staging.pack(owned)
        return State(owned.values()), staged, fingerprint(owned.values())


def _commit(worker: Any, digest: str) -> Answer:
    prepared: _Prepared | None = _kept(worker).pop("prepared", None)
    if prepared is None or prepared.digest != digest:
        raise RefusedError("this checkpoint was not prepared")
    _kept(worker).pop("replaced", None)
    before = _served(worker)
    prepared.exchange.commit()
    try:
        _refresh_proposer(worker)
    except Exception:
        prepared.exchange.undo()
        _refresh_proposer(worker)
        raise
    _kept(worker).update(folder=prepared.folder, replaced=_Replaced(before, prepared.exchange))
    return {"folder": prepared.folder, "fingerprint": prepared.fingerprint}


def _undo(worker: Any) -> Answer:
    replaced: _Replaced | None = _kept(worker).pop("replaced", None)
    if replaced is None:
        return {"folder": _served(worker), "undone": False}
    replaced.exchange.undo()
    _refresh_proposer(worker)
    _kept(worker)["folder"] = replaced.folder
    return {"folder": replaced.folder, "undone": True}


def _forget(worker: Any) -> Answer:
    _kept(worker).pop("prepared", None)
    _kept(worker).pop("replaced", None)
    return {}


def _refresh_proposer(worker: Any) -> None:
    """P-EAGLE: the proposer keeps what the drafter makes of its vector for masked positions."""
    proposer = worker.model_runner.drafter
    kept = getattr(proposer, "parallel_drafting_hidden_state_tensor", None)
    if kept is None or not getattr(proposer, "pass_hidden_states_to_model", False):
        return
    mask = proposer.model.mask_hidden.view(-1)
    if getattr(proposer, "eagle3_use_aux_hidden_state", False):
        mask = proposer.model.combine_hidden_states(mask)
    kept.copy_(mask)
