"""Okabe–Ito for colour-blind eyes: lines and states stay apart when three kinds of sight are simulated.

Matrices: Machado, Oliveira and Fernandes, "A Physiologically-based Model for Simulation of Color Vision
Deficiency", IEEE TVCG 15(6), 2009, severity 1.0; they work on linear RGB. Distances are Euclidean in
Oklab (Ottosson, 2020), where 1 is from black to white and about 0.02 is just noticeable.
"""

import itertools
import math
from collections.abc import Sequence

import pytest
from tui.test_themes import shipped

from specpanel.app.tui.theming import heat_variables

Matrix = tuple[tuple[float, float, float], ...]
Colour = tuple[float, float, float]

SIGHTS: dict[str, Matrix] = {
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritanopia": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}
_CONES: Matrix = (
    (0.4122214708, 0.5363325363, 0.0514459929),
    (0.2119034982, 0.6806995451, 0.1073969566),
    (0.0883024619, 0.2817188376, 0.6299787005),
)
_OKLAB: Matrix = (
    (0.2104542553, 0.7936177850, -0.0040720468),
    (1.9779984951, -2.4285922050, 0.4505937099),
    (0.0259040371, 0.7827717662, -0.8086757660),
)
LINES_APART, STATES_APART = 0.08, 0.15


def linear(color: str) -> Colour:
    red, green, blue = (int(color[at : at + 2], 16) / 255 for at in (1, 3, 5))

    def decoded(part: float) -> float:
        return part / 12.92 if part <= 0.04045 else float(((part + 0.055) / 1.055) ** 2.4)

    return decoded(red), decoded(green), decoded(blue)


def times(matrix: Matrix, color: Colour) -> Colour:
    one, two, three = (
        sum(weight * part for weight, part in zip(row, color, strict=True)) for row in matrix
    )
    return one, two, three


def seen(color: str, sight: Matrix) -> Colour:
    """Where a colour lies in Oklab for this sight; what a screen cannot show is clipped."""
    red, green, blue = (min(1.0, max(0.0, part)) for part in times(sight, linear(color)))
    long, middle, short = (part ** (1 / 3) for part in times(_CONES, (red, green, blue)))
    return times(_OKLAB, (long, middle, short))


def least_distance(colors: Sequence[str], sight: Matrix) -> float:
    return min(
        math.dist(seen(one, sight), seen(other, sight))
        for one, other in itertools.combinations(colors, 2)
    )


@pytest.mark.parametrize("sight", SIGHTS)
def test_the_simulation_leaves_white_and_black_alone(sight: str) -> None:
    white, black = seen("#ffffff", SIGHTS[sight]), seen("#000000", SIGHTS[sight])
    assert white == pytest.approx((1.0, 0.0, 0.0), abs=1e-3)
    assert black == (0.0, 0.0, 0.0)


def test_the_check_would_find_red_and_green() -> None:
    assert least_distance(["#b35c00", "#6e6300"], SIGHTS["protanopia"]) < LINES_APART
    assert least_distance(["#c04040", "#6e7a20"], SIGHTS["deuteranopia"]) < STATES_APART


@pytest.mark.parametrize("sight", SIGHTS)
def test_lines_and_states_stay_apart(sight: str) -> None:
    theme = shipped()["okabe-ito"]
    states = [theme.colors[key] for key in ("success", "warning", "error")]
    assert least_distance(theme.series, SIGHTS[sight]) >= LINES_APART
    assert least_distance(states, SIGHTS[sight]) >= STATES_APART


@pytest.mark.parametrize("name", [*shipped()])
@pytest.mark.parametrize("sight", [*SIGHTS, "greys"])
def test_the_shades_of_the_heat_map_only_go_one_way(name: str, sight: str) -> None:
    """A higher rate is lighter on a dark theme and darker on a light one, for every eye."""
    theme = shipped()[name]
    unchanged: Matrix = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
    matrix = SIGHTS.get(sight, unchanged)
    lightness = [seen(shade, matrix)[0] for shade in heat_variables(theme.heat).values()]
    steps = [after - before for before, after in itertools.pairwise(lightness)]
    assert all(step > 0.01 for step in steps) if theme.dark else all(step < -0.01 for step in steps)
