"""What a worker keeps of its drafter, and what it answers when that is to be replaced.

It makes no claim about any weights: a fingerprint is the folder's name.
"""

from dataclasses import dataclass
from typing import Any


@dataclass
class Worker:
    """One rank. ``fault`` names the method that fails, ``reason`` how."""

    rank: int
    folder: str = "/drafters/old"
    fault: str = ""
    reason: str = "RuntimeError: no room"
    prepared: str | None = None
    before: str | None = None

    def call(self, method: str, arguments: list[str]) -> dict[str, Any]:
        name = method.removeprefix("specpanel_").removesuffix("_drafter")
        if method == "specpanel_drafter_status":
            name = "status"
        if name == self.fault:
            return {"rank": self.rank, "ok": False, "refused": False, "reason": self.reason}
        told = getattr(self, f"_{name}")(*arguments)
        return {"rank": self.rank, "ok": True, "seconds": 0.0, **told}

    def _status(self) -> dict[str, Any]:
        return {
            "drafter": "Fake",
            "method": "eagle3",
            "draft_tokens": 3,
            "folder": self.folder,
            "fingerprint": self.folder,
        }

    def _prepare(self, folder: str) -> dict[str, Any]:
        self.prepared = folder
        return {
            "folder": folder,
            "digest": folder,
            "live_fingerprint": self.folder,
            "fingerprint": folder,
            "loaded": 3,
            "shared": ["embed_tokens.weight"],
            "parameter_bytes": 12,
        }

    def _commit(self, digest: str) -> dict[str, Any]:
        assert digest == self.prepared
        self.before, self.folder, self.prepared = self.folder, digest, None
        return {"folder": digest}

    def _undo(self) -> dict[str, Any]:
        undone = self.before is not None
        self.folder, self.before = self.before or self.folder, None
        return {"folder": self.folder, "undone": undone}

    def _forget(self) -> dict[str, Any]:
        self.prepared = self.before = None
        return {}
