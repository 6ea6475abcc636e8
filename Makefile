# What people run. Each target does the set-up it needs or finds it done.
#   make demo        train a small GPT on the King James text, on two ranks, and let it write
#   make test        build everything and run the tests
#   make build       build the two programs, and the CUDA plugin where it can be, into build/release/bin
#   make package     an archive and a .deb in build/dist, with LibTorch for CPUs; TORCH=apart: without it,
#                    with the plugin for GPUs
#   make wheel       a wheel in build/dist for pip, which uses the environment's torch
#   make package-check  install all of them from nothing (root, debootstrap, python3 -m venv)
#   make cross       build the programs for 64-bit ARM on an x86 machine with Debian, into
#                    build/aarch64/bin; CROSS="test_kernels …" builds other targets
#   make parquet     the same, with Arrow (fetched: 55 MB), so that `data prepare` reads Parquet
#   make test-long   also what takes minutes: long matrices, other processors' kernels, headers alone,
#                    one definition of each type, sanitizers, fuzzers
#   make processors  the tests that compute, with the kernels of slower processors
#   make sanitize    the tests without LibTorch, under address+undefined and thread sanitizers
#   make fuzz        the fuzzers of tests/fuzz, FUZZ_SECONDS each (60) or FUZZ_RUNS executions;
#                    FUZZ_BUILD=fuzz-fast for the fast build, FUZZ="hostfile_fuzz …" for some of them
#   make build-cost  what a first build costs in processor time, and whether it has grown by a tenth
#   make bench       measure beside PyTorch, DeepSpeed (fetches both) and fio, write docs/measurements.md
#   make format      format every file; make format-check only looks
#   make tidy        clang-tidy over what differs from origin/main; TIDY=all over every file
.PHONY: build setup package wheel package-check cross parquet demo test test-long processors odr sanitize fuzz bench build-cost format format-check tidy headers help
.DEFAULT_GOAL := build

FUZZ_SECONDS ?= 60
TORCH ?= inside
FUZZ_BUILD ?= fuzz

help:
	@sed -n 's/^#   //p' Makefile

setup:
	@tools/setup.sh

build: setup
	@tools/build.sh release programs

package: setup
	@tools/build.sh release programs library
	@tools/package.sh -t $(TORCH) archive deb

wheel: build
	@tools/package.sh wheel

package-check: package wheel
	@tools/package-check.sh

cross:
	@tools/cross.sh $(CROSS)

parquet:
	@DSL_ARROW=ON tools/setup.sh
	@tools/build.sh release programs

demo: build
	@tools/demo.sh

test: setup
	@tools/build.sh release
	@tools/test.sh release

test-long: test headers odr
	@tools/test.sh release -L long
	@tools/processors.sh release
	@$(MAKE) --no-print-directory sanitize fuzz

processors: setup
	@tools/build.sh release
	@tools/processors.sh release

build-cost: setup
	@tools/build-cost.sh

headers: setup
	@tools/build.sh release check_headers

# Both programs, linked with the check that no type has two definitions.
odr: setup
	@tools/build.sh odr programs

sanitize: setup
	@tools/build.sh asan && tools/test.sh asan
	@tools/build.sh tsan && tools/test.sh tsan

fuzz: setup
	@tools/fuzz.sh -b $(FUZZ_BUILD) $(if $(FUZZ_RUNS),-r $(FUZZ_RUNS),-s $(FUZZ_SECONDS)) $(FUZZ)

bench: build
	@tests/bench/run.sh
	@tests/bench/io_bench.sh
	@tests/bench/kernels.sh
	@tests/bench/collectives.sh
	@tests/bench/cases.sh

format:
	@tools/format.sh

format-check:
	@tools/format.sh --check

tidy: setup
	@tools/tidy.sh $(TIDY)
