#!/usr/bin/env bash
# Pipelines of dslaunch beside DeepSpeed's PipelineModule and torch.distributed.pipelining.
# Arguments are pipeline.py's; variables as run.sh's.
set -euo pipefail
cd "$(dirname "$0")/../.."
. tests/bench/with_peers.sh
exec python -W ignore tests/bench/pipeline.py --inputs "$inputs" "$@"
