"""Modes and highest-density regions against fine grids, scipy's distributions and sampling."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import lognorm, norm

from gpcde.density.components import Components
from gpcde.density.conditional import ConditionalDensity
from gpcde.density.transforms import OutputTransform

LOG = OutputTransform("log", -1.0, np.inf, np.array([0.3]), np.array([0.8]))
LOGIT = OutputTransform("logit", 2.0, 5.0, np.array([0.2]), np.array([1.1]))
ASINH = OutputTransform("asinh", -np.inf, np.inf, np.array([0.2]), np.array([1.1]), 2.0, 0.5, -1.0, 2.0)
PLAIN = OutputTransform("identity", -np.inf, np.inf, np.array([10.0]), np.array([3.0]))
TRANSFORMS = pytest.mark.parametrize("transform", [PLAIN, LOG, LOGIT, ASINH], ids=lambda t: t.kind)


def line(
    weight: list[float], mean: list[float], std: list[float], transform: OutputTransform | None = None
) -> ConditionalDensity:
    """One row, one output."""
    with np.errstate(divide="ignore"):
        log_weight = np.log(np.array([weight]))
    c = Components(log_weight, np.array([mean])[..., None], np.array([std])[..., None] ** 2)
    return ConditionalDensity(c, transform or OutputTransform.identity(1), flat=True)


def random_line(seed: int, transform: OutputTransform | None = None, k: int = 4) -> ConditionalDensity:
    rng = np.random.default_rng(seed)
    weight, mean, std = rng.dirichlet(np.ones(k)), 1.5 * rng.normal(size=k), rng.uniform(0.1, 1.2, size=k)
    return line(weight.tolist(), mean.tolist(), std.tolist(), transform)


def plane(form: str, seed: int = 0, outputs: int = 2) -> Components:
    """Two rows of a few components, whose remainders differ too."""
    rng = np.random.default_rng(seed)
    width = 1 if form == "shared" else outputs
    log_weight = np.log(rng.dirichlet(np.ones(4), 2))
    mean, variance = 1.5 * rng.normal(size=(2, 4, width)), rng.uniform(0.1, 1.0, size=(2, 4, width))
    if form == "axes":
        return Components(log_weight, mean, variance)
    if form == "shared":
        basis = np.linalg.qr(rng.normal(size=(outputs, 1)))[0][None, None]
        return Components(log_weight, mean, variance, basis, rng.uniform(0.05, 1.0, size=(2, 4)))
    return Components(log_weight, mean, variance, np.linalg.qr(rng.normal(size=(2, 4, outputs, outputs)))[0])


def pdf_at(density: ConditionalDensity, y: np.ndarray) -> np.ndarray:
    """Row 0's density at many points."""
    return density.pdf_grid(y)[0]


@TRANSFORMS
@given(seed=st.integers(0, 10**6), k=st.sampled_from([1, 3, 80]))
@settings(max_examples=10, deadline=None, derandomize=True)
def test_no_point_of_a_line_is_higher_than_the_mode(transform: OutputTransform, seed: int, k: int) -> None:
    density = random_line(seed, transform, k)
    grid = transform.from_standard(np.linspace(-8, 8, 10_001)[:, None])
    assert pdf_at(density, grid).max() <= density.pdf(density.mode())[0] * (1 + 1e-10)


@pytest.mark.parametrize("form", ["axes", "shared", "own"])
@pytest.mark.parametrize("transform", [PLAIN, LOG, LOGIT, ASINH], ids=lambda t: t.kind)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_no_point_of_a_plane_is_higher_than_the_mode(form: str, transform: OutputTransform, seed: int) -> None:
    both = transform._replace(location=np.array([0.1, -0.2]), scale=np.array([0.7, 1.2]))
    density = ConditionalDensity(plane(form, seed), both)
    side = np.linspace(-5, 5, 151)
    grid = both.from_standard(np.stack(np.meshgrid(side, side), -1).reshape(-1, 2))
    highest = density.pdf_grid(grid).max(1)
    assert (highest <= density.pdf(density.mode()) * (1 + 1e-8)).all()


def test_remainders_of_other_sizes_move_the_mode() -> None:
    """Where the remainder is narrow the density is high: that component wins in spite of its weight."""
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.normal(size=(6, 2)))[0]
    mean = np.array([[[0.0, 0.0], [4.0, 4.0]]])
    c = Components(np.log([[0.8, 0.2]]), mean, np.ones((1, 1, 1)), basis[None, None], np.array([[1.0, 0.1]]))
    mode = ConditionalDensity(c, OutputTransform.identity(6)).mode()
    np.testing.assert_allclose(mode @ basis, [[4, 4]], atol=1e-3)
    np.testing.assert_allclose(mode, mode @ basis @ basis.T, atol=1e-12)


