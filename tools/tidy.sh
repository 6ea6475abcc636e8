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
[ -e build/torch-dir ] && torch=$(cat build/torch-dir) || torch=none

# clang reads no precompiled header of g++: build folders of its own, configured only. All files are
# looked at in batches, since what takes time is their headers; a few each by itself.
configure() { # FOLDER BATCH_FACTOR
    cmake --preset clang -B "$1" -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON -DDSL_BATCH_FACTOR="$2" \
        -DDSL_WITH_TORCH="$([ "$torch" = none ] && echo OFF || echo ON)" >/dev/null
}
options=()
if [ "$which" = all ]; then
    folder=build/tidy-all
    options=(--checks=-bugprone-suspicious-include) # what a batch is made of
    configure $folder 2
    # CUDA files are nvcc's: clang 14 reads no toolkit of CUDA 13.
    mapfile -t files < <(sed -n 's/^  "file": "\(.*\)",\?$/\1/p' $folder/compile_commands.json |
        grep -E "^$PWD/(lib|apps|$folder/(lib|apps))/.*\.cpp$" | sort -u)
else
    folder=build/tidy
    configure $folder 0
    git rev-parse -q --verify "$which^{commit}" >/dev/null || which=main
    # Only files of the build: another architecture's kernels have no command.
    mapfile -t files < <({
        git diff --name-only --diff-filter=d "$(git merge-base "$which" HEAD)" -- 'lib/*.cpp' 'apps/*.cpp'
        git ls-files --others --exclude-standard 'lib/*.cpp' 'apps/*.cpp'
    } | sort -u | while read -r file; do
        grep -qF "/$file\"" $folder/compile_commands.json && echo "$file"
    done)
fi
[ ${#files[@]} -eq 0 ] && { echo "tidy: nothing to check"; exit 0; }
echo "tidy: ${#files[@]} files"
printf '%s\0' "${files[@]}" | xargs -0 -n 1 -P "${DSL_JOBS:-$(nproc)}" clang-tidy -p $folder --quiet "${options[@]}"
