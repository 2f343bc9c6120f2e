# The targets for developers and CI. `make` lists them.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

export CARGO_TARGET_DIR ?= $(CURDIR)/target
export CARGO_TERM_COLOR ?= auto
CARGO ?= cargo
ISOLANE := $(CARGO_TARGET_DIR)/release/isolane
STUDY := $(CARGO_TARGET_DIR)/study/isolane
DEMO_OUT ?= out/audit
PREFIX ?= /usr/local
export PREFIX DESTDIR SYSCONFDIR LIBDIR

.PHONY: help demo study build symbols test test-all check same smoke lint lab lab-mem kills fuzz fuzz-python miri sanitize vopr histories rpc-lab lab-plan python bpf install uninstall packages check-packages claims cross-validation readme bench bench-hunt bench-nic docs clean need-cargo

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile

demo: study ## audit a few tenant pairs under no policy and under Justitia; writes out/audit/report.html
	@"$(STUDY)" audit --quick --profile cx5-100g-roce --policies none,justitia --report "$(DEMO_OUT)"
	@printf '\nThe report, with plots: %s\n' "$(abspath $(DEMO_OUT))/report.html"

study: need-cargo ## build a program for studies only: simulators and audit, no gRPC, TLS, BPF or daemon
	@$(CARGO) build --locked --profile study --package isolane --bin isolane --no-default-features

build: need-cargo ## build the program and the libibverbs of `isolane rdma emulate` (isolaned and the preload library: make install)
	@$(CARGO) build --locked --release --package isolane --package isolane-rdma-emulator --bins

symbols: need-cargo ## build the shipped programs with their symbols in separate files, below target/symbols/apart
	@$(CARGO) build --locked --profile symbols --package isolane --package isolaned --package isolane-rdma-preload --package isolane-rdma-emulator
	@.ci/split-symbols "$(CARGO_TARGET_DIR)/symbols/apart" "$(CARGO_TARGET_DIR)/symbols"/{isolane,isolaned,libisolane_shim.so,isolane-ibverbs,isolane-device-files}

test: ## run everything that must pass: lints, tests, proofs, commands of the documents
	@.ci/test

test-all: ## run `make test` and the long tests: all claims, the proofs that CONTRIBUTING.md names, packages
	@.ci/test long

check: need-cargo ## run the tests of all crates, several programs at a time; needs no browser
	@.ci/check

same: need-cargo ## compare the results of BASE=<commit> with this tree's, byte by byte; QUICK=1 compares a part
	@test -n "$(BASE)" || { echo "make same: name a commit, as in make same BASE=HEAD~1" >&2; exit 2; }
	@.ci/same "$(BASE)" $(if $(QUICK),--quick)

smoke: build ## run the commands of the documents with the release binary
	@.ci/smoke "$(ISOLANE)"

lint: need-cargo ## check format, clippy, documentation and scripts
	@.ci/lint

lab: need-cargo ## boot a virtual machine with RDMA and run the proofs there (hours; QUICK=1: 25 minutes)
	@$(CARGO) build --locked --release --package isolane --package isolaned --package isolane-rdma-preload
	@lab/fetch $(if $(QUICK),,--siw --cards)
	@lab/run $(if $(QUICK),--quick)
	@$(if $(QUICK),true,"$(ISOLANE)" claims --lab out/lab)

lab-mem: need-cargo ## boot a virtual machine with two memory tiers and run the proofs of tiered memory; QUICK=1: one minute
	@$(CARGO) build --locked --release --package isolaned --package isolane-memory-service
	@lab/fetch $(if $(QUICK),,--mem)
	@lab/run --about memory $(if $(QUICK),--quick)

kills: need-cargo ## kill a program at random KILLS=10000 times; PROGRAM=daemon, memory, enforcer, nic, ... (docs/internals/kills.md)
ifeq ($(or $(PROGRAM),daemon),daemon)
	@ISOLANE_KILLS=$(or $(KILLS),10000) $(CARGO) test --locked --package isolaned --test it -- --nocapture killed
else ifeq ($(PROGRAM),pods)
	@ISOLANE_KILLS=$(or $(KILLS),10000) $(CARGO) test --locked --package isolane --test it -- --nocapture a_killed_program_of_pods
else ifeq ($(PROGRAM),operators)
	@.ci/languages kills $(or $(KILLS),10000)
else ifeq ($(PROGRAM),dra)
	@cd go/dra && ISOLANE_KILLS=$(or $(KILLS),10000) go test -count 1 -timeout 24h -v -run Kills .
else ifeq ($(PROGRAM),envoy)
	@cd go/envoy && ISOLANE_KILLS=$(or $(KILLS),10000) go test -count 1 -timeout 24h -v -run Kills ./cmd/isolane-envoy
else
	@$(CARGO) test --locked --package isolane-tools-abuse --test it -- --list --exact kills::$(PROGRAM) | grep -q ': test$$' \
		|| { echo "make kills: no program $(PROGRAM); docs/internals/kills.md lists them" >&2; exit 2; }
	@ISOLANE_KILLS=$(or $(KILLS),10000) $(CARGO) test --locked --package isolane-tools-abuse --test it -- --nocapture --exact kills::$(PROGRAM)
endif

