#!/usr/bin/env bash
# Makes what users install, from programs that are built: an archive, a Debian package, a wheel.
#   tools/package.sh [-t TORCH] [-b BUILD] [-o FOLDER] [-z LEVEL] KIND...
# KIND is archive (.tar.zst), deb or wheel. TORCH is inside (the default): LibTorch for CPUs comes
# along; or apart: the plugin for GPUs comes along, LibTorch and CUDA do not, since a torch of the
# target machine is used. A wheel is always apart: pip brings torch.
# BUILD is build/release, FOLDER build/dist, LEVEL zstd's (12).
# The programs are what `cmake --install` installs, and the libraries what `dslaunch bundle` finds.
set -euo pipefail
cd "$(dirname "$0")/.."
umask 022

say() { echo "package: $*" >&2; }
die() {
    say "$*"
    exit 1
}

readonly example=share/dslaunch/examples/gpt-kjv
torch=inside build=build/release out=build/dist level=12
while getopts t:b:o:z: option; do
    case $option in
    t) torch=$OPTARG ;;
    b) build=$OPTARG ;;
    o) out=$OPTARG ;;
    z) level=$OPTARG ;;
    *) exit 64 ;;
    esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || die "say what to make: archive, deb, wheel"
case $torch in inside | apart) ;; *) die "-t $torch: is inside or apart" ;; esac
command -v zstd >/dev/null || die "zstd is missing: apt-get install zstd"
[ -x "$build/bin/dsworker" ] || die "no $build/bin/dsworker: run make build, with LibTorch"
# shellcheck source=/dev/null
. "$build/package-facts" # version, torch_dir, torch_version
machine=$(uname -m)
# Equal files make equal packages: all carry the time of the last commit.
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH=$epoch
work=$(mktemp -d "${TMPDIR:-/tmp}/dslaunch-package.XXXXXX")
trap 'rm -rf "$work"' EXIT

# The C++ runtime is the target's: a newer one serves older programs, and it must serve LibTorch too.
is_left_out() { # NAME PATH
    case $1 in libstdc++.so.* | libgcc_s.so.*) return ;; esac
    [ "$torch" = apart ] || return
    case $2 in "$torch_dir"/* | */nvidia/* | */libcu* | */libnv* | */libnccl.so.*) ;; *) return 1 ;; esac
}

# Libraries whose headers are compiled into the programs, so that no file of theirs comes along.
readonly headers=(CLI/CLI.hpp fmt/core.h gloo/allreduce.h nlohmann/json.hpp spdlog/spdlog.h)

# The licences of what comes along, which ask to be passed on with it: from Debian's packages, from
# NVIDIA's wheels and from torch's. A library without one is an error.
add_licenses() { # FOLDER PATH...
    local folder=$1 path owner text
    mkdir -p "$folder"
    shift
    for path in "$@" "${headers[@]/#//usr/include/}"; do
        case $path in "$torch_dir"/*) continue ;; esac
        path=$(readlink -f "$path")
        # Debian knows some files by the folder that is a link to /usr/lib.
        owner=$({ dpkg-query -S "$path" || dpkg-query -S "${path#/usr}" || true; } 2>/dev/null)
        owner=${owner%%:*}
        text=/usr/share/doc/$owner/copyright
        if [ -z "$owner" ] || [ ! -e "$text" ]; then
            add_wheel_licenses "$folder" "$path" ||
                die "$path: neither a Debian package nor the metadata of a wheel states its licence"
            continue
        fi
        cp "$text" "$folder/$owner"
    done
    [ ! -e LICENSE ] || cp LICENSE "$folder/dslaunch"
    [ "$torch" = apart ] || add_torch_licenses "$folder"
}

# Copies the licences of the wheel that the library PATH is from. The wheel's RECORD names PATH, and
# is in a NAME.dist-info that lies, perhaps in a folder dist-info, in a folder above PATH.
add_wheel_licenses() { # FOLDER PATH
    local place=$2 record name text found=false
    while [ "$place" != / ]; do
        place=$(dirname "$place")
        for record in "$place"/{,dist-info/}*.dist-info/RECORD; do
            grep -qsF "/${2##*/}," "$record" || continue
            name=$(basename "$(dirname "$record")" .dist-info)
            while read -r text; do
                cp "$text" "$1/$name.${text##*/}"
                found=true
            done < <(find "$(dirname "$record")" -iname 'LICENSE*' -type f)
            $found && return
        done
    done
    return 1
}

