"""What the page asks: the model and its inputs; the density at a condition; the band round it; points for a map.

Every answer is made of plain lists and numbers. One condition's components are kept from one question to the next, so
that the band is drawn at the points of the density it belongs to.
"""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from ..density.components import Components, Univariate
from ..density.conditional import ConditionalDensity
from ..estimators.base import DensityEstimator
from ..estimators.gpcde import GPCDE
from ..model.inputs import Inputs
from .conditions import Condition, Menu, Slider, output_titles
from .curves import SIDE, heights, line, masses, plane, region, threshold
from .draws import Draws
from .nearby import Data

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
LEVELS = (0.5, 0.8, 0.9, 0.95)
"""Probabilities that a region may have; a map shows all of them."""

SAMPLES, TABLE_ROWS, MAP_POINTS, TRIED = 200, 6, 1500, 32
"""How many samples, rows of the data beside them and points of a map are sent; and at how many conditions the axes of
the outputs are looked for."""


class View(NamedTuple):
    """What is looked at: a condition, one output or two, and the probability of its region."""

    values: list[float | str]
    outputs: list[int]
    level: float


class Curve(NamedTuple):
    """The density of one output on a line, and its moments."""

    y: Float[np.ndarray, " g"]
    height: Float[np.ndarray, " g"]
    quantiles: list[float]
    mean: float
    std: float

    def answer(self, level: float) -> dict[str, Any]:
        """With the region of that probability."""
        return {
            "y": _short(self.y),
            "density": _short(self.height, 5),
            "mean": self.mean,
            "std": self.std,
            "mode": float(self.y[self.height.argmax()]),
            "quantiles": self.quantiles,
            "region": region(self.y, self.height, level).tolist(),
            "threshold": threshold(self.height, masses(self.y, self.height), level),
        }


class Place(NamedTuple):
    """A condition, its density, and the curves of the outputs that were asked for."""

    values: list[float | str]
    x: Inputs
    density: ConditionalDensity
    curves: dict[int, Curve]


