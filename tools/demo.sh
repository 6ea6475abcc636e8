#!/usr/bin/env bash
# The main job from nothing: a GPT made without Python learns the King James Bible on two ranks of
# this machine, then writes a few lines.
#   demo.sh [FOLDER]   FOLDER: build/demo when not given; binaries: DSL_BIN, else build/release/bin
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
bin=${DSL_BIN:-$here/build/release/bin}
folder=${1:-$here/build/demo}
example=$here/examples/gpt-kjv

for program in "$bin/dslaunch" "$bin/dsworker"; do
    [ -x "$program" ] || { echo "demo: no $program: run make build first" >&2; exit 71; }
done
command -v bible >/dev/null || {
    echo "demo: the text comes from the Debian package bible-kjv: apt-get install bible-kjv" >&2
    exit 71
}

say() { printf '\n== %s\n' "$*" >&2; }

mkdir -p "$folder"
cd "$folder"
if [ ! -s kjv.tokens ]; then
    say "King James text -> byte tokens"
    bible -f gen1:1-rev22:21 >kjv.txt
    "$bin/dslaunch" tokens bytes kjv.txt -o kjv.tokens
fi
say "a new GPT, with the config and the data reference inside its archive"
"$bin/dslaunch" model new gpt --size small --vocab 256 --width 192 --heads 6 --layers 4 \
    --context 64 -o train.pt --force
"$bin/dslaunch" pack train.pt --config "$example/ds_config.json" --data kjv.tokens
say "training on two ranks with ZeRO stage 3"
rm -rf run
"$bin/dslaunch" --hostfile "$here/hostfiles/localhost-2" --output run train.pt
say "what it writes"
"$bin/dslaunch" generate run/model.pt --prompt "In the beginning" --tokens 400 --seed 1
