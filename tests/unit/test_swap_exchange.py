"""Weights exchanged within their storages: all or nothing, and back. Plain torch, no vLLM."""

import pytest

torch = pytest.importorskip("torch")

from specpanel.core.inside.drafter_reload.exchange import Exchange, State  # noqa: E402


def drafter() -> torch.nn.Module:
    """Two layers; the first also keeps something made of its weight, as packed layers do."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 2))
    model[0].packed = model[0].weight.detach().clone()
    model[0].kernel = "old"
    return model


def renewed(model: torch.nn.Module) -> Exchange:
    """The exchange to other values, with the model as it was before."""
    before = State(model.modules())
    for layer in model:
        for name, old in list(layer._parameters.items()):
            layer._parameters[name] = torch.nn.Parameter(torch.full_like(old, 7.0))
    model[0].packed = torch.full((3, 4), 7.0)
    model[0].kernel = "new"
    after = State(model.modules())
    before.put_back()
    return Exchange(before, after)


def values(model: torch.nn.Module) -> list[torch.Tensor]:
    return [*(one.detach().clone() for one in model.parameters()), model[0].packed.clone()]


def storages(model: torch.nn.Module) -> list[int]:
    return [*(one.data_ptr() for one in model.parameters()), model[0].packed.data_ptr()]


def test_nothing_changes_until_the_commit() -> None:
    model = drafter()
    before = values(model)
    renewed(model)
    assert all(map(torch.equal, values(model), before))
    assert model[0].kernel == "old"


def test_new_values_arrive_in_the_old_storages() -> None:
    model = drafter()
    places = storages(model)
    renewed(model).commit()
    assert storages(model) == places
    assert all((one == 7).all() for one in values(model))
    assert model[0].kernel == "new"


def test_undo_brings_back_values_and_state() -> None:
    model = drafter()
    before, places = values(model), storages(model)
    exchange = renewed(model)
    exchange.commit()
    exchange.undo()
    assert all(map(torch.equal, values(model), before))
    assert storages(model) == places
    assert model[0].kernel == "old"


@pytest.mark.parametrize("layer", [0, 1])
def test_a_copy_that_fails_halfway_leaves_the_old_drafter(layer: int) -> None:
    """Torch refuses to write into a tensor whose places overlap; what was written before goes back."""
    model = drafter()
    bias = model[layer].bias
    bias.data = torch.zeros(1).expand(bias.shape)
    before = values(model)
    exchange = renewed(model)
    with pytest.raises(RuntimeError, match="single memory location"):
        exchange.commit()
    assert all(map(torch.equal, values(model), before))
    assert model[0].kernel == "old"


def test_another_shape_is_refused_before_anything_is_copied() -> None:
    model = drafter()
    before = State(model.modules())
    model[1]._parameters["weight"] = torch.nn.Parameter(torch.zeros(5, 3))
    after = State(model.modules())
    before.put_back()
    with pytest.raises(ValueError, match=r"Linear.weight became \[5, 3\]"):
        Exchange(before, after)
    assert model[1].weight.shape == (2, 3)
