#!/usr/bin/env bash
# Makes this machine able to build dslaunch: distribution packages, then LibTorch. Says what it
# installs, installs nothing that is there, and is over at once when it has been done before.
#   tools/setup.sh
# Variables: DSL_TORCH_DIR (folder with LibTorch's include/ and lib/), DSLAUNCH_CACHE (where the
# wheel is unpacked, default ~/.cache/dslaunch), DSL_TORCH=OFF (launcher only, no LibTorch),
# DSL_PACKAGES=SKIP (the packages are there by other means), DSL_ARROW=ON (Arrow too, which reads
# Parquet), DSL_ARROW_DIR (folder with Arrow's include/ and libraries), DSL_ARROW=OFF (without it).
# Result: build/torch-dir and build/arrow-dir hold the folders; cmake/DslTorch.cmake and
# cmake/DslArrow.cmake read them. Without Arrow the second is empty.
set -euo pipefail
cd "$(dirname "$0")/.."
umask 022

readonly torch_version=2.11.0
readonly cache=${DSLAUNCH_CACHE:-${HOME:?}/.cache/dslaunch}
# The kind of processor to build for; tools/cross.sh gives another one than this machine's.
readonly own_machine=$(uname -m)
readonly machine=${DSL_MACHINE:-$own_machine}
is_cross() { [ "$machine" != "$own_machine" ]; }
readonly wheel_folder=$cache/torch-$torch_version$(is_cross && echo "-$machine")
readonly arrow_version=26.0.1
readonly arrow_folder=$cache/arrow-$arrow_version

# Libraries whose headers are needed, and the King James text of the demo.
readonly libraries=(libcli11-dev libssh-dev libyaml-cpp-dev libspdlog-dev libfmt-dev catch2
    liburing-dev libgloo-dev nlohmann-json3-dev libxxhash-dev libssl-dev libzstd-dev libcpp-httplib-dev
    libonig-dev libutf8proc-dev bible-kjv)
# Programs, as command:package; another way of having the command is as good.
readonly programs=(g++:g++ cmake:cmake ninja:ninja-build ccache:ccache ld.lld:lld
    pkg-config:pkg-config ip:iproute2 ssh:openssh-client)

say() { echo "setup: $*" >&2; }
die() {
    say "$*"
    exit 1
}

missing_packages() {
    local entry
    for entry in "${programs[@]}"; do
        command -v "${entry%%:*}" >/dev/null || echo "${entry#*:}"
    done
    if ! command -v dpkg-query >/dev/null; then return; fi
    for entry in "${libraries[@]}"; do
        dpkg-query -W -f='${db:Status-Status}\n' "$entry" 2>/dev/null | grep -qx installed ||
            echo "$entry"
    done
    if [ -z "$(installed_torch)" ] || { wants_arrow && [ -z "$(installed_arrow)" ]; }; then
        python3 -m pip --version >/dev/null 2>&1 || printf '%s\n' python3 python3-pip
        command -v unzip >/dev/null || echo unzip
    fi
}

