#!/usr/bin/env bash
# Builds dslaunch for 64-bit ARM on an x86 machine with Debian or Ubuntu: tools/cross.sh [TARGET...]
# Without targets it builds the programs. The result is build/aarch64/bin; with `dslaunch bundle`,
# run on an ARM machine, all that they need becomes one archive.
# ARM's libraries are packages of this machine's own distribution, unpacked below DSLAUNCH_CACHE
# (~/.cache/dslaunch) beside LibTorch's wheel for ARM; no package of ARM is installed here.
# DSL_TORCH=OFF builds the launcher alone.
set -euo pipefail
cd "$(dirname "$0")/.."
readonly kind=aarch64-linux-gnu
export DSL_MACHINE=aarch64
# shellcheck source=tools/setup.sh
. tools/setup.sh
readonly sysroot=$cache/sysroot-$machine

# apt with lists and packages of its own, in FOLDER, for ARM alone.
write_apt_settings() { # FOLDER
    mkdir -p "$1"/{lists/partial,archives/partial}
    : >"$1/status"
    cat >"$1/apt.conf" <<SETTINGS
Dir::State "$1"; Dir::State::lists "$1/lists"; Dir::State::status "$1/status";
Dir::Cache "$1"; Dir::Cache::archives "$1/archives";
APT::Architecture "arm64"; APT::Architectures { "arm64"; };
Acquire::Languages "none"; APT::Sandbox::User "root";
SETTINGS
}

# Fetches ARM's libraries into a folder of its own and moves it into place whole.
fetch_sysroot() { # LIBRARIES...
    local part package
    mkdir -p "$cache"
    part=$(mktemp -d "$cache/sysroot.part.XXXXXX")
    trap "rm -rf '$part'" EXIT
    say "fetching ARM's libraries (about 35 MB) into $sysroot"
    write_apt_settings "$part/apt"
    {
        APT_CONFIG=$part/apt/apt.conf apt-get update -qq
        APT_CONFIG=$part/apt/apt.conf apt-get install -qq -y --no-install-recommends \
            --download-only "$@"
    } >&2 || die "apt could not fetch the packages of arm64 (see above). On Ubuntu their addresses" \
        "differ: add http://ports.ubuntu.com/ubuntu-ports to /etc/apt"
    mkdir -p "$part/root/usr/lib"
    ln -s usr/lib "$part/root/lib"
    for package in "$part"/apt/archives/*.deb; do
        dpkg-deb --fsys-tarfile "$package" | tar -x --keep-directory-symlink -C "$part/root" ||
            die "could not unpack $package"
    done
    make_links_relative "$part/root"
    echo "$*" >"$part/root/packages"
    rm -rf "$sysroot"
    mv -T "$part/root" "$sysroot"
    rm -rf "$part"
}

# Links to absolute paths would lead to this machine's own libraries.
make_links_relative() { # ROOT
    local link target
    while IFS=$'\t' read -r link target; do
        ln -sfnr "$1$target" "$link"
    done < <(find "$1" -type l -lname '/*' -printf '%p\t%l\n')
}

cross_main() {
    local torch packages=()
    for entry in "${libraries[@]}"; do
        [ "$entry" = bible-kjv ] || packages+=("$entry")
    done
    command -v "$kind-g++" >/dev/null ||
        die "the compiler for ARM is missing; as root: apt-get install g++-$kind"
    command -v qemu-aarch64-static >/dev/null ||
        say "qemu-user-static is not installed, so tests cannot run here"
    [ "$(cat "$sysroot/packages" 2>/dev/null)" = "${packages[*]}" ] || fetch_sysroot "${packages[@]}"
    torch=$(installed_torch)
    if [ -z "$torch" ]; then
        fetch_torch
        torch=$wheel_folder/torch
    fi
    cmake --preset aarch64 -DDSL_SYSROOT="$sysroot" \
        -DDSL_TORCH_DIR="${torch#none}" -DDSL_WITH_TORCH="$([ "$torch" = none ] && echo OFF || echo ON)"
    export NINJA_STATUS="${NINJA_STATUS:-[%u of %t left, %es] }"
    if [ $# -eq 0 ]; then set -- programs; fi
    exec ninja -C build/aarch64 -j "${DSL_JOBS:-$(nproc)}" "$@"
}

cross_main "$@"
