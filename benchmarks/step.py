"""One training step of gpcde on the peers' workloads: same data, shapes, initial values and clock; one JSON line.

python benchmarks/step.py --workload a|b|c|d --dtype float64|float32 --repeats 5 --steps 20
python benchmarks/step.py --workload a --check      losses of a fixed batch, at the start and after natural steps
python benchmarks/step.py --workload b --rows N     with another number of rows: the cost a step stays
"""

import common


def options(parser) -> None:
    parser.add_argument("--rows", type=int, help="rows of synthetic data")
    parser.add_argument("--single", action="store_true", help="one call a step, not a compiled chunk of steps")


ARGS = common.parse("gpcde", options)
if ARGS.rows:
    common.WORKLOADS[ARGS.workload]["N"] = ARGS.rows

import importlib.metadata

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from gpcde import scope
from gpcde.inference import Batch, Draws, Geometric, Minibatches, State, Trainer
from gpcde.inference.training import run_chunk
from gpcde.model import (
    MLP,
    RBF,
    Concatenate,
    ConstantNoise,
    FreeForm,
    GaussianLatents,
    Identity,
    Model,
    PointMixing,
    Project,
    make_inputs,
)
from gpcde.prediction import Nodes, Predictor

WORKLOAD = ARGS.workload
C = common.WORKLOADS[WORKLOAD]
V = common.init_values(WORKLOAD, ARGS.dtype)


def build_model() -> Model:
    """The model at the peers' initial values."""
    if "encoder" in V:
        network = MLP(*(tuple(jnp.asarray(layer[i]) for layer in V["encoder"]) for i in (0, 1)))
        latents = GaussianLatents(network, C["Dw"])
    else:
        latents = FreeForm.create(1, C["Q"])
    if "C" in C:
        input_map = Project(jnp.asarray(V["A_mean"]), jnp.asarray(V["A_logstd"]))
        mixing = PointMixing.create(V["P"].T, precision=0.0)
    else:
        input_map, mixing = Concatenate(C["Dx"]), Identity(C["Dy"])
    kernel = RBF.create(C["Dx"] + C["Dw"], V["lengthscales"], V["variance"])
    noise = ConstantNoise.create(V["noise"])
    model = Model(kernel, jnp.asarray(V["Z"]), input_map, latents, mixing, noise, jitter=V["jitter"])
    return jax.tree.map(lambda a: jnp.asarray(a, ARGS.dtype) if eqx.is_inexact_array_like(a) else a, model)


def load(seed: int = 0) -> Batch:
    data = common.make_data(WORKLOAD, ARGS.dtype, seed)
    if "C" in C:
        x = make_inputs(codes=data["labels"], levels=(C["C"],))
        x = x._replace(dense=x.dense.astype(ARGS.dtype))
    else:
        x = make_inputs(data["X"])
    return jax.tree.map(jnp.asarray, Batch(x, data["Y"], np.arange(C["N"], dtype=np.int32), np.ones(C["N"])))


def check(trainer: Trainer, state: State, data: Batch) -> None:
    """The peers' --check: the loss of the first batch with given draws, before and after natural steps."""
    batch = data.take(jnp.arange(C["B"]))
    context = V["eps_A"][np.asarray(batch.x.codes[:, 0])] if "C" in C else np.zeros((C["B"], 0))
    latent = V["eps_w"][:, None] if "eps_w" in V else np.zeros((C["B"], 0, 0))
    draws = Draws(jnp.asarray(context, ARGS.dtype), jnp.asarray(latent, ARGS.dtype))
    losses = []
    for _ in range(4):
        terms, gradients = trainer.gradients(draws, state, batch)
        losses.append(-float(terms.bound))
        posterior = state.posterior.natural_step(gradients.coefficients, state.model.noise_variance, C["gamma"])
        state = eqx.tree_at(lambda s: s.posterior, state, posterior)
    print("check gpcde", WORKLOAD, ARGS.dtype, losses)


def main() -> None:
    rate = Geometric.create(0.01, 0.01 * 0.98**100, 100_000)
    trainer = Trainer.create(C["N"], rate, C["gamma"])
    state, data = trainer.init(build_model()), load()
    if ARGS.check:
        return check(trainer, state, data)
    key = jax.random.key(ARGS.seed)
    batches = Minibatches(key, C["N"], C["B"])
    current = [state]

    def many(count: int) -> float:
        rows = jnp.asarray(batches(int(current[0].step), count))
        chunk = run_chunk(trainer, key, current[0], data, rows, np.asarray(count), np.zeros(count))
        current[0] = chunk.state
        return -float(chunk.bounds[count - 1])

    predict = None
    if WORKLOAD == "b":
        test = load(seed=7)
        x, y = test.x.take(slice(C["T"])), np.asarray(test.y[: C["T"]])
        w = np.random.default_rng(3).standard_normal((C["S"], C["Dw"])).astype(ARGS.dtype)
        nodes = Nodes(w, np.full(C["S"], -np.log(C["S"])))

        def predict() -> np.ndarray:
            state = current[0]
            return Predictor.create(state.model, state.posterior, nodes).log_density(x, y)

    versions = {name: importlib.metadata.version(name) for name in ("jax", "jaxlib", "equinox", "optax")}
    common.run(ARGS, "gpcde", versions, lambda: many(1), predict, None if ARGS.single else many)


with scope():
    main()
