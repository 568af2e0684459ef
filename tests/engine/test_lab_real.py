"""The lab against a real vLLM on the CPU: one server, priced at several K."""

import pytest


@pytest.mark.long
def test_breakeven_prices_k_with_the_acceptance_that_was_chosen(newcomer, port: str) -> None:
    """vLLM's own verification accepts what the dice said, and plain steps are the dearest for a token."""
    run = newcomer.run(
        *("breakeven", "demo-ngram", "--json", "--no-drafter", "--port", port),
        *("--loads", "1,4", "--ks", "2,4", "--rate", "0.8", "--blocks", "5", "--max-tokens", "24"),
        seconds=900,
    )
    assert run.code == 0, run.err
    ended = run.lines[-1]
    assert ended["kind"] == "result"
    points = ended["result"]["points"]
    assert {(point["concurrency"], point["k"]) for point in points} == {
        (load, k) for load in (1, 4) for k in (2, 4)
    }
    for point in points:
        # Some 30 to 180 drafts a point: the luck of the dice is within half a token.
        assert point["measured_length"] == pytest.approx(point["chosen_length"], abs=0.5)
        between = point["required_interval"]
        assert between["low"] <= point["required_length"] <= between["high"]
        # Verifying is never free beyond noise, and never dearer than a step for each token.
        assert 0.6 < point["required_length"] < point["k"] + 1
    shown = newcomer.run("results", "show", "last")
    assert "required acceptance length" in shown.out
    page = newcomer.run("results", "export", "last", "--format", "html")
    assert page.out.startswith("<!doctype html>")
    assert "<svg" in page.out
