# One entry for people and machines. Every target makes its own environment in .venv first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Without bytecode: most of what is installed is never imported, and the rest is compiled then,
PIP := -m pip install --quiet --disable-pip-version-check --no-compile
# once: without bytecode, each of the hundreds of processes that tests start would compile it.
unexport PYTHONDONTWRITEBYTECODE

# Clones share machine code, and what mypy has found in files of the same content, so that a fresh clone
# does only what is new. Code is named after its sources, but not after the modules that compile it
# (MAKERS): each version of these has a folder.
KERNELS := dpexec/engine/kernels
MAKERS := $(addprefix $(KERNELS)/,by_numba.py compiling.py identity.py loading.py)
SHARED := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/dpexec-clones
VERSION := $(shell cat $(MAKERS) | cksum | cut -d' ' -f1)
export NUMBA_CACHE_DIR := $(or $(NUMBA_CACHE_DIR),$(SHARED)/$(VERSION))

# $(call install,PYTHON,PACKAGES). uv takes a quarter of pip's processor time and a tenth of the time;
# where it is missing, or fails, pip installs, and says what is wrong.
install = $(BIN)/uv pip install --quiet --python $(1) $(2) 2>/dev/null || $(1) $(PIP) $(2)

# Of tests: two more than cores, as many tests wait for other processes, or for a limit to be over.
PROCESSES = $(shell n=$$(nproc 2>/dev/null || echo 2); echo $$((n < 4 ? n + 2 : 6)))

# CUDA's major version that the driver has, and the GPU peers of the benchmarks for it.
DRIVER = $(shell nvidia-smi 2>/dev/null | sed -n 's/.*CUDA.*Version: *\([0-9]*\).*/\1/p')
CUDA = $(if $(filter 12,$(DRIVER)),12,13)
PEER_torch ?= torch
PEER_jax ?= "jax[cuda$(CUDA)]"

.DEFAULT_GOAL := help
.PHONY: help demo lab test tests kernels wheel style types gpu gpubench notebooks browser page pictures docs lint format chaos bench clean

help: ## this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /  make \1\t/'

demo: $(VENV)/demo.stamp ## train the digit classifier on two replicas
	$(BIN)/dpexec demo digits

lab: $(VENV)/notebook.stamp ## open the notebooks in JupyterLab; e.g. ARGS="--no-browser"
	cd notebooks && ../$(BIN)/jupyter trust *.ipynb >/dev/null  # else JupyterLab hides their pictures
	cd notebooks && ../$(BIN)/jupyter lab $(ARGS) 01_quickstart.ipynb

test: style ## lint, types and tests
	+@$(MAKE) --no-print-directory -j3 types tests

tests: browser $(VENV)/test.stamp $(VENV)/kernels.stamp
	$(BIN)/python -m pytest -n $(PROCESSES) --dist loadfile --no-loadscope-reorder

kernels: $(VENV)/kernels.stamp ## compile ahead what first steps need

wheel: $(VENV)/test.stamp ## build the wheel, with kernels for all that this processor can be
	rm -rf $(KERNELS)/packs
	for family in 2 3 4; do \
	  DPEXEC_PROCESSOR=x86-64-v$$family $(BIN)/python -m dpexec kernels --pack || echo "without x86-64-v$$family"; done
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .

gpu: $(VENV)/test.stamp $(VENV)/cuda.stamp ## test what needs a GPU; says what it skipped
	$(BIN)/python -m pytest -rs tests/gpu || [ $$? = 5 ]  # 5: without a GPU there is no test

gpubench: $(VENV)/cuda.stamp $(VENV)-torch/stamp $(VENV)-jax/stamp ## compare with PyTorch and JAX on a GPU; e.g. ARGS="W1 --json w1.json"
	DPEXEC_PEER_TORCH=$(VENV)-torch/bin/python DPEXEC_PEER_JAX=$(VENV)-jax/bin/python \
	  $(BIN)/python -m tests.benchmarks --device gpu $(ARGS)

lint: style types ## ruff and mypy

