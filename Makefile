.PHONY: run serve test test-kubernetes test-long size check coverage bench bench-quality try-model faults fuzz proto setup setup-dev clean

PY := .venv/bin/python
ARGS ?=
PYTEST = TESTS_SEED=$(or $(SEED),0) $(PY) -m pytest -n 4 --dist loadgroup

# With compiled modules left behind, a run collects its tests in a third of the time.
unexport PYTHONDONTWRITEBYTECODE

# Ctrl-C is how a person ends these two: no failure of make.
ENDS_BY_CTRL_C = trap : INT; $(1) || { code=$$?; [ $$code -eq 130 ] || exit $$code; }

# The main job: an agent that remembers. Needs no key, no Docker, no network service.
run: setup
	@$(call ENDS_BY_CTRL_C,RUNNER_STARTED_BY="make run" .venv/bin/runner --insecure chat $(ARGS))

# The same in a browser, until Ctrl-C; the agent goes on until `runner stop`.
serve: setup
	@.venv/bin/runner status >/dev/null; [ $$? -ne 3 ] || .venv/bin/runner --insecure start --detach
	@$(call ENDS_BY_CTRL_C,.venv/bin/runner --insecure serve --open $(ARGS))

# Linters, types and architecture run as tests (tests/unit/test_quality.py).
# Four at a time, because tests wait for what they start; handed out one by one; those that share
# a running host go together (xdist_group).
# Random examples are drawn from SEED.
test: setup-dev
	$(PYTEST) -m "not kubernetes" $(ARGS)

# A cluster of one machine: all tests of the kubernetes tier, one after the other, because they share
# a control plane. Needs tools/get_kubernetes.sh.
test-kubernetes: setup-dev
	TESTS_SEED=$(or $(SEED),0) $(PY) -m pytest -m kubernetes --long $(ARGS)

# What takes too long for every run too, and ten times the examples, from a new seed. PART=2/6 runs
# one part; docs/long-runs.md gets a row for each.
test-long: setup-dev
	TESTS_SEED=$(SEED) $(PY) tools/long_run.py $(if $(PART),--part $(PART)) -- $(ARGS)

size: setup-dev
	$(PY) tools/size.py

check: setup-dev
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	.venv/bin/lint-imports

# How much of the agent, its tools and its memory is run by tests; fails below 90 percent.
coverage: setup-dev
	$(PYTEST) -q -m "not docker" --cov=guest --cov-branch \
		--cov-report=json tests/unit/guest tests/property tests/conformance tests/integration \
		tests/security
	$(PY) tools/coverage_floor.py

bench: setup-dev
	$(PY) -m bench $(ARGS)

bench-quality: setup-dev
	$(PY) -m bench.quality $(ARGS)

# How well a model does as the agent: BASE_URL=http://127.0.0.1:11434/v1 MODEL=qwen3:4b.
try-model: setup
	@$(PY) -m bench.try_model --base-url "$(BASE_URL)" --model "$(MODEL)" $(ARGS)

# Thousands of faults; needs tools/get_sqld.sh.
faults: setup-dev
	$(PY) -m tests.faults $(ARGS)

# Inputs that nobody has thought of: docs/fuzzing.md.
fuzz: setup-dev
	$(PY) -m tests.fuzz $(ARGS)

proto: setup-dev
	$(PY) tools/generate_proto.py

setup:
	@tools/setup.sh

setup-dev:
	@tools/setup.sh dev

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis .fuzz
