# Every target works in a fresh clone with nothing but make and Python 3.11 or later: `.venv` is made
# and the project installed into it first, and again only when pyproject.toml or the lock has changed.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/installed
LOCK := supply_chain/requirements-dev.txt
PIP_INSTALL := -m pip install --quiet --disable-pip-version-check
# Wheels whose hashes are in the lock, and nothing else: no code runs while they are installed.
LOCKED := --require-hashes --only-binary :all: --requirement
# The tools of `make lock` and `make audit` stay out of the way of the others.
SUPPLY_CHAIN := .venv-supply-chain
TORCH := .venv-torch
JAX := .venv-jax
DOCS := .venv-docs
# Other bindings of a GPU's driver than those of .venv, a folder of packages for each: tests call a stub through all.
CUDA_LOCK := supply_chain/requirements-cuda-%.txt
BINDINGS := .venv-cuda/%/installed
ALL_BINDINGS := $(patsubst $(CUDA_LOCK),$(BINDINGS),$(wildcard $(subst %,*,$(CUDA_LOCK))))
# Two processes suit the smallest machine in use; PYTEST_ARGS adds to it or takes its place.
PYTEST := $(BIN)/python -m pytest --numprocesses 2 --dist worksteal --durations 20 $(PYTEST_ARGS)
TYPES := $(BIN)/basedpyright --pythonpath $(BIN)/python

# Tests wait for processes, and at the end for one another: the types are checked in what they leave of two cores,
# and told after them. Ctrl-C ends both.
define WITH_TYPES
@mkdir -p build
@echo 'the types are checked beside the tests, and told after them'
@$(TYPES) > build/types.txt 2>&1 & types=$$!; \
trap 'kill 0' INT; \
$(1); tested=$$?; \
wait $$types; checked=$$?; \
cat build/types.txt; \
exit $$((tested || checked))
endef

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install check format-check lint types layers test test-all test-torch test-jax test-gpu oracles lock licences audit \
	dist docs bench bench-gpu demo clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(INSTALLED) ## make .venv and install the project into it, editable, with all tools

$(INSTALLED): pyproject.toml $(LOCK)
	@echo "installing into $(VENV): a minute or two the first time"
	@$(PYTHON) -c 'import sys; sys.exit("dlc needs Python 3.11 or later: make PYTHON=... names one" \
		if sys.version_info < (3, 11) else 0)'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python $(PIP_INSTALL) $(LOCKED) $(LOCK)
	@rm -rf *.egg-info # one of an earlier installation would be read in place of the new facts
	$(BIN)/python $(PIP_INSTALL) --no-deps --no-build-isolation --editable .
	@touch $@

check: format-check lint types layers ## the gate: layout, lint, types, layers

format-check: $(INSTALLED)
	$(BIN)/ruff format --check .

lint: $(INSTALLED)
	$(BIN)/ruff check .

types: $(INSTALLED)
	$(TYPES) --threads 2

layers: $(INSTALLED)
	$(BIN)/lint-imports

test: format-check lint layers $(ALL_BINDINGS) ## the gate and the quick suite: every test but the long ones
	$(call WITH_TYPES,$(PYTEST))

test-all: format-check lint layers $(ALL_BINDINGS) ## the gate and every test, the long ones too
	$(call WITH_TYPES,$(PYTEST) -m "")

$(BINDINGS): $(CUDA_LOCK) | $(INSTALLED)
	@rm -rf $(@D) && mkdir -p $(@D)
	$(BIN)/python $(PIP_INSTALL) --no-deps $(LOCKED) $< --target $(@D)
	@touch $@

oracles: ## make the environments of the other readers of IR that tests compare with
	PYTHON=$(PYTHON) sh tests/oracles/make.sh

$(SUPPLY_CHAIN)/installed: supply_chain/requirements-supply-chain.txt
	test -x $(SUPPLY_CHAIN)/bin/python || $(PYTHON) -m venv $(SUPPLY_CHAIN)
	$(SUPPLY_CHAIN)/bin/python $(PIP_INSTALL) $(LOCKED) $<
	@touch $@

