#!/usr/bin/env bash
# Saves and resumes of dslaunch beside torch.save, torch.distributed.checkpoint and DeepSpeed.
# Arguments are checkpoint.py's; variables as run.sh's.
set -euo pipefail
cd "$(dirname "$0")/../.."
cache=${XDG_CACHE_HOME:-$HOME/.cache}/dslaunch
peers=${DSL_PEERS:-$cache/peers}
inputs=${DSL_INPUTS:-$cache/inputs}

tools/peers.sh "$peers" >&2
set +u  # activate reads variables that may be unset
. "$peers/activate-peers"
set -u
python tests/fixtures/make_inputs.py "$inputs" --only kjv,gpt >&2
exec python -W ignore tests/bench/checkpoint.py --inputs "$inputs" "$@"
