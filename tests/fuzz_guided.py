"""Descriptions of models that the coverage of this package chooses to change: refused, or answering, as in `fuzz`.

    pip install atheris
    python tests/fuzz_guided.py -max_total_time=600

The input is which model's arrays to take (a byte) and a description; the file of both has a digest that fits. Half of
the changes are of the description's values, half of its bytes. Options are those of libFuzzer; it ends at the first
find, and keeps it. Atheris is no dependency of the tests.
"""

import json
import random
import sys
import tempfile
import warnings
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["gpcde"]):
    import gpcde.estimators.base
    import gpcde.estimators.gpcde
    import gpcde.runtime.files  # noqa: F401

import numpy as np

import fuzz


def main() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 2))
    y = X[:, 0] + 0.1 * rng.normal(size=30)
    canary = fuzz.Canary()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        kinds = [fuzz.Model(model.fit(X, y), X, y, folder) for model in fuzz.models(quick=False)]
        corpus = folder / "corpus"
        corpus.mkdir()
        for number, kind in enumerate(kinds):
            (corpus / str(number)).write_bytes(bytes([number]) + kind.file.metadata["description"].encode())

        def change(data: bytes, most: int, seed: int) -> bytes:
            rng = random.Random(seed)
            try:
                description = json.loads(data[1:])
            except ValueError:
                description = None
            if description is None or rng.random() < 0.5:
                return atheris.Mutate(data, most)
            for _ in range(rng.choice((1, 1, 2, 4))):
                fuzz._change_value(rng, description)
            return (data[:1] + json.dumps(description).encode())[:most]

        def once(data: bytes) -> None:
            kind = kinds[(data[:1] or b"\0")[0] % len(kinds)]
            (folder / "model").write_bytes(kind.file.sealed(data[1:].decode(errors="replace")))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                kind.check(folder, canary)

        options = [*sys.argv, f"-artifact_prefix={tempfile.gettempdir()}/", str(corpus)]
        atheris.Setup(options, once, custom_mutator=change)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
