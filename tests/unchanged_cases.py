"""Small seeded cases whose numbers should outlive a change of the code, and the script that records them.

    python unchanged_cases.py [recorded.npz]

`measure(name)` is a dictionary of named arrays. All that knows how gpcde calls its parts is in the first section; the
names under which numbers are recorded are those of the mathematics (docs/design.md).
"""

import os

os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false")

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

import gpcde
from gpcde import inference, model
from gpcde.inference import Minibatches
from gpcde.inference.bound import draw
from gpcde.prediction import Nodes, Predictor, draw_path, importance_log_density, infer
from gpcde.prediction.predictor import make_predictor

Numbers = dict[str, Any]
Data = dict[str, Any]

RECORDED = Path(__file__).with_name("recorded.npz")

# what knows the names of gpcde


def make_inputs(data: Data) -> Any:
    """Inputs from dense columns and codes, either of which may be missing."""
    return model.make_inputs(data.get("dense"), data.get("codes"), data.get("levels", ()), len(data["y"]))


def make_batch(data: Data) -> Any:
    """All rows."""
    return inference.whole(make_inputs(data), data["y"])


def first_state(data: Data, design: dict[str, Any]) -> Any:
    """Where training starts."""
    design = {"inducing": 8, "trials": 1, "levels": data.get("levels", ()), **design}
    return inference.start(jax.random.key(3), make_inputs(data), data["y"], inference.Design(**design))


def by_adam(state: Any, rows: int) -> Any:
    """The state with a q(u) that Adam optimises, one S for all outputs."""
    q = state.posterior.resolve(state.model.mixing, state.model.noise_variance)
    m = len(state.model.inducing_points)
    root = q.root if hasattr(q, "root") else 0.3 * jnp.eye(m) + 0.01 * jnp.tril(jnp.ones((m, m)))
    return inference.Trainer.create(rows).init(state.model, inference.Shared(q.mean, root), own_latents(state))


def trained(state: Any, data: Data, steps: int, batch_size: int, gammas: tuple[float, float]) -> tuple[Any, float]:
    """The state after that many steps with step sizes that change, and the last bound."""
    rows = len(data["y"])
    rate, gamma = inference.Geometric.create(0.03, 0.01, 20), inference.Geometric.create(*gammas, 20)
    trainer = inference.Trainer.create(rows, rate, gamma)
    state, records = inference.train(trainer, jax.random.key(4), state, make_batch(data), steps, batch_size)
    return state, records[-1].bound


