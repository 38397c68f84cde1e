"""Stacks of densities: the best weights, the sum they make, and the mixtures behind them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import logsumexp
from scipy.stats import norm
from sklearn.model_selection import KFold

import gpcde
from gpcde import GP, GPCDE, KDE, MDN, ConditionalKDE, LinearGaussian, Stacked
from gpcde.density.components import Components, mixed
from gpcde.density.conditional import ConditionalDensity
from gpcde.estimators.stacking import stacking_weights
from small import ALONE, QUICK, N, fitted, frame, rows

# weights


@pytest.mark.parametrize("members", [1, 2, 5])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_weights_are_the_best_on_the_simplex(members: int, seed: int) -> None:
    """Against scipy's own search over softmax weights."""
    rng = np.random.default_rng(seed)
    logs = rng.normal(size=(200, members)) * 3 + rng.normal(size=members)
    weights = stacking_weights(logs)
    assert weights.shape == (members,)
    assert (weights >= 0).all()
    assert weights.sum() == pytest.approx(1)

    def loss(raw: np.ndarray) -> float:
        return -logsumexp(logs + raw - logsumexp(raw), axis=1).mean()

    found = min((minimize(loss, start) for start in rng.normal(size=(3, members))), key=lambda one: one.fun)
    assert -logsumexp(logs, b=weights, axis=1).mean() == pytest.approx(found.fun, abs=1e-6)
    assert logsumexp(logs, b=weights, axis=1).mean() >= logs.mean(0).max()


def test_a_member_that_is_always_worse_gets_nothing() -> None:
    rng = np.random.default_rng(0)
    good = rng.normal(size=100)
    np.testing.assert_allclose(stacking_weights(np.stack([good, good - 1, good - 5], axis=1)), [1, 0, 0], atol=1e-6)


def test_rows_of_no_weight_decide_nothing() -> None:
    """Not even one that only a model with no share can tell."""
    rng = np.random.default_rng(0)
    good = rng.normal(size=20)
    logs = np.stack([good, good - 900], axis=1)
    more, weight = np.concatenate([logs, [[-1e9, 800.0]]]), np.append(np.ones(20), 0.0)
    np.testing.assert_array_equal(stacking_weights(more, weight), stacking_weights(logs))
    assert stacking_weights(more, np.ones(21))[1] == pytest.approx(1 / 21)


def test_the_weights_come_from_rows_not_seen() -> None:
    """Fold by fold, by hand."""
    X, y = rows(60)
    folds = KFold(3, shuffle=True, random_state=7)
    model = Stacked([("linear", LinearGaussian()), ("kde", KDE()), ("near", ConditionalKDE())], cv=folds).fit(X, y)
    logs = np.empty((60, 3))
    for train, test in folds.split(X):
        for j, member in enumerate((LinearGaussian(), KDE(), ConditionalKDE())):
            logs[test, j] = member.fit(X[train], y[train]).predict_density(X[test]).log_pdf(y[test])
    np.testing.assert_allclose(model.weights_, stacking_weights(logs), atol=1e-8)


# the sum

TOGETHER = [(np.arange(N), np.arange(N))]
"""A fold of all rows, where the weights do not matter: what is compiled for it serves the members too."""

STACKS: dict[str, tuple[Any, Any]] = {
    "one output": (lambda: [("linear", LinearGaussian()), ("kde", KDE()), ("gp", GP(**QUICK))], rows),
    "categories": (lambda: [("linear", LinearGaussian()), ("kde", ConditionalKDE())], frame),
    "full covariances": (
        lambda: [
            ("linear", LinearGaussian()),
            ("kde", ConditionalKDE()),
            ("mdn", MDN(covariance="full", hidden=(8,), max_epochs=20, random_state=0)),
        ],
        lambda: rows(outputs=2),
    ),
    "alike outputs": (
        lambda: [
            ("p", GPCDE(latent_dim=1, output_dim=2, **ALONE)),
            ("none", GPCDE(output_dim=1, inference="none", **QUICK)),
        ],
        lambda: rows(outputs=3),
    ),
}


