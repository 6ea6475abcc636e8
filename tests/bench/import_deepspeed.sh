#!/usr/bin/env bash
# Training begun in DeepSpeed and gone on in dslaunch, beside the same training all in DeepSpeed.
# Arguments are import_deepspeed.py's; variables as run.sh's.
set -euo pipefail
cd "$(dirname "$0")/../.."
. tests/bench/with_peers.sh
exec python -W ignore tests/bench/import_deepspeed.py --inputs "$inputs" "$@"
