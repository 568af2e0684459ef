"""The promote stage: what served best takes the place of a running server's drafter, if it is better."""

import time
from pathlib import Path
from typing import Any, ClassVar

from specpanel.core.session.events import FindingMade, Note
from specpanel.core.session.launch import InterruptedRunError
from specpanel.core.settings.profile import Traffic
from specpanel.core.training.evaluation import best_served
from specpanel.core.training.events import PromotionTried
from specpanel.core.training.measuring import single_questions
from specpanel.core.training.promote import PromotionPlan
from specpanel.core.training.promotion_way import PromotionRun, find_server
from specpanel.core.training.records import StageName
from specpanel.core.training.stage import Workplace


class PromoteStage:
    """Only where ``promotion.server`` names one. That the old drafter stays is a result, and no failure."""

    name: ClassVar[StageName] = "promote"

    def depends_on(self, place: Workplace) -> dict[str, Any]:
        """What a server does is known only by asking it: an earlier promotion never stands for this one."""
        return {"asked": time.time_ns()}

    async def run(self, place: Workplace) -> dict[str, Any]:
        """Raises SpecpanelError where the server is not there or the checkpoint is refused."""
        settings = place.recipe.promotion
        candidate = _candidate(place)
        reason = None
        if settings.server is None:
            reason = "no server was named to promote to (promotion.server)"
        elif candidate is None:
            reason = "no checkpoint was kept, so none was promoted"
        if reason is not None or candidate is None:
            place.emit(FindingMade("not-promoted", "warning", reason or "", "", "promotion.server"))
            return {"result": None, "reason": reason}
        name, url, record = find_server(settings.server)
        traffic = Traffic(
            max_tokens=place.recipe.evaluation.max_tokens or place.recipe.data.max_tokens,
            concurrency=place.recipe.evaluation.concurrency,
        )
        plan = PromotionPlan(
            server=name,
            url=url,
            model=None,
            candidate=candidate,
            prompts=single_questions(place.folder.heldout),
            traffic=traffic,
            margin=settings.margin,
        )
        promotion = await PromotionRun(
            plan,
            record,
            settings.way,
            lambda text: place.emit(Note(text)),
            place.interrupted,
        ).run()
        place.emit(PromotionTried(promotion))
        if promotion.result == "interrupted":
            raise InterruptedRunError
        return {
            "result": promotion.result,
            "reason": promotion.reason,
            "candidate": str(candidate),
            "server": name,
            "url": promotion.url_after or url,
            "way": promotion.way,
            "paused_s": promotion.paused_s,
        }


def _candidate(place: Workplace) -> Path | None:
    """What served best; where nothing was measured, what validated best, else the newest."""
    served = best_served(place.folder.evaluations())
    if served is not None:
        return served.checkpoint
    kept = place.folder.kept()
    best = next((one for one in kept if one.best), kept[-1] if kept else None)
    return None if best is None else best.path