@pytest.mark.parametrize("name", STACKS)
def test_the_stack_is_the_weighted_sum_of_its_members(name: str, tmp_path: Path) -> None:
    """All members have a say here; and a file holds the same to the bit."""
    make, data = STACKS[name]
    X, y = data()
    model = Stacked(make(), cv=TOGETHER, random_state=0).fit(X, y)
    model.weights_ = np.random.default_rng(0).dirichlet(np.ones(len(model.members_)))
    logs = [member.predict_density(X).log_pdf(y) for member in model.members_]
    expected = logsumexp(logs, b=model.weights_[:, None], axis=0)
    np.testing.assert_allclose(model.predict_density(X).log_pdf(y), expected, rtol=1e-8)
    means = [
        weight * member.predict_density(X).mean() for weight, member in zip(model.weights_, model.members_, strict=True)
    ]
    np.testing.assert_allclose(model.predict_density(X).mean(), np.sum(means, axis=0), rtol=1e-8)
    model.save(tmp_path / "model")
    again = gpcde.load(tmp_path / "model")
    assert isinstance(again, Stacked)
    np.testing.assert_array_equal(again.predict_density(X).log_pdf(y), model.predict_density(X).log_pdf(y))
    assert again.estimators is not None
    assert [type(member) for _, member in again.estimators] == [type(member) for _, member in make()]


def test_a_stack_is_no_worse_than_its_members() -> None:
    """Or as good as the best, on rows that none has seen."""
    X, y = rows(100)
    X_new, y_new = rows(500, seed=1)
    model = Stacked([("linear", LinearGaussian()), ("kde", KDE()), ("near", ConditionalKDE())], cv=3).fit(X, y)
    assert model.score(X_new, y_new) > max(member.score(X_new, y_new) for member in model.members_) - 0.02


def test_the_same_seed_gives_the_same_stack() -> None:
    X, y = rows()
    members = [("mdn", MDN(max_epochs=5, hidden=(4,))), ("linear", LinearGaussian())]
    one, other = (Stacked(members, cv=2, random_state=3).fit(X, y) for _ in range(2))
    np.testing.assert_array_equal(one.predict_density(X).log_pdf(y), other.predict_density(X).log_pdf(y))
    assert members[0][1].get_params()["random_state"] is None


@pytest.mark.parametrize(
    ("estimators", "message"),
    [
        ([("a", LinearGaussian()), ("b", LinearGaussian(y_transform="log"))], "must share their y_transform"),
        ([("a", LinearGaussian(y_transform="log")), ("b", KDE())], "must share their y_transform"),
        ([], "estimators must name at least one"),
    ],
)
def test_bad_members_are_refused(estimators: Any, message: str) -> None:
    X, y = rows()
    model = Stacked(estimators, cv=2)
    with pytest.raises(ValueError, match=message):
        model.fit(X, np.exp(0.1 * y))
    with pytest.raises(ValueError, match="not fitted"):
        model.predict(X)


def test_the_quick_log_density_is_that_of_the_components() -> None:
    """Where all members have one; where a member has none, neither has the stack."""
    X, y = rows()
    members = [("none", fitted("none")[0]), ("mdn", fitted("mdn")[0])]
    model = Stacked(members, cv=TOGETHER).fit(X, y)
    model.weights_ = np.array([0.3, 0.7])
    density = model.predict_density(X)
    assert density._source.log_pdf is not None
    quick = density.log_pdf(y)
    plain = ConditionalDensity(density.components(), model.transform_, flat=True)
    np.testing.assert_allclose(quick, plain.log_pdf(y), rtol=1e-10, atol=1e-10)
    with_kde = Stacked([*members, ("kde", KDE())], cv=TOGETHER).fit(X, y)
    with_kde.weights_ = np.full(3, 1 / 3)
    assert with_kde.predict_density(X)._source.log_pdf is None


def test_folds_are_at_least_two_and_at_most_the_rows() -> None:
    X, y = rows(6)
    member = [("linear", LinearGaussian())]
    with pytest.raises(ValueError, match="cv, the number of folds, must be at least 2, got 1"):
        Stacked(member, cv=1).fit(X, y)
    np.testing.assert_array_equal(Stacked(member, cv=50).fit(X, y).weights_, [1])


