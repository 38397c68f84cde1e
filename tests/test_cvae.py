"""The conditional variational autoencoder: its likelihood against quadrature, its layers, dropout, noise and grid."""

from functools import cache
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import norm

import gpcde
from gpcde import CVAE
from gpcde.estimators.cvae import Autoencoder
from gpcde.estimators.network_training import split_rows
from gpcde.model.inputs import make_inputs, one_hot
from gpcde.model.networks import MLP
from gpcde.model.quadrature import quasi_random
from small import ask, frame, rows

KEY = jax.random.key(0)

MODELS: dict[str, tuple[Any, Any]] = {
    "numbers": (lambda: CVAE(max_epochs=20, noise_variance=0.3, random_state=0), rows),
    "two outputs": (lambda: CVAE(max_epochs=40, random_state=0), lambda: rows(outputs=2)),
    "categories": (lambda: CVAE(max_epochs=40, dropout=0.3, random_state=0), frame),
    "log": (lambda: CVAE(max_epochs=20, y_transform="log", y_bounds=(-50, np.inf), random_state=0), rows),
}


@cache
def fitted(name: str) -> tuple[Any, Any, np.ndarray]:
    make, data = MODELS[name]
    X, y = data()
    return make().fit(X, y), X, y


def forward(mlp: MLP, h: np.ndarray) -> np.ndarray:
    """The network by hand, without dropout."""
    for weight, bias in zip(mlp.weights[:-1], mlp.biases[:-1], strict=True):
        h = np.tanh(h @ np.asarray(weight) + np.asarray(bias))
    return h @ np.asarray(mlp.weights[-1]) + np.asarray(mlp.biases[-1])


def by_quadrature(model: CVAE, X: Any, y: np.ndarray) -> np.ndarray:
    """log ∫ N(y | decoder(x, w), σ²) N(w) dw over 4001 even steps, in the user's units."""
    w = np.linspace(-8, 8, 4001)
    features = one_hot(model._apply_tables(X), sum(model.features_.levels))
    z = model.transform_.to_standard(y.reshape(len(y), -1))
    std = np.exp(0.5 * float(model.network_.log_noise_variance))
    out = []
    for x, at in zip(features, z, strict=True):
        mean = forward(model.network_.decoder, np.column_stack([np.tile(x, (len(w), 1)), w]))
        out.append(logsumexp(norm.logpdf(w) + norm.logpdf(at, mean, std).sum(1)) + np.log(w[1] - w[0]))
    return np.array(out) - model.transform_.log_slope(z).sum(1)


@pytest.mark.parametrize("name", MODELS)
def test_every_likelihood_is_the_integral_over_w(name: str) -> None:
    """The density's (also with its units), the importance-sampled one, and plain Monte Carlo."""
    model, X, y = fitted(name)
    X, y = X[:4], y[:4]
    expected = by_quadrature(model, X, y)
    assert np.ptp(expected) > 0.1
    np.testing.assert_allclose(model.predict_density(X).log_pdf(y), expected, atol=1e-2)
    np.testing.assert_allclose(model.log_likelihood(X, y, 10_000), expected, atol=1e-2)
    np.testing.assert_allclose(model.log_likelihood(X, y, 50_000, "monte carlo"), expected, atol=1e-2)
    few = model.log_likelihood(X, y, 3, "monte carlo", random_state=1)
    assert np.abs(few - expected).max() > 1e-2


def test_the_loss_is_the_lower_bound() -> None:
    """E_q log p(y|x, w) - KL(q | N(0, 1)), the first by quadrature over q, the second in closed form."""
    model, X, y = fitted("numbers")
    network = jax.tree.map(jnp.asarray, model.network_)
    x, z = model._apply_tables(X), model.transform_.to_standard(y[:, None])
    raw = forward(model.network_.encoder, np.column_stack([x.dense, z]))
    nodes, weights = np.polynomial.hermite_e.hermegauss(100)
    total = 0.0
    for features, at, (mean, log_std) in zip(x.dense, z, raw, strict=True):
        w = mean + np.exp(log_std) * nodes
        decoded = forward(model.network_.decoder, np.column_stack([np.tile(features, (len(w), 1)), w]))[:, 0]
        total += norm.logpdf(at, decoded, np.sqrt(0.3)) @ weights / weights.sum()
        total -= 0.5 * (mean**2 + np.exp(2 * log_std) - 1) - log_std
    keys = jax.random.split(jax.random.key(0), 4000)
    losses = np.asarray(jax.lax.map(lambda key: network.loss(x, jnp.asarray(z), jnp.ones(len(z)), key, False), keys))
    assert -losses.mean() == pytest.approx(total / len(z), abs=5 * losses.std() / 4000**0.5)
    assert total / len(z) < (by_quadrature(model, X, y) + np.log(y.std())).mean()


