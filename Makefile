# Every target makes the virtual environment that it needs: the broker alone (130 MB) for the demo, the
# extra `bench` for benchmarks, `dev` (1.9 GB, with Spark) for tests and generators.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help venv dev test test-python-kernel test-slow test-all test-lanes test-bare test-spark test-interop test-compose test-cluster storage-servers mutants lint format demo demo-tier demo-spark bench torture torture-ci torture-processes torture-simulated protos client docs clean

BIN := .venv/bin
TORTURE_SECONDS ?= 300
ROUNDS ?= 50
TURNS ?= 10
SEEDS ?= 1000
CRASHES ?=
INSTALLED := .venv/.installed
DEV := .venv/.installed-dev
BENCH := .venv/.installed-bench
KERNEL := $(wildcard kernel/*.[ch] kernel/*.py)
PYTEST := $(BIN)/python -m pytest
NEEDS_NOTHING := not java and not spark and not compose and not cluster

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

venv: $(INSTALLED)  ## .venv with the broker alone
dev: $(DEV)  ## .venv with everything for development

$(INSTALLED): pyproject.toml scripts/make_venv.sh $(KERNEL)
	scripts/make_venv.sh

.venv/.installed-%: pyproject.toml scripts/make_venv.sh $(KERNEL)
	scripts/make_venv.sh $*

# Three workers keep two cores busy: each reads all test files first, for 20 s of a processor.
test: $(DEV)  ## the tests for every change, lints included: under five minutes on two cores
	$(PYTEST) -n 3 --dist worksteal -m "not slow and $(NEEDS_NOTHING)" $(ARGS)

test-python-kernel: $(DEV)  ## what frames go through, by Python instead of the kernel; then the kernel on damaged frames for 20 s, under sanitizers
	STRATAMQ_KERNEL=python $(PYTEST) -n 3 --dist worksteal -m "not slow and $(NEEDS_NOTHING)" tests/formats tests/table tests/commitlog $(ARGS)
	$(BIN)/python kernel/fuzz.py --seconds 20

test-slow: $(DEV)  ## the other tests that need no Java: whole brokers, crashes, trials; half an hour
	$(PYTEST) -n 6 --dist worksteal -m "slow and $(NEEDS_NOTHING)" $(ARGS)

test-all: test test-slow  ## every test that needs no Java, in two runs

test-spark: $(DEV)  ## the tests of the data pipeline on Spark; finds a Java 17, or installs one as root
	JAVA_HOME="$$(scripts/find_java.sh)" && export JAVA_HOME && $(PYTEST) -n 2 --dist loadfile -m "spark and not java" $(ARGS)

test-interop: $(DEV)  ## the tests that the real RocketMQ judges; needs Java 17 and Maven
	scripts/require_java.sh
	$(PYTEST) -n 4 --dist worksteal -m java $(ARGS)

test-lanes: $(DEV)  ## the rows of RocketMQ's own clients, tools and starter, TURNS (10) times in a row; needs Java 17 and Maven
	scripts/require_java.sh
	@failed=0; for turn in $$(seq $(TURNS)); do \
	  echo "turn $$turn of $(TURNS)"; \
	  nice -n 5 $(PYTEST) -n 2 --dist worksteal -m java tests/gateway $(ARGS) || failed=$$((failed + 1)); \
	done; echo "$$failed of $(TURNS) turns failed"; [ $$failed -eq 0 ]

test-bare:  ## a slice in a Debian 12 with nothing but Python and make, as root and as an ordinary user
	scripts/bare_root.sh scripts/bare_slice.sh

test-compose: export STRATAMQ_TEST_SPARK ?= yes
test-compose: $(DEV)  ## the brokers of deploy/ in containers; finds an engine, or starts one as root on Debian
	scripts/with_engine.sh $(PYTEST) tests/compose --timeout 900 $(ARGS)

test-cluster: export STRATAMQ_TEST_SPARK ?= yes
test-cluster: $(DEV)  ## a shard of deploy/kubernetes on a Kubernetes; finds one, or starts one of scripts/cluster/build.sh as root
	scripts/with_cluster.sh $(PYTEST) tests/cluster -n 0 -s $(ARGS)

storage-servers: $(DEV)  ## object stores for the tests of the tier: a second S3, Google's, Azure's; needs Go and npm
	GOBIN="$(CURDIR)/$(BIN)" go install github.com/versity/versitygw/cmd/versitygw@v1.8.0
	GOBIN="$(CURDIR)/$(BIN)" go install github.com/fsouza/fake-gcs-server@v1.56.1
	npm install --prefix .venv/azurite --no-fund --no-audit --omit=dev azurite@3.37.0

console-pictures: $(DEV)  ## write the pictures of docs/console.md; needs Chromium
	STRATAMQ_DOCS_PICTURES=docs/console $(PYTEST) tests/console/browser/test_docs_pictures.py tests/console/browser/test_cluster_in_chromium.py -n 0

mutants: $(DEV)  ## plant named mistakes one by one: a test of their room must catch each
	$(BIN)/python -m tests.mutants $(ARGS)

lint: $(DEV)  ## style, imports, protos, generated code and generated documentation
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	cd protos && ../$(BIN)/buf lint
	$(BIN)/python scripts/gen_protos.py --check
	$(BIN)/python scripts/gen_sync_client.py --check
	$(BIN)/python scripts/gen_docs.py --check
	$(BIN)/python scripts/gen_chart.py --check
	$(BIN)/python scripts/check_words.py

format: $(DEV)  ## lay the code out, mend what the linter can mend
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

demo: $(INSTALLED)  ## the flights of 2013 through a whole broker, compared byte for byte
	$(BIN)/python scripts/demo.py $(ARGS)

demo-tier: $(DEV)  ## the flights in an S3 server: read back without the log, then restored from the bucket alone
	$(BIN)/python scripts/demo_tier.py $(ARGS)

demo-spark: $(DEV)  ## the demo's log as a table: Spark, and DuckDB without it, agree on the delays
	JAVA_HOME="$$(scripts/find_java.sh)" && export JAVA_HOME && $(BIN)/python scripts/demo_spark.py $(ARGS)

bench: $(BENCH)  ## speed beside its floors
	$(BIN)/python -m stratamq_bench $(ARGS)

torture: $(DEV)  ## crashes, kills, power losses, damage and full disks for TORTURE_SECONDS (300)
	$(BIN)/stratamq torture all --seconds $(TORTURE_SECONDS) $(ARGS)

torture-ci: $(DEV)  ## before a release: SEEDS (1 000) seeds, ROUNDS (50) of kills, each call's crash; CI takes a part of each
	$(MAKE) --jobs 2 --output-sync=target torture-processes torture-simulated

# Kills mostly wait for processes to start; what is simulated depends on no clock and takes the time left.
torture-processes: $(DEV)
	$(BIN)/stratamq torture kill --rounds $(ROUNDS)
	$(BIN)/stratamq torture hostile --messages 50000
	$(BIN)/stratamq torture delivery --rounds 3 --event kill

torture-simulated: $(DEV)
	nice $(BIN)/stratamq torture sim --seeds $(SEEDS) --operations 100
	nice $(BIN)/stratamq torture brokers --seeds 60
	nice $(BIN)/stratamq torture tier --seeds 100
	nice $(BIN)/stratamq torture agents --seeds 200
	nice $(BIN)/stratamq torture delivery-sim --seeds 200
	nice $(BIN)/stratamq torture janitor --seeds 200
	nice $(PYTEST) -n 2 --every-call $(CRASHES) -k "call or crash or damaged or interrupted or anew or los" \
	  tests/commitlog/test_recovery_crashes.py tests/commitlog/test_cutting.py \
	  tests/commitlog/test_closing.py tests/commitlog/test_bad_directories.py \
	  tests/dispatcher/test_crashes.py tests/index/test_crashes.py tests/index/test_faults.py \
	  tests/index/test_recovery.py tests/index/test_fixtures.py tests/janitor/test_retention.py \
	  tests/ha/test_history.py

protos: $(DEV)  ## generate src/stratamq/api from protos/
	$(BIN)/python scripts/gen_protos.py

client: $(DEV)  ## generate the synchronous client from the asyncio one
	$(BIN)/python scripts/gen_sync_client.py

docs: $(DEV)  ## generate the tables of docs/ from settings, metrics, protos and commands
	$(BIN)/python scripts/gen_docs.py

clean:  ## remove what tests, builds and the demo left; .venv stays
	rm -rf .demo .pytest_cache .hypothesis .ruff_cache .mypy_cache .import_linter_cache build dist
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