install_packages() {
    local missing
    [ "${DSL_PACKAGES:-}" = SKIP ] && return
    mapfile -t missing < <(missing_packages)
    [ ${#missing[@]} -eq 0 ] && return
    local command="apt-get install -y --no-install-recommends ${missing[*]}"
    command -v apt-get >/dev/null || die "no apt-get on this machine. Install the equivalents of:" \
        "${missing[*]} ${libraries[*]}, then run again with DSL_PACKAGES=SKIP"
    if [ "$(id -u)" != 0 ]; then
        die "these packages are missing and only root can install them. Run, then try again:
    sudo $command"
    fi
    say "installing packages: ${missing[*]}"
    apt-get update -qq || say "the package lists could not be refreshed; trying with what is there"
    mkdir -p build
    DEBIAN_FRONTEND=noninteractive $command >build/packages.log 2>&1 ||
        die "apt-get failed: $(tail -5 build/packages.log)"
}

cmake_is_new_enough() {
    local version
    version=$(cmake --version | sed -n '1s/.* //p')
    [ "$(printf '%s\n3.25\n' "$version" | sort -V | head -1)" = 3.25 ]
}

# The folder of a LibTorch that is usable as it stands, or nothing: the user's, an unpacked wheel,
# a torch of the right version in the python3 of the PATH.
installed_torch() {
    [ "${DSL_TORCH:-}" = OFF ] && { echo none; return; }
    if [ -n "${DSL_TORCH_DIR:-}" ]; then
        [ -e "$DSL_TORCH_DIR/lib/libtorch_cpu.so" ] ||
            die "DSL_TORCH_DIR=$DSL_TORCH_DIR has no lib/libtorch_cpu.so"
        echo "$DSL_TORCH_DIR"
    elif [ -e "$wheel_folder/torch/lib/libtorch_cpu.so" ] && wheel_serves_toolkit; then
        echo "$wheel_folder/torch"
    elif ! is_cross && command -v python3 >/dev/null; then
        python3 - "$torch_version" <<'PYTHON' 2>/dev/null || true
import importlib.metadata, importlib.util, os, sys
if importlib.metadata.version("torch").split("+")[0] == sys.argv[1]:
    folder = os.path.dirname(importlib.util.find_spec("torch").origin)
    if os.path.exists(folder + "/lib/libtorch_cpu.so") and os.path.isdir(folder + "/include"):
        print(folder)
PYTHON
    fi
}

has_toolkit() { ! is_cross && { command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ]; }; }
# A wheel unpacked where no CUDA toolkit was has no CUDA parts, which a toolkit's plugin links.
wheel_serves_toolkit() {
    ! has_toolkit || [ -e "$wheel_folder/torch/lib/libtorch_cuda.so" ]
}

# pip takes the wheel from whatever index the user has configured. The Python version named is
# that of the wheel to fetch, not of the Python that runs pip: only its C++ libraries are used.
download_wheel() { # FOLDER REQUIREMENT
    local glibc platforms=()
    for glibc in {28..17}; do platforms+=(--platform "manylinux_2_${glibc}_$machine"); done
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
        --python-version 3.11 --implementation cp --abi cp311 --abi none --abi abi3 \
        "${platforms[@]}" --platform "manylinux2014_$machine" --dest "$1" "$2" >&2 || die "pip could not download $2 (see above)"
}

unpack_wheel() { # WHEEL FOLDER MEMBERS... [-x MEMBERS...]
    local wheel=$1 folder=$2
    shift 2
    unzip -q -o "$wheel" "$@" -d "$folder" || die "could not unpack $wheel"
    rm -f "$wheel"
}

# The CUDA libraries that libtorch_cpu itself needs, each with the wheel that has it.
fetch_missing_cuda() { # FOLDER
    local entry soname package
    for entry in libcudart.so.13:nvidia-cuda-runtime libcupti.so.13:nvidia-cuda-cupti; do
        soname=${entry%%:*} package=${entry#*:}
        readelf -d "$1/torch/lib/libtorch_cpu.so" | grep -qF "[$soname]" || continue
        ! is_cross && ldconfig -p | grep -qF "$soname " && continue
        say "fetching $soname ($package), which LibTorch needs and this machine lacks"
        download_wheel "$1" "$package==13.0.*"
        unpack_wheel "$(echo "$1/${package//-/_}"-*.whl)" "$1" '*/lib/*' '*.dist-info/*'
        [ -e "$1/nvidia/cu13/lib/$soname" ] || die "$package holds no $soname"
    done
}

# What LibTorch's CUDA library needs beside a toolkit, each with the wheel that has it and the folder
# that LibTorch looks in: without them the CUDA plugin is built and cannot be opened.
complete_cuda() {
    local entry soname package version folder part
    for entry in libcufile.so.0:nvidia-cufile:1.15.1.6:cu13 \
        libcusparseLt.so.0:nvidia-cusparselt-cu13:0.8.0:cusparselt \
        libnvshmem_host.so.3:nvidia-nvshmem-cu13:3.4.5:nvshmem; do
        IFS=: read -r soname package version folder <<<"$entry"
        [ -e "$wheel_folder/nvidia/$folder/lib/$soname" ] && continue
        ldconfig -p | grep -qF "$soname " && continue
        say "fetching $soname ($package), which LibTorch needs for GPUs and this machine lacks"
        part=$(mktemp -d "$cache/torch-$torch_version.part.XXXXXX")
        download_wheel "$part" "$package==$version"
        unpack_wheel "$(echo "$part"/*.whl)" "$part" "nvidia/$folder/lib/*"
        mkdir -p "$wheel_folder/nvidia/$folder/lib"
        mv -n "$part/nvidia/$folder/lib/"* "$wheel_folder/nvidia/$folder/lib/"
        rm -rf "$part"
    done
}

# Downloads into a folder of its own and moves it into place whole: an interrupted download leaves
# nothing that looks done, and of two that run at once the first to finish wins.
fetch_torch() {
    local part leave_out=() old
    mkdir -p "$cache"
    part=$(mktemp -d "$cache/torch-$torch_version.part.XXXXXX")
    trap "rm -rf '$part'" EXIT
    has_toolkit || leave_out=(-x 'torch/lib/libtorch_cuda*' 'torch/lib/libc10_cuda*'
        'torch/lib/libtorch_nvshmem*' 'torch/lib/libtorch_python*')
    say "fetching LibTorch $torch_version (about 530 MB) into $wheel_folder"
    download_wheel "$part" "torch==$torch_version"
    unpack_wheel "$(echo "$part"/torch-*.whl)" "$part" 'torch/include/*' 'torch/lib/*' \
        'torch-*.dist-info/*' "${leave_out[@]}"
    fetch_missing_cuda "$part"
    chmod 755 "$part"
    if [ -e "$wheel_folder" ] && ! wheel_serves_toolkit; then
        old=$(mktemp -d "$cache/torch-$torch_version.part.XXXXXX")
        mv -T "$wheel_folder" "$old/torch" # it was unpacked before there was a toolkit
        rm -rf "$old"
    fi
    mv -T "$part" "$wheel_folder" 2>/dev/null || [ -e "$wheel_folder/torch/lib/libtorch_cpu.so" ] ||
        die "could not move LibTorch to $wheel_folder"
}

wants_arrow() { [ "${DSL_ARROW:-}" = ON ]; }
# The folder of an Arrow that is usable as it stands, or nothing: the user's, an unpacked wheel.
installed_arrow() {
    [ "${DSL_ARROW:-}" = OFF ] && return
    if [ -n "${DSL_ARROW_DIR:-}" ]; then
        [ -e "$DSL_ARROW_DIR/include/parquet/arrow/reader.h" ] ||
            die "DSL_ARROW_DIR=$DSL_ARROW_DIR has no include/parquet/arrow/reader.h"
        echo "$DSL_ARROW_DIR"
    elif [ -d "$arrow_folder/pyarrow" ]; then
        echo "$arrow_folder/pyarrow"
    fi
}

# As fetch_torch. Only the two libraries that read Parquet are kept.
fetch_arrow() {
    local part
    mkdir -p "$cache"
    part=$(mktemp -d "$cache/arrow-$arrow_version.part.XXXXXX")
    trap "rm -rf '$part'" EXIT
    say "fetching Arrow $arrow_version (about 55 MB) into $arrow_folder"
    download_wheel "$part" "pyarrow==$arrow_version"
    unpack_wheel "$(echo "$part"/pyarrow-*.whl)" "$part" 'pyarrow/include/*' 'pyarrow/libarrow.so*' \
        'pyarrow/libparquet.so*' 'pyarrow-*.dist-info/*'
    chmod 755 "$part"
    mv -T "$part" "$arrow_folder" 2>/dev/null || [ -d "$arrow_folder/pyarrow" ] ||
        die "could not move Arrow to $arrow_folder"
}

main() {
    local stamp torch arrow
    stamp=build/setup-$(cat tools/setup.sh - <<<"$cache ${DSL_TORCH_DIR:-} ${DSL_TORCH:-} $(
        has_toolkit && echo cuda) ${DSL_ARROW_DIR:-} ${DSL_ARROW:-}" | cksum | cut -d' ' -f1)
    if [ -e "$stamp" ]; then
        torch=$(cat build/torch-dir) arrow=$(cat build/arrow-dir)
        { [ "$torch" = none ] || [ -e "$torch/lib/libtorch_cpu.so" ]; } &&
            { [ -z "$arrow" ] || [ -d "$arrow" ]; } && return
    fi
    mkdir -p build
    install_packages
    cmake_is_new_enough || die "cmake 3.25 or newer is needed, this is $(cmake --version | head -1)"
    torch=$(installed_torch)
    if [ -z "$torch" ]; then
        fetch_torch
        torch=$wheel_folder/torch
    fi
    [ "$torch" = none ] || say "LibTorch: $torch"
    if wants_arrow && [ -z "$(installed_arrow)" ]; then fetch_arrow; fi
    arrow=$(installed_arrow)
    [ -z "$arrow" ] || say "Arrow: $arrow"
    if [ "$torch" = "$wheel_folder/torch" ] && has_toolkit; then complete_cuda; fi
    has_toolkit || say "no CUDA toolkit (nvcc): the CUDA plugin is left out"
    echo "$torch" >build/torch-dir.part && mv build/torch-dir.part build/torch-dir
    echo "$arrow" >build/arrow-dir.part && mv build/arrow-dir.part build/arrow-dir
    rm -f build/setup-*
    : >"$stamp"
}

[ "${BASH_SOURCE[0]}" != "$0" ] || main # tools/cross.sh takes only the functions