# layers


@pytest.mark.parametrize(
    ("architecture", "encoder", "decoder"),
    [
        ("small", (5, 50, 100, 50, 6), (5, 10, 50, 50, 10, 3)),
        ("images", (5, 256, 64, 6), (5, 64, 256, 256, 256, 1024, 3)),
    ],
)
def test_the_layers_are_the_papers(architecture: str, encoder: tuple[int, ...], decoder: tuple[int, ...]) -> None:
    """Two inputs, three outputs, three latents."""
    X, y = rows(outputs=3)
    y = (y - y.min(0)) / np.ptp(y, axis=0)
    model = CVAE(architecture=architecture, latent_dim=3, max_epochs=1, random_state=0).fit(X, y)
    for mlp, sizes in ((model.network_.encoder, encoder), (model.network_.decoder, decoder)):
        assert [w.shape for w in mlp.weights] == list(pairwise(sizes))
    density = model.predict_density(X[:3])
    means, w = density.components().mean, quasi_random(1024, 3)[0]
    dense = model._apply_tables(X[:3]).dense
    expected = np.stack([forward(model.network_.decoder, np.column_stack([np.tile(x, (1024, 1)), w])) for x in dense])
    if architecture == "images":  # in the units of y, between 0 and 1
        expected = 1 / (1 + np.exp(-expected))
        np.testing.assert_array_equal(model.transform_.scale, 1)
    np.testing.assert_allclose(means, expected, rtol=1e-9, atol=1e-12)
    std = np.exp(0.5 * float(model.network_.log_noise_variance))
    z = model.transform_.to_standard(y[:3])
    logs = logsumexp(norm.logpdf(z[:, None], expected, std).sum(2), axis=1) - np.log(1024)
    np.testing.assert_allclose(density.log_pdf(y[:3]), logs - np.log(model.transform_.scale).sum(), rtol=1e-9)


@pytest.mark.parametrize("shift", [-0.01, 0.01])
def test_images_lie_between_0_and_1(shift: float) -> None:
    y = np.linspace(0, 1, 48) + shift
    with pytest.raises(ValueError, match="architecture='images' needs every y between 0 and 1"):
        CVAE(architecture="images", max_epochs=1).fit(rows()[0], y)


def make_network(dropout: float) -> Autoencoder:
    """One hidden layer each, weights of order one."""
    start = MLP.create(jax.random.key(0), (3, 6, 2)), MLP.create(jax.random.key(1), (3, 6, 1))
    rng = np.random.default_rng(0)
    encoder, decoder = jax.tree.map(lambda a: jnp.asarray(rng.normal(size=a.shape)), start)
    return Autoencoder(encoder, decoder, jnp.asarray(0.0), 1, False, True, dropout)


def test_dropout_keeps_the_mean() -> None:
    """Over many draws the output is that without dropout: it is linear in the last hidden layer."""
    network, rng = make_network(0.4), np.random.default_rng(0)
    x, w = make_inputs(rng.normal(size=(3, 2))), jnp.asarray(rng.normal(size=(3, 2, 1)))
    plain = np.asarray(ask(network.decode, x, w))
    np.testing.assert_array_equal(plain, ask(make_network(0.0).decode, x, w, KEY))
    draws = np.asarray(jax.lax.map(lambda key: network.decode(x, w, key), jax.random.split(jax.random.key(2), 4000)))
    assert draws.std(0).min() > 0.1
    np.testing.assert_array_less(np.abs(draws.mean(0) - plain), 5 * draws.std(0) / 4000**0.5)


def test_prediction_has_no_dropout() -> None:
    """The means of the mixture are the decoder's, by hand."""
    model, X, _ = fitted("categories")
    assert model.network_.dropout == 0.3
    density = model.predict_density(X[:3])
    w = model.predict_density(X[:1]).components()
    features = one_hot(model._apply_tables(X[:3]), sum(model.features_.levels))
    expected = forward(model.network_.decoder, np.column_stack([features, np.zeros(3)]))
    near = np.abs(density.components().mean - expected[:, None]).min(1)  # some draw of w is nearly 0
    np.testing.assert_allclose(near, 0, atol=1e-2)
    assert w.n_components == 1024
    x, z, weight = model._apply_tables(X), model.transform_.to_standard(np.zeros((len(X), 1))), np.ones(len(X))
    trained, predicted = (float(ask(model.network_.loss, x, z, weight, KEY, training)) for training in (True, False))
    assert trained != predicted


