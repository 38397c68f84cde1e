"""Mixture density networks: the density against scipy, laws learnt to near the truth, and when to stop."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array
from scipy.special import logsumexp
from scipy.stats import multivariate_normal, norm

from gpcde import MDN
from gpcde.estimators.mdn import LEAST_LOG_STD, MOST_LOG_STD, MixtureNetwork, as_mixture, log_density
from gpcde.model.inputs import Inputs, make_inputs
from gpcde.model.networks import MLP
from small import ask, fitted, rows

K = 3


def make_network(outputs: int, full: bool) -> MixtureNetwork:
    """All weights and biases of order one."""
    width = K * (1 + 2 * outputs + (outputs * (outputs - 1) // 2 if full else 0))
    start = MLP.create(jax.random.key(0), (2, 4, width))
    rng = np.random.default_rng(0)
    return MixtureNetwork(jax.tree.map(lambda a: jnp.asarray(rng.normal(size=a.shape)), start), K, outputs)


def density(network: MixtureNetwork, x: Inputs, y: Array) -> Array:
    return log_density(network(x), y)


@pytest.mark.parametrize(("outputs", "full"), [(1, False), (3, False), (2, True), (3, True)])
def test_the_density_is_a_sum_of_normals(outputs: int, full: bool) -> None:
    """Weights, means and Cholesky factors read from the network's output by hand."""
    network, rng = make_network(outputs, full), np.random.default_rng(1)
    x, y = rng.normal(size=(5, 2)), rng.normal(size=(5, outputs))
    (first, last), (one, two) = network.mlp.weights, network.mlp.biases
    raw = np.tanh(x @ np.asarray(first) + np.asarray(one)) @ np.asarray(last) + np.asarray(two)
    expected = []
    for row, at in zip(raw, y, strict=True):
        logits, rest = row[:K], row[K:]
        means, log_stds = rest[: 2 * K * outputs].reshape(2, K, outputs)
        below = rest[2 * K * outputs :].reshape(K, -1)
        logs = []
        for k in range(K):
            std = np.exp(LEAST_LOG_STD + np.log1p(np.exp(log_stds[k] - LEAST_LOG_STD)))
            root = np.diag(std)
            if full:  # below the diagonal in units of the row's own spread
                root[np.tril_indices(outputs, -1)] = below[k] * std[np.tril_indices(outputs, -1)[0]]
            logs.append(logits[k] - logsumexp(logits) + multivariate_normal.logpdf(at, means[k], root @ root.T))
        expected.append(logsumexp(logs))
    got = ask(density, network, make_inputs(x), y)
    np.testing.assert_allclose(got, expected, rtol=1e-9)


@pytest.mark.parametrize("name", ["mdn", "full mdn", "mdn of categories"])
def test_the_estimators_answer_is_the_networks_density(name: str) -> None:
    """In standard units, and with the units' Jacobian; components with axes of their own where they are full."""
    model, table, y = fitted(name)
    matrix = y.reshape(len(y), -1)
    z = (matrix - matrix.mean(0)) / matrix.std(0)
    expected = ask(density, model.network_, model._apply_tables(table), z) - np.log(matrix.std(0)).sum()
    np.testing.assert_allclose(model.predict_density(table).log_pdf(y), expected, rtol=1e-8, atol=1e-9)


def test_no_component_is_narrower_than_the_least() -> None:
    network = make_network(1, False)
    far = jax.tree.map(lambda a: 100 * np.asarray(a), network)
    x = make_inputs(np.random.default_rng(0).normal(size=(50, 2)))
    assert np.asarray(ask(far, x).root).min() >= np.exp(LEAST_LOG_STD)


def test_no_component_is_wider_than_the_most() -> None:
    """Far from all rows a network asks for anything; its square must be a number, in float32 too."""
    raw = np.full((1, 2 * 3), 1e4, np.float32)
    root = ask(as_mixture, raw, 2, 1).root
    assert np.isfinite(root**2).all()
    np.testing.assert_allclose(root.ravel(), np.exp(MOST_LOG_STD), rtol=1e-3)


def test_it_starts_from_the_clusters_of_y() -> None:
    """A component at each, whatever x is."""
    y = np.repeat([-4.0, 0.0, 7.0], 20) + 0.01 * np.random.default_rng(0).normal(size=60)
    model = MDN(n_components=3, max_epochs=1, learning_rate=1e-9, weight_decay=0.0, random_state=0)
    model.fit(np.zeros((60, 1)), y)
    means = model.predict_density([[0.0]]).components().mean[0, :, 0] * y.std() + y.mean()
    np.testing.assert_allclose(np.sort(means), [-4, 0, 7], atol=0.1)


# laws it should learn