add_torch_licenses() { # FOLDER
    local path
    while read -r path; do cp "$path" "$1/torch.$(basename "$path")"; done < <(
        find "$torch_dir/.." "$torch_dir/../../licenses" -maxdepth 3 2>/dev/null \
            -path "*torch-*.dist-info/*" \( -name 'LICENSE*' -o -name 'NOTICE*' \) || true
    )
    [ -e "$1/torch.LICENSE" ] || die "no licence of LibTorch is beside $torch_dir"
}

# What packages say of dslaunch's own licence: the text of LICENSE, once the tree has one.
own_licence() {
    if [ -e LICENSE ]; then
        cat LICENSE
    else
        echo "The sources of dslaunch state no licence: ask its authors before you copy or change it."
    fi
}

# Debian's file of copyrights: what is known of dslaunch, then the licences of FOLDER in full.
write_copyright() { # FOLDER
    local path
    cat <<TEXT
dslaunch $version, by the developers of dslaunch.

$(own_licence)

This package holds, or is built with, software of others. Their copyrights and licences follow.
TEXT
    for path in "$1"/*; do
        printf '\n\n%s\n==== %s\n%s\n\n' "$(printf '=%.0s' {1..78})" "${path##*/}" \
            "$(printf '=%.0s' {1..78})"
        cat "$path"
    done
}

# Copies an installation into FOLDER, without the bytes: bin, lib/dslaunch, share.
stage() { # FOLDER
    [ -e "$work/staged-$torch" ] || lay_out "$work/staged-$torch"
    mkdir -p "$(dirname "$1")"
    cp -al "$work/staged-$torch" "$1"
}

lay_out() { # FOLDER
    local folder=$1 component name path paths=()
    for component in programs plugins manuals library; do
        [ "$component$torch" = pluginsinside ] && continue
        # `make build` leaves out what programs of users link.
        [ $component = library ] && [ ! -e "$build/bin/libdslaunch_engine.so" ] && continue
        cmake --install "$build" --prefix "$folder" --component $component --strip >"$work/log" ||
            die "cmake --install failed: $(cat "$work/log")"
    done
    "$folder/bin/dslaunch" tokens bytes "$folder/$example/genesis.txt" \
        -o "$folder/$example/genesis.tokens" >"$work/log" 2>&1 || die "$(cat "$work/log")"
    mkdir -p "$folder/lib/dslaunch"
    env -i HOME="$work" PATH="$PATH" DSLAUNCH_TORCH="$torch_dir" "$folder/bin/dslaunch" bundle \
        "$work/none.tar.zst" --dry-run >"$work/files" || die "the libraries could not be listed"
    while IFS=$'\t' read -r name path; do
        case $name in lib/dslaunch/libdsl_*) continue ;; lib/dslaunch/*) ;; *) continue ;; esac
        is_left_out "${name##*/}" "$path" && continue
        cp -L "$path" "$folder/$name"
        paths+=("$path")
    done <"$work/files"
    chmod 644 "$folder"/lib/dslaunch/*
    # A third of LibTorch's file is names that only a debugger reads.
    [ ! -e "$folder/lib/dslaunch/libtorch_cpu.so" ] ||
        strip --strip-unneeded "$folder"/lib/dslaunch/libtorch*.so
    add_licenses "$folder/share/doc/dslaunch/licenses" "${paths[@]}"
    write_copyright "$folder/share/doc/dslaunch/licenses" >"$folder/share/doc/dslaunch/copyright"
    [ "$torch" = apart ] || [ -e "$folder/lib/dslaunch/libtorch_cpu.so" ] || die "no LibTorch found"
}

# The newest version NAME_x.y that a file of FOLDER asks for.
newest() { # NAME FOLDER
    { find "$2/bin" "$2/lib/dslaunch" -type f -exec readelf -VW {} + 2>/dev/null || true; } |
        sed -n "s/.*Name: $1_\([0-9.]*\).*/\1/p" | sort -Vu | tail -1
}

