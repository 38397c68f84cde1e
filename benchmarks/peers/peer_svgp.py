"""Sparse GP regression in GPflow 2, as its users train it; a line of CPU seconds and test score now and then.

    python peer_svgp.py data.npz
"""
import json
import os
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import gpflow
import numpy as np
import tensorflow as tf

INDUCING, BATCH, ASKED = 192, 256, (50, 100, 200, 400, 800, 1600, 3200)

data = np.load(sys.argv[1])
centre, scale = data["X_train"].mean(0), data["X_train"].std(0)
X, X_test = ((data[name] - centre) / scale for name in ("X_train", "X_test"))
middle, unit = data["y_train"].mean(), data["y_train"].std()
y, y_test = ((data[name][:, None] - middle) / unit for name in ("y_train", "y_test"))
rng = np.random.default_rng(0)
kernel = gpflow.kernels.SquaredExponential(lengthscales=np.full(X.shape[1], X.shape[1] ** 0.5))
places = X[rng.choice(len(X), INDUCING, replace=False)]
model = gpflow.models.SVGP(kernel, gpflow.likelihoods.Gaussian(0.1), places, num_data=len(X))
gpflow.set_trainable(model.q_mu, False)
gpflow.set_trainable(model.q_sqrt, False)
natural, adam = gpflow.optimizers.NaturalGradient(gamma=0.1), tf.optimizers.Adam(0.01)


@tf.function
def step(x, z):
    natural.minimize(lambda: model.training_loss((x, z)), [(model.q_mu, model.q_sqrt)])
    with tf.GradientTape() as tape:
        loss = model.training_loss((x, z))
    adam.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))


def batch():
    rows = rng.choice(len(X), BATCH, replace=False)
    return tf.constant(X[rows]), tf.constant(y[rows])


step(*batch())  # traces
cpu, done = 0.0, 0
for end in ASKED:
    began = time.process_time()
    for _ in range(end - done):
        step(*batch())
    cpu, done = cpu + time.process_time() - began, end
    score = float(np.mean(model.predict_log_density((X_test, y_test)))) - float(np.log(unit))
    print(json.dumps({"bound": end, "cpu": round(cpu, 2), "log_density": round(score, 4)}), flush=True)