# noise, grid, files


def test_fixed_noise_stays_fixed_and_free_noise_does_not() -> None:
    """In standard units; learnt noise starts at the variance of y, which is 1, and falls."""
    assert float(np.exp(fitted("numbers")[0].network_.log_noise_variance)) == pytest.approx(0.3, rel=1e-12)
    assert float(np.exp(fitted("two outputs")[0].network_.log_noise_variance)) < 0.99


def test_noise_goes_as_far_as_its_own_rate_lets_it() -> None:
    """Adam moves log σ² by about one rate a step: from its start at 0, by 20 steps of 0.001 and no more, or of 0.01."""
    X, y = rows()
    slow, fast = (CVAE(max_epochs=20, noise_rate=r, early_stopping=False, random_state=0).fit(X, y) for r in (1, 10))
    falls = [-float(model.network_.log_noise_variance) for model in (slow, fast)]
    assert 0.01 < falls[0] <= 0.0201 < falls[1] <= 0.201


def test_the_grid_is_searched_by_held_out_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept is, to the bit, the best of the networks trained one by one."""
    monkeypatch.setattr("gpcde.estimators.network_training.DROPOUTS", (0.5, 0.0))
    monkeypatch.setattr("gpcde.estimators.network_training.RATES", (1e-2, 1e-5))
    X, y = rows()
    whole = CVAE(dropout=None, learning_rate=None, max_epochs=20, random_state=0).fit(X, y)
    seed = int(np.random.RandomState(0).randint(2**31 - 1))
    held = split_rows(np.random.default_rng(seed), len(y), 0.2)[1]
    scores = {}
    for dropout, rate in product((0.5, 0.0), (1e-2, 1e-5)):
        one = CVAE(dropout=dropout, learning_rate=rate, max_epochs=20, random_state=0).fit(X, y)
        z = one.transform_.to_standard(y[held][:, None])
        scores[dropout, rate] = -float(
            ask(one.network_.loss, one._apply_tables(X[held]), z, np.ones(len(z)), KEY, False)
        )
        if whole.best_params_ == {"dropout": dropout, "learning_rate": rate}:
            jax.tree.map(np.testing.assert_array_equal, whole.network_, one.network_)
    best = max(scores, key=lambda pair: scores[pair])
    assert whole.best_params_ == {"dropout": best[0], "learning_rate": best[1]}


@pytest.mark.parametrize("name", ["two outputs", "categories"])
def test_a_file_holds_the_same_model(name: str, tmp_path: Path) -> None:
    model, X, y = fitted(name)
    model.save(tmp_path / "model")
    again = gpcde.load(tmp_path / "model")
    assert isinstance(again, CVAE)
    assert again.best_params_ == model.best_params_
    np.testing.assert_array_equal(again.predict_density(X).log_pdf(y), model.predict_density(X).log_pdf(y))
    np.testing.assert_array_equal(again.log_likelihood(X, y, 10), model.log_likelihood(X, y, 10))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"architecture": "large"}, r"architecture must be one of \('small', 'images'\), got 'large'"),
        ({"noise_variance": 0.0}, "noise_variance must be positive, or None to learn it, got 0.0"),
        ({"dropout": 1.0}, "dropout must be at least 0 and less than 1, got 1.0"),
        ({"noise_rate": 0.0}, "noise_rate must be positive, got 0.0"),
        ({"latent_dim": 0}, "latent_dim must be a positive integer, got 0"),
        ({"learning_rate": 0.0}, "learning_rate must be positive"),
        ({"validation_fraction": 1.0}, "validation_fraction must lie between 0 and 1, got 1.0"),
        ({"architecture": "images", "y_transform": "logit"}, "architecture='images' takes y as it is"),
    ],
)
def test_bad_settings_are_refused_by_name(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CVAE(**settings).fit(rows()[0], np.linspace(0.1, 0.9, 48))


def test_likelihoods_are_of_two_kinds() -> None:
    model, X, y = fitted("numbers")
    with pytest.raises(ValueError, match="draws must be a positive integer, got 0"):
        model.log_likelihood(X, y, 0)
    with pytest.raises(ValueError, match="method must be 'importance' or 'monte carlo', got 'guess'"):
        model.log_likelihood(X, y, method="guess")
