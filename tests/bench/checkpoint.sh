#!/usr/bin/env bash
# Saves and resumes of dslaunch beside torch.save, torch.distributed.checkpoint and DeepSpeed.
# Arguments are checkpoint.py's; variables as run.sh's.
set -euo pipefail
cd "$(dirname "$0")/../.."
. tests/bench/with_peers.sh
exec python -W ignore tests/bench/checkpoint.py --inputs "$inputs" "$@"
