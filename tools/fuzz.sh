#!/usr/bin/env bash
# Build every libFuzzer program of tests/fuzz with clang and run each for SECONDS: tools/fuzz.sh [SECONDS]
# What a fuzzer finds is left in build/fuzz/NAME-*; inputs worth keeping go to tests/fuzz/corpus, made small with -merge=1.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
command -v clang++ >/dev/null || {
    echo "SKIPPED: fuzzing because clang++ is not installed; on Debian: apt-get install clang" >&2
    exit 0
}
cmake --preset fuzz >/dev/null
ninja -C build/fuzz -j "${DSL_JOBS:-$(nproc)}" fuzzers
for program in build/fuzz/bin/*_fuzz; do
    name=$(basename "$program")
    corpus=build/fuzz/corpus/$name
    mkdir -p "$corpus"
    seeds=()
    case $name in
    hostfile_fuzz) seeds=(hostfiles hostfiles/bad) ;;
    esac
    [ -d "tests/fuzz/corpus/$name" ] && seeds+=("tests/fuzz/corpus/$name")
    echo "fuzz: $name for $seconds s"
    "$program" -max_total_time="$seconds" -print_funcs=0 -timeout=10 -rss_limit_mb=2048 -print_final_stats=0 \
        -verbosity=0 -artifact_prefix="build/fuzz/$name-" "$corpus" "${seeds[@]}"
done
