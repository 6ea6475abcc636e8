#!/usr/bin/env bash
# Measure the CPU optimizer beside PyTorch's fused AdamW and DeepSpeedCPUAdam on the same tensors,
# and write docs/measurements.md. `make bench` calls it. Arguments are kernels.py's:
#   tests/bench/kernels.sh --turns 3
# Variables: DSL_PEERS (folder of an environment with torch and deepspeed; made when missing).
set -euo pipefail
cd "$(dirname "$0")/../.."
tools/build.sh release bench_kernels >&2
. tests/bench/activate_peers.sh
exec python -W ignore tests/bench/kernels.py --library build/release/bin/libbench_kernels.so \
    --write docs/measurements.md "$@"
