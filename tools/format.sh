#!/usr/bin/env bash
# clang-format over every C++ file of the repository; --check only lists what would change.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v clang-format >/dev/null || {
    echo "format: clang-format is missing; on Debian: apt-get install clang-format" >&2
    exit 1
}
mapfile -t files < <(git ls-files --cached --others --exclude-standard '*.h' '*.cpp' '*.cu' '*.cuh')
if [ "${1:-}" = --check ]; then
    exec clang-format --dry-run -Werror "${files[@]}"
fi
exec clang-format -i "${files[@]}"
