# Every target does its own set-up. PYTHON chooses the interpreter, VENV where the environment lives, JOBS the compilers.
PYTHON ?= python3
VENV ?= .venv
JOBS ?= 2
TORCH ?= torch==2.13.0

py := $(VENV)/bin/python
pip := $(py) -m pip install --quiet --disable-pip-version-check
stamps := $(VENV)/.stamps
cpp := $(shell find src/torch_neuronx/csrc -name '*.cpp' -o -name '*.h' 2>/dev/null)

.PHONY: setup build test lint demo bench conformance sanitize editable clean

setup: $(stamps)/test

$(stamps)/torch:
	$(PYTHON) -m venv $(VENV)
	$(pip) "$(TORCH)"
	$(pip) scikit-build-core cmake ninja
	mkdir -p $(stamps) && touch $@

# Installed in place: the environment sees src/ and the entry point, so `import torch` finds the device.
$(stamps)/package: $(stamps)/torch pyproject.toml
	$(pip) --no-build-isolation --editable .
	touch $@

$(stamps)/test: $(stamps)/package
	$(pip) --no-build-isolation --editable ".[test]"
	touch $@

$(stamps)/demo: $(stamps)/package
	$(pip) --no-build-isolation --editable ".[demo]"
	touch $@
