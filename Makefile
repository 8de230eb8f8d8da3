# Needs make and a Python 3.11 or newer, nothing else: every target sets itself up.
#   make demo            the whole system on this machine, left running
#   make demo EXIT=1     the same, stopped at the end
#   make test            what CI runs; make test-slow adds minutes of kill -9
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Test files side by side; each of them has a Kafka of its own.
JOBS ?= 2
# In the order of `TESTS`: by itself xdist begins with the files that have most tests, and
# ends with the longest ones, which have one.
SIDE_BY_SIDE = -n $(JOBS) --dist loadfile --no-loadscope-reorder
READY := $(VENV)/ready

# Long ones first, so that the workers end together; a folder that is not named here
# comes last, never not at all.
TESTS := tests/integration tests/infra tests/adapters tests/unit tests/contracts tests/vectors
TESTS += $(filter-out $(TESTS) tests/__pycache__,$(patsubst %/,%,$(wildcard tests/*/)))

# Model weights come with packages; nothing is ever fetched from a hub.
export HF_HUB_OFFLINE := 1
export TOKENIZERS_PARALLELISM := false

.DEFAULT_GOAL := help
.PHONY: help venv demo test test-slow lint format bench bench-rollback bench-audit bench-kafka \
    vectors wheel infra constraints clean

help:
	@sed -n 's/^# \{0,3\}//p' Makefile | head -4

venv: $(READY)

$(READY): pyproject.toml .ci/constraints.txt .ci/setup
	.ci/setup "$(PYTHON)" "$(VENV)"
	touch $@

demo: $(READY)
	$(BIN)/cachemind demo $(if $(EXIT),--exit)

test: $(READY)
	$(BIN)/cachemind broker fetch
	$(BIN)/pytest $(SIDE_BY_SIDE) -m "not slow" $(TESTS)

test-slow: $(READY)
	$(BIN)/pytest -m slow

lint: $(READY)
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/mypy .ci/constraints.py .ci/wheel_check.py .ci/wheel_probe.py
	$(BIN)/mypy infra/terraform/scan.py infra/terraform/modules/topics/generate.py
	$(BIN)/lint-imports

format: $(READY)
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

# The load comes from wrk (Debian package `wrk`); run it on an idle machine.
bench: $(READY)
	$(BIN)/python -m tests.bench.bench_gateway
	$(BIN)/python -m tests.bench.bench_fold

# A rollback with a million entries: about five minutes, and 2 GB of disk.
bench-rollback: $(READY)
	$(BIN)/python -m tests.bench.bench_rollback

# What receipts cost, the signer and then the callers: some minutes, on an idle machine.
bench-audit: $(READY)
	$(BIN)/python -m tests.bench.bench_audit
	$(BIN)/python -m tests.bench.bench_audit_path

# Look-ups over Kafka beside HTTP, one process that answers and then three.
bench-kafka: $(READY)
	$(BIN)/python -m tests.bench.bench_kafka

# Known-answer files: made again, they must not change.
vectors: $(READY)
	.ci/vectors $(BIN)/python

wheel: $(READY)
	$(BIN)/python .ci/wheel_check.py

# Terraform's modules and examples: format, validity, tests, policies. What cannot be had
# on this machine is named and skipped.
CHECKOV := build/checkov
INFRA_TESTS := $(addprefix tests/infra/test_,policies_enforced.py refusals.py \
    assertions_can_fail.py planned_tasks.py)

infra: $(READY) $(CHECKOV)/ready
	infra/terraform/check.sh $(abspath $(BIN)/python $(CHECKOV)/bin/checkov)
	$(BIN)/pytest $(SIDE_BY_SIDE) -m slow $(INFRA_TESTS)

$(CHECKOV)/ready: $(READY) infra/terraform/checkov.txt
	$(BIN)/python -m venv $(CHECKOV)
	$(CHECKOV)/bin/python -m pip --disable-pip-version-check install --quiet \
	    --requirement infra/terraform/checkov.txt
	touch $@

# A new set of exact versions for all packages; commit the file.
constraints: $(READY)
	$(BIN)/python .ci/constraints.py

# Leaves what is outside of this folder: the user's cache of Kafka and models.
clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis \
	    .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
