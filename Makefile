# One gate: `make test` is what every change has to pass. `make` alone lists the targets.

PYTHON ?= python3
BIN := .venv/bin
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup check test demo run soak cost browser screenshots sim interleavings chaos proof lines mutants mutate bench-locks bench-jobs bench-timers bench-releases bench-cpu bench-dashboard bench-http requirements clean

help:  ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-15s%s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup:  ## Prepare .venv with all that checks and tests need
	@$(PYTHON) scripts/setup.py dev

check: setup  ## Lint, formatting, names, types, import layers
	@$(BIN)/ruff check --quiet . && echo 'lint: ok'
	@$(BIN)/ruff format --check --quiet . && echo 'format: ok'
	@$(BIN)/python scripts/words.py
	@$(BIN)/mypy --no-error-summary && echo 'types: ok'
	@out=$$($(BIN)/lint-imports --no-logo --no-cache) && echo 'layers: ok' || { echo "$$out"; exit 1; }

test: check  ## The gate: checks, then tests of everything; ARGS="-k fence" goes to pytest
	@$(BIN)/python scripts/test.py --gate $(ARGS)

demo:  ## Run the tour of what Tenure does; needs no server
	@$(PYTHON) scripts/setup.py demo
	@$(BIN)/python examples/tour.py

PORT ?= 8000
run:  ## Serve the example service on 127.0.0.1:8000 until Ctrl-C; PORT=8001 elsewhere
	@$(PYTHON) scripts/setup.py demo
	@$(BIN)/python examples/reports --port $(PORT)

# Sizes that take hours need more than the usual minute per test.
soak: setup  ## All tests in long sizes
	@TENURE_TEST_SIZE=soak TENURE_PLANTED=all PYTEST_TIMEOUT=14400 $(BIN)/python scripts/test.py $(ARGS)

cost: setup  ## Count what work costs on each store; ARGS=--record writes it down
	@$(BIN)/python -m tests.cost $(ARGS)

N ?= 3000
sim: setup  ## Simulate the runtime under N seeds (3000), see docs/proof.md
	@$(BIN)/python -m tests.sim --count $(N) $(ARGS)

SEEDS ?= 600
interleavings: setup  ## Interleave and cut calls on the real stores, SEEDS for each (600)
	@$(BIN)/python -m tests.interleavings --seeds $(SEEDS) $(ARGS)

chaos: setup  ## Kill, pause and cut off real processes for 25 minutes; ARGS="--minutes 5" for less
	@$(BIN)/python -m tests.chaos $(ARGS)

proof: setup  ## All tests at length, simulation, chaos; numbers into the README (90 minutes)
	@$(BIN)/python scripts/proof.py $(ARGS)

browser:  ## Test the pages of the dashboard in Chromium; ARGS="-k dark" goes to pytest
	@$(PYTHON) scripts/setup.py browser
	@$(BIN)/python scripts/browser.py $(ARGS)

screenshots:  ## Take the pictures of the dashboard in docs/images; needs Chromium
	@$(PYTHON) scripts/setup.py browser
	@$(BIN)/python scripts/screenshots.py $(ARGS)

lines:  ## Count the lines of each package, and of each store
	@$(PYTHON) scripts/lines.py

mutants: setup  ## Plant every bug of tests/planted, and see each of them caught
	@TENURE_PLANTED=all $(BIN)/pytest tests/planted -q -n 2 $(ARGS)

SEED ?= 1
COUNT ?= 300
MIN ?= 95
mutate: setup  ## Change COUNT (300) small things, see the tests fail; SEED=1 MIN=95 ARGS="--resume"
	@$(BIN)/python -m tests.mutation --seed $(SEED) --count $(COUNT) --min $(MIN) $(ARGS)

bench-locks:  ## Measure locks beside their peers, into docs/benchmarks.md
	@$(PYTHON) scripts/setup.py bench
	@$(BIN)/python -m bench.locks

bench-jobs:  ## Measure jobs beside their peers, into docs/benchmarks.md; BENCH_SHORT=1 only tries
	@$(PYTHON) scripts/setup.py bench
	@$(BIN)/python -m bench.jobs $(ARGS)

bench-timers:  ## Measure timers, into docs/benchmarks.md; BENCH_SHORT=1 only tries
	@$(PYTHON) scripts/setup.py bench
	@$(BIN)/python -m bench.timers

BEFORE ?= HEAD~1
bench-releases:  ## Compare recovery and ticks with an earlier commit: BEFORE=<commit>
	@$(PYTHON) scripts/setup.py bench
	@$(BIN)/python -m bench.releases $(BEFORE)

bench-cpu:  ## Compare CPU time per job with an earlier commit: BEFORE=<commit>
	@$(PYTHON) scripts/setup.py dev
	@$(BIN)/python -m bench.cpu $(BEFORE) $(ARGS)

bench-dashboard:  ## Measure the dashboard on a large store, into docs/benchmarks.md
	@$(PYTHON) scripts/setup.py dev
	@$(BIN)/python -m bench.dashboard

bench-http:  ## Measure HTTP endpoints, into docs/benchmarks.md; BENCH_SHORT=1 only tries
	@$(PYTHON) scripts/setup.py bench
	@$(BIN)/python -m bench.http

# Keeps the pins that still fit; ARGS=--upgrade moves them all, ARGS="-P ruff" one.
COMPILE := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header
requirements:  ## Pin requirements/*.txt anew from pyproject.toml and *.in (needs uv)
	@$(COMPILE) $(ARGS) pyproject.toml requirements/demo.in -o requirements/demo.txt
	@$(COMPILE) $(ARGS) pyproject.toml requirements/dev.in -o requirements/dev.txt \
		--all-extras -c requirements/demo.txt
	@$(COMPILE) $(ARGS) pyproject.toml requirements/browser.in -o requirements/browser.txt \
		--all-extras -c requirements/dev.txt
	@$(COMPILE) $(ARGS) pyproject.toml requirements/bench.in -o requirements/bench.txt \
		--all-extras -c requirements/dev.txt
	@$(COMPILE) $(ARGS) bench/peers/older_redis.in -o bench/peers/older_redis.txt

clean:  ## Remove .venv, caches and build results
	@rm -rf .venv .cache .hypothesis .mypy_cache .pytest_cache .ruff_cache build dist
	@find src tests scripts examples bench -name __pycache__ -type d -prune -exec rm -rf {} +
