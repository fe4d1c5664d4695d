# Every target does its own set-up and does it once. PYTHON chooses the interpreter, VENV where the environment lives,
# JOBS how many compilers run, TORCH which torch is installed (the CPU build is enough).
PYTHON ?= python3
VENV ?= .venv
JOBS ?= 2
TORCH ?= torch==2.13.0
TESTS ?= tests
CONFORMANCE ?= ../shared/tools/conformance.py
PROGRAMS ?= 20000

python := $(abspath $(VENV))/bin/python
pip := $(python) -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
ninja := $(abspath $(VENV))/bin/ninja
cmake := $(or $(shell command -v cmake),$(abspath $(VENV))/bin/cmake)
done := $(VENV)/.done
sources = $(shell find src/torch_neuronx/csrc -name '*.cpp' -o -name '*.h')

.PHONY: setup build test property soak lint format demo bench bench-compile zoo conformance sanitize clean

setup: $(done)/test

$(done)/torch: constraints.txt
	@echo "Installing torch and the build tools into $(VENV) (once)"
	@$(PYTHON) -m venv $(VENV)
	$(pip) "$(TORCH)"
	$(pip) scikit-build-core ninja $(if $(shell command -v cmake),,cmake)
	mkdir -p $(done) && touch $@

# In place, without a build: the environment sees src/ and the entry point; `make build` puts the core there.
editable = $(pip) --no-build-isolation -C editable.mode=inplace -C wheel.cmake=false --editable

$(done)/test $(done)/lint $(done)/demo: $(done)/%: $(done)/torch pyproject.toml
	$(editable) ".[$*]"
	touch $@

# Of these the models and their weights are wanted; what else they ask for reads audio files, or needs another torch.
$(done)/zoo: $(done)/torch pyproject.toml
	$(editable) ".[zoo]"
	$(pip) --no-deps facenet-pytorch resemblyzer torchcrepe
	touch $@

build: $(done)/torch
	@mkdir -p build
	@test -f build/release/build.ninja || $(cmake) -G Ninja -S . -B build/release \
	  -DPython_EXECUTABLE=$(python) -DCMAKE_MAKE_PROGRAM=$(ninja) >build/cmake.log 2>&1 || (cat build/cmake.log; exit 1)
	@test -f src/torch_neuronx/_C.*.so || echo "Building the C++ core (about two minutes on two idle cores; once)"
	@$(ninja) -C build/release -j $(JOBS) --quiet

# A plugin without hardware to test that path with: native code of another project, so by its hash alone.
$(done)/plugin: $(done)/torch tests/runtime/plugin.txt
	$(pip) --require-hashes --no-deps -r tests/runtime/plugin.txt
	touch $@

test: build $(done)/test $(done)/plugin
	$(python) -m pytest $(TESTS) -q -n $(JOBS)

property: build $(done)/test
	$(python) -m tests.property.hunt --programs $(PROGRAMS) --jobs $(JOBS)

soak: build $(done)/test
	$(python) -m pytest tests/soak -q -s -m slow

lint: $(done)/lint
	$(python) -m ruff check .
	$(python) -m ruff format --check .
	$(python) -m mypy
	$(abspath $(VENV))/bin/clang-format --dry-run -Werror $(sources)

format: $(done)/lint
	$(python) -m ruff check --fix .
	$(python) -m ruff format .
	$(abspath $(VENV))/bin/clang-format -i $(sources)

demo: build $(done)/demo
	$(python) examples/demo.py

bench: build $(done)/test
	$(python) -m benchmarks

bench-compile: build $(done)/test
	$(python) -m benchmarks.compiled
	$(python) -m benchmarks.serving
	$(python) -m benchmarks.generation

zoo: build $(done)/zoo
	$(python) -m benchmarks.zoo

conformance: build $(done)/test
	$(python) -m conformance --tool $(CONFORMANCE) --jobs $(JOBS)

# The core again under each sanitizer, its package beside it, and the tests of the strata that are C++.
sanitize: $(done)/test
	VENV=$(abspath $(VENV)) JOBS=$(JOBS) CMAKE=$(cmake) ./scripts/sanitize address thread

clean:
	rm -rf build src/torch_neuronx/_C*.so .pytest_cache .mypy_cache .ruff_cache
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
