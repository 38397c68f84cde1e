# Everything from a fresh machine with Python 3.11+ and pip: `make demo`, `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin

.PHONY: demo test test-all suite check format docs gallery wheel benchmark reproduce clean

demo: $(VENV)/.demo
	$(BIN)/python -m gpcde.demo

# the checks beside the tests: mypy would leave a core idle
test: $(VENV)/.test
	$(MAKE) --no-print-directory --jobs 2 check suite

suite: $(VENV)/.test
	$(BIN)/python -m pytest -n 2 --dist worksteal

# also extras (the flow, dask, the pages, the explorer in a browser), the types of the tests themselves, and rarer
# combinations, which compile for long
test-all: $(VENV)/.test-all check
	$(BIN)/mypy
	$(BIN)/python -m pytest -n 2 --dist worksteal -m ''

check: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy src
	$(BIN)/lint-imports --no-cache

format: $(VENV)/.test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.docs
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs build/docs
	@echo "The pages: build/docs/index.html"

# run the examples and draw their pictures again (some minutes)
gallery: $(VENV)/.docs $(VENV)/.reproduce
	$(BIN)/python docs/gallery/run.py

# what would be published, its metadata checked
wheel: $(VENV)/.release
	rm -rf dist
	$(BIN)/python -m build --outdir dist
	$(BIN)/python -m twine check --strict dist/*

benchmark: $(VENV)/.demo
	for w in a b c d; do $(BIN)/python benchmarks/step.py --workload $$w --repeats 5 --steps 20; done

# the paper's experiments: PRESET is quick (two minutes), standard (three hours) or paper (days)
PRESET ?= quick
reproduce: $(VENV)/.reproduce
	$(BIN)/gpcde reproduce all --preset $(PRESET) --jobs 2

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[cli,plot]'
	touch $@

$(VENV)/.reproduce: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[reproduce]'
	touch $@

$(VENV)/.docs: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[docs]'
	touch $@

$(VENV)/.release: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[release]'
	touch $@

# what is imported is compiled then: all of these packages beforehand would take longer than a tenth of the tests
$(VENV)/.test $(VENV)/.test-all: $(VENV)/.%: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -e '.[$*]'
	touch $@

clean:
	rm -rf $(VENV) build dist