fuzz: need-cargo ## fuzz the decoders under libFuzzer for MINUTES=5 in all; TARGET=NAME fuzzes one (needs a C++ compiler)
	@.ci/fuzz $(or $(MINUTES),5) $(TARGET)

fuzz-python: need-cargo ## fuzz the decoders of the Python package under atheris for MINUTES=5 in all; TARGET=NAME fuzzes one
	@.ci/fuzz-python $(or $(MINUTES),5) $(TARGET)

miri: need-cargo ## run tests of sessions, of the preload library and of the C interface under Miri (needs the nightly toolchain with miri and rust-src)
	@.ci/memory miri

sanitize: need-cargo ## run the tests that docs/internals/fuzzing.md lists under SANITIZER=address or thread (nightly)
	@.ci/memory $(or $(SANITIZER),address)

vopr: need-cargo ## run the quota server, daemon, memory service, guardian and peers by seed under random faults for HOURS=0.1; SEED=n runs one
	@$(CARGO) run --locked --quiet --profile ci --package isolane-tools-models --bin vopr -- $(if $(SEED),--seed $(SEED),$(shell awk 'BEGIN { printf "%d", $(or $(HOURS),0.1) * 3600 }') $(shell date +%s))

histories: need-cargo ## play COUNT=100 histories of quota servers over a real etcd under faults, from SEED=1 (needs etcd)
	@$(CARGO) run --locked --quiet --profile ci --package isolane-tools-models --bin histories -- $(or $(COUNT),100) $(or $(SEED),1)

rpc-lab: build ## run gRPC programs in Rust, Python, Go, C++ and Java behind an overloaded port (needs root); QUICK=1: one minute
	@$(CARGO) build --locked --release --package isolane-rpc-library
	@.ci/languages go
	@.ci/languages python
	@.ci/languages cpp
	@.ci/languages java
	@LAB_ARGUMENTS="$(if $(QUICK),--quick,--seed 1)" .ci/languages lab

python: ## install the Python package for `isolane edge` beside the binary; needs no Rust
	@.ci/languages install

lab-plan: ## plan, run and disturb live ML pipelines in network namespaces (needs root); QUICK=1: less than three minutes
	@PLAN_LAB_ARGUMENTS="$(if $(QUICK),--quick,--factor 20)" .ci/languages plan

bpf: ## compile the BPF programs and record compiler and sources (needs clang and llvm-strip)
	@crates/common/linux/bpf/compile crates/ethernet/bpf/bpf
	@crates/common/linux/bpf/compile crates/rpc/agent/bpf

install: need-cargo ## install programs, libraries, man pages, completions, units and configuration below PREFIX (/usr/local)
	@packaging/build
	@packaging/install

uninstall: ## remove what `make install` with the same PREFIX and DESTDIR installed
	@packaging/uninstall

packages: need-cargo ## build .deb files, a portable tar archive, wheels and OCI images in out/packages
	@packaging/packages

check-packages: ## install, run and purge the packages of `make packages` in fresh Debian roots (needs root and debootstrap)
	@packaging/check

claims: build ## run the papers' claims; writes CLAIMS.md, claims/outcomes.txt and out/claims/claims.html
	@"$(ISOLANE)" claims --markdown CLAIMS.md --outcomes claims/outcomes.txt --report out/claims

cross-validation: build ## predict claims of Titan, Husky and Vulcan from the others (an hour of the processor); writes claims/cross-validation.txt
	@.ci/cross-validation "$(ISOLANE)"

readme: build ## write README's numbers and its picture from fresh runs (needs Chromium)
	@.ci/readme "$(ISOLANE)"
	@"$(ISOLANE)" audit --quick --profile cx5-100g-roce --policies none,justitia --report out/readme --force >/dev/null
	@$(CARGO) run --locked --quiet --package isolane-app-report --example screenshot -- out/readme/report.html docs/images/audit.png

bench: need-cargo ## describe the machine and run every benchmark
	@.ci/machine
	@$(CARGO) bench --locked --workspace --bench '*'

bench-hunt: build ## compare the hunt's searchers over 20 seeds, with a plot, and check the claims about them; SEEDS=2 is quick
	@"$(ISOLANE)" hunt bench --seeds $(or $(SEEDS),20) --check-claims --report out/bench-hunt

bench-nic: build ## measure the cost of fair queues: paired runs over the NIC in user space, BPF programs, simulator (needs root); ROUNDS=3 is quick
	@.ci/machine
	@"$(ISOLANE)" nic study --paired $(or $(ROUNDS),11) --flows 3,12,48
	@$(CARGO) run --locked --release --package isolane-ethernet-bpf --example cost
	@$(CARGO) bench --locked --package isolane-ethernet-simulator --bench nic

docs: need-cargo ## build the documents and the API documentation as a site in target/site, with every link checked
	@RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --workspace --no-deps
	@.ci/site "$(CARGO_TARGET_DIR)/site" --api "$(CARGO_TARGET_DIR)/doc" $(if $(wildcard $(ISOLANE)),--isolane "$(ISOLANE)")
	@printf 'The site: %s\n' "$(CARGO_TARGET_DIR)/site/index.html"

clean: ## remove build outputs and reports
	@$(CARGO) clean
	@rm -rf out

need-cargo:
	@.ci/need-cargo
