#!/usr/bin/env bash
# Run the tests of a preset and end with what was skipped: tools/test.sh PRESET [ctest options]
# One test program more than there are processors runs at once, since tests of faults and hosts mostly
# wait; DSL_TEST_JOBS is another number.
# Without a label asked for, tests that take minutes (label "long") are left to `make test-long`.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
preset=${1:?usage: tools/test.sh PRESET [ctest options]}
shift
[ $# -eq 0 ] && set -- -LE long

empty=error
[ "$*" = "-L long" ] && empty=ignore
progress=()
[ -t 1 ] && progress=(--progress) # one line that says what is left
ctest --test-dir "build/$preset" "${progress[@]}" --output-on-failure --no-tests=$empty -j "${DSL_TEST_JOBS:-$(($(nproc) + 1))}" "$@"
status=$?

# A test that cannot run here prints one line, `SKIPPED: WHAT because WHY` (tests/support/skip.h).
log=build/$preset/Testing/Temporary/LastTest.log
skipped=$(sed -n 's/^.*SKIPPED: /  /p' "$log" | sort -u)
if grep -qx none build/torch-dir 2>/dev/null && [ "$preset" = release ]; then
    skipped="  everything that needs LibTorch because DSL_TORCH=OFF was asked for
$skipped"
fi
case "$preset" in
asan | tsan)
    skipped="  everything that needs LibTorch because its libraries are not instrumented ($preset)
$skipped"
    ;;
esac
echo
if [ -n "$skipped" ]; then
    echo "Skipped:"
    echo "$skipped" | sed '/^$/d'
else
    echo "Skipped: nothing"
fi
exit $status
