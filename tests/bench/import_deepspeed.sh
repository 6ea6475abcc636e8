#!/usr/bin/env bash
# Training begun in DeepSpeed and gone on in dslaunch, beside the same training all in DeepSpeed.
# Arguments are import_deepspeed.py's; variables as run.sh's.
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
exec python -W ignore tests/bench/import_deepspeed.py --inputs "$inputs" "$@"