def best_posterior(state: Any, data: Data) -> Any:
    """The state with q(u) at its optimum, in two batches."""
    rows = len(data["y"])
    trainer = inference.Trainer.create(rows)
    return inference.optimal_posterior(trainer, jax.random.key(8), state, make_batch(data), rows // 2)


@jax.jit
def numbers(state: Any, batch: Any, x: Any, y: Any, nodes: tuple[Any, Any, Any]) -> dict[str, Numbers]:
    """The bound of all rows with fixed noise, what was learnt, and the mixtures of other rows; compiled as one."""
    rows = batch.y.shape[0]
    draws = draw(jax.random.key(5), state.model, rows)
    terms = inference.evaluate_bound(state.model, state.posterior, batch, draws, rows, own_latents(state))
    mixture = make_predictor(state.model, state.posterior, Nodes(*nodes)).at_nodes(x)
    return {
        "terms": {"bound": terms.bound, "data": terms.data, "kl_u": terms.kl_u, "penalty": terms.penalty},
        "learnt": learnt(state),
        "log density": {"log density": mixture.log_density(y)},
        "mixture": {
            "mixture mean": mixture.means(),
            "mixture variance": mixture.variance,
            "mixture outside": mixture.outside,
        },
    }


def blocked_log_density(state: Any, data: Data, nodes: tuple[Any, Any, Any]) -> np.ndarray:
    """The log density by the function that takes rows in blocks."""
    return Predictor.create(state.model, state.posterior, Nodes(*nodes)).log_density(make_inputs(data), data["y"])


def latent_posterior(state: Any, data: Data) -> Numbers:
    """q(w|x, y)."""
    q = infer(state.model, state.posterior, make_inputs(data), data["y"])
    out = {"infer mean": q.mean, "infer std": q.std}
    if q.weights is not None:
        out["infer weights"] = (q.weights**2).sum(1)
    return out


def importance(state: Any, data: Data) -> Numbers:
    """log p(y|x) by importance sampling."""
    inputs = make_inputs(data)
    got = importance_log_density(state.model, state.posterior, inputs, data["y"], draws=30, fit_steps=10, seed=1)
    return {"importance": got.log_density, "importance effective": got.effective}


def along_a_path(state: Any, data: Data, w: np.ndarray) -> Numbers:
    """f at some x and w along one draw of it, and the A and P drawn with it."""
    path = draw_path(jax.random.key(6), state.model, state.posterior)
    out = {"path f": path.functions(make_inputs(data), jnp.asarray(w))}
    base = getattr(path.model.input_map, "base", path.model.input_map)
    drawn = {"path A": getattr(base, "mean", None), "path P": getattr(path.model.mixing, "value", None)}
    return out | {name: value for name, value in drawn.items() if value is not None}


def own_latents(state: Any) -> Any:
    """Each data point's own parameters of q(w), if there are any."""
    return None if state.local is None else state.local.value


def noise_width(state: Any) -> int:
    """How many standard normal numbers A x needs."""
    return state.model.input_map.draw_dim


def latent_dim(state: Any) -> int:
    """D_w."""
    return state.model.latents.dim


def _kernel_numbers(kernel: Any) -> list[tuple[Any, Any]]:
    if hasattr(kernel, "first"):
        return _kernel_numbers(kernel.first) + _kernel_numbers(kernel.second)
    return [(kernel.variance, kernel.lengthscales)]


def _network_numbers(name: str, network: Any) -> Numbers:
    if network is None:
        return {}
    layers = list(zip(network.weights, network.biases, strict=True))
    return {f"{name} {kind} {i}": layers[i][j] for i in range(len(layers)) for j, kind in enumerate(("weight", "bias"))}


def learnt(state: Any) -> Numbers:
    """All that was learnt, under the names of the mathematics."""
    trained, posterior = state.model, state.posterior
    out: dict[str, Any] = {"noise variance": trained.noise_variance, "Z": trained.inducing_points}
    parts = _kernel_numbers(trained.kernel)
    out["kernel variances"] = jnp.stack([variance for variance, _ in parts])
    out["lengthscales"] = jnp.concatenate([scales for _, scales in parts])

    wide = jax.tree.map(lambda a: a.astype(float), trained.mixing)
    if hasattr(posterior, "G"):
        out["G"], out["H"] = _lower(posterior.G), posterior.H
        q = posterior.resolve(wide, trained.noise_variance)
    else:
        q = posterior
        out["q(u) root"] = _lower(q.root)
    coefficients = q.coefficients(wide)
    out |= {"q(u) mean": q.mean, "C": _lower(coefficients.quadratic), "W": coefficients.linear}

    base = getattr(trained.input_map, "base", trained.input_map)
    if hasattr(base, "log_std"):
        out |= {"A mean": base.mean, "A log std": base.log_std}
    out |= _network_numbers("map", getattr(trained.input_map, "network", None))
    out |= _network_numbers("recognition", getattr(trained.latents, "recognition", None))
    if hasattr(trained.latents, "nodes"):
        out |= {"nodes": trained.latents.nodes, "log weights": trained.latents.log_weights}
    if own_latents(state) is not None:
        out["own latents"] = own_latents(state)

    mixing = trained.mixing
    if hasattr(mixing, "expected"):
        out |= {"P": mixing.expected, "PᵀP": mixing.second_moment()}
    for name, field in {"P log std": "log_std", "P covariance": "covariance", "P log scale": "log_scale"}.items():
        if hasattr(mixing, field):
            out[name] = getattr(mixing, field)
    return out


def make_kernels() -> dict[str, Any]:
    """Every kernel there is, of three columns."""
    rbf = model.RBF.create(3, [0.7, 1.1, 1.9], 1.3)
    matern = model.Matern32.create((0, 2), [0.8, 1.2], 0.9)
    return {
        "rbf": rbf,
        "matern32": matern,
        "matern52": model.Matern52.create(3, 1.1, 0.6),
        "linear": model.Linear.create((1, 2), [0.4, 1.5]),
        "polynomial": model.Polynomial.create(3, 2, 0.7, 0.5),
        "sum": rbf + model.Linear.create(3, 0.3),
        "product": model.Matern52.create((0, 1), 0.9, 1.2) * model.RBF.create((2,), 1.4),
    }


def kernel_values(kernel: Any, x: Any, z: Any, split: int) -> Numbers:
    """k(x, z), its Gram matrix and diagonal, and its factors where it separates."""
    out = {"rows": kernel(x, z), "gram": _lower(kernel.gram(z)), "diag": kernel.diag(x)}
    pair = kernel.separate(split)
    if pair is not None:
        out["left"], out["right"] = pair[0](x[:, :split], z[:, :split]), pair[1](x[:, split:], z[:, split:])
    return out


def expected_kernel(kernel: Any, mean: Any, covariance: Any, z: Any) -> Numbers:
    """Kernel expectations in closed form."""
    psi = kernel.expectations(mean, covariance, z, jnp.ones(len(mean)))
    return {"psi0": psi.psi0, "psi1": psi.psi1, "psi2": _lower(psi.psi2)}


def number_free_pieces() -> Numbers:
    """What is computed from numbers alone: quadrature, schedules, batches, starts of P."""
    out: dict[str, Any] = {}
    for points, dim in ((9, 1), (4, 2)):
        for name, rule in (("gauss-hermite", model.gauss_hermite), ("even", model.evenly_spaced)):
            nodes, log_weights = rule(points, dim)
            out |= {f"{name} {dim} nodes": nodes, f"{name} {dim} log weights": log_weights}
    schedule = inference.Geometric.create(0.3, 0.01, 10)
    out["schedule"] = np.array([float(schedule(jnp.asarray(t))) for t in (0, 3, 10, 15)])
    out["minibatches"] = Minibatches(jax.random.key(2), 11, 4)(1, 5)
    out["grid start"] = model.grid_start(3, 4, 3, 1.5)
    out["principal start"] = model.principal_start(DATA["curve"]["y"], 2)
    return out


FREE: dict[str, Any] = {"input_map": "bend", "points": 30, "rule": "even"}
DRAWN: dict[str, Any] = {"input_map": "bend", "expectation": "importance", "draws": 10}


def by_design(**said: Any) -> Any:
    """GPCDE with the model that 0.1.0 had by default, given by its design."""
    y = {name: said.pop(name) for name in ("y_transform", "y_bounds") if name in said}
    return gpcde.GPCDE(
        design=inference.Design(**{"inducing": 8, "trials": 1} | said), max_steps=50, random_state=0, **y
    )


def directions() -> np.ndarray:
    """The start of P: of outputs with one unit for all."""
    y = rows(outputs=3)[1]
    return model.principal_start((y - y.mean(0)) / np.sqrt(y.var(0).mean()), 2)


ESTIMATORS: dict[str, tuple[Callable[[], Any], Callable[[], tuple[Any, np.ndarray]]]] = {
    "GPCDE none": (lambda: by_design(inference="none", latent_dim=0), lambda: rows()),
    "GPCDE free-form": (lambda: by_design(**FREE), lambda: rows()),
    "GPCDE amortised": (lambda: by_design(inference="amortised", **DRAWN), lambda: rows()),
    "GPCDE gaussian": (lambda: by_design(inference="gaussian", **DRAWN), lambda: rows()),
    "GPCDE categories": (lambda: by_design(input_dim=4, **FREE), lambda: frame()),
    "GPCDE P": (lambda: by_design(mixing=directions(), **FREE), lambda: rows(outputs=3)),
    "GPCDE two outputs": (lambda: by_design(kernel="matern32", **FREE), lambda: rows(outputs=2)),
    "GPCDE log": (
        lambda: by_design(inference="none", latent_dim=0, y_transform="log", y_bounds=(-50, np.inf)),
        lambda: (rows()[0], rows()[1] - 40),
    ),
    "LinearGaussian": (lambda: gpcde.LinearGaussian(), lambda: frame()),
    "ConditionalKDE": (lambda: gpcde.ConditionalKDE(random_state=0), lambda: frame()),
}
"""GPCDE as it was, and one of each other kind."""


# the data


def _lower(matrix: Any) -> Any:
    """The lower triangle of a matrix, by rows."""
    return matrix[np.tril_indices(len(matrix))]


def _drawn(seed: int, n: int, inputs: int, outputs: int) -> tuple[np.ndarray, np.ndarray]:
    """Two branches with some curvature, in standard units or near them."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, inputs))
    sign = rng.choice([-1.0, 1.0], size=(n, 1))
    slopes = np.linspace(1.0, -0.6, outputs)
    y = sign * np.sin(x[:, :1] + slopes) + 0.3 * x[:, -1:] * slopes + 0.15 * rng.normal(size=(n, outputs))
    return x, y


def _dense(seed: int, inputs: int, outputs: int) -> Data:
    x, y = _drawn(seed, 55, inputs, outputs)
    return {"dense": x, "y": y}


def _towns(seed: int) -> Data:
    x, y = _drawn(seed, 55, 1, 1)
    rng = np.random.default_rng([seed, 1])
    codes = np.stack([rng.integers(3, size=55), rng.integers(2, size=55)], axis=1)
    return {"dense": x, "codes": codes, "levels": (3, 2), "y": y + 0.5 * codes[:, :1] - 0.5}


DATA: dict[str, Data] = {
    "line": _dense(0, 2, 1),
    "pair": _dense(1, 2, 2),
    "curve": _dense(3, 2, 3),
    "towns": _towns(4),
}

TRAINING, STEPS = 48, 20
"""Rows to train on (the seven others are held out), and for how many steps."""


def part(name: str, training: bool) -> Data:
    """The rows to train on, or those held out."""
    some = slice(None, TRAINING) if training else slice(TRAINING, None)
    return {key: value if key == "levels" else value[some] for key, value in DATA[name].items()}


def rows(n: int = 48, seed: int = 0, outputs: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Two inputs; y is the first, or minus it, in units of its own (each output its own sign and units)."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    sign = rng.choice([-1.0, 1.0], size=(n, outputs))
    y = 3 + (sign * X[:, :1] + 0.1 * rng.normal(size=(n, outputs))) * np.arange(2, 2 + outputs)
    return X, y[:, 0] if outputs == 1 else y


def frame(n: int = 48, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    """A number, a text, a category of numbers; the text decides where y lies."""
    X, y = rows(n, seed)
    rng = np.random.default_rng([seed, 1])
    place, level = rng.integers(3, size=n), rng.integers(2, size=n)
    table = pd.DataFrame({"a": X[:, 0], "town": np.array(["x", "y", "z"])[place], "level": pd.Categorical(level * 10)})
    return table, y + 5 * place


# the cases of the library

P = np.array([[1.0, 0.3], [0.6, -0.7], [-0.4, 0.9]])

HERMITE: dict[str, Any] = {"inference": "free-form", "points": 12}
EVEN: dict[str, Any] = {"inference": "free-form", "points": 30, "rule": "even", "input_map": "bend"}
SMALL: dict[str, Any] = {"inference": "amortised", "hidden": (8, 8)}
PROJECT: dict[str, Any] = {"input_map": "project", "input_dim": 4}

CASES: dict[str, dict[str, Any]] = {
    # models that the estimators below have too, so that what is compiled serves both
    "none": {"data": "line", "design": {"inference": "none"}, "also": ("optimum",)},
    "free-form, even, bend": {"data": "line", "design": EVEN, "also": ("path", "infer")},
    "free-form, even, bend, A of categories": {"data": "towns", "design": {**EVEN, "input_dim": 4}, "also": ("path",)},
    "free-form, even, bend, P Gaussian": {"data": "curve", "design": {**EVEN, "mixing": P}, "also": ("path",)},
    "amortised, importance, bend": {
        "data": "line",
        "design": {"inference": "amortised", "expectation": "importance", "draws": 10, "input_map": "bend"},
        "also": ("importance", "infer"),
    },
    # and others
    "none, A, P by MAP, fixed noise": {
        "data": "curve",
        "design": {
            **PROJECT,
            "input_dim": 2,
            "inference": "none",
            "mixing": P,
            "mixing_posterior": "map",
            "noise_variance": 0.05,
        },
    },
    "free-form": {"data": "line", "design": HERMITE, "also": ("infer", "blocks")},
    "free-form, two latents, matern32, two outputs, Shared": {
        "data": "pair",
        "design": {**HERMITE, "points": 5, "latent_dim": 2, "kernel": "matern32"},
        "shared": True,
    },
    "free-form, even, two latents, warp, matern52, P fixed, three starts": {
        "data": "curve",
        "design": {
            **EVEN,
            "points": 5,
            "latent_dim": 2,
            "input_map": "warp",
            "kernel": "matern52",
            "mixing": P,
            "mixing_posterior": "fixed",
            "trials": 3,
        },
        "also": ("path",),
    },
    "free-form, A of categories, float32": {
        "data": "towns",
        "design": {**HERMITE, **PROJECT, "dtype": "float32", "jitter": 1e-6},
    },
    "amortised, closed, A of categories": {
        "data": "towns",
        "design": {**SMALL, **PROJECT, "expectation": "closed"},
    },
    "amortised, two latents, full, draws, warp, P conjugate": {
        "data": "curve",
        "design": {
            **SMALL,
            "latent_dim": 2,
            "full_covariance": True,
            "draws": 3,
            "input_map": "warp",
            "mixing": P,
            "mixing_posterior": "conjugate",
        },
        "batch": 20,
        "also": ("path",),
    },
    "gaussian, two latents, full, closed": {
        "data": "line",
        "design": {"inference": "gaussian", "latent_dim": 2, "expectation": "closed", "full_covariance": True},
        "batch": 20,
    },
}

TOLERANCE: dict[str, float] = {"free-form, A of categories, float32": 1e-5}
"""Where 1e-9 is too much to ask."""


def _library(case: dict[str, Any]) -> Numbers:
    data, test = part(case["data"], True), part(case["data"], False)
    state = first_state(data, case["design"])
    batch = make_batch(data)
    rng = np.random.default_rng(7)
    w = rng.normal(size=(5, latent_dim(state)))
    noise = rng.normal(size=(5, noise_width(state))) if noise_width(state) else None
    nodes = w, np.log(np.array([0.1, 0.3, 0.2, 0.25, 0.15])), noise

    def now(*kinds: str) -> Numbers:
        got = numbers(state, batch, make_inputs(test), test["y"], nodes)
        return {name: value for kind in kinds for name, value in got[kind].items()}

    if case.get("shared"):
        state = by_adam(state, TRAINING)
    out: Numbers = {f"start {name}": value for name, value in now("terms", "log density").items()}
    gammas = (0.2, 0.5) if "batch" not in case else (0.1, 0.3)
    state, bound = trained(state, data, STEPS, case.get("batch", TRAINING), gammas)
    out["last bound"] = np.asarray(bound)
    out |= now("terms", "learnt", "log density", "mixture")
    also = case.get("also", ())
    if "blocks" in also:
        out["log density, in blocks"] = blocked_log_density(state, test, nodes)
    if "infer" in also:
        out |= latent_posterior(state, test)
    if "importance" in also:
        out |= importance(state, test)
    if "path" in also:
        out |= along_a_path(state, test, w[:3])
    if "optimum" in also:
        state = best_posterior(state, data)
        out |= {f"optimum {name}": value for name, value in now("terms", "log density").items()}
    return out


def _estimator(name: str) -> Numbers:
    make, data = ESTIMATORS[name]
    X, y = data()
    fitted = make().fit(X, y)
    some, there = X[:7], y[:7]
    density = fitted.predict_density(some)
    line = np.linspace(y.min() - 0.5, y.max() + 0.5, 9)
    grid = line if y.ndim == 1 else np.stack([line, *[line[::-1]] * (y.shape[1] - 1)], axis=1)
    out: dict[str, Any] = {
        "score": fitted.score(some, there),
        "mean": fitted.predict(some),
        "std": density.std(),
        "log pdf": density.log_pdf(there),
        "log pdf grid": np.log(density.pdf_grid(grid) + 1e-300),
        "cdf": density.cdf(there),
        "quantile": density.quantile([0.1, 0.5, 0.9]),
        "crps": density.crps(there),
    }
    if hasattr(fitted, "history_"):
        out |= {f"history {key}": fitted.history_[key] for key in ("step", "bound", "noise_variance")}
        out["history validation"] = np.nan_to_num(fitted.history_["validation"])
        band = fitted.sample_densities(some, 3, random_state=1).band(0.8, grid)
        out |= {"band lower": band.lower, "band mean": band.mean, "band upper": band.upper}
        if fitted.design.inference != "none":
            q = fitted.infer_latent(some, there)
            out |= {"latent mean": q.mean, "latent std": q.std}
    return out


def _kernel_pieces() -> Numbers:
    rng = np.random.default_rng(8)
    x, z, roots = rng.normal(size=(5, 3)), rng.normal(size=(4, 3)), 0.5 * rng.normal(size=(5, 3, 3))
    return _of_kernels(make_kernels(), x, z, roots @ roots.swapaxes(1, 2))


@jax.jit
def _of_kernels(kernels: dict[str, Any], x: Any, z: Any, full: Any) -> Numbers:
    out: Numbers = {}
    for name, kernel in kernels.items():
        out |= {f"{name} {key}": value for key, value in kernel_values(kernel, x, z, 2).items()}
        if name in ("rbf", "linear", "polynomial"):
            for kind, covariance in (("diagonal", jnp.diagonal(full, axis1=1, axis2=2)), ("full", full)):
                psi = expected_kernel(kernel, x, covariance, z)
                out |= {f"{name} {kind} {key}": value for key, value in psi.items()}
    return out


PIECES: dict[str, Callable[[], Numbers]] = {"kernels": _kernel_pieces, "numbers": number_free_pieces}

NAMES = [*PIECES, *CASES, *ESTIMATORS]

LARGE, KEPT = 150, 40
"""Of an array with more numbers than this, that many are kept, with sums that know of all."""


def _compact(array: Any) -> np.ndarray:
    values = np.asarray(array, np.float64)
    if values.size <= LARGE:
        return values
    flat = values.ravel()
    sums = [flat.sum(), (flat**2).sum(), (flat * np.cos(np.arange(flat.size))).sum()]
    return np.concatenate([flat[np.linspace(0, flat.size - 1, KEPT).astype(int)], sums])


def measure(name: str) -> Numbers:
    """The numbers of a case, by name."""
    with gpcde.scope():
        if name in PIECES:
            out = PIECES[name]()
        elif name in CASES:
            out = _library(CASES[name])
        else:
            out = _estimator(name)
        return {key: _compact(value) for key, value in out.items()}


# the file: one vector for each case, and what it is made of as JSON


def write(path: Path, cases: dict[str, Numbers]) -> None:
    """Record these cases."""
    index = {name: {key: list(value.shape) for key, value in numbers.items()} for name, numbers in cases.items()}
    vectors = {
        str(i): np.concatenate([value.ravel() for value in numbers.values()])
        for i, numbers in enumerate(cases.values())
    }
    np.savez_compressed(path, index=np.frombuffer(json.dumps(index).encode(), np.uint8), **vectors)  # type: ignore[arg-type]


def read(path: Path) -> dict[str, Numbers]:
    """What was recorded."""
    out: dict[str, Numbers] = {}
    with np.load(path) as file:
        for i, (name, shapes) in enumerate(json.loads(file["index"].tobytes()).items()):
            ends = np.cumsum([int(np.prod(shape)) for shape in shapes.values()])
            pieces = np.split(file[str(i)], ends[:-1])
            out[name] = {key: p.reshape(shape) for p, (key, shape) in zip(pieces, shapes.items(), strict=True)}
    return out


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else RECORDED, {name: measure(name) for name in NAMES})
