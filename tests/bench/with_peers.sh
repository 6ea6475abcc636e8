# Sourced by the measurements beside Python peers, from the repository's root: the environment of
# the peers is made and active, and $inputs has the models and texts.
# Variables: DSL_PEERS and DSL_INPUTS (folders; made when missing).
cache=${XDG_CACHE_HOME:-$HOME/.cache}/dslaunch
peers=${DSL_PEERS:-$cache/peers}
inputs=${DSL_INPUTS:-$cache/inputs}

tools/peers.sh "$peers" >&2
set +u  # activate reads variables that may be unset
. "$peers/activate-peers"
set -u
python tests/fixtures/make_inputs.py "$inputs" --only kjv,gpt >&2
