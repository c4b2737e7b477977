PY ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
TOOLS := $(VENV)/tools
PIP_FLAGS := --quiet --disable-pip-version-check
CODE := src tests examples tools hatch_build.py benchmarks

.DEFAULT_GOAL := help
.PHONY: help setup run page types test test-slow test-long matrix chromium screenshots sandbox pgbouncer shells promtool brokers faults proof chaos oracle witness check format bench cluster patroni old-server peers lock docs deploy-tools audit clients wheel release clean

help: ## show this help
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-11s %s\n", $$1, $$2}'

setup: $(STAMP) page ## create .venv and install everything

# Everything that is installed, also what builds the package, has a hash in requirements.lock.
$(STAMP): pyproject.toml requirements.lock
	$(PY) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Mainspring needs Python 3.11 or newer; set PY=python3.x")'
	test -x $(BIN)/python || $(PY) -m venv $(VENV)
	$(BIN)/python -m pip install $(PIP_FLAGS) --require-hashes --requirement requirements.lock
	MAINSPRING_PAGE=skip $(BIN)/python -m pip install $(PIP_FLAGS) --no-deps --no-build-isolation --editable .
	@touch $(STAMP)

# Without Node.js or the npm registry there is no dashboard, and everything else works.
page: $(STAMP) ## build the dashboard, if its sources have changed
	@$(BIN)/python -m tools.page

types: $(STAMP) page ## write the API types of the dashboard from the OpenAPI document, and check it with them
	$(BIN)/python -m tools.dashboard_types

run: $(STAMP) page ## start Mainspring on its embedded PostgreSQL (http://127.0.0.1:8700)
	$(BIN)/mainspring up --app examples.hello:app $(ARGS)

# The tests start a thousand processes. If PYTHONDONTWRITEBYTECODE is set, as in many Python images, each process
# compiles the whole source again. That takes 0.2 s of CPU, a third of the start time.
test test-slow test-long faults proof chaos: export PYTHONDONTWRITEBYTECODE =
test: $(STAMP) page sandbox pgbouncer shells promtool brokers chromium deploy-tools old-server ## run the tests, without those that need many seconds (real PostgreSQL, real processes)
	$(BIN)/python -m pytest $(ARGS)

matrix: $(STAMP) page ## run tests on each Python (3.11 to 3.14) and PostgreSQL (15 to 18) that is installed (ARGS="tests/sdk")
	$(BIN)/python -m tools.matrix $(ARGS)

# Three at a time: they need more of the machine than the others, and some measure it.
test-slow: $(STAMP) page sandbox pgbouncer shells promtool brokers chromium deploy-tools old-server $(VENV)/site/.installed ## run the tests that need many seconds each (a part of test-long)
	$(BIN)/python -m pytest -m "slow and not long" -n 3 $(ARGS)

test-long: test-slow patroni ## run what needs minutes: slow and long tests, faults, oracle, witness, bench
	$(BIN)/python -m pytest -m "long" -n 2 $(ARGS)
	$(MAKE) faults MINUTES=$(or $(MINUTES),10) ARGS=
	$(MAKE) oracle witness bench ARGS=

# Some tests need programs of the system. If one is not installed and cannot be installed, its tests are skipped.
INSTALL = { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
  { apt-get install -y -q $(1) || { apt-get update -q && apt-get install -y -q $(1); }; } >/dev/null 2>&1; }
sandbox:
	@command -v bwrap >/dev/null || $(call INSTALL,bubblewrap) \
	  || echo "bubblewrap is not installed: the sandbox tests are skipped"
pgbouncer: # its package starts a service, which the tests do not use
	@PATH="$$PATH:/usr/sbin" command -v pgbouncer >/dev/null || $(call INSTALL,pgbouncer) \
	  || echo "pgbouncer is not installed: its tests are skipped"
