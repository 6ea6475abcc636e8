#!/usr/bin/env bash
# Measure a step between two hosts whose link tc holds to a rate, beside PyTorch and DeepSpeed, and
# print the tables. Needs root and iproute2. Arguments are links.py's:
#   tests/bench/links.sh --rates 1gbit --only ddp,deepspeed2,dslaunch2,dslaunch2-quantized
# Variables: DSL_PEERS and DSL_INPUTS (folders; made when missing).
set -euo pipefail
cd "$(dirname "$0")/../.."
. tests/bench/with_peers.sh
exec python -W ignore tests/bench/links.py --inputs "$inputs" \
    --ours build/release/bin/dslaunch "$@"
