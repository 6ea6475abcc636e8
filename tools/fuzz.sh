#!/usr/bin/env bash
# Build the libFuzzer programs of tests/fuzz with clang and run them one after the other:
#   tools/fuzz.sh [-b fuzz|fuzz-fast] [-s SECONDS | -r EXECUTIONS] [-l BYTES] [-k] [NAME...]
#   -b  fuzz (the default): address and undefined-behaviour sanitizers, every comparison traced.
#       fuzz-fast: optimized, undefined behaviour traps, libstdc++'s assertions; about 50 times the executions a second. Its
#       corpus goes through the programs of `fuzz` afterwards.
#   -s  seconds for each (60); -r  executions for each instead, as 100000000
#   -l  longest input, in bytes, instead of what each fuzzer has: short ones are several times as fast
#   -k  keep: make tests/fuzz/corpus the smallest set of inputs that covers what the working corpus covers, beside those that
#       have a name of their own (found faults), and run nothing
#   NAME  as hostfile_fuzz; without one all of them
# DSL_FUZZ_TIMEOUT: seconds of wall time that one execution may take (10); more on a machine that is busy elsewhere.
# Both builds grow one working corpus, build/fuzz/corpus/NAME. What they print is in build/fuzz/NAME.log; what a fuzzer finds is
# left as build/fuzz/NAME-crash-*, and belongs into tests/fuzz/corpus/NAME once it is mended: `make test` walks those.
set -euo pipefail
cd "$(dirname "$0")/.."

build=fuzz limit=-max_total_time=60 keep=no longest=
while getopts b:s:r:l:k option; do
    case $option in
    b) build=$OPTARG ;;
    s) limit=-max_total_time=$OPTARG ;;
    r) limit=-runs=$OPTARG ;;
    l) longest=$OPTARG ;;
    k) keep=yes ;;
    *) exit 64 ;;
    esac
done
shift $((OPTIND - 1))
case $build in fuzz | fuzz-fast) ;; *) echo "tools/fuzz.sh: -b $build is neither fuzz nor fuzz-fast" >&2 && exit 64 ;; esac
command -v clang++ >/dev/null || {
    echo "SKIPPED: fuzzing because clang++ is not installed; on Debian: apt-get install clang" >&2
    exit 0
}
names=("$@")
[ $# -gt 0 ] || mapfile -t names < <(find tests/fuzz -name "*_fuzz.cpp" -exec basename -a -s .cpp {} + | sort)

build_with() {
    [ -e "build/$1/build.ninja" ] || cmake --preset "$1" >/dev/null
    ninja -C "build/$1" -j "${DSL_JOBS:-$(nproc)}" --quiet "${names[@]}"
}
# Long enough for every rule of the grammar and short enough to be fast; the build that traces comparisons takes longer ones.
bytes_max() {
    [ -n "$longest" ] && echo "$longest" && return
    [ "$build" = fuzz ] && echo 4096 && return
    case $1 in
    hostfile_fuzz | filter_fuzz | environment_fuzz | slurm_fuzz | small_grammar_fuzz) echo 128 ;;
    script_archive_fuzz) echo 1024 ;;
    *) echo 256 ;;
    esac
}
common=(-print_funcs=0 -timeout="${DSL_FUZZ_TIMEOUT:-10}" -rss_limit_mb=2048 -verbosity=1)
fast=(-entropic=0 -use_counters=0 -reduce_inputs=0)

run_one() {
    local name=$1 corpus=build/fuzz/corpus/$1 log=build/fuzz/$1.log options=("${common[@]}") status=0 dict
    local seeds=("$corpus")
    mkdir -p "$corpus"
    [ -d "tests/fuzz/corpus/$name" ] && seeds+=("tests/fuzz/corpus/$name")
    [ "$name" = hostfile_fuzz ] && seeds+=(hostfiles hostfiles/bad)
    dict=$(find tests/fuzz -name "$name.dict")
    [ -n "$dict" ] && options+=(-dict="$dict")
    [ "$build" = fuzz-fast ] && options+=("${fast[@]}")
    "build/$build/bin/$name" "${options[@]}" "$limit" -max_len="$(bytes_max "$name")" -print_final_stats=1 \
        -artifact_prefix="build/fuzz/$name-" "${seeds[@]}" >"$log" 2>&1 || status=$?
    if [ $status = 0 ] && [ "$build" = fuzz-fast ]; then
        "build/fuzz/bin/$name" "${common[@]}" -runs=0 -artifact_prefix="build/fuzz/$name-" "$corpus" >>"$log" 2>&1 || status=$?
    fi
    echo "$name ($build): $(sed -n 's/^stat::number_of_executed_units: *//p' "$log" | tail -1) executions," \
        "$(sed -n 's/^stat::average_exec_per_sec: *//p' "$log" | tail -1) a second," \
        "$(grep -o 'cov: [0-9]* ft: [0-9]* corp: [0-9]*' "$log" | tail -1)"
    [ $status = 0 ] && return
    tail -40 "$log"
    echo "$name: FAILED; the whole output is in $log" >&2
    return 1
}

# Coverage of edges alone decides, so that hundreds of inputs remain instead of thousands.
keep_one() {
    local name=$1 kept=tests/fuzz/corpus/$1 fresh
    fresh=$(mktemp -d)
    build/fuzz/bin/"$name" "${common[@]}" -set_cover_merge=1 -use_counters=0 -max_len=4096 "$fresh" "$kept" \
        "build/fuzz/corpus/$name" >"build/fuzz/$name.log" 2>&1
    mkdir -p "$kept"
    find "$kept" -type f -regextype posix-extended -regex '.*/[0-9a-f]{40}' -delete
    cp "$fresh"/* "$kept" && rm -rf "$fresh"
    echo "$name: $(find "$kept" -type f | wc -l) inputs, $(cat "$kept"/* | wc -c) bytes"
}

# Files of fuzzers lie in memory, where a sync costs nothing.
[ -w /dev/shm ] && export TMPDIR=/dev/shm
build_with fuzz
failed=0
if [ $keep = yes ]; then
    for name in "${names[@]}"; do keep_one "$name"; done
    exit
fi
[ "$build" = fuzz ] || build_with "$build"
for name in "${names[@]}"; do run_one "$name" || failed=1; done
exit $failed
