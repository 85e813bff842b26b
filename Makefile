# Programs start some 1,500 times in the tests: compiling them each time would take a fifth of their time.
unexport PYTHONDONTWRITEBYTECODE
PYTHON ?= python3
BIN := .venv/bin
KEEP ?=
CRASH ?=
ATROPOS ?=

.PHONY: setup demo test test-all fuzz test-supervisor test-image test-crowd test-vllm test-trl test-verifiers test-formats security-table sandbox-table tools-table bench bench-peers harnesses chaos chaos-cluster soak lint docs lock clean

setup: .venv/.complete bubblewrap

# The lock decides what is installed; pip verifies nothing else is pulled in. Modules are compiled when they are first
# imported: of seven million lines most never are.
.venv/.complete: requirements.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit("Clotho needs Python 3.11 or newer, found " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --no-compile --require-hashes -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps -e .
	touch $@

.PHONY: bubblewrap
bubblewrap:
	@command -v bwrap >/dev/null || \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    echo "installing bubblewrap"; apt-get update -qq && apt-get install -y -qq bubblewrap >/dev/null; \
	  else \
	    echo "bubblewrap is missing; install it with: sudo apt-get install bubblewrap"; exit 1; \
	  fi

demo: setup
	$(BIN)/clotho demo $(if $(KEEP),--keep) $(if $(CRASH),--crash) $(if $(ATROPOS),--atropos)

# Three at a time on two cores: many tests wait for a lease or a heartbeat to run out.
PYTEST := $(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder

test: setup
	$(PYTEST) -m "not slow"

test-all: setup
	$(PYTEST) --durations 25

# FIRST: the case to begin with; runs of different ones try different cases.
fuzz: setup
	$(PYTEST) tests/fuzz --fuzz-seconds $(or $(SECONDS),60) $(if $(FIRST),--fuzz-first $(FIRST))

# Builds the supervisor for every architecture, which takes minutes with a compiler that has built nothing yet.
test-supervisor: setup
	$(BIN)/python -m pytest tests/real_supervisor.py

# Builds the image of a worker with buildah, on a Debian made by debootstrap: takes root, and five minutes.
test-image: setup
	$(BIN)/python -m pytest tests/real_image.py

# 64 small harnesses and 16 of mini-swe-agent at once, with kills: three minutes on two quiet cores.
test-crowd: setup
	$(BIN)/python -m pytest tests/real_crowd.py

# VLLM: the program, by default the one on the path.
test-vllm: setup
	$(if $(VLLM),VLLM=$(abspath $(VLLM))) $(if $(WRITE),WRITE=docs/fidelity.md) $(BIN)/python -m pytest tests/real_vllm.py tests/real_vllm_harness.py

# TRL: an interpreter that has TRL and Clotho, by default one made for it, of several GB.
test-trl: setup $(if $(TRL),,.venv/trl/.complete)
	TRL=$(abspath $(or $(TRL),.venv/trl/bin/python)) $(BIN)/python -m pytest tests/real_trl.py

.venv/trl/.complete: pyproject.toml
	$(PYTHON) -m venv .venv/trl
	.venv/trl/bin/pip install --quiet --disable-pip-version-check -e '.[trl]'
	touch $@

# INSPECT, HARBOR: interpreters that have these packages, by default ones made for them; Harbor needs Python 3.12.
test-formats: setup $(if $(INSPECT),,.venv/inspect-ai/.complete) $(if $(HARBOR),,.venv/harbor/.complete)
	INSPECT=$(abspath $(or $(INSPECT),.venv/inspect-ai/bin/python)) \
	HARBOR=$(abspath $(or $(HARBOR),.venv/harbor/bin/python)) $(BIN)/python -m pytest tests/real_formats.py

.venv/inspect-ai/.complete .venv/harbor/.complete: .venv/%/.complete:
	$(PYTHON) -m venv .venv/$*
	.venv/$*/bin/pip install --quiet --disable-pip-version-check $*
	touch $@

# VERIFIERS: an interpreter that has verifiers and Clotho, by default one made for it. Their dependencies contradict
# each other: Clotho's part there needs no more than these.
test-verifiers: setup $(if $(VERIFIERS),,.venv/verifiers/.complete)
	VERIFIERS=$(abspath $(or $(VERIFIERS),.venv/verifiers/bin/python)) $(BIN)/python -m pytest tests/real_verifiers.py

.venv/verifiers/.complete: pyproject.toml
	$(PYTHON) -m venv .venv/verifiers
	.venv/verifiers/bin/pip install --quiet --disable-pip-version-check 'verifiers==0.4.0' pydantic-settings zstandard
	.venv/verifiers/bin/pip install --quiet --disable-pip-version-check --no-deps -e .
	touch $@

security-table: setup
	$(PYTEST) -m attack tests/security tests/viewer tests/orders tests/monitoring tests/sandbox --write-attacks docs/security.md

sandbox-table: setup
	$(PYTEST) tests/sandbox -k conformance --write-conformance docs/sandboxes.md

tools-table: setup
	$(PYTEST) --dist load tests/tools/test_conformance.py --write-tools docs/tools.md

bench: setup
	$(BIN)/python -m benchmarks $(if $(WRITE),--write docs/performance.md)

# Without their packages, the rows of the others say so.
bench-peers: setup
	@$(MAKE) --no-print-directory .venv/peers/.complete || echo "The packages of the other frameworks can't be had here."
	$(BIN)/python -m benchmarks --only peers

.venv/peers/.complete: benchmarks/peers/requirements.txt
	$(PYTHON) -m venv .venv/peers
	.venv/peers/bin/pip install --quiet --disable-pip-version-check -r $<
	touch $@

# Harnesses that tests of the plugin start where they are there, of 1.5 GB: a folder that sandboxes see at any path.
# HARNESSES: those to install, by default all. What can't be had is said, and its tests are skipped.
HARNESSES ?= mini-swe-agent codex claude-code opencode
INSTALLED := .venv/harnesses

harnesses: setup
	@for harness in $(HARNESSES); do \
	  $(MAKE) --no-print-directory $(INSTALLED)/$$harness.complete \
	    || echo "$$harness can't be had here: its tests are skipped"; \
	done

MACHINE := $(if $(filter aarch64,$(shell uname -m)),arm64,x64)
# Sandboxes have this Python. LiteLLM needs `mcp`, and doesn't say so.
SANDBOX_PYTHON = $(firstword $(wildcard /usr/bin/python3) $(PYTHON))

$(INSTALLED)/mini-swe-agent.complete: .venv/.complete tests/harness/mini
	rm -rf $(INSTALLED)/mini && mkdir -p $(INSTALLED)/bin
	$(BIN)/pip --python $(SANDBOX_PYTHON) install --quiet --disable-pip-version-check --target $(INSTALLED)/mini \
	  mini-swe-agent==2.4.6 litellm==1.106.2 mcp
	install -m 755 tests/harness/mini $(INSTALLED)/bin/mini
	touch $@

# Each is a package with one program for this machine.
PACKAGE.codex = @openai/codex@0.169.0-linux-$(MACHINE)
PACKAGE.claude-code = @anthropic-ai/claude-code-linux-$(MACHINE)@2.1.197
PACKAGE.opencode = opencode-linux-$(MACHINE)@1.18.33
PROGRAM.codex = vendor/*/bin/codex
PROGRAM.claude-code = claude
PROGRAM.opencode = bin/opencode

$(INSTALLED)/codex.complete $(INSTALLED)/claude-code.complete $(INSTALLED)/opencode.complete: \
$(INSTALLED)/%.complete: .venv/.complete
	mkdir -p $(INSTALLED)/bin
	npm install --silent --no-audit --no-fund --no-package-lock --ignore-scripts --prefix $(INSTALLED)/$* \
	  $*@npm:$(PACKAGE.$*)
	ln -srf $(INSTALLED)/$*/node_modules/$*/$(PROGRAM.$*) $(INSTALLED)/bin/
	touch $@

chaos: setup
	$(BIN)/python -m chaos $(if $(RESUME),--resume) --write docs/fault-matrix.md

# Takes root, PostgreSQL, faketime and Go; half an hour.
chaos-cluster: setup
	$(BIN)/python -m chaos --table cluster $(if $(RESUME),--resume) --write docs/fault-matrix.md

soak: setup
	$(BIN)/python -m chaos --soak $(or $(MINUTES),10) $(if $(SEED),--seed $(SEED))

lint: .venv/.complete
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The generator's packages are apart, in an environment of their own. With --quiet it would not count warnings.
docs: .venv/.complete .venv/docs/.complete
	$(BIN)/python -m docs.generate
	NO_MKDOCS_2_WARNING=1 .venv/docs/bin/mkdocs build --strict

.venv/docs/.complete: requirements-docs.lock
	$(PYTHON) -m venv .venv/docs
	.venv/docs/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements-docs.lock
	touch $@

lock: .venv/.complete
	$(BIN)/pip install --quiet --disable-pip-version-check uv
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header --extra dev pyproject.toml -o requirements.lock
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header --constraint requirements.lock --extra docker --extra s3 --extra ssh --extra tokens --extra traces pyproject.toml -o requirements-worker.lock
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header --group docs -o requirements-docs.lock

clean:
	rm -rf .venv .clotho
