#!/usr/bin/env bash
# Run the test cases that judge rates, which need the machine alone. `make bench` calls it.
# Variables: DSL_BENCH_FOLDER (a folder of the disk on which checkpoints are written; build/release).
set -euo pipefail
cd "$(dirname "$0")/../.."
programs=$PWD/build/release/bin

tools/build.sh release test_runtime test_checkpoint >&2
"$programs/test_runtime" '[.bench]'
cd "${DSL_BENCH_FOLDER:-build/release}"
"$programs/test_checkpoint" '[.bench]'
