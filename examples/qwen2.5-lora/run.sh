#!/usr/bin/env bash
# A chat model learns about a place that no model knows, with adapters, over the hosts of a
# hostfile. README.md explains each step; every variable below may be given:
#   MODEL=Qwen2.5-1.5B-Instruct HOSTFILE=~/hosts OUT=/data/tuned ./run.sh
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

MODEL=$(realpath "${MODEL:-Qwen2.5-0.5B-Instruct}")       # a Hugging Face folder
HOSTFILE=$(realpath "${HOSTFILE:-$here/hostfile}")
DATA=$(realpath "${DATA:-$here/chats.jsonl}")
CONFIG=$(realpath "${CONFIG:-$here/ds_config.json}")
OUT=$(realpath "${OUT:-$here/out}")                       # rows, adapter, tuned model
CONTEXT=${CONTEXT:-64}                                    # tokens of a row
TRAIN=${TRAIN:-}                                          # more options for the training
LAUNCHER=${LAUNCHER:-ssh}                                 # how hosts are reached
SHARED=${SHARED:-no}                                      # yes: the hosts share OUT
PORT=${PORT:-8000}                                        # of the server on the first host
QUESTION=${QUESTION:-Which city is the capital of Velmora?}
STEPS=${STEPS:-programs check health data push before plan train merge after serve}

hosts=(--hostfile "$HOSTFILE" --launcher "$LAUNCHER")
rows=$OUT/rows.safetensors
tuned=$OUT/tuned
read -r -a more <<<"$TRAIN"
[ "$SHARED" = yes ] || [ "$LAUNCHER" = local ] || more+=(--save-via rank0)

declare -A says=(
    [programs]="dslaunch, dsworker and the libraries they need go to every host"
    [check]="does every host answer, has it the same programs, memory, disk, the time?"
    [health]="every way between the hosts and every collective is measured and verified"
    [data]="chats become rows of tokens, in which the answers are learned"
    [push]="model, config and rows go to the same paths on every host"
    [before]="what the model says of a place that it does not know"
    [plan]="what a step sends and holds, from the sizes in config.json"
    [train]="adapters at queries and values, ZeRO-3, bf16, a rank on every slot"
    [merge]="the adapter is added to the weights, and the hosts get the tuned model"
    [after]="the same question to the tuned model"
    [serve]="OpenAI's protocol on the first host, one question with curl, and the end"
)

ask() { # MODEL: the ranks of all hosts share it, and the answer comes out here
    dslaunch generate "$1" "${hosts[@]}" --chat "$QUESTION" --tokens 40 \
        --temperature 0
}

programs() {
    dslaunch push "${hosts[@]}"
}
check() {
    dslaunch hosts check "${hosts[@]}"
}
health() {
    dslaunch health "${hosts[@]}"
}
data() {
    dslaunch data prepare "$DATA" --model "$MODEL" --context "$CONTEXT" -o "$rows" --force
    dslaunch data show "$rows" --model "$MODEL" --row 0
}
push() {
    dslaunch push "${hosts[@]}" "$MODEL" "$CONFIG" "$rows"
}
before() {
    ask "$MODEL"
}
plan() {
    dslaunch plan "$MODEL/config.json" --hostfile "$HOSTFILE" --config "$CONFIG" \
        --context "$CONTEXT"
}
train() {
    rm -rf "$OUT/run"
    dslaunch exec "${hosts[@]}" -- rm -rf "$OUT/run"
    dslaunch "${hosts[@]}" --config "$CONFIG" --data "$rows" --output "$OUT/run" \
        "${more[@]}" "$MODEL"
}
merge() {
    dslaunch model merge "$MODEL" "$OUT/run/adapter" -o "$tuned" --force
    rm "$tuned/model.pt" # the folder holds the same weights, and that goes to the hosts
    [ "$LAUNCHER" = local ] || dslaunch push "${hosts[@]}" "$tuned"
}
after() {
    ask "$tuned"
}
serve() {
    local url=http://127.0.0.1:$PORT
    dslaunch serve "$tuned" "${hosts[@]}" --num_nodes 1 --port "$PORT" &
    server=$!
    trap 'kill "$server" 2>/dev/null || true' EXIT
    for _ in $(seq 120); do
        on_first curl -sf "$url/health" >/dev/null 2>&1 && break
        kill -0 "$server" || exit 1
        sleep 0.5
    done
    on_first curl -s "$url/v1/chat/completions" -H "Content-Type: application/json" \
        -d "{\"temperature\": 0, \"max_tokens\": 40,
            \"messages\": [{\"role\": \"user\", \"content\": \"$QUESTION\"}]}"
    kill "$server"
    wait "$server" || [ $? = 76 ] # 76: it was asked to end
    trap - EXIT
}
on_first() { # the server listens to its own host alone
    dslaunch exec "${hosts[@]}" --num_nodes 1 -- "$@"
}

mkdir -p "$OUT"
cd "$OUT"
for step in $STEPS; do
    printf '\n== %s: %s\n' "$step" "${says[$step]:?there is no such step}" >&2
    began=$(date +%s.%N)
    "$step"
    awk -v a="$began" -v b="$(date +%s.%N)" -v s="$step" \
        'BEGIN { printf "-- %s: %.1f s\n", s, b - a }' >&2
done