def test_the_mode_of_a_lognormal_and_of_narrow_modes() -> None:
    """exp(μ - σ²); and of two spikes the higher, by a hair."""
    density = line([1.0], [0.4], [0.6], OutputTransform("log", 0.0, np.inf, np.zeros(1), np.ones(1)))
    np.testing.assert_allclose(density.mode(), np.exp(0.4 - 0.36), rtol=1e-9)
    spikes = line([0.4999, 0.0, 0.5001], [0.0, 0.5, 1.0], [1e-6, 1e-9, 1e-6])
    np.testing.assert_allclose(spikes.mode(), 1.0, rtol=1e-12)


@TRANSFORMS
@given(seed=st.integers(0, 10**6), level=st.sampled_from([0.001, 0.01, 0.3, 0.5, 0.9, 0.99, 0.9999]))
@settings(max_examples=8, deadline=None, derandomize=True)
def test_regions_hold_their_level_between_ends_of_one_height(
    transform: OutputTransform, seed: int, level: float
) -> None:
    density = random_line(seed, transform)
    region = density.hdr(level)
    ends = region[0]
    assert (np.diff(ends.ravel()) > 0).all()
    below = [density.cdf(end)[0] for end in ends.ravel()]
    np.testing.assert_allclose(np.diff(np.reshape(below, ends.shape)).sum(), level, atol=1e-9)
    np.testing.assert_allclose(np.log(pdf_at(density, ends.ravel())), region.log_threshold[0], atol=1e-7)
    grid = transform.from_standard(np.linspace(-8, 8, 2001)[:, None])
    inside = np.any((grid > ends[:, 0]) & (grid < ends[:, 1]), axis=1)
    ratio = pdf_at(density, grid) / np.exp(region.log_threshold)
    clear = np.abs(ratio - 1) > 1e-6
    np.testing.assert_array_equal(inside[clear], ratio[clear] > 1)


@pytest.mark.parametrize("level", [0.01, 0.5, 0.99])
@pytest.mark.parametrize("copies", [1, 8, 100])
def test_the_region_of_a_normal_is_its_central_interval(level: float, copies: int) -> None:
    """However many components it is written with."""
    density = line([1 / copies] * copies, [2.0] * copies, [0.5] * copies)
    np.testing.assert_allclose(density.hdr(level)[0], [norm.interval(level, 2.0, 0.5)], atol=1e-9)


@pytest.mark.parametrize("copies", [1, 100])
@pytest.mark.parametrize("level", [0.01, 0.5, 0.99])
def test_the_region_of_a_skewed_density_is_the_shortest_interval(level: float, copies: int) -> None:
    transform = OutputTransform("log", 0.0, np.inf, np.zeros(1), np.ones(1))
    density = line([1 / copies] * copies, [0.0] * copies, [0.7] * copies, transform)
    starts = np.linspace(0, 1 - level, 20_003)[1:-1]
    lengths = lognorm.ppf(starts + level, 0.7) - lognorm.ppf(starts, 0.7)
    (ends,) = density.hdr(level)[0]
    np.testing.assert_allclose(lognorm.cdf(ends[1], 0.7) - lognorm.cdf(ends[0], 0.7), level, rtol=1e-9)
    assert ends[1] - ends[0] <= lengths.min() * (1 + 1e-10)
    np.testing.assert_allclose(ends[1] - ends[0], lengths.min(), rtol=1e-4)


def test_modes_apart_have_intervals_of_their_own() -> None:
    """Of equal modes that do not touch, each takes the central interval of its half; zero weights take none."""
    density = line([0.5, 0.0, 0.5], [0.0, 0.5, 1.0], [1e-6, 1e-3, 1e-6])
    half = np.array(norm.interval(0.9, 0, 1e-6))
    np.testing.assert_allclose(density.hdr(0.9)[0], [half, 1 + half], atol=1e-14)


@pytest.mark.parametrize(("gap", "level", "count"), [(2.2, 0.01, 2), (2.2, 0.9, 1), (1.9, 0.01, 1), (3.0, 0.5, 2)])
def test_close_modes_part_where_they_should(gap: float, level: float, count: int) -> None:
    """Two equal normals have two modes from two standard deviations on; the ends are symmetric, and solved for here."""
    density = line([0.5, 0.5], [-gap / 2, gap / 2], [1.0, 1.0])
    ends = density.hdr(level)[0]
    assert len(ends) == count
    np.testing.assert_allclose(ends.ravel(), -ends.ravel()[::-1], atol=1e-9)

    def cdf(y: float) -> float:
        return float(norm.cdf(y - gap / 2) + norm.cdf(y + gap / 2)) / 2

    if count == 1:
        np.testing.assert_allclose(ends[0, 1], brentq(lambda y: 2 * cdf(y) - 1 - level, 0, 20), atol=1e-8)
    else:
        np.testing.assert_allclose(cdf(ends[1, 1]) - cdf(ends[1, 0]), level / 2, atol=1e-10)
        heights = norm.pdf(ends[1] - gap / 2) + norm.pdf(ends[1] + gap / 2)
        np.testing.assert_allclose(heights[0], heights[1], rtol=1e-9)


