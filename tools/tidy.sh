#!/usr/bin/env bash
# clang-tidy over the C++ sources that differ from a branch, or over all: tools/tidy.sh [all|BRANCH]
# Files with LibTorch are checked where build/release was configured with it.
set -euo pipefail
cd "$(dirname "$0")/.."
which=${1:-origin/main}
command -v clang-tidy >/dev/null || {
    echo "tidy: clang-tidy is missing; on Debian: apt-get install clang-tidy" >&2
    exit 1
}
# clang reads no precompiled header of g++: a build folder of its own, configured only, in which each
# file has a command.
[ -e build/torch-dir ] && torch=$(cat build/torch-dir) || torch=none
cmake --preset clang -B build/tidy -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON -DDSL_SINGLE_FILES=ON \
    -DDSL_WITH_TORCH="$([ "$torch" = none ] && echo OFF || echo ON)" >/dev/null

if [ "$which" = all ]; then
    mapfile -t files < <(git ls-files 'lib/*.cpp' 'apps/*.cpp')
else
    git rev-parse -q --verify "$which^{commit}" >/dev/null || which=main
    mapfile -t files < <({
        git diff --name-only --diff-filter=d "$(git merge-base "$which" HEAD)" -- 'lib/*.cpp' 'apps/*.cpp'
        git ls-files --others --exclude-standard 'lib/*.cpp' 'apps/*.cpp'
    } | sort -u)
fi
# Only files of the build: another architecture's kernels have no command.
mapfile -t files < <(for file in "${files[@]}"; do
    grep -qF "/$file\"" build/tidy/compile_commands.json && echo "$file"
done)
[ ${#files[@]} -eq 0 ] && { echo "tidy: nothing to check"; exit 0; }
echo "tidy: ${#files[@]} files"
printf '%s\0' "${files[@]}" | xargs -0 -n 1 -P "${DSL_JOBS:-$(nproc)}" clang-tidy -p build/tidy --quiet