chromium: # for the tests of the dashboard
	@command -v chromium-headless-shell >/dev/null || $(call INSTALL,chromium-headless-shell) \
	  || command -v chromium >/dev/null || $(call INSTALL,chromium) \
	  || echo "chromium is not installed: the tests of the dashboard in a browser are skipped"
shells: # for the tests of completion
	@{ command -v zsh && command -v fish; } >/dev/null || $(call INSTALL,zsh fish) \
	  || echo "zsh or fish is not installed: the tests of its completion are skipped"

promtool: # for the tests of the alert rules; its package starts a service, which the tests do not use
	@command -v promtool >/dev/null || $(call INSTALL,--no-install-recommends prometheus) \
	  || echo "prometheus is not installed: the tests of the alert rules are skipped"

brokers: # for the tests of sinks and connectors; these packages start services, which the tests do not use
	@{ command -v redis-server && test -d /usr/lib/rabbitmq; } >/dev/null || $(call INSTALL,--no-install-recommends redis-server rabbitmq-server) \
	  || echo "redis-server or rabbitmq-server is not installed: the tests of these brokers are skipped"

screenshots: $(STAMP) page chromium ## write a picture of every page of the dashboard to screenshots/
	MAINSPRING_PAGE=development $(BIN)/python -m tools.page
	$(BIN)/python -m tests.ui.screenshots; status=$$?; $(BIN)/python -m tools.page; exit $$status

faults: $(STAMP) ## inject faults into a cluster for MINUTES=10 and report; a violation names the command that repeats it
	$(BIN)/python -m tests.cluster --minutes $(or $(MINUTES),10) $(ARGS)

proof: $(STAMP) ## all features under every fault, alone and in pairs, for MINUTES=10; keeps the history and the verdict
	$(BIN)/python -m tests.cluster.proof run --minutes $(or $(MINUTES),10) $(ARGS)

chaos: $(STAMP) ## run tests with delayed tasks and stalled processes (SEED=1, ARGS="tests/logs")
	MAINSPRING_CHAOS=$(or $(SEED),1) $(BIN)/python -m tests.chaos.stalls $(or $(SEED),1) \
	  $(BIN)/python -m pytest -p tests.chaos.delays $(ARGS)

oracle: $(STAMP) ## compare cron with an independent scan at every clock change of every zone (minutes; ARGS="--lines 5")
	$(BIN)/python -m tests.domain.every_change $(ARGS)

witness: $(STAMP) ## run our table of cron lines with Debian's cron, on a clock of libfaketime (needs root)
	@PATH="$$PATH:/usr/sbin" command -v cron >/dev/null && command -v faketime >/dev/null && command -v bwrap >/dev/null \
	  || $(call INSTALL,cron faketime bubblewrap) || true
	$(BIN)/python -m tests.domain.debian_cron

check: $(STAMP) page ## check format, lint, types and layers
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/ruff check $(CODE)
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tools.dashboard_types

format: $(STAMP) ## format the code and apply automatic fixes
	$(BIN)/ruff format $(CODE)
	$(BIN)/ruff check --fix $(CODE)

bench: $(STAMP) ## print the figures: throughput, lag, pickup, submit, schedules, overhead, process, output, failover
	$(BIN)/mainspring bench throughput
	$(BIN)/mainspring bench lag
	$(BIN)/mainspring bench pickup
	$(BIN)/mainspring bench submit
	$(BIN)/mainspring bench schedules
	$(BIN)/mainspring bench overhead
	$(BIN)/mainspring bench process
	$(BIN)/mainspring bench output
	$(BIN)/mainspring bench failover

peers: $(STAMP) ## the same jobs through other job queues and ours, in turn, and one table (network, minutes; ARGS="--rounds 1")
	@command -v redis-server >/dev/null || $(call INSTALL,redis-server) || echo "without Redis there is no Celery"
	$(BIN)/python benchmarks/peers.py $(ARGS)

