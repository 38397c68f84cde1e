"""The batch of densities in the user's units: against scipy, whatever the transform, the blocks and the shapes."""

import pickle
from collections.abc import Callable

import numpy as np
import pytest
from scipy.integrate import quad, simpson
from scipy.special import logsumexp
from scipy.stats import kstest, lognorm, multivariate_normal, norm

from gpcde.density import conditional
from gpcde.density.components import Components
from gpcde.density.conditional import ConditionalDensity, Source
from gpcde.density.transforms import KINDS, OutputTransform

N, K, D = 5, 3, 3
ENDS = dict.fromkeys(KINDS, (-np.inf, np.inf)) | {"log": (-1.0, np.inf), "logit": (-1.0, 2.0)}
CENTRE, WIDTH = 0.2, 0.6
FORMS = ["axes", "shared", "own"]


def make_transform(kind: str, outputs: int = D) -> OutputTransform:
    low, high = ENDS[kind]
    bend = (CENTRE, WIDTH, -50.0, 50.0) if kind == "asinh" else ()
    units = np.array([0.3, -0.2, 0.1])[:outputs], np.array([0.5, 0.9, 0.7])[:outputs]
    return OutputTransform(kind, low, high, *units, *bend)


def make_components(form: str, share: bool = False, outputs: int = D, seed: int = 0) -> Components:
    rng = np.random.default_rng(seed)
    width = 1 if form == "shared" else outputs
    log_weight = np.log(rng.dirichlet(np.ones(K), 1 if share else N))
    mean, variance = rng.normal(size=(N, K, width)), rng.uniform(0.1, 1.0, size=(N, K, width))
    if form == "axes":
        return Components(log_weight, mean, variance)
    if form == "shared":
        basis = np.linalg.qr(rng.normal(size=(outputs, 1)))[0][None, None]
        return Components(log_weight, mean, variance, basis, rng.uniform(0.1, 0.5, size=(N, K)))
    return Components(log_weight, mean, variance, np.linalg.qr(rng.normal(size=(N, K, outputs, outputs)))[0])


def make(form: str = "axes", kind: str = "identity", share: bool = False, outputs: int = D) -> ConditionalDensity:
    return ConditionalDensity(make_components(form, share, outputs), make_transform(kind, outputs), flat=outputs == 1)


def slope(kind: str, u: np.ndarray) -> np.ndarray:
    """dy/du, by the textbook."""
    logit = 3 * np.exp(-u) / (1 + np.exp(-u)) ** 2
    return {"identity": np.ones_like(u), "log": np.exp(u), "logit": logit, "asinh": WIDTH * np.cosh(u)}[kind]


