# PYTHON names the interpreter to use. Without it, the active virtual environment is used,
# and without that, .venv, which is made here.
ifdef PYTHON
ENVIRONMENT :=
else
VIRTUAL_ENV ?= .venv
PYTHON := $(VIRTUAL_ENV)/bin/python
ENVIRONMENT := $(VIRTUAL_ENV)/pyvenv.cfg
endif

# Installed only where the environment has none: an installed torch is never replaced, nor the Triton
# that came with it.
TORCH := torch==2.13.0
TRITON := triton==3.9.0

# Without its dependencies: the torchvision that pip would install does not load with every torch.
TIMM := timm==1.0.31

# Without its dependencies, which check signatures of downloads. With it, the models of the
# transformers for Python 3.10 cannot be pickled.
KERNELS := 'kernels==0.17.2; python_version >= "3.11"'

PIP := $(PYTHON) -m pip --disable-pip-version-check
SOURCES := $(shell find csrc machine_code release tests -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh')

# Where this interpreter's tools are.
SCRIPTS = $(shell $(PYTHON) -c "import sysconfig; print(sysconfig.get_path('scripts'))")

# Else each worker, and each program that tests start, would compile the tests and the package.
PYTEST = PYTHONDONTWRITEBYTECODE= $(PYTHON) -m pytest --quiet --numprocesses=auto --dist=loadfile --benchmark-disable

# Stamps for each interpreter.
READY := build/ready-$(subst /,-,$(PYTHON))
READY_TO_TEST := $(READY)-to-test

# Without a GPU there are kernels for one architecture, as all would take 5 minutes more: the tests
# execute their PTX on the CPU, and test-all reads the machine code of all. 9.0 stands for 8.0 and 12.0,
# whose sources are the same. The PTX tells the lines of its source; with -lineinfo in place of cicc's own
# option, cuobjdump would write the machine code of several files under one name.
ifeq ($(shell command -v nvidia-smi)$(filter gpu hub wheel,$(MAKECMDGOALS)),)
export CUDAFLAGS ?= -Xcicc=-generate-line-info
ifeq ($(filter test-all,$(MAKECMDGOALS)),)
export TORCH_CUDA_ARCH_LIST ?= 9.0+PTX
endif
# The demo runs on the CPU there, and does without the kernels unless an earlier target has built them.
ifeq ($(MAKECMDGOALS)$(wildcard build/torch-*/CMakeFiles/cuda_kernels.dir/csrc/cuda/*.o),demo)
export FORCE_ONLY_CPU ?= 1
endif
endif

help:  ## Show the targets
	@sed -n 's/^\([a-z-]*\): .*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 12

build: $(READY)  ## Build the extension into the tree and install it as editable
	@echo Compiling gelu_kernels
	@$(PYTHON) -W ignore setup.py --quiet build_ext --inplace  # first, as pip would hide Ninja's progress
	@echo Installing gelu_kernels
	@$(PIP) install --quiet --no-build-isolation --no-deps --editable .

demo: build  ## Train a small network on handwritten digits, with torch's GELU and with ours
	@$(PYTHON) examples/digits.py

test: build $(READY_TO_TEST)  ## Run the tests but for the slow ones
	@$(PYTEST) -m "not slow"

test-all: build $(READY_TO_TEST)  ## Run all tests
	@$(PYTEST)

lint: $(READY_TO_TEST)  ## Check style
	@$(PYTHON) -m ruff check
	@$(PYTHON) -m ruff format --check
	@$(SCRIPTS)/clang-format --dry-run -Werror $(SOURCES)

format: $(READY_TO_TEST)  ## Rewrite the sources in the project's style
	@$(PYTHON) -m ruff check --fix
	@$(PYTHON) -m ruff format
	@$(SCRIPTS)/clang-format -i $(SOURCES)

# OUTPUT names a folder for the results.
bench: build  ## Compare with eager PyTorch, torch.compile and other packages; writes build/bench/
	@$(PYTHON) -m bench $(if $(OUTPUT),--output $(OUTPUT))
	@$(PYTHON) -m bench.block --threads 1 $(if $(OUTPUT),--output $(OUTPUT))
	@$(PYTHON) -m bench.block $(if $(OUTPUT),--output $(OUTPUT))

experiments: build  ## Repeat the GELU paper's experiments on small stand-ins; writes build/experiments/
	@$(PYTHON) -m experiments all --quick

# Builds in place and installs nothing, so it needs no network. By default it runs in the virtual
# environment, if that exists, else with python3. OUTPUT names the file; OPTIONS, as in
# `make gpu OPTIONS="--deadline 300"`, are listed by `python -m bench.gpu --help`.
gpu:  ## Build, test and measure on this machine's NVIDIA GPU; writes build/gpu.json
	@$(if $(ENVIRONMENT),$(or $(wildcard $(PYTHON)),python3),$(PYTHON)) -m bench.gpu \
		$(if $(OUTPUT),--output $(OUTPUT)) $(OPTIONS)

# OUTPUT names a folder for the packages. FORCE_ONLY_CPU=1 leaves the CUDA kernels out.
wheel: $(READY_TO_TEST)  ## Build the wheel for all releases of torch, and an sdist; writes build/wheels/
	@$(PYTHON) -m release.wheel $(if $(OUTPUT),--output $(OUTPUT))

# PAIRS, as in `make test-wheel PAIRS=3.12:2.13.0`, are of Python and torch; 5 GB each.
test-wheel: $(READY_TO_TEST)  ## Try the wheel in ten environments without a compiler; half an hour
	@$(PYTHON) -m release.bare build/wheels/*.whl $(PAIRS)

test-versions: $(READY_TO_TEST)  ## Build and test with several releases of torch; an hour
	@$(PYTHON) -m release.versions $(PAIRS)

hub: build  ## Make a repository for the Hugging Face Hub; writes build/hub/
	@$(PYTHON) -m release.hub $(if $(OUTPUT),--output $(OUTPUT))

docs: $(ENVIRONMENT)  ## Make the documentation's site; a broken link is an error; writes build/docs/
	@$(PIP) install --quiet --requirement requirements-docs.txt
	@$(PYTHON) -m sphinx --fail-on-warning --keep-going --quiet docs build/docs

clean:  ## Remove what was built; the virtual environment stays
	rm -rf build *.egg-info gelu_kernels/*.so gelu_kernels/torch[0-9]*

$(READY): requirements.txt $(ENVIRONMENT)
	@$(PYTHON) -c 'import torch' 2>/dev/null || { echo Installing $(TORCH) && $(PIP) install $(TORCH); }
	@echo Installing requirements.txt
	@$(PIP) install --quiet --requirement requirements.txt
	@mkdir -p build && touch $@

$(READY_TO_TEST): requirements-test.txt $(READY)
	@$(PYTHON) -c 'import triton' 2>/dev/null || { echo Installing $(TRITON) && $(PIP) install --no-deps $(TRITON); }
	@echo Installing requirements-test.txt
	@$(PIP) install --quiet --requirement requirements-test.txt
	@$(PIP) install --quiet --no-deps $(TIMM) $(KERNELS)
	@touch $@

.venv/pyvenv.cfg:
	@echo Making .venv
	@python3 -m venv .venv

.PHONY: help build demo test test-all lint format bench experiments gpu wheel test-wheel test-versions hub docs clean