def test_members_with_one_transform_may_have_one() -> None:
    X, y = rows()
    y = np.exp(0.1 * y)
    model = Stacked([("a", LinearGaussian(y_transform="log")), ("b", KDE(y_transform="log"))], cv=2).fit(X, y)
    logs = [member.predict_density(X).log_pdf(y) for member in model.members_]
    np.testing.assert_allclose(
        model.predict_density(X).log_pdf(y), logsumexp(logs, b=model.weights_[:, None], axis=0), rtol=1e-8
    )


# mixtures of mixtures


def make_components(form: str, seed: int, components: int = 3, rows: int = 2, outputs: int = 2) -> Components:
    """Axes, a shared direction with a remainder, any covariances, or directions of their own with a remainder."""
    rng = np.random.default_rng(seed)
    log_weight = np.log(rng.dirichlet(np.ones(components), rows))
    width = 1 if "shared" in form or "remainder" in form else outputs
    mean, variance = rng.normal(size=(rows, components, width)), rng.uniform(0.1, 1, size=(rows, components, width))
    if form == "axes":
        return Components(log_weight, mean, variance)
    if form == "shared":
        basis = np.linalg.qr(rng.normal(size=(outputs, 1)))[0][None, None]
        return Components(log_weight, mean, variance, basis, rng.uniform(0.1, 0.5, size=(1, components)))
    own = np.linalg.qr(rng.normal(size=(rows, components, outputs, width)))[0]
    outside = rng.uniform(0.1, 0.5, size=(rows, components)) if width < outputs else None
    return Components(log_weight[:1], mean, variance, own, outside)


@pytest.mark.parametrize("outputs", [2, 4])
@pytest.mark.parametrize("forms", [("axes", "axes"), ("axes", "shared"), ("shared", "own"), ("axes", "shared", "own")])
def test_mixtures_of_mixtures_are_sums(forms: tuple[str, ...], outputs: int) -> None:
    parts = [make_components(form, seed, 2 + seed, outputs=outputs) for seed, form in enumerate(forms)]
    weights = np.random.default_rng(0).dirichlet(np.ones(len(parts)))
    z = np.random.default_rng(1).normal(size=(2, 5, outputs))
    whole = mixed(parts, weights)
    expected = logsumexp([part.log_pdf(z) for part in parts], b=weights[:, None, None], axis=0)
    np.testing.assert_allclose(whole.log_pdf(z), expected, rtol=1e-9)
    moments = np.sum([w * p.moments()[0] for w, p in zip(weights, parts, strict=True)], axis=0)
    np.testing.assert_allclose(whole.moments()[0], moments, rtol=1e-9)


@pytest.mark.parametrize("form", ["axes", "shared", "own", "own and a remainder"])
def test_the_integral_of_the_square(form: str) -> None:
    """By the trapezoidal rule over the plane, whose error is nothing for smooth functions that vanish at the edges."""
    c = make_components(form, 0)
    line = np.linspace(-9, 9, 300)
    plane = np.stack(np.meshgrid(line, line), axis=2).reshape(1, -1, 2)
    expected = np.exp(2 * c.log_pdf(np.broadcast_to(plane, (2, *plane.shape[1:])))).sum(1) * (line[1] - line[0]) ** 2
    np.testing.assert_allclose(c.integrated_square(), expected, rtol=1e-6)


def test_the_integral_of_the_square_does_not_depend_on_the_form() -> None:
    """In five dimensions: a shared direction, and the same covariances with axes of their own."""
    c = make_components("shared", 0, outputs=5)
    np.testing.assert_allclose(mixed([c], np.ones(1)).integrated_square(), c.integrated_square(), rtol=1e-9)
    one = Components(np.zeros((1, 1)), np.zeros((1, 1, 5)), np.full((1, 1, 1), 0.3))
    assert one.integrated_square()[0] == pytest.approx(norm.pdf(0, 0, 0.6**0.5) ** 5)