# The oldest glibc with which FOLDER's files run. A libstdc++ that is too old comes with an older
# glibc in the distributions; the numbers are those of auditwheel's policies.
needed_glibc() { # FOLDER
    local glibc cxx of_cxx
    glibc=$(newest GLIBC "$1") cxx=$(newest GLIBCXX "$1")
    case $cxx in
    3.4.30) of_cxx=2.35 ;;
    3.4.29) of_cxx=2.34 ;;
    3.4.[12]*) of_cxx=2.28 ;;
    *) die "GLIBCXX_$cxx is needed: tools/package.sh does not know which glibc comes with it" ;;
    esac
    printf '%s\n' "$glibc" $of_cxx | sort -V | tail -1
}

report() { say "$1: $(($(stat -c %s "$1") / 1000000)) MB, $2 installed, glibc $3 or newer"; }

make_archive() {
    local name=dslaunch-$version-linux-$machine glibc
    [ "$torch" = inside ] || name=$name-torch-$torch
    stage "$work/$name"
    glibc=$(needed_glibc "$work/$name")
    cat >"$work/$name/README" <<TEXT
dslaunch $version for Linux, $machine, with glibc $glibc and libstdc++ of GCC 12, or newer. Unpack it
anywhere and start bin/dslaunch. LibTorch $torch_version: $torch.

share/doc/dslaunch/copyright has the licence of dslaunch, if its authors have stated one, and those
of the software of others that is in it.
TEXT
    tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$epoch" -C "$work" -cf - "$name" |
        zstd -q -f -T0 "-$level" -o "$out/$name.tar.zst"
    report "$out/$name.tar.zst" "$(du -sh "$work/$name" | cut -f1)" "$glibc"
    rm -rf "${work:?}/$name"
}

make_deb() {
    local root=$work/deb glibc name architecture
    command -v dpkg-deb >/dev/null || die "a .deb is made by dpkg-deb, which is not here"
    architecture=$(dpkg --print-architecture)
    name=dslaunch_${version}_$architecture
    [ "$torch" = inside ] || name=dslaunch-torch-${torch}_${version}_$architecture
    stage "$root/usr"
    glibc=$(needed_glibc "$root/usr")
    mkdir "$root/DEBIAN"
    (cd "$root" && find usr -type f -exec md5sum {} + | LC_ALL=C sort -k2) >"$root/DEBIAN/md5sums"
    cat >"$root/DEBIAN/control" <<TEXT
Package: dslaunch
Version: $version
Architecture: $architecture
Section: science
Priority: optional
Maintainer: the developers of dslaunch <dslaunch@localhost>
Installed-Size: $(du -sk "$root/usr" | cut -f1)
Depends: libc6 (>= $glibc), libstdc++6 (>= 12), libgcc-s1
Recommends: openssh-client
Description: trains language models on one machine or many, without Python
 DeepSpeed as two C++ programs: a launcher, and a worker that computes with
 LibTorch. They read the ds_config.json that you have. LibTorch $torch_version: $torch.
 .
 /usr/share/doc/dslaunch/copyright has its licence, if its authors have stated
 one, and the licences of the software of others that is in this package.
TEXT
    dpkg-deb --root-owner-group -Zzstd "-z$level" --build "$root" "$out/$name.deb" >"$work/log" ||
        die "dpkg-deb failed: $(cat "$work/log")"
    report "$out/$name.deb" "$(du -sh "$root/usr" | cut -f1)" "$glibc"
    rm -rf "$root"
}

