# Every target makes .venv in this folder first and uses nothing outside it; Python 3.11 to 3.14, make and g++ suffice.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PARALLEL := -n auto --maxprocesses 4 --dist worksteal

.PHONY: demo test check coverage lint docs supported bench wheels clean

demo: $(STAMP)
	$(BIN)/python -m examples.demo

# All that a change of the code can break.
test: lint
	$(BIN)/python -m pytest $(PARALLEL) -m "not check"

# What fails by releases of others, or is slow by nature: old and new torch and PyG, wheels, nvcc, other processors and
# compilers, browsers, notebooks, long runs of processes, training.
check: $(STAMP)
	$(BIN)/python -m pytest $(PARALLEL) -m check

# Tracing lines takes about half as long again, so that it is not part of every run.
coverage: $(STAMP)
	$(BIN)/python -m pytest $(PARALLEL) --cov --cov-report=term

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports

# The site, as pages in build/docs; tests/docs builds it, too.
docs: $(STAMP)
	$(BIN)/python -m sphinx -W --keep-going -n -q docs build/docs

# tests/supported with other releases of Python, torch, PyG, DGL and the compiler: gigabytes of downloads.
supported: $(STAMP)
	$(BIN)/python scripts/supported.py
	$(BIN)/python docs/make_supported.py

bench: $(STAMP)
	$(BIN)/python -m benchmarks relational

# What scripts/gpu_check.sh installs on a machine without network; see docs/gpu.md.
wheels: $(STAMP)
	$(BIN)/python scripts/make_wheels.py build/wheels $(or $(WHEELS_PYTHON),3.12) "$(WITHOUT)" "$(WITH)"

clean:
	rm -rf $(VENV) .cache .dacecache .pytest_cache .ruff_cache .import_linter_cache .hypothesis .coverage build *.egg-info

# torch first and pinned: where pip knows a CPU build of this version (2.13.0+cpu), that one is taken, and the
# resolver leaves it in place afterwards in place of fetching the newest release with its CUDA packages.
$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' || \
		{ echo "$(PYTHON) is not Python 3.11 to 3.14; name one, e.g. make PYTHON=python3.11"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -c 'import torch' 2>/dev/null || $(BIN)/python -m pip install torch==2.13.0
	$(BIN)/python -m pip install -e '.[pyg,dgl,plot,test,docs,dev]'
	touch $@