lock: $(SUPPLY_CHAIN)/installed ## make the lock again after a change of pyproject.toml; LOCK_ARGS=--upgrade for newer versions
	sh supply_chain/lock.sh $(LOCK_ARGS)

licences: $(INSTALLED) ## list the licences of what dlc needs and is made with; fails for one that is not allowed
	$(BIN)/python -m supply_chain.licences

audit: $(SUPPLY_CHAIN)/installed ## ask whether the locked packages have known vulnerabilities; needs a network
	$(SUPPLY_CHAIN)/bin/python -m supply_chain.audit $(AUDIT_ARGS)

dist: $(INSTALLED) ## build the source archive and the wheel into dist/, with their bill of materials (SBOM)
	SOURCE_DATE_EPOCH=$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct)} $(BIN)/python -m supply_chain.dist dist

bench: benchmarks/__main__.py $(INSTALLED) ## time dlc side by side with its peers; writes out/bench
	$(BIN)/python -m benchmarks

demo: $(INSTALLED) ## a model through every level, then a face detector on a photograph
	$(BIN)/python examples/demo.py
	@echo "\n== a face detector, from text to a picture in out/ =="
	$(BIN)/python examples/face_detector.py

# The generator of the site is no part of the lock; dlc itself brings the colours of model text.
$(DOCS)/installed: pyproject.toml
	test -x $(DOCS)/bin/python || $(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/python $(PIP_INSTALL) --editable '.[docs]'
	@touch $@

docs: $(DOCS)/installed ## make the site of the documents in build/docs/site, with a search; links are checked
	$(DOCS)/bin/python docs/site/build.py
	@echo "read it at http://127.0.0.1:8000: $(PYTHON) -m http.server -b 127.0.0.1 -d build/docs/site"

# PyTorch is large and no part of the lock: its tests have an environment of their own.
$(TORCH)/installed: pyproject.toml
	test -x $(TORCH)/bin/python || $(PYTHON) -m venv $(TORCH)
	$(TORCH)/bin/python $(PIP_INSTALL) 'torch==2.13.0' 'pytest>=9,<10' --editable '.[torch]'
	@touch $@

test-torch: $(TORCH)/installed ## the tests of what is imported from PyTorch, in .venv-torch
	$(TORCH)/bin/python -m pytest -m "" tests/importers/torch tests/driver/torch \
		tests/benchmarks/fuzz/test_contender_steps.py

# JAX is no part of the lock either.
$(JAX)/installed: pyproject.toml
	test -x $(JAX)/bin/python || $(PYTHON) -m venv $(JAX)
	$(JAX)/bin/python $(PIP_INSTALL) 'jax==0.10.2' 'flax==0.12.8' 'absl-py>=2,<3' 'pytest>=9,<10' --editable '.[jax]'
	@touch $@

test-jax: $(JAX)/installed ## the tests of what is imported from JAX and called by it, in .venv-jax
	$(JAX)/bin/python -m pytest -m "" tests/importers/stablehlo tests/driver/jax tests/benchmarks/test_jax_programs.py \
		tests/benchmarks/test_zoo_jax.py tests/benchmarks/fuzz/test_contender_jaxpr.py

# A machine with a GPU brings its own Python packages: no .venv, nothing is installed.
test-gpu: ## the GPU tests, from this checkout with the Python at hand, SECONDS=N of them at a time; writes out/gpu/tests.md, and to OUT
	$(PYTHON) -m pytest -m gpu tests/gpu $(if $(SECONDS),--seconds $(SECONDS)) $(if $(OUT),--out $(OUT)) \
		$(if $(COMPILE_FOR),--compile-for $(COMPILE_FOR))

bench-gpu: ## the GPU timings, likewise
	$(PYTHON) -m benchmarks.gpu

clean: ## remove .venv and everything that was built
	rm -rf $(VENV) build dist out *.egg-info .pytest_cache .ruff_cache .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
