#!/usr/bin/env bash
# Run the tests whose numbers come from a processor's kernels (label "processor") as other
# processors would: tools/processors.sh PRESET [ctest options]
# Each turn bounds LibTorch's own kernels, oneDNN's and ours. Turns that this processor cannot run
# are named and left out.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
preset=${1:?usage: tools/processors.sh PRESET [ctest options]}
shift

status=0
while read -r needs aten onednn own; do
    turn="ATEN_CPU_CAPABILITY=$aten ONEDNN_MAX_CPU_ISA=$onednn DSL_ISA=$own"
    if ! grep -qw "$needs" /proc/cpuinfo; then
        echo "processors: left out, since this processor has no $needs: $turn"
        continue
    fi
    echo "processors: $turn"
    variables=(ATEN_CPU_CAPABILITY="$aten")
    [ "$onednn" = - ] || variables+=(ONEDNN_MAX_CPU_ISA="$onednn")
    [ "$own" = - ] || variables+=(DSL_ISA="$own")
    env "${variables[@]}" tools/test.sh "$preset" -L processor -LE long "$@" || status=1
done <<'TURNS'
fpu default SSE41 scalar
fpu default - -
avx2 avx2 AVX2 avx2
avx2 avx2 - -
avx512f avx512 AVX512_CORE avx512
avx512f avx512 - -
TURNS
exit $status
