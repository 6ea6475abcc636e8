#!/usr/bin/env bash
# Three linear layers, 1000-1000-10, learn ten classes on two ranks of this machine.
#   OUT=/tmp/simple HOSTFILE=~/hosts ./run.sh --steps 20     options go to the training
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
HOSTFILE=$(realpath "${HOSTFILE:-$here/../../hostfiles/localhost-2}")
OUT=${OUT:-$here/out}
mkdir -p "$OUT"
cd "$OUT"

echo "== a new model" >&2
dslaunch model new mlp --widths 1000,1000,10 -o train.pt --force
echo "== rows to learn from" >&2
bash "$here/make_rows.sh" rows.safetensors
echo "== config and reference to the rows go into the model's archive" >&2
dslaunch pack train.pt --config "$here/ds_config.json" --data rows.safetensors
echo "== training on the slots of the hostfile" >&2
rm -rf run
dslaunch --hostfile "$HOSTFILE" --output run "$@" train.pt
echo "== the loss of every tenth step" >&2
awk -F '[:,]' '/"loss"/ { for (i = 1; i < NF; ++i) if ($i ~ /"loss"/) print $(i + 1) }' \
    run/metrics.jsonl | awk 'NR % 10 == 1 { printf "step %d  %s\n", NR, $1 }'