class Explorer:
    """A trained model that answers the page's questions.

    Parameters
    ----------
    model : DensityEstimator
        Trained; one that answers with mixtures of Gaussians.
    data : data frame or path of a CSV file, default=None
        Rows to show beside the density.
    """

    def __init__(self, model: DensityEstimator, data: Any = None) -> None:
        if type(model)._source is DensityEstimator._source:
            raise TypeError(f"the explorer needs a model whose answers are mixtures; {type(model).__name__} has none")
        self.model = model
        self.data = None if data is None else Data(model, data)
        self.condition = Condition(model, None if self.data is None else self.data.table)
        self.outputs = output_titles(model)
        self._predictor = model.predictor() if isinstance(model, GPCDE) else None
        self.axes = self._axes()
        self.draws, self.no_band = _draws(model)
        self._last: Place | None = None

    def warm_up(self) -> None:
        """Answer what the page asks first, so that all is compiled by then."""
        start: dict[str, Any] = {"x": self.condition.start(), "level": 0.9}
        for outputs in ([0], [0, 1])[: len(self.outputs)]:
            self.density({**start, "outputs": outputs})
            if self.draws is not None:
                self.band({**start, "outputs": outputs})

    # questions

    def about(self) -> dict[str, Any]:
        """The model, its inputs and outputs, and what can be shown."""
        return {
            "model": type(self.model).__name__,
            "inputs": [_described(control) for control in self.condition.controls],
            "outputs": [
                {"name": name, "low": low, "high": high}
                for name, (low, high) in zip(self.outputs, self.axes.tolist(), strict=True)
            ],
            "quantiles": QUANTILES,
            "levels": LEVELS,
            "rows": None if self.data is None else self.data.known,
            "skipped": None if self.data is None else self.data.total - self.data.known,
            "no_band": self.no_band,
            "quick_band": self.draws is not None and self.draws.quick,
        }

    def density(self, question: Any) -> dict[str, Any]:
        """The density at a condition: a curve for each output shown, and for two of them a map."""
        view = self._view(question)
        place = self._at(view)
        samples = place.density.sample(SAMPLES, 0)[0]
        answer: dict[str, Any] = {
            "curves": [place.curves[j].answer(view.level) for j in view.outputs],
            "samples": [_short(samples[:, j]) for j in view.outputs],
        }
        if len(view.outputs) == 2:
            answer["map"] = self._map(place.density, view.outputs)
        if self.data is not None:
            answer["near"] = self._near(self.data, place.x, view.outputs)
        return answer

    def band(self, question: Any) -> dict[str, Any]:
        """Between which heights the density lies with probability 0.9, at the points of each output's curve."""
        if self.draws is None:
            raise ValueError(f"there is no band: {self.no_band}")
        view = self._view(question)
        place = self._at(view)
        drawn = self.draws.components(self.model._used(place.x))
        bands = []
        for j in view.outputs:
            column, y = self.model.transform_.column(j), place.curves[j].y
            each = np.concatenate([heights(Univariate.of(some, j), column, y) for some in drawn])
            bands.append([_short(end, 5) for end in np.quantile(each, [0.05, 0.95], axis=0)])
        return {"bands": bands}

    def points(self, question: Any) -> dict[str, Any]:
        """Where the data are, along two numeric inputs and two outputs: the background of a map."""
        if self.data is None:
            raise ValueError("there are no data")
        rows = np.random.default_rng(0).permutation(len(self.data))[:MAP_POINTS]
        sliders = [control for control in self.condition.controls if isinstance(control, Slider)]
        numbers = self.condition.columns.numbers
        columns = [numbers.index(sliders[i].place) for i in _indices(question, "inputs", len(sliders))]
        sides = [_short(self.data.table.dense[rows, column]) for column in columns]
        outputs = _indices(question, "outputs", len(self.outputs))
        return {"inputs": sides, "outputs": [_short(self.data.y[rows, j]) for j in outputs]}

    # parts of answers

    def _view(self, question: Any) -> View:
        if not isinstance(question, dict):
            raise ValueError("a question must be an object")
        level, outputs = question.get("level", 0.9), _indices(question, "outputs", len(self.outputs))
        if not outputs or len(set(outputs)) < len(outputs):
            raise ValueError("outputs must be one number or two different ones")
        if not isinstance(level, int | float) or not 0 < level < 1:
            raise ValueError(f"level must lie between 0 and 1, got {level!r}")
        return View(self.condition.read(question.get("x")), outputs, float(level))

    def _at(self, view: View) -> Place:
        """What is known at a condition, with a curve of every output that is shown."""
        if self._last is None or self._last.values != view.values:
            x = self.condition.inputs([view.values])
            density = ConditionalDensity(self._components(x), self.model.transform_)
            self._last = Place(view.values, x, density, {})
        for j in view.outputs:
            if j not in self._last.curves:
                self._last.curves[j] = self._curve(self._last.density, j)
        return self._last

    def _components(self, x: Inputs) -> Components:
        """Of one row: what is compiled for it serves all later ones."""
        x = self.model._used(x)
        if self._predictor is not None:
            return joined(self.model, self._predictor.mixture(x).components(), x)
        return self.model._source(x).components(np.arange(1))

    def _curve(self, density: ConditionalDensity, j: int) -> Curve:
        """One output's density, at points that reach further than its axis where the density does."""
        one, transform = density.marginal(j), self.model.transform_.column(j)
        mixture = Univariate.of(density.components(), j)
        *quantiles, least, most = one.quantile([*QUANTILES, 1e-3, 1 - 1e-3])[0].tolist()
        low, high = self.axes[j].tolist()
        y = line(mixture, transform, min(low, least), max(high, most))
        moments = float(one.mean()[0]), float(one.std()[0])
        return Curve(y, heights(mixture, transform, y)[0], quantiles, *moments)

    def _map(self, density: ConditionalDensity, outputs: list[int]) -> dict[str, Any]:
        across, up = (np.linspace(low, high, SIDE) for low, high in self.axes[outputs])
        height = plane(density.components().marginal(outputs), self.model.transform_.column(outputs), across, up)
        flat = height.ravel()
        mass = flat * (across[1] - across[0]) * (up[1] - up[0])
        peak = max(float(flat.max()), 1e-300)
        return {
            "side": SIDE,
            "peak": peak,
            "shares": np.round(flat / peak, 4).tolist(),
            "thresholds": [threshold(flat, mass, level) / peak for level in LEVELS],
        }

    def _near(self, data: Data, x: Inputs, outputs: list[int]) -> dict[str, Any]:
        rows, distance = data.near(x)
        first = data.table.take(rows[:TABLE_ROWS])
        numbers = {place: first.dense[:, i] for i, place in enumerate(first.numbers)}
        shown = [
            _short(numbers[c.place]) if isinstance(c, Slider) else [str(value) for value in first.text[c.place]]
            for c in self.condition.controls
        ]
        return {
            "y": [_short(data.y[rows, j]) for j in outputs],
            "distance": _short(distance, 3),
            "inputs": shown,
            "outputs": [_short(data.y[rows[:TABLE_ROWS], j]) for j in range(len(self.outputs))],
        }

    def _axes(self) -> Float[np.ndarray, "D 2"]:
        """From where to where each output is shown: what some conditions need, and the data."""
        rng = np.random.default_rng(0)
        if self.data is None:
            x = self.condition.inputs([[_any(c, rng) for c in self.condition.controls] for _ in range(TRIED)])
        else:
            x = self.data.x.take(rng.permutation(len(self.data))[:TRIED])
        parts = [self._components(x.take(slice(i, i + 1))) for i in range(x.n_rows)]
        ends = np.concatenate([ConditionalDensity(c, self.model.transform_).quantile([0.005, 0.995]) for c in parts])
        low, high = ends[:, 0].min(0), ends[:, 1].max(0)
        if self.data is not None:
            low, high = np.minimum(low, self.data.y.min(0)), np.maximum(high, self.data.y.max(0))
        spare = 0.04 * (high - low)
        support = self.model.transform_
        return np.stack([np.maximum(low - spare, support.low), np.minimum(high + spare, support.high)], axis=1)


