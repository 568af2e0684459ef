"""Metrics of one service that several addresses answer: scraped one by one, added up as one. Pure."""

from collections.abc import Mapping
from dataclasses import replace

from specpanel.core.engine.metrics import EngineCounters, total_of


def together(scrapes: Mapping[str, EngineCounters]) -> EngineCounters:
    """What several addresses expose, as if it were one server's.

    Args:
        scrapes: by address. Engines of two addresses stay apart even where both call theirs 0.
    """
    engines = tuple(
        replace(one, engine=f"{one.engine} at {address}")
        for address, found in scrapes.items()
        for one in found.engines
    )
    models = dict.fromkeys(name for found in scrapes.values() for name in found.models)
    return EngineCounters(
        engines=engines,
        total=total_of(engines),
        models=tuple(models),
        speculates=any(found.speculates for found in scrapes.values()),
    )
