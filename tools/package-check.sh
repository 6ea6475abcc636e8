#!/usr/bin/env bash
# Proves the packages of build/dist from nothing, and says how long each way takes.
#   tools/package-check.sh [WAY...]    all of them by default
#     deb      the Debian package in a root that holds what debootstrap puts there and no more
#     archive  the archive in a root of the next Debian, unpacked by a user into a folder of his own
#     wheel    the wheel in a new virtual environment; torch comes from pip's cache or its index
# Needs root and debootstrap, and python3 with venv. Removes what it makes.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { echo "package-check: $*" >&2; }
die() {
    say "$*"
    exit 1
}

dist=build/dist
work=$(mktemp -d "${TMPDIR:-/tmp}/dslaunch-check.XXXXXX")
trap 'rm -rf --one-file-system "$work"' EXIT

the_package() { # PATTERN
    local found
    mapfile -t found < <(find "$dist" -maxdepth 1 -name "$1" | sort)
    [ ${#found[@]} -eq 1 ] || die "$dist/$1: is there ${#found[@]} times; run make package wheel"
    echo "${found[0]}"
}

make_root() { # SUITE
    [ "$(id -u)" = 0 ] || die "only root can make a root folder"
    command -v debootstrap >/dev/null || die "debootstrap is missing: apt-get install debootstrap"
    debootstrap --variant=minbase "$1" "$work/root" >"$work/log" 2>&1 || die "$(tail -5 "$work/log")"
    rm -f "$work"/root/var/cache/apt/archives/*.deb
    cp tools/install-package.sh tools/first-step.sh "$work/root/tmp/"
}

# Runs COMMAND in the root, with /proc and /dev of its own and nothing of this environment.
in_root() { # COMMAND...
    # shellcheck disable=SC2016
    unshare --mount --pid --fork sh -c 'root=$1; shift
        mount -t proc proc "$root/proc" && mount --rbind /dev "$root/dev" &&
            exec chroot "$root" env -i HOME=/tmp PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"' \
        sh "$work/root" "$@"
}

# Runs COMMAND, which must end well, and says how long it took.
timed() { # NAME COMMAND...
    local name=$1 begin
    shift
    begin=$(date +%s%N)
    "$@" >"$work/log" 2>&1 || die "$name failed: $(tail -20 "$work/log")"
    say "$name: $(awk -v ns=$(($(date +%s%N) - begin)) 'BEGIN { printf "%.1f s", ns / 1e9 }')"
}

check_deb() {
    local package
    package=$(the_package "dslaunch_*.deb")
    make_root bookworm
    cp "$package" "$work/root/tmp/dslaunch.deb"
    timed "deb: installed" in_root /tmp/install-package.sh /tmp/dslaunch.deb
    timed "deb: new model, 5 steps" in_root sh -c 'cd /tmp && ./first-step.sh'
    timed "deb: removed" in_root dpkg --purge dslaunch
    [ -z "$(find "$work/root/usr" -name '*dslaunch*')" ] || die "deb: files are left"
}

check_archive() {
    local package
    package=$(the_package "dslaunch-*-linux-$(uname -m).tar.zst")
    make_root trixie
    mkdir -p "$work/root/home/user/my programs"
    timed "archive: unpacked" tar --zstd -xf "$package" -C "$work/root/home/user/my programs" \
        --strip-components=1
    chown -R 1234:1234 "$work/root/home/user"
    # shellcheck disable=SC2016
    timed "archive: new model, 5 steps" in_root setpriv --reuid=1234 --regid=1234 --clear-groups \
        sh -c 'cd /home/user; HOME=$PWD PATH="$PWD/my programs/bin:$PATH" \
            /tmp/first-step.sh "$PWD/my programs"'
}

check_wheel() {
    local package environment=$work/venv
    package=$(the_package "dslaunch-*.whl")
    python3 -m venv "$environment"
    mkdir "$work/wheel"
    # shellcheck disable=SC2016
    timed "wheel: pip install, new model, 5 steps" env PATH="$environment/bin:$PATH" sh -euc '
        pip install "$1"; cd "$2"; "$3/tools/first-step.sh" "$4"' \
        sh "$package" "$work/wheel" "$PWD" "$environment"
    timed "wheel: dslaunch-upload" "$environment/bin/dslaunch-upload" --help
    timed "wheel: zero_to_fp32.py" "$environment/bin/zero_to_fp32.py" --help
    # shellcheck disable=SC2016
    timed "wheel: removed" "$environment/bin/pip" uninstall -y dslaunch
    [ -z "$(find "$environment" -name '*dslaunch*')" ] || die "wheel: files are left"
}

ways=("$@")
[ ${#ways[@]} -gt 0 ] || ways=(deb archive wheel)
for way in "${ways[@]}"; do
    case $way in
    deb | archive | wheel) "check_$way" ;;
    *) die "$way: is deb, archive or wheel" ;;
    esac
    rm -rf --one-file-system "${work:?}"/*
done
say "all of ${ways[*]} work"