def joined(model: DensityEstimator, parts: Components, x: Inputs) -> Components:
    """What a model says at one x, with what stands beside it, if anything does."""
    companions = getattr(model, "companions_", None)
    return parts if companions is None else companions.joined(parts, x)


def _draws(model: DensityEstimator) -> tuple[Draws | None, str | None]:
    """Draws of the density, or why there are none."""
    if not isinstance(model, GPCDE):
        return None, f"{type(model).__name__} does not say how sure it is of the density itself"
    try:
        return Draws(model), None
    except NotImplementedError as error:
        return None, str(error)


def _described(control: Slider | Menu) -> dict[str, Any]:
    kind = "menu" if isinstance(control, Menu) else "slider"
    return {"kind": kind, **{key: value for key, value in control._asdict().items() if key != "place"}}


def _any(control: Slider | Menu, rng: np.random.Generator) -> float | str:
    if isinstance(control, Menu):
        return str(rng.choice(control.levels))
    return float(rng.uniform(control.low, control.high))


def _indices(question: Any, name: str, count: int) -> list[int]:
    """A list of at most two numbers below `count`, checked."""
    wanted = question.get(name, []) if isinstance(question, dict) else None
    if not isinstance(wanted, list) or len(wanted) > 2:
        raise ValueError(f"{name} must be a list of at most two numbers")
    if any(type(i) is not int or not 0 <= i < count for i in wanted):
        raise ValueError(f"{name} must be numbers from 0 to {count - 1}, got {wanted!r}")
    return wanted


def _short(values: np.ndarray, digits: int = 8) -> list[float]:
    """Numbers with as many digits as a picture needs."""
    return [float(f"{value:.{digits}g}") for value in values.tolist()]
