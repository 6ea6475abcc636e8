#!/usr/bin/env bash
# Measure collectives beside Gloo, torch.distributed and DeepSpeed's operator over shared memory,
# and write docs/measurements.md. `make bench` calls it. Arguments are collectives.py's:
#   tests/bench/collectives.sh --turns 3 --kib 4096
# Variables: DSL_PEERS (folder of an environment with torch and deepspeed; made when missing).
set -euo pipefail
cd "$(dirname "$0")/../.."
tools/build.sh release bench_collectives >&2
. tests/bench/activate_peers.sh
exec python -W ignore tests/bench/collectives.py --bench build/release/bin/bench_collectives \
    --write docs/measurements.md "$@"
