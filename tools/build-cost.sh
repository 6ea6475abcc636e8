#!/usr/bin/env bash
# Measures what a first build costs: tools/build-cost.sh [--record]
# Builds both programs from nothing, without ccache, and counts the compilers' processor time in
# units of one reference file, so that machines can be compared. Fails when it is more than a tenth
# above tests/bench/build_cost.txt; --record replaces that file.
set -euo pipefail
cd "$(dirname "$0")/.."
record=tests/bench/build_cost.txt folder=build/cost
torch=$(cat build/torch-dir)

# seconds COMMAND...: user and system time of the command and of all that it starts
seconds() {
    local TIMEFORMAT='%U %S'
    { time "$@" >"$folder.log" 2>&1; } 2>&1 | awk '{ print $1 + $2 }'
}

reference() {
    for _ in 1 2 3; do
        seconds c++ -std=c++20 -O1 -c tests/bench/build_reference.cpp -o "$folder.o"
    done | sort -n | head -1
}

rm -rf "$folder"
cmake --preset release -B "$folder" -DDSL_CCACHE=OFF \
    -DDSL_WITH_TORCH="$([ "$torch" = none ] && echo OFF || echo ON)" >"$folder.log"
before=$(reference)
build=$(seconds ninja -C "$folder" -j "${DSL_JOBS:-$(nproc)}" programs)
after=$(reference)
rm -rf "$folder" "$folder.o"
cost=$(awk -v b="$build" -v x="$before" -v y="$after" 'BEGIN { printf "%.0f", 2 * b / (x + y) }')
echo "build of both programs: $build s of processor time, $cost times the reference file ($before, $after s)"
if [ "${1:-}" = --record ]; then
    echo "$cost" >"$record"
    exit
fi
[ -e "$record" ] || { echo "no record to compare with: tools/build-cost.sh --record makes it" >&2; exit 1; }
allowed=$(awk '{ printf "%.0f", $1 * 1.1 }' "$record")
if [ "$cost" -gt "$allowed" ]; then
    echo "that is more than $allowed, a tenth above $(cat "$record"): ninja's log and -ftime-trace say where" >&2
    exit 1
fi
