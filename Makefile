# Two commands are enough: `make lab` to learn, `make test` to try everything. `make help` lists the rest.
.DEFAULT_GOAL := help
.PHONY: help lab test test-quick test-gpu build demo lint bench clean system

PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do \
	$$p -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
RUN := PATH="$(CURDIR)/$(VENV)/bin:$$PATH" $(VENV)/bin/python
STAMP := $(VENV)/.installed
PYTEST := $(RUN) -m pytest -q

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(STAMP): pyproject.toml constraints.txt scripts/install_torch.py
	@test -n "$(PYTHON)" || { echo "Python 3.11, 3.12 or 3.13 with its venv module is needed; on Debian: sudo apt-get install python3 python3-venv"; exit 1; }
	@echo "setting up $(VENV) with $(PYTHON)"
	@test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	@$(VENV)/bin/python scripts/install_torch.py
	@echo "installing the course, JupyterLab, nbgrader, transformers and peft, and the test tools"
	@$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -c $(VENV)/constraints.txt -e '.[lab,dev,finetune]'
	@touch $@

lab: $(STAMP) ## set everything up and open JupyterLab on lesson 00 (PORT=… to choose the port)
	@$(RUN) scripts/lab.py

system:
	@scripts/system_packages.sh

test: $(STAMP) system lint ## set everything up and run every test
	@echo "running every test"
	@$(PYTEST) -n 2 --dist loadfile

test-quick: $(STAMP) lint ## the tests that take no more than a few minutes
	@$(PYTEST) -n 2 --dist loadfile -m "not slow and not browser"

test-gpu: $(STAMP) ## the tests that need an NVIDIA GPU
	@$(PYTEST) -m gpu

lint: $(STAMP) ## ruff
	@$(RUN) -m ruff check --quiet
	@$(RUN) -m ruff format --check --quiet

build: $(STAMP) ## lessons → solutions → notebooks
	@$(RUN) -m autograder.build

demo: $(STAMP) ## grade a small class of submissions and show the result
	@$(RUN) -m autograder.demo

bench: $(STAMP) ## every benchmark; exits 1 if a bar is missed
	@$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -c $(VENV)/constraints.txt -e '.[bench]'
	@status=0; for script in benchmarks/launch.py benchmarks/all_reduce.py benchmarks/ddp.py benchmarks/zero.py benchmarks/vram.py; do echo "== $$script"; $(RUN) $$script || status=1; done; exit $$status

clean: ## remove the environment and what tests leave; work/ and grades stay
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .ruff_cache
