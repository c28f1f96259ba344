# sparklog: `make help` lists what there is to do. Python >= 3.11 and a JDK 17 are all that a machine needs, but for
# `make clients`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Kept between runs: jars from Maven Central, fetched by the Ivy that PySpark brings along.
CACHE := .cache
IVY = java -jar "$$(ls $(VENV)/lib/python*/site-packages/pyspark/jars/ivy-*.jar)" -error -cache $(CACHE)/ivy

# Compiled modules are kept, also where the environment says otherwise: the tests start hundreds of processes.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo lint check test clients stress soak fuzz sim bench docs reference proto lock format clean

help:  ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(VENV)/.installed $(CACHE)/delta/.fetched  ## A .venv at the root with sparklog in it, from the pinned versions, and Delta's jars

demo: setup  ## Load a year of flights, read and stream them with Spark, check the result
	$(BIN)/python examples/flights.py

check: lint  ## Format, lint, types, import walls, fast tests: no JVM, no network, a minute
	$(BIN)/pytest -q -n 3 -m "not jvm and not slow and not soak_only and not generated_clients"

TESTED := $(CACHE)/delta/.fetched $(CACHE)/kafka/.fetched $(CACHE)/spark-kafka/.fetched $(CACHE)/kcat/.fetched \
  $(CACHE)/s3a/.fetched $(CACHE)/apicurio/.fetched $(CACHE)/classes/spark.jsa

# Two of the processes have a SparkSession, for the tests of the source and for those of jobs. Three keep two cores busy;
# with more, processes take too long to start: Spark gives its Python processes 10 s. A failed test runs once more, after
# a pause, as a busy machine exceeds that for a moment.
test: lint $(TESTED)  ## All tests but those for soaks and of `make clients`, with Spark and Apache Kafka's own tools (PYTEST_ARGS="--durations=20")
	$(BIN)/pytest -q -n 3 --dist loadgroup --reruns 1 --reruns-delay 15 -m "not soak_only and not generated_clients" $(PYTEST_ARGS)

clients: setup  ## Go and Node clients made from the .proto files, against a broker: needs Go, Node and npm
	$(BIN)/pytest -q -m generated_clients tests/clients $(PYTEST_ARGS)

TESTS ?= -m "processes and not soak_only and not generated_clients" tests
TIMES ?= 20
# Where `support` is.
stress soak fuzz: export PYTHONPATH := $(CURDIR)/tests
stress: setup $(TESTED)  ## Tests TIMES times in a row beside a busy loop on each core (TESTS=tests/cli TIMES=20)
	$(BIN)/python -m support.runs.stress $(TIMES) $(TESTS)

SECONDS ?= 60
SEED ?= 1
soak: setup $(TESTED)  ## Kills, power cuts, loads and simulated clusters, other ones with each seed (SECONDS=600 SEED=1)
	$(BIN)/python -m support.runs.soak --seconds $(SECONDS) --seed $(SEED)

fuzz: setup  ## Search for the requests that cost a broker most per byte (SECONDS=600 SEED=1 APIS="Fetch Log.Fetch")
	$(BIN)/python -m support.fuzzing.search --seconds $(SECONDS) --seed $(SEED) $(if $(APIS),--apis $(APIS))

JOBS ?= 2
FROM ?= 0
sim: setup  ## Simulated clusters with faults, seed after seed, each checked (SECONDS=60 JOBS=2 FROM=0)
	$(BIN)/python -m sparklog.testing.sim --seconds $(SECONDS) --jobs $(JOBS) --from-seed $(FROM)

lint: setup
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	PYTHONPATH=tests $(BIN)/python -m support.runs.owned_state

BENCH ?= paths requests start spark_plan decode schemas compaction_kernels produce fetch recovery kafka_wire transactions bystander spark_read trigger spark_isolation sink compaction failover
bench: setup $(CACHE)/kafka/.fetched  ## The published figures, measured here (BENCH=produce for one of them)
	for name in $(BENCH); do $(BIN)/python -m bench.$$name || exit 1; done

docs: setup  ## The documentation as a site in .cache/site; nothing in it is loaded from elsewhere
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --config-file conf/mkdocs.yml

reference: setup  ## Write docs/reference, conf/broker.toml and conf/jobs.toml from the code
	$(BIN)/python -m sparklog.docs

proto: setup  ## Generate sparklog/v1 from proto/
	$(BIN)/python -m grpc_tools.protoc -Iproto --python_out=. --pyi_out=. --grpc_python_out=. proto/sparklog/v1/*.proto

lock: setup  ## Choose the newest versions that pyproject.toml allows and pin them
	$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-header \
	  --extra spark --extra otlp --extra zookeeper-sasl --group dev pyproject.toml --output-file requirements.lock

format: setup  ## Format the code and mend what the linter can mend
	$(BIN)/ruff format --quiet .
	$(BIN)/ruff check --quiet --fix .

clean:  ## Remove what setup, tests and demo made
	rm -rf $(VENV) $(CACHE) demo-output .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache

$(VENV)/.installed: requirements.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "sparklog needs Python 3.11 or later")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --requirement requirements.lock
	$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable .
	touch $@

$(CACHE)/delta/.fetched: sparklog/spark/ivy.xml | $(VENV)/.installed
	$(IVY) -ivy $< -retrieve '$(@D)/[artifact]-[revision].[ext]'
	touch $@

$(CACHE)/kafka/.fetched: tests/kafka/ivy.xml | setup
	$(IVY) -ivy $< -retrieve '$(@D)/[artifact]-[revision].[ext]'
	touch $@

$(CACHE)/spark-kafka/.fetched: bench/ivy.xml | setup
	$(IVY) -ivy $< -retrieve '$(@D)/[artifact]-[revision].[ext]'
	touch $@

$(CACHE)/s3a/.fetched: tests/jobs/ivy.xml | setup
	$(IVY) -ivy $< -retrieve '$(@D)/[artifact]-[revision].[ext]'
	touch $@

$(CACHE)/apicurio/.fetched: tests/schemas/ivy.xml | setup
	$(IVY) -ivy $< -retrieve '$(@D)/[artifact]-[revision].[ext]'
	tar -xzf $(@D)/*.tar.gz -C $(@D) && rm $(@D)/*.tar.gz
	touch $@

$(CACHE)/classes/spark.jsa: $(VENV)/.installed | $(CACHE)/delta/.fetched
	mkdir -p $(@D) && rm -f $@
	PYTHONPATH=tests $(BIN)/python -m support.runs.class_archive $(CURDIR)/$@

$(CACHE)/kcat/.fetched: tests/kafka/fetch-kcat
	$< $(@D)
	touch $@
