# Sourced from the repository's root: the environment of the peers, torch and deepspeed, is made and
# active; $peers is its folder.
# Variables: DSL_PEERS (folder; made when missing).
peers=${DSL_PEERS:-${XDG_CACHE_HOME:-$HOME/.cache}/dslaunch/peers}
tools/peers.sh "$peers" >&2
set +u  # activate reads variables that may be unset
. "$peers/activate-peers"
set -u