def test_it_learns_two_branches() -> None:
    """y = ±(1 + x²) + noise: within 0.15 nats of the truth on new rows, where a Gaussian is more than 1 away."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, size=(2000, 1))
    centre = 1 + x[:, 0] ** 2
    y = rng.choice([-1, 1], 2000) * centre + 0.2 * rng.normal(size=2000)
    model = MDN(n_components=2, hidden=(20, 20), max_epochs=300, learning_rate=5e-3, random_state=0)
    model.fit(x[:1000], y[:1000])
    test = slice(1000, None)
    truth = logsumexp([norm.logpdf(y[test], sign * centre[test], 0.2) for sign in (-1, 1)], axis=0) - np.log(2)
    assert truth.mean() - 0.15 < model.score(x[test], y[test]) < truth.mean() + 0.02
    assert norm.logpdf(y[test], 0, y[test].std()).mean() < truth.mean() - 1


@pytest.mark.parametrize("covariance", ["diagonal", "full"])
def test_it_learns_a_correlation_if_it_may(covariance: str) -> None:
    """Two outputs of correlation ±0.95, the sign that of x; one component: diagonal ones lose log(1 - 0.95²) / 2."""
    rng = np.random.default_rng(0)
    x, noise = rng.uniform(-1, 1, size=(2000, 1)), rng.normal(size=(2000, 2))
    sign = np.sign(x[:, 0])
    y = np.stack([noise[:, 0], 0.95 * sign * noise[:, 0] + np.sqrt(1 - 0.95**2) * noise[:, 1]], axis=1) * [1, 30]
    model = MDN(n_components=1, hidden=(20,), covariance=covariance, max_epochs=300, learning_rate=1e-2, random_state=0)
    model.fit(x[:1000], y[:1000])
    test = slice(1000, None)
    oracle = np.mean(norm.logpdf(noise[test]).sum(1)) - 0.5 * np.log(1 - 0.95**2) - np.log(30)
    score, loss = model.score(x[test], y[test]), -0.5 * np.log(1 - 0.95**2)
    if covariance == "full":
        assert oracle - 0.15 < score < oracle + 0.02
    else:
        assert score < oracle - 0.9 * loss


# when to stop


def test_early_stopping_ends_before_it_learns_the_rows_by_heart() -> None:
    """Few rows; without it, all epochs are run, and the rows known by heart."""
    X, y = rows(40)
    settings: dict[str, Any] = {"max_epochs": 1000, "patience": 40, "learning_rate": 3e-3, "random_state": 0}
    stopped = MDN(**settings).fit(X, y)
    free = MDN(**settings, early_stopping=False, weight_decay=0.0).fit(X, y)
    assert stopped.n_epochs_ < 500
    assert free.n_epochs_ == 1000
    assert free.score(X, y) > stopped.score(X, y) + 1
    new = rows(400, seed=1)
    assert stopped.score(*new) > free.score(*new) + 1


@pytest.mark.parametrize("epochs", [1, 7, 30])
def test_so_many_epochs_and_no_more(epochs: int) -> None:
    assert MDN(max_epochs=epochs, early_stopping=False, hidden=(4,)).fit(*rows(40)).n_epochs_ == epochs


def test_axes_of_their_own_need_no_rows_held_out() -> None:
    model = MDN(max_epochs=3, early_stopping=False, covariance="full", hidden=(4,)).fit(*rows(40, outputs=2))
    assert np.isfinite(model.score(*rows(40, outputs=2)))


def test_dropout_is_for_training_alone_and_keeps_the_mean() -> None:
    """The network's output is linear in the last hidden layer: over many draws, that without dropout."""
    plain = make_network(1, False)
    network = MixtureNetwork(plain.mlp, K, 1, 0.4)
    x = make_inputs(np.random.default_rng(0).normal(size=(3, 2)))
    np.testing.assert_array_equal(network(x).mean, plain(x).mean)
    draws = np.asarray(jax.lax.map(lambda key: network(x, key).mean, jax.random.split(jax.random.key(2), 4000)))
    assert draws.std(0).min() > 0.1
    np.testing.assert_array_less(np.abs(draws.mean(0) - plain(x).mean), 5 * draws.std(0) / 4000**0.5)


def test_two_rows_are_enough() -> None:
    """For a density that is one, near both."""
    model = MDN(max_epochs=5, hidden=(4,), random_state=0).fit([[0.0], [1.0]], [0.0, 1.0])
    grid = np.linspace(-10, 11, 3001)
    density = model.predict_density([[0.0], [1.0]])
    np.testing.assert_allclose(np.trapezoid(density.pdf_grid(grid), grid), 1, atol=1e-4)
    assert model.score([[0.0], [1.0]], [0.0, 1.0]) > norm.logpdf([0, 1], 0.5, 0.5).mean() - 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"covariance": "round"}, "covariance must be 'diagonal' or 'full', got 'round'"),
        ({"n_components": 0}, "n_components must be a positive integer, got 0"),
        ({"n_components": True}, "n_components must be a positive integer, got True"),
        ({"max_epochs": 0}, "max_epochs must be a positive integer, got 0"),
        ({"batch_size": -1}, "batch_size must be a positive integer, got -1"),
        ({"patience": 0}, "patience must be a positive integer, got 0"),
        ({"learning_rate": 0.0}, "learning_rate must be positive"),
        ({"dropout": 1.0}, "dropout must be at least 0 and less than 1, got 1.0"),
        ({"weight_decay": -1.0}, "weight_decay must be a number of at least 0, got -1.0"),
        ({"validation_fraction": 1.0}, "validation_fraction must lie between 0 and 1, got 1.0"),
        ({"y_transform": "log", "y_bounds": (100.0, np.inf)}, "y_transform='log' needs every y strictly between 100"),
    ],
)
def test_bad_settings_are_refused_by_name(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MDN(**settings).fit(*rows())
