#!/usr/bin/env bash
# Measure how fast and for how much processor time a disk is read and written by dslaunch, fio and
# DeepSpeed's async_io, and write docs/measurements.md. Arguments are io_bench.py's:
#   tests/bench/io_bench.sh --folder /nvme --turns 5 --settings 1Mx8,512Kx16
# Needs fio and, for async_io, the headers of libaio (Debian: fio libaio-dev); what is missing is
# left out and said. Variables: DSL_PEERS (folder of an environment with torch and deepspeed, as
# tools/peers.sh makes), DSL_ASYNC_IO (async_io.so, compiled before).
set -euo pipefail
cd "$(dirname "$0")/../.."
peers=${DSL_PEERS:-${XDG_CACHE_HOME:-$HOME/.cache}/dslaunch/peers}
if [ -e "$peers/activate-peers" ]; then
    set +u # activate reads variables that may be unset
    . "$peers/activate-peers"
    set -u
fi
exec python3 -W ignore tests/bench/io_bench.py --write docs/measurements.md "$@"
