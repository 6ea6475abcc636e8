#!/usr/bin/env bash
# Configure and build one preset: tools/build.sh PRESET [TARGET...]
set -euo pipefail
cd "$(dirname "$0")/.."
preset=${1:?usage: tools/build.sh PRESET [TARGET...]}
shift

# Configuring again is left to ninja, which sees when a CMake file has changed.
torch=$(cat build/torch-dir)
settings="$torch $(cat build/arrow-dir 2>/dev/null || true)" configured=build/$preset/configured-with
options=()
case $preset in
dev | release | clang | odr) options=(-DDSL_WITH_TORCH="$([ "$torch" = none ] && echo OFF || echo ON)") ;;
esac
if [ ! -e "build/$preset/build.ninja" ] || [ "$settings" != "$(cat "$configured" 2>/dev/null)" ]; then
    cmake --preset "$preset" "${options[@]}"
    echo "$settings" >"$configured"
fi
export NINJA_STATUS="${NINJA_STATUS:-[%u of %t left, %es] }"
# DSL_JOBS bounds the compilers at once; files with LibTorch are bounded by memory besides.
exec ninja -C "build/$preset" -j "${DSL_JOBS:-$(nproc)}" "$@"
