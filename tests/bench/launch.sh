#!/usr/bin/env bash
# Measure how long it takes to start a command that does nothing, and to be rid of it, on 4 hosts and
# under 250 host names, beside pdsh, deepspeed over pdsh and torchrun over ssh, and write
# docs/measurements.md. Makes its hosts by tests/cluster/rig.sh; needs root, leaves nothing. Peers
# that are not installed are left out. Arguments are launch.py's:
#   tests/bench/launch.sh --turns 5 --only dslaunch,pdsh
# Variables: DSL_PEERS (folder of an environment with torch and deepspeed, as tools/peers.sh makes).
set -euo pipefail
cd "$(dirname "$0")/../.."
dir=$(mktemp -d /tmp/dslaunch-launch-XXXXXX) prefix=dl$(($$ % 1000))x
rmdir "$dir"
trap 'tests/cluster/rig.sh down "$dir" "$prefix"' EXIT
MAX_STARTUPS=1000 tests/cluster/rig.sh up "$dir" "$prefix" 4 250 >&2
python3 tests/bench/launch.py --rig "$dir" --space "${prefix}0" --write docs/measurements.md \
    --peers "${DSL_PEERS:-${XDG_CACHE_HOME:-$HOME/.cache}/dslaunch/peers}" "$@"