style: $(VENV)/test.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/test.stamp
	@[ -d .mypy_cache ] || ! [ -d "$(SHARED)/mypy" ] || \
	  cp -rp "$(SHARED)/mypy" .mypy_cache || rm -rf .mypy_cache  # another clone may replace it now
	$(BIN)/mypy
	@mkdir -p "$(SHARED)" && cp -rp .mypy_cache "$(SHARED)/mypy.$$$$" && rm -rf "$(SHARED)/mypy" && \
	  { mv -T "$(SHARED)/mypy.$$$$" "$(SHARED)/mypy" || rm -rf "$(SHARED)/mypy.$$$$"; } || true

notebooks: $(VENV)/test.stamp ## run the notebooks and store what they show
	$(BIN)/python -m tests.notebooks

# The interactive page is tested in headless Chromium, and in Firefox where somebody installed it.
browser:
	@command -v chromium >/dev/null && command -v chromedriver >/dev/null || { \
	  [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq && \
	  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
	    chromium chromium-driver >/dev/null; } || \
	  echo "no headless browser: tests of the interactive page are skipped" >&2

docs: $(VENV)-docs/stamp ## build the site into docs/_build; ARGS=serve shows it
	$(VENV)-docs/bin/python -m sphinx -W -n --keep-going -q -j auto -d docs/_build/doctrees docs docs/_build/html
	$(if $(filter serve,$(ARGS)),$(VENV)-docs/bin/python -m http.server -d docs/_build/html -b 127.0.0.1 8000)

page: ## build the interactive page of viz from viz/web; needs node 20
	cd viz/web && npm ci --ignore-scripts --no-audit --no-fund && npm run build

pictures: $(VENV)/test.stamp browser ## take the pictures in docs/pictures from a real run
	$(BIN)/python -m tests.viz.pictures docs/pictures

format: $(VENV)/test.stamp ## let ruff rewrite the sources
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

chaos: $(VENV)/test.stamp ## train in a storm of faults; e.g. ARGS="--kills 200 --steps 2000"
	$(BIN)/python -m tests.distributed.chaos $(ARGS)

bench: $(VENV)/test.stamp ## compare with other frameworks; e.g. ARGS="W1 --against torch-ddp"
	$(BIN)/python -m tests.benchmarks $(ARGS)

clean: ## remove the environment, caches and what runs wrote
	rm -rf $(VENV) $(VENV)-* build dist docs/_build docs/api docs/notebooks docs/project *.egg-info demo-out .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp says that the extras of that name are installed; it is redone when pyproject.toml changes.
$(VENV)/%.stamp: pyproject.toml | $(BIN)/python
	$(call install,$(BIN)/python,-e ".[$*]")
	@touch $@

# Three processes of tests would else compile the same, and wait for each other.
$(VENV)/kernels.stamp: $(VENV)/test.stamp $(wildcard $(KERNELS)/*.py)
	@! [ -d "$(SHARED)" ] || find "$(SHARED)" -type f -mtime +30 -delete || true
	$(BIN)/python -m dpexec kernels
	@touch $@

# CuPy, and where there is a driver the libraries that it works with.
$(VENV)/cuda.stamp: pyproject.toml | $(BIN)/python
	$(call install,$(BIN)/python,-e ".[gpu$(filter 12,$(CUDA))]" $(if $(DRIVER),\
	  "cupy-cuda$(CUDA)x[ctk]" nvidia-nccl-cu$(CUDA) nvidia-cudnn-cu$(CUDA) nvidia-cudnn-frontend))
	@touch $@

$(VENV)-docs/stamp: pyproject.toml | $(BIN)/python
	$(PYTHON) -m venv $(VENV)-docs
	$(call install,$(VENV)-docs/bin/python,-e ".[docs]")
	@touch $@

$(VENV)-%/stamp: | $(BIN)/python
	$(PYTHON) -m venv $(VENV)-$*
	$(call install,$(VENV)-$*/bin/python,numpy $(PEER_$*))
	@touch $@

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "dpexec needs Python 3.11 or newer; choose one with: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "Python's venv module is missing; on Debian: apt-get install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@# Of pip's configuration uv reads nothing: what has an index of its own is left to pip.
	-@$@ -m pip config list | grep -qE '[.](index-url|no-index)=' || $@ $(PIP) uv