@pytest.mark.parametrize("less", [1e-4, 1e-7, -1e-4, -1e-7])
@pytest.mark.parametrize("place", [0.0, 0.123])
def test_a_region_parts_at_the_floor_of_a_valley(place: float, less: float) -> None:
    """The threshold that the valley between two modes just reaches, a little higher or lower: two intervals or one."""
    density = line([0.5, 0.5], [place - 1.3, place + 1.3], [1.0, 1.0])
    floor = norm.pdf(1.3)

    def above(y: float) -> float:
        return float(norm.pdf(y - 1.3) + norm.pdf(y + 1.3)) / 2 - floor

    outer = brentq(above, 1.3, 9)
    level = norm.cdf(outer - 1.3) + norm.cdf(outer + 1.3) - 1 - less
    ends = density.hdr(level)[0]
    assert len(ends) == (2 if less > 0 else 1)
    mass = np.diff([[density.cdf(y)[0] for y in pair] for pair in ends]).sum()
    np.testing.assert_allclose(mass, level, atol=1e-11)


def test_regions_and_modes_of_many_components_are_those_of_a_fine_grid() -> None:
    """Of 150 components of all widths: the mass above the threshold, and the highest point, on 100,000 points."""
    rng = np.random.default_rng(0)
    std = np.exp(rng.uniform(-3, 0, size=(2, 150, 1)))
    c = Components(np.log(rng.dirichlet(np.full(150, 0.3), 2)), 2 * rng.normal(size=(2, 150, 1)), std**2)
    density = ConditionalDensity(c, OutputTransform.identity(1), flat=True)
    region, mode = density.hdr(0.8), density.mode()
    grid = np.linspace(-12, 12, 100_001)
    heights = density.pdf_grid(grid)
    step = grid[1] - grid[0]
    inside = heights >= np.exp(region.log_threshold)[:, None]
    np.testing.assert_allclose((heights * inside).sum(1) * step, 0.8, atol=1e-4)
    assert (heights.max(1) <= density.pdf(mode) * (1 + 1e-12)).all()
    np.testing.assert_allclose(grid[heights.argmax(1)], mode, atol=step)
    begins = [grid[1:][~row[:-1] & row[1:]] for row in inside]
    for n, expected in enumerate(begins):
        np.testing.assert_allclose(region[n][:, 0], expected, atol=step)


def test_rows_keep_their_own_number_of_intervals() -> None:
    mean = np.array([[[0.0], [0.0]], [[-5.0], [5.0]], [[1.0], [1.0]]])
    c = Components(np.log([[0.5, 0.5]]), mean, np.ones((1, 1, 1)))
    region = ConditionalDensity(c, OutputTransform.identity(1), flat=True).hdr(0.8)
    assert len(region) == 3
    assert [len(region[n]) for n in range(3)] == [1, 2, 1]
    assert "0.8" in repr(region)


@TRANSFORMS
def test_contains_agrees_with_the_intervals(transform: OutputTransform) -> None:
    density = random_line(5, transform)
    region = density.hdr(0.7)
    for low, high in region[0]:
        width = 1e-6 * (high - low)
        assert region.contains(low + width).all()
        assert region.contains(0.5 * (low + high)).all()
        assert region.contains([high - width]).all()
        assert not region.contains(low - width).any()
        assert not region.contains(high + width).any()
    assert not region.contains(transform.low).any()


@pytest.mark.parametrize("form", ["axes", "shared", "own"])
@pytest.mark.parametrize("level", [0.1, 0.9, 0.99])
@pytest.mark.parametrize("transform", [PLAIN, LOGIT], ids=lambda t: t.kind)
def test_regions_of_several_outputs_cover_their_level(form: str, level: float, transform: OutputTransform) -> None:
    both = transform._replace(location=np.array([0.1, -0.2]), scale=np.array([0.7, 1.2]))
    density, draws = ConditionalDensity(plane(form), both), 20_000
    threshold = density.hdr(level).log_threshold
    y = density.sample(draws, random_state=1)
    for n in range(2):
        covered = (np.log(density[n].pdf_grid(y[n])[0]) >= threshold[n]).mean()
        assert abs(covered - level) < 5 * np.sqrt(level * (1 - level) / draws) + 2e-3


def test_the_region_of_a_round_normal_is_a_disc() -> None:
    """P(|z|² <= -2 log(1 - level)) = level on the plane."""
    density = ConditionalDensity(
        Components(np.zeros((1, 1)), np.zeros((1, 1, 2)), np.ones((1, 1, 1))), OutputTransform.identity(2)
    )
    region = density.hdr(0.8)
    np.testing.assert_allclose(region.log_threshold, np.log(0.2) - np.log(2 * np.pi), atol=0.02)
    assert region.contains([1.7, 0.0]).all()
    assert not region.contains([[1.3, 1.3]]).any()
    with pytest.raises(TypeError, match="contains"):
        region[0]
