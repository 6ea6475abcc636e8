#!/usr/bin/env bash
# Measure dslaunch's ZeRO stages beside compute alone, PyTorch DDP and FSDP2, and DeepSpeed's
# stages, and write docs/measurements.md. `make bench` calls it. Arguments are compare_peers.py's:
#   tests/bench/run.sh --shapes 1x64 --only compute,fsdp2,deepspeed3,dslaunch3 --turns 1
# Variables: DSL_PEERS and DSL_INPUTS (folders; made when missing), DSL_COMMAND (dslaunch and its
# options), DSL_BENCH_TURNS.
set -euo pipefail
cd "$(dirname "$0")/../.."
. tests/bench/with_peers.sh
exec python -W ignore tests/bench/compare_peers.py --inputs "$inputs" \
    --turns "${DSL_BENCH_TURNS:-3}" \
    --ours "${DSL_COMMAND:-build/release/bin/dslaunch --num_gpus 2 --device cpu}" \
    --write docs/measurements.md "$@"
