#!/usr/bin/env bash
# Writes rows to learn from as a .safetensors file: make_rows.sh FILE [ROWS]
#   x  float32 [ROWS, 1000]: 1 or -1 by chance; of the hundred numbers that belong to the row's
#      class three in four are 1
#   y  int64 [ROWS]: the class, 0 to 9
# Such a file is the length of its header in 8 bytes, the header in JSON, all x, all y.
set -euo pipefail
export LC_ALL=C
file=$1
rows=${2:-512}
x_bytes=$((rows * 4000))
all_bytes=$((rows * 4008))

header="{\"x\":{\"dtype\":\"F32\",\"shape\":[$rows,1000],\"data_offsets\":[0,$x_bytes]},"
header+="\"y\":{\"dtype\":\"I64\",\"shape\":[$rows],\"data_offsets\":[$x_bytes,$all_bytes]}}"
while [ $((${#header} % 8)) != 0 ]; do header+=' '; done

# awk writes the bytes of a row in a line, each as \0 and its octal digits; printf makes bytes of
# them. 1 is 00 00 80 3f, and -1 is 00 00 80 bf.
awk -v rows="$rows" -v header="$header" '
    BEGIN {
        srand(1234)
        printf "\\0%03o\\0%03o\\0\\0\\0\\0\\0\\0%s\n", length(header) % 256,
            int(length(header) / 256), header
        for (row = 0; row < rows; ++row) {
            line = ""
            for (i = 0; i < 1000; ++i) {
                likely = int(i / 100) == row % 10 ? 0.75 : 0.5
                line = line "\\0000\\0000\\0200" (rand() < likely ? "\\0077" : "\\0277")
            }
            print line
        }
        for (row = 0; row < rows; ++row) printf "\\0%03o\\0\\0\\0\\0\\0\\0\\0\n", row % 10
    }' | while IFS= read -r bytes; do printf '%b' "$bytes"; done >"$file"