# The line of RECORD for FILE: its SHA-256 in base64 for file names, and its size.
record() { # FILE
    local hex
    hex=$(sha256sum "$1" | cut -d' ' -f1)
    # shellcheck disable=SC2059
    echo "$1,sha256=$(printf "$(sed 's/../\\x&/g' <<<"$hex")" | base64 | tr '+/' '-_' | tr -d =),$(stat -c %s "$1")"
}

# A wheel is an archive with a fixed layout: what stands in data/scripts goes to the environment's
# bin, what stands in data/data goes below the environment.
make_wheel() {
    local root=$work/wheel data info glibc tag
    torch=apart
    data=dslaunch-$version.data info=dslaunch-$version.dist-info
    stage "$work/wheel-files"
    glibc=$(needed_glibc "$work/wheel-files")
    tag=py3-none-manylinux_${glibc/./_}_$machine
    mkdir -p "$root/$data/data" "$root/$data/scripts" "$root/$info"
    mv "$work/wheel-files"/bin/{dslaunch,dsworker,dslaunch-upload} "$root/$data/scripts/"
    # pip replaces this first line by the environment's Python.
    sed -i '1s/.*/#!python/' "$root/$data/scripts/dslaunch-upload"
    # A wheel contains no links, such as this one to dslaunch.
    cat >"$root/$data/scripts/zero_to_fp32.py" <<'TEXT'
#!python
import os, sys

program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "dslaunch")
os.execv(program, [program, "zero_to_fp32", *sys.argv[1:]])
TEXT
    chmod 755 "$root/$data/scripts"/*
    mv "$work/wheel-files/share/doc/dslaunch/licenses" "$root/$info/licenses"
    rm -rf "$work/wheel-files/bin" "$work/wheel-files/share/doc" "$work/wheel-files/include" \
        "$work/wheel-files"/lib/{cmake,pkgconfig,libdslaunch*} \
        "$work/wheel-files/share/dslaunch/examples/engine"
    mv "$work/wheel-files"/* "$root/$data/data/"
    rm -rf "$work/wheel-files"
    printf '%s\n' "Wheel-Version: 1.0" "Generator: dslaunch $version" "Root-Is-Purelib: false" \
        "Tag: $tag" >"$root/$info/WHEEL"
    cat >"$root/$info/METADATA" <<TEXT
Metadata-Version: 2.1
Name: dslaunch
Version: $version
Summary: Trains language models on one machine or many, as DeepSpeed does, without Python
License: $([ -e LICENSE ] && echo "see licenses/dslaunch" || echo "none is stated by its sources"); those of others in it are in licenses/
Requires-Python: >=3.10
Requires-Dist: torch==$torch_version.*
Description-Content-Type: text/markdown

The programs dslaunch and dsworker. They compute with the libraries of the torch in the same
environment, which must be version $torch_version, and start no Python. The scripts dslaunch-upload,
which sends metrics to a service, and zero_to_fp32.py, which calls dslaunch, use Python.

The folder licenses beside this file has the licences of the software of others that is in it.
TEXT
    (
        cd "$root"
        find . -type f -printf '%P\n' | LC_ALL=C sort >"$work/names"
        while read -r name; do record "$name"; done <"$work/names" >"$work/RECORD"
        echo "$info/RECORD,," >>"$work/RECORD"
        mv "$work/RECORD" "$info/RECORD"
        echo "$info/RECORD" >>"$work/names"
        find . -exec touch -h -d "@$epoch" {} +
        TZ=UTC cmake -E tar cf "$work/wheel.zip" --format=zip --files-from="$work/names"
    )
    mv "$work/wheel.zip" "$out/dslaunch-$version-$tag.whl"
    report "$out/dslaunch-$version-$tag.whl" "$(du -sh "$root" | cut -f1)" "$glibc"
    rm -rf "$root"
}

mkdir -p "$out"
out=$(cd "$out" && pwd)
for kind in "$@"; do
    case $kind in
    archive | deb | wheel) (make_$kind) ;;
    *) die "$kind: is archive, deb or wheel" ;;
    esac
done