@pytest.mark.parametrize("share", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("columns", [[0, 1, 2], [2, 0], [1]])
def test_log_pdf_is_the_sum_of_normals_over_the_slopes(form: str, kind: str, share: bool, columns: list[int]) -> None:
    c, t = make_components(form, share), make_transform(kind)
    z = np.random.default_rng(1).normal(size=(N, D))
    expected = np.empty(N)
    for n in range(N):
        logs = []
        for k in range(K):
            b = np.eye(D) if c.basis is None else c.basis[min(n, len(c.basis) - 1), min(k, c.basis.shape[1] - 1)]
            beyond = 0.0 if c.outside is None else c.outside[n, k]
            covariance = b @ np.diag(c.variance[n, k] - beyond) @ b.T + beyond * np.eye(D)
            parts = (b @ c.mean[n, k])[columns], covariance[np.ix_(columns, columns)]
            logs.append(c.log_weight[0 if share else n, k] + multivariate_normal.logpdf(z[n, columns], *parts))
        u = t.location + t.scale * z[n]
        expected[n] = logsumexp(logs) - np.log(t.scale * slope(kind, u))[columns].sum()
    y = t.from_standard(z)[:, columns]
    density = ConditionalDensity(c, t).marginal(columns)
    np.testing.assert_allclose(density.log_pdf(y), expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(np.diag(density.pdf_grid(y)), np.exp(expected), rtol=1e-8)
    if len(columns) == 1:
        np.testing.assert_allclose(
            ConditionalDensity(c, t).marginal(1).log_pdf(y[:, 0]), expected, rtol=1e-9, atol=1e-9
        )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("outputs", [1, 2])
def test_densities_integrate_to_one(kind: str, form: str, outputs: int) -> None:
    """By the midpoint rule, with cells that are even before the transform."""
    density, t = make(form, kind, outputs=outputs), make_transform(kind, outputs)
    edges = t.from_standard(np.repeat(np.linspace(-9, 9, 301)[:, None], outputs, axis=1)).T
    middles = np.meshgrid(*(0.5 * (e[1:] + e[:-1]) for e in edges), indexing="ij")
    cells = np.prod(np.meshgrid(*(np.diff(e) for e in edges), indexing="ij"), axis=0).ravel()
    np.testing.assert_allclose(density.pdf_grid(np.stack(middles, -1).reshape(-1, outputs)) @ cells, 1, rtol=2e-3)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", FORMS)
def test_cdf_pdf_quantile_and_sample_agree(kind: str, form: str) -> None:
    joint, levels = make(form, kind), np.array([1e-10, 1e-4, 0.1, 0.5, 0.9, 1 - 1e-4, 1 - 1e-10])
    draws = joint.sample(1000, random_state=0)
    for j in range(D):
        density = joint.marginal(j)
        np.testing.assert_allclose(joint.quantile(levels)[..., j], density.quantile(levels), rtol=1e-14)
        for level, y in zip(levels, density.quantile(levels).T, strict=True):
            np.testing.assert_allclose(density.cdf(y), level, rtol=1e-11, atol=1e-15)
        y = density.quantile(0.3)
        step = 1e-6 * np.abs(y)
        change = (density.cdf(y + step) - density.cdf(y - step)) / (2 * step)
        np.testing.assert_allclose(change, density.pdf(y), rtol=1e-6)
        uniform = density[np.repeat(np.arange(N), 1000)].cdf(draws[..., j].ravel())
        assert min(kstest(row, "uniform").pvalue for row in uniform.reshape(N, 1000)) > 1e-3


@pytest.mark.parametrize("kind", KINDS)
def test_levels_zero_and_one_are_the_ends_of_the_support(kind: str) -> None:
    np.testing.assert_array_equal(make("own", kind).quantile([0, 1])[..., 1], [ENDS[kind]] * N)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", FORMS)
def test_moments_are_integrals(kind: str, form: str) -> None:
    density = make(form, kind).marginal(1)
    t = make_transform(kind).column(1)
    z = np.linspace(-9, 9, 20_001)[:, None]
    y = t.from_standard(z)
    mass = density.pdf_grid(y) * np.exp(t.log_slope(z))[:, 0] * (z[1] - z[0])
    mean = mass @ y[:, 0]
    var = (mass * (y[:, 0] - mean[:, None]) ** 2).sum(1)
    np.testing.assert_allclose(density.mean(), mean, rtol=1e-8)
    np.testing.assert_allclose(density.var(), var, rtol=1e-8)
    np.testing.assert_allclose(make(form, kind).std()[:, 1], np.sqrt(var), rtol=1e-8)


def lognormal(sigma: float = 0.6, rows: int = 1) -> ConditionalDensity:
    c = Components(np.zeros((1, 1)), np.zeros((rows, 1, 1)), np.ones((1, 1, 1)))
    return ConditionalDensity(c, OutputTransform("log", 0.0, np.inf, np.zeros(1), np.array([sigma])), flat=True)


def test_one_component_under_a_logarithm_is_lognormal() -> None:
    y, density = np.array([0.01, 1.0, 3.0, 1e30]), lognormal(rows=4)
    np.testing.assert_allclose(density.log_pdf(y), lognorm.logpdf(y, 0.6), rtol=1e-12)
    np.testing.assert_allclose(density.cdf(y), lognorm.cdf(y, 0.6), rtol=1e-11)
    np.testing.assert_allclose(density.interval(0.8)[0], lognorm.interval(0.8, 0.6), rtol=1e-12)
    np.testing.assert_allclose(density.mean(), lognorm.mean(0.6), rtol=1e-12)
    np.testing.assert_allclose(density.std(), lognorm.std(0.6), rtol=1e-12)


@pytest.mark.parametrize("kind", ["log", "logit"])
def test_outside_the_support_there_is_nothing(kind: str) -> None:
    density, (low, high) = make("own", kind), ENDS[kind]
    for y, below in [(low, 0), (low - 4, 0), (-np.inf, 0)] + [(high, 1), (high + 4, 1)] * (kind == "logit"):
        np.testing.assert_array_equal(density.log_pdf(y), -np.inf)
        np.testing.assert_array_equal(density.pdf_grid([[y] * D]), 0)
        np.testing.assert_allclose(density.cdf(y), below, atol=1e-15)
    edge = density.crps(low)
    np.testing.assert_allclose(density.crps(low - 4), edge + 4, rtol=1e-12)
    np.testing.assert_array_equal(density.crps(-np.inf), np.inf)
    one_inside = np.array([low + 0.5, low - 1, low + 0.5])
    np.testing.assert_array_equal(density.log_pdf(one_inside), -np.inf)


def test_far_tails_are_finite_and_right() -> None:
    c = Components(np.zeros((1, 1)), np.zeros((2, 1, 1)), np.ones((1, 1, 1)))
    t = OutputTransform.identity(1)._replace(location=np.array([5.0]), scale=np.array([2.0]))
    density = ConditionalDensity(c, t, flat=True)
    y = np.array([-2e6, 2e6])
    np.testing.assert_allclose(density.log_pdf(y), norm.logpdf(y, 5, 2), rtol=1e-13)
    np.testing.assert_array_equal(density.cdf(y), [0, 1])
    np.testing.assert_allclose(density.crps(y), np.abs(y - 5) - 2 / np.sqrt(np.pi), rtol=1e-13)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("where", [-0.99, 0.1, 1.9])
def test_crps_is_the_integral_of_its_definition(kind: str, where: float) -> None:
    density = make("own", kind).marginal(0)
    low, high = np.maximum(density.quantile(1e-13), -30), density.quantile(1 - 1e-13)
    for n in range(2):
        row = density[n]
        left = quad(lambda s, row=row: row.cdf(s)[0] ** 2, min(low[n], where), where, epsabs=1e-10, limit=200)[0]
        top = max(high[n], where)
        right = quad(lambda s, row=row: (1 - row.cdf(s)[0]) ** 2, where, top, epsabs=1e-10, limit=200)[0]
        np.testing.assert_allclose(row.crps(where), left + right, rtol=1e-6)


def test_crps_far_from_a_narrow_transformed_density_is_the_distance() -> None:
    """E|Y - y| - E|Y - Y'| / 2, where the first is |E Y - y| and the second σ/√π up to small numbers."""
    density = lognormal(0.01)
    for y in (3.0, 1e6, 0.3, -7.0):
        expected = abs(np.exp(0.01**2 / 2) - y) - 0.01 / np.sqrt(np.pi)
        np.testing.assert_allclose(density.crps(y), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_the_energy_score_of_one_output_is_its_crps(kind: str) -> None:
    density = make("own", kind, outputs=1)
    scale = density.std()
    np.testing.assert_allclose(density.energy_score(0.2, 20_000) / scale, density.crps(0.2) / scale, atol=0.02)


def test_the_energy_score_of_a_round_normal() -> None:
    """At its centre: E|Z| (1 - 1/√2), with E|Z| = √(π/2) on the plane."""
    c = Components(np.zeros((1, 1)), np.zeros((1, 1, 2)), np.ones((1, 1, 1)))
    got = ConditionalDensity(c, OutputTransform.identity(2)).energy_score(0.0, 40_000)
    np.testing.assert_allclose(got, np.sqrt(np.pi / 2) * (1 - np.sqrt(0.5)), atol=0.01)


Answer = Callable[[ConditionalDensity], np.ndarray]
ANSWERS: dict[str, Answer] = {
    "log_pdf": lambda d: d.log_pdf(np.linspace(0.1, 0.9, N)[:, None] + np.zeros(d.n_outputs)),
    "pdf_grid": lambda d: d.pdf_grid(np.full((4, d.n_outputs), 0.3) + np.arange(4)[:, None] / 7),
    "cdf": lambda d: d.cdf(0.4),
    "quantile": lambda d: d.quantile([[0.1, 0.5], [0.7, 0.8]]),
    "hdr": lambda d: d.hdr(0.8).log_threshold,
    "intervals": lambda d: np.concatenate(d.marginal(0).hdr(0.8).intervals or []),
    "mean": lambda d: d.mean(),
    "var": lambda d: d.var(),
    "mode": lambda d: d.mode(),
    "sample": lambda d: d.sample(7, random_state=3),
    "crps": lambda d: d.crps(0.4),
    "energy_score": lambda d: d.energy_score(0.4, 11),
}


def recorded(c: Components, asked: list[int]) -> Source:
    """A source that notes how many rows it is asked for."""
    return Source(lambda rows: asked.append(len(rows)) or c.take(rows))  # type: ignore[func-returns-value]


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
@pytest.mark.parametrize(("form", "kind"), [("own", "logit"), ("shared", "identity"), ("axes", "log")])
def test_the_size_of_blocks_does_not_matter(
    answer: Answer, form: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All at once; then in blocks of a row or two, made anew each time."""
    c, asked = make_components(form), list[int]()
    together = answer(ConditionalDensity(c, make_transform(kind)))
    monkeypatch.setattr(conditional, "NUMBERS_AT_ONCE", 12)
    monkeypatch.setattr(conditional, "KEPT", 0)
    monkeypatch.setattr(conditional, "FIRST_ROWS", 1)
    got = answer(ConditionalDensity(recorded(c, asked), make_transform(kind), N))
    assert 0 < max(asked) < N
    np.testing.assert_allclose(got, together, rtol=1e-9, atol=1e-12)


def test_a_small_density_is_made_once() -> None:
    """The rows that are looked at first are all there are, and are kept."""
    asked: list[int] = []
    density = ConditionalDensity(recorded(make_components("own"), asked), make_transform("identity"), N)
    for answer in ANSWERS.values():
        answer(density)
    assert asked == [N]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("outputs", [1, 2])
def test_a_quick_log_density_is_asked_and_is_in_the_users_units(form: str, kind: str, outputs: int) -> None:
    """Of all rows and of some: as the components have it, which are not made; outside the support there is nothing."""
    c, t = make_components(form, outputs=outputs), make_transform(kind, outputs)
    made: list[int] = []
    quick = recorded(c, made)._replace(log_pdf=lambda rows, z: c.take(rows).log_pdf(z[:, None])[:, 0])
    density, plain = ConditionalDensity(quick, t, N), ConditionalDensity(c, t)
    y = t.from_standard(np.random.default_rng(1).normal(size=(N, outputs)))
    rows = np.array([4, 0, 0])
    np.testing.assert_allclose(density.log_pdf(y), plain.log_pdf(y), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(density[rows].log_pdf(y[rows]), plain.log_pdf(y)[rows], rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(density[1:][::2].log_pdf(y[1::2]), plain.log_pdf(y)[1::2], rtol=1e-12, atol=1e-12)
    if kind != "identity":
        np.testing.assert_array_equal(density.log_pdf(ENDS[kind][0] - 1), -np.inf)
    assert not made
    for columns in ([0], list(range(outputs))):  # a marginal has no quick way
        got = density.marginal(columns).log_pdf(y[:, columns])
        np.testing.assert_allclose(got, plain.marginal(columns).log_pdf(y[:, columns]), rtol=1e-12, atol=1e-12)
    assert made


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("outputs", [1, 2])
def test_several_points_of_each_row(kind: str, outputs: int) -> None:
    """One after the other, as draws come, also outside the support; and one point of many rows is the same."""
    density = make("own", kind, outputs=outputs)
    y = density.sample(4, 0)
    y[1, 2] = -3.0
    got = density.log_pdf_at(y)
    assert got.shape == (N, 4)
    for i in range(4):
        np.testing.assert_allclose(got[:, i], density.log_pdf(y[:, i]), rtol=1e-12, atol=1e-12)
    assert (got[1, 2] == -np.inf) == (kind in ("log", "logit"))


def test_no_rows_have_no_log_density() -> None:
    """Neither by the quick way nor by the components."""
    c = make_components("axes")
    never = Source(c.take, lambda rows, z: pytest.fail("there is nothing to ask"))
    for density in (
        ConditionalDensity(c, make_transform("identity")),
        ConditionalDensity(never, make_transform("log"), N),
    ):
        assert density[:0].log_pdf(np.zeros((0, D))).shape == (0,)


def test_it_is_sent_about_as_its_components() -> None:
    """A function that makes them cannot be pickled."""
    quick = Source(make_components("own").take, lambda rows, z: np.zeros(len(rows)))
    density = pickle.loads(pickle.dumps(ConditionalDensity(quick, make_transform("log"), N)))
    y = np.linspace(0.1, 0.9, N * D).reshape(N, D)
    np.testing.assert_array_equal(density.log_pdf(y), make("own", "log").log_pdf(y))


@pytest.mark.parametrize("rows", [3, -1, slice(1, 4), [4, 0, 0], np.array([True, False, True, True, False])])
def test_some_rows(rows: int | slice | list[int] | np.ndarray) -> None:
    density, y = make("own", "log"), np.linspace(0.1, 0.9, N * D).reshape(N, D)
    index = np.atleast_1d(np.arange(N)[rows])
    part = density[rows]
    assert len(part) == len(index)
    np.testing.assert_allclose(part.log_pdf(y[index]), density.log_pdf(y)[index], rtol=1e-13)
    np.testing.assert_allclose(part.marginal(2).mean(), density.mean()[index, 2], rtol=1e-13)
    assert part.components().n_rows == len(index)


def test_shapes_follow_those_of_y() -> None:
    flat, matrix, joint = make(outputs=1), make(outputs=D).marginal([1]), make()
    for density, end in ((flat, ()), (matrix, (1,)), (joint, (D,))):
        for method in (density.mean, density.var, density.std, density.mode):
            assert method().shape == (N, *end)
        assert density.cdf(0.0).shape == density.crps(0.0).shape == density.quantile(0.3).shape == (N, *end)
        assert density.interval().shape == density.quantile([0.1, 0.2]).shape == density.sample(2).shape == (N, 2, *end)
        assert density.quantile([[0.1, 0.2, 0.3]]).shape == (N, 1, 3, *end)
        assert density.log_pdf(0.0).shape == density.energy_score(0.0, 3).shape == (N,)
    y = np.linspace(-1, 1, N)
    np.testing.assert_array_equal(flat.log_pdf(y), flat.log_pdf(y[:, None]))
    np.testing.assert_array_equal(joint.log_pdf([0.1, 0.2, 0.3]), joint.log_pdf(np.tile([0.1, 0.2, 0.3], (N, 1))))
    np.testing.assert_array_equal(joint.log_pdf(0.1), joint.log_pdf(np.full((N, D), 0.1)))
    np.testing.assert_array_equal(joint.marginal(-1).mean(), joint.mean()[:, 2])
    assert repr(joint) == "ConditionalDensity(rows=5, outputs=3)"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda d: d.log_pdf(np.zeros((N, D + 1))), r"5 rows of this density and 3 columns, got shape \(5, 4\)"),
        (lambda d: d.cdf(np.zeros(N + 1)), r"got shape \(6,\)"),
        (lambda d: d.crps(np.array([[0.0] * D, [0, np.nan, 0], *[[0.0] * D] * 3])), "NaN, first in row 1"),
        (lambda d: d.log_pdf_at(np.zeros((N, D))), r"points of 3 numbers for each of the 5 rows, got shape \(5, 3\)"),
        (lambda d: d.log_pdf_at(np.zeros((N + 1, 2, D))), "each of the 5 rows"),
        (lambda d: d.pdf_grid(np.zeros(4)), r"matrix with 3 columns, got shape \(4,\)"),
        (lambda d: d.pdf_grid([[0.0, 0.0, 0.0], [0.0, np.nan, 0.0]]), "NaN, first in row 1"),
        (lambda d: d.quantile(1.1), "between 0 and 1, got 1.1"),
        (lambda d: d.quantile([0.5, np.nan]), "between 0 and 1"),
        (lambda d: d.interval(1.0), "between 0 and 1, got 1.0"),
        (lambda d: d.hdr(0.0), "between 0 and 1, got 0.0"),
        (lambda d: d.sample(0), "positive integer, got 0"),
        (lambda d: d.energy_score(0.0, -1), "positive integer, got -1"),
        (lambda d: d.marginal([1, -2]), "different"),
        (lambda d: d.marginal([]), "name one output"),
        (lambda d: ConditionalDensity(Source(lambda rows: d.components()), make_transform("log")), "needs n_rows"),
    ],
)
def test_what_makes_no_sense_is_refused(call: Callable[[ConditionalDensity], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(make())


@pytest.mark.parametrize("output", [3, -4, [0, 7]])
def test_unknown_outputs_are_refused(output: int | list[int]) -> None:
    with pytest.raises(IndexError, match="there are 3 outputs"):
        make().marginal(output)


def test_many_components_have_the_same_crps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numerically, where the pairs would be too many."""
    density = ConditionalDensity(make_components("axes"), make_transform("identity"))
    y = density.sample(1, 0)[:, 0]
    exact = density.crps(y)
    monkeypatch.setattr(conditional, "MANY_COMPONENTS", 0)
    np.testing.assert_allclose(density.crps(y), exact, rtol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_the_square_of_a_density_is_integrated_in_the_units_of_y(kind: str) -> None:
    """Against the integral by Simpson's rule; of several transformed outputs it is not known."""
    density = make("axes", kind, outputs=1)
    y = make_transform(kind, 1).from_standard(np.linspace(-12, 12, 200_001)[:, None])[:, 0]
    inside = np.diff(y, append=np.inf) > 0
    expected = simpson(density.pdf_grid(y[inside]) ** 2, x=y[inside], axis=1)
    np.testing.assert_allclose(density.integrated_square(), expected, rtol=1e-6)
    if kind != "identity":
        with pytest.raises(ValueError, match="several outputs is known where y is not transformed"):
            make("axes", kind).integrated_square()
