# Sourced by the measurements beside Python peers, from the repository's root: the environment of
# the peers is made and active, and $inputs has the models and texts.
# Variables: DSL_PEERS and DSL_INPUTS (folders; made when missing).
inputs=${DSL_INPUTS:-${XDG_CACHE_HOME:-$HOME/.cache}/dslaunch/inputs}
. tests/bench/activate_peers.sh
python tests/fixtures/make_inputs.py "$inputs" --only kjv,gpt >&2
