"""A worker extension like the shipped one, but whose next commit fails at a chosen copy.

Named by ``--worker-extension-cls`` instead of it; its folder and the shipped one's stand on PYTHONPATH.
"""

from drafter_reload import extension


class FailingReload(extension.DrafterReload):
    """``specpanel_fail_at_copy("3")`` makes the fourth copy of the commit after it fail, for real."""

    def specpanel_fail_at_copy(self, number: str) -> dict[str, object]:
        """Torch refuses to copy into a tensor whose places overlap: one is put among those to be copied."""
        import torch

        exchange = self.__dict__["specpanel_drafter_kept"]["prepared"].exchange
        moves = exchange._moves
        at = int(number)
        overlapping = torch.zeros(1).expand(moves[at].live.numel() or 2)
        fresh = torch.ones(len(overlapping))
        moves.insert(at, type(moves[at])({}, "overlapping", overlapping, fresh))
        return {"rank": 0, "ok": True, "copies": len(moves)}
