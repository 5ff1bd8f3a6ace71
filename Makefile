# Thin over the CMake presets (CMakePresets.json). `make demo` and `make test` install what they need
# on Debian 12 (as root; otherwise they print the one line to run with sudo).
JOBS ?= $(shell nproc)
MODELS ?= models
LOCKSTEP := build/release/lockstep
SMOLLM2 := $(MODELS)/SmolLM2-135M-Instruct.Q4_1.gguf

.PHONY: demo test release setup setup-ci asan tsan fuzz format format-check tidy conformance clean

# Builds the program, fetches a small real model, looks at it, lets it speak, and proves it against
# what transformers computed (tests/golden/real).
demo: setup
	cmake --preset release
	cmake --build --preset release --parallel $(JOBS) --target lockstep
	tools/fetch_models.sh $(MODELS) smollm2
	tools/demo.sh $(LOCKSTEP) $(SMOLLM2)

# Builds and passes all tests. The release preset: a replay of numbers takes ten times as long in a
# debug build.
test: setup release
	ctest --preset release --parallel $(JOBS)

release: setup
	cmake --preset release
	cmake --build --preset release --parallel $(JOBS)

setup:
	@tools/setup_debian.sh build

setup-ci:
	@tools/setup_debian.sh ci

# Unit tests under a sanitizer.
asan tsan: setup-ci
	cmake --preset $@
	cmake --build --preset $@ --parallel $(JOBS)
	ctest --preset $@ --parallel $(JOBS)

# Every fuzz target for FUZZ_SECONDS seconds each, JOBS of them at a time.
FUZZ_SECONDS ?= 60
fuzz: setup-ci
	cmake --preset fuzz
	cmake --build --preset fuzz --parallel $(JOBS)
	tools/fuzz.sh build/fuzz/fuzz $(FUZZ_SECONDS) $(JOBS)

format: setup-ci
	tools/format.sh

format-check: setup-ci
	tools/format.sh --check

tidy: setup-ci
	cmake --preset release
	tools/tidy.py build/release $(JOBS)

# The replay of larger goldens: LOCKSTEP_GOLDENS=FOLDER make conformance
conformance: setup
	@test -n "$(LOCKSTEP_GOLDENS)" || { echo "make conformance: set LOCKSTEP_GOLDENS to the folder of goldens" >&2; exit 2; }
	tools/fetch_models.sh $(MODELS) all
	cmake --preset release -DLOCKSTEP_GOLDENS="$(abspath $(LOCKSTEP_GOLDENS))" -DLOCKSTEP_MODELS="$(abspath $(MODELS))"
	cmake --build --preset release --parallel $(JOBS)
	ctest --preset release --parallel $(JOBS) -E '^conformance'
	build/release/tests/conformance "$(abspath $(LOCKSTEP_GOLDENS))" --models $(MODELS)

clean:
	rm -rf build
