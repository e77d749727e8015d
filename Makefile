# Needs make, bash and Python 3.11 or newer. The rest is set up on first use, in .venv and .tools.
# PYTHON=/path/to/python3.12 picks another Python. ARGS="…" is passed to the command.
MAKEFLAGS += --no-print-directory --no-builtin-rules
.DEFAULT_GOAL := help
PYTHON ?=
ARGS ?=
export PYTHON

python := .venv/bin/python
# Tests run in several processes (number: tests/conftest.py), one file at a time each. Then those run alone that keep the
# whole machine busy, or depend on its clock: a minute is two seconds there.
in_company := -n auto --dist loadfile --no-loadscope-reorder
alone := tests/starts/test_restart_loops.py tests/alerts/test_end_to_end.py

.PHONY: help
help: ## list the targets
	@sed -n 's/^\([a-z0-9-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 16

.PHONY: run
run: ready-to-run ## run the exporter on :10061 (ARGS="--config llmhost.yml")
	@exec .venv/bin/llmhost serve $(ARGS)

.PHONY: test
test: lint check ## all that CI runs: formatting, lints, types, all tests

.PHONY: lint
lint: ready-to-test ## run formatting, lints and types
	$(python) -m ruff format --check exporter tests grafana
	$(python) -m ruff check exporter tests grafana
	$(python) -m mypy

.PHONY: check
check: ready-to-test ## run all tests, with alert rules and dashboards; some in one process (ARGS="-k resident")
ifeq ($(ARGS),)
	$(python) -m pytest $(in_company) $(alone:%=--ignore=%)
	$(python) -m pytest $(alone)
else
	$(python) -m pytest $(ARGS)
endif

.PHONY: check-quick
check-quick: ready-to-build ## most tests, in two minutes: without root, Prometheus, browser, and what takes long
	$(python) -m pytest --quick -rfE $(in_company) $(alone:%=--ignore=%) $(ARGS)

.PHONY: test-vllm
test-vllm: ready-to-test ## as root, test against a real vLLM on this CPU; installs about 4 GB into .venv-vllm
	@tests/setup/vllm
	$(python) -m pytest -m vllm tests/vllm $(ARGS)

.PHONY: test-on
test-on: ready-to-test ## as root, test on another Debian's systemd (SUITE=trixie or sid or bookworm; ARGS="tests/systemd -k reload")
	@tests/setup/on "$(SUITE)" pytest $(ARGS)

.PHONY: bench
bench: ready-to-test ## measure the costs of scrapes, shared memory, verdicts, the guard and the rules
	$(python) -m tests.bench.scrape $(ARGS)
	$(python) -m tests.bench.shm $(ARGS)
	$(python) -m tests.bench.removing
	$(python) -m tests.bench.starts $(ARGS)
	$(python) -m tests.bench.guard $(ARGS)
	$(python) -m tests.bench.incident
	$(python) -m tests.bench.rules $(ARGS)

.PHONY: chaos
chaos: ready-to-test ## as root, check the count of starts against a real systemd in chaos (ARGS="--seconds 600 --seed 7")
	$(python) -m tests.chaos.run $(ARGS)

.PHONY: demo
demo: ready-to-test ## replay the incident here, without a GPU, and show the alerts arrive (as root: all of it)
	@$(python) -m tests.demo $(ARGS)

.PHONY: e2e
e2e: ready-to-test ## as root, test host, exporter, Prometheus and Alertmanager at full durations: 40 minutes
	$(python) -m pytest -m e2e tests/alerts $(ARGS)

.PHONY: force
force: ready-to-test ## as root, clean shared memory while processes race for it (ARGS="--rounds 100000 --naively")
	$(python) -m tests.act.force $(ARGS)

.PHONY: time-to-fire
time-to-fire: ready-to-test ## show how long a restart loop lasts until our alert fires, and until public ones do
	@$(python) -m tests.alerts.time_to_fire

.PHONY: golden
golden: ready-to-test ## rewrite the expected pages of tests/hosts; then read the diff
	$(python) -m pytest tests/hosts --update-golden

.PHONY: docs
docs: ready-to-build ## write docs/metrics.md from the catalogue
	@$(python) -m llmhost.metrics.docs >.metrics.md || { rm -f .metrics.md; exit 1; }
	mv .metrics.md docs/metrics.md

.PHONY: dashboards
dashboards: ready-to-build ## write grafana/*.json from grafana/generate.py
	$(python) -m grafana.generate

.PHONY: pictures
pictures: ready-to-test ## draw grafana/pictures without a Grafana; fetches 0.4 GB (ARGS="host --dark")
	@$(python) -m tests.grafana.render.pictures $(ARGS)

.PHONY: wheel
wheel: ready-to-build ## build the wheel into dist/
	rm -f dist/llmhost_exporter-*.whl
	$(python) -m pip wheel --quiet --no-input --no-deps --no-build-isolation -w dist .

.PHONY: clean
clean: ## remove what the other targets created
	find exporter tests grafana -name __pycache__ -type d -prune -exec rm -rf {} +
	rm -rf .venv .venv-vllm .tools dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis

.PHONY: ready-to-run
ready-to-run: ## set up .venv for run
	@tests/setup/venv

.PHONY: ready-to-build
ready-to-build: ## set up .venv for wheel, docs and dashboards
	@tests/setup/venv dev

.PHONY: ready-to-test
ready-to-test: ## set up .venv, .tools and Debian packages for test
	@tests/setup/venv dev
	@tests/setup/debian
	@tests/setup/axe