# Patroni and etcd are no dependencies of Mainspring: they have a folder of their own (tools/patroni.py).
patroni: $(STAMP) tools/patroni.lock
	@$(BIN)/python -m tools.patroni || echo "Patroni and etcd cannot be installed: the tests with them are skipped"

# What servers of 0.2.0 need and this version does not: a folder of its own (tools/old_server.py).
old-server: $(STAMP) tools/old_server.lock
	@$(BIN)/python -m tools.old_server

cluster: patroni ## start three PostgreSQL with Patroni and etcd, two servers and a worker on this machine, until Ctrl-C
	$(BIN)/python -m mainspring.bench.patroni $(ARGS)

$(TOOLS)/.installed: $(STAMP) tools/requirements.lock
	test -x $(TOOLS)/bin/python || $(PY) -m venv $(TOOLS)
	$(TOOLS)/bin/python -m pip install $(PIP_FLAGS) --require-hashes --requirement tools/requirements.lock
	@touch $@

# Run with the oldest Python that we support: it needs the most packages.
COMPILE := $(TOOLS)/bin/pip-compile --quiet --generate-hashes --allow-unsafe --strip-extras --no-header \
  --annotation-style line --no-emit-index-url --no-emit-trusted-host --no-emit-find-links $(ARGS)
lock: $(TOOLS)/.installed ## renew the locks after a change of the dependencies (ARGS=--upgrade: newer versions)
	$(COMPILE) --extra dev --output-file requirements.lock pyproject.toml
	@sed -i -e '/^mainspring @ file:/d' -e '/^# WARNING: pip install will require/,+1d' requirements.lock  # extras of our own
	$(COMPILE) --output-file tools/requirements.lock tools/requirements.in
	$(COMPILE) --output-file tools/site.lock tools/site.in
	$(COMPILE) --output-file tools/deploy.lock tools/deploy.in
	$(COMPILE) --output-file tools/patroni.lock tools/patroni.in
	$(COMPILE) --output-file tools/old_server.lock tools/old_server.in

$(VENV)/site/.installed: $(STAMP) tools/site.lock
	test -x $(VENV)/site/bin/python || $(PY) -m venv $(VENV)/site
	$(VENV)/site/bin/python -m pip install $(PIP_FLAGS) --require-hashes --requirement tools/site.lock
	@touch $@

docs: $(VENV)/site/.installed ## build the documentation site in build/site/html (links are checked)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m tools.site.build

deploy-tools: $(VENV)/deploy/.installed ## install the linters of deploy/, which its tests use

$(VENV)/deploy/.installed: $(STAMP) tools/deploy.lock
	test -x $(VENV)/deploy/bin/python || $(PY) -m venv $(VENV)/deploy
	$(VENV)/deploy/bin/python -m pip install $(PIP_FLAGS) --require-hashes --requirement tools/deploy.lock
	@touch $@

audit: $(STAMP) ## check licences, and ask for known vulnerabilities where the network allows
	$(BIN)/python -m tools.licences
	@$(MAKE) --silent $(TOOLS)/.installed || true
	$(BIN)/python -m tools.vulnerabilities $(TOOLS)/bin/pip-audit

clients: $(STAMP) ## generate clients in TypeScript and Python from the OpenAPI document, and use them (network)
	$(BIN)/python -m tools.clients

wheel: $(STAMP) ## build the wheel with the dashboard, and its SBOM (CycloneDX) in dist/
	rm -f dist/*.whl dist/*.cdx.json
	MAINSPRING_PAGE=required $(BIN)/python -m hatchling build -t wheel -d dist
	$(BIN)/python -m tools.sbom dist/*.whl

release: wheel ## the wheel, its SBOM, provenance and checksums in dist/ (ARGS=--trial: also of what is not committed)
	$(BIN)/python -m tools.release $(ARGS)

clean: ## remove .venv and caches (not your data in .mainspring)
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
