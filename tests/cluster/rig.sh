#!/usr/bin/env bash
# Hosts for the ssh tests: network namespaces on one bridge, each with an sshd of its own. Nothing leaves the machine.
#   rig.sh up DIR PREFIX COUNT    namespaces PREFIX0 (where the launcher runs) to PREFIX<COUNT>; files in DIR
#   rig.sh down DIR PREFIX        ends what it started and removes the namespaces
# Exit code 77: something needed is missing, and the last line says what. PREFIX: at most 6 letters.
set -euo pipefail
missing() { echo "$*"; exit 77; }

up() {
    local dir=$1 prefix=$2 count=$3 i
    [ "$(id -u)" = 0 ] || missing "the ssh tests need root"
    command -v ip >/dev/null || missing "the ssh tests need iproute2"
    [ -x /usr/sbin/sshd ] || missing "the ssh tests need openssh-server"
    command -v ssh-keygen >/dev/null || missing "the ssh tests need openssh-client"
    ip netns add "${prefix}0" 2>/dev/null || missing "the ssh tests need the right to make network namespaces"
    mkdir -p "$dir" /run/sshd
    chmod 700 "$dir"
    local key
    for key in user other host; do ssh-keygen -q -t ed25519 -N '' -f "$dir/$key"; done
    install -m 600 "$dir/user.pub" "$dir/authorized_keys"
    ip link add "${prefix}br" type bridge
    ip link set "${prefix}br" up
    echo "127.0.0.1 localhost" >"$dir/hosts"
    for i in $(seq 0 "$count"); do echo "10.91.7.$((i + 1)) n$i" >>"$dir/hosts"; done
    for i in $(seq 1 "$count"); do echo "n$i $(cut -d' ' -f1,2 "$dir/host.pub")"; done >"$dir/known_hosts"
    config "$dir" user "$dir/known_hosts" 22 >"$dir/good"
    config "$dir" other "$dir/known_hosts" 22 >"$dir/wrong_key"
    config "$dir" user /dev/null 22 >"$dir/unknown_host_key"
    config "$dir" user "$dir/known_hosts" 2 >"$dir/refused"
    sed "s| .*| $(cut -d' ' -f1,2 "$dir/other.pub")|" "$dir/known_hosts" >"$dir/changed_hosts"
    config "$dir" user "$dir/changed_hosts" 22 >"$dir/changed_host_key"
    ssh-keygen -q -t ed25519 -N secret -f "$dir/locked"
    cat "$dir/locked.pub" >>"$dir/authorized_keys"
    config "$dir" locked "$dir/known_hosts" 22 >"$dir/locked_key"
    { printf 'Host n2\n    ProxyJump n1\n'; cat "$dir/good"; } >"$dir/jump"
    for i in $(seq 0 "$count"); do node "$dir" "$prefix" "$i"; done
}

config() {
    printf 'Host *\n    User root\n    Port %s\n    IdentityFile %s\n    IdentitiesOnly yes\n' "$4" "$1/$2"
    printf '    UserKnownHostsFile %s\n    GlobalKnownHostsFile /dev/null\n' "$3"
}

node() {
    local dir=$1 name=$2$3 i=$3
    [ "$i" = 0 ] || ip netns add "$name"
    ip link add "${name}v" type veth peer name eth0 netns "$name"
    ip link set "${name}v" master "$2br" up
    ip -n "$name" addr add "10.91.7.$((i + 1))/24" dev eth0
    ip -n "$name" link set eth0 up
    ip -n "$name" link set lo up
    mkdir -p "/etc/netns/$name"
    cp "$dir/hosts" "/etc/netns/$name/hosts"
    [ "$i" = 0 ] && return
    # A home of their own: what the login files of this machine's user do is no part of the tests.
    ip netns exec "$name" /usr/sbin/sshd -f /dev/null -E "$dir/$name.log" -o "PidFile=$dir/$name.pid" \
        -o "HostKey=$dir/host" -o "AuthorizedKeysFile=$dir/authorized_keys" -o StrictModes=no \
        -o UsePAM=no -o "SetEnv=HOME=$dir" -o PasswordAuthentication=no -o "MaxStartups=${MAX_STARTUPS:-10:30:100}"
    local tries
    for tries in $(seq 100); do [ -s "$dir/$name.pid" ] && return; sleep 0.02; done
    echo "no sshd in $name after $tries tries" >&2
    exit 1
}

down() {
    local dir=$1 prefix=$2 name pid
    for name in $(ip netns list | cut -d' ' -f1 | grep -E "^$prefix[0-9]+\$" || true); do
        for pid in $(ip netns pids "$name"); do kill -KILL "$pid" 2>/dev/null || true; done
        ip netns del "$name"
        rm -rf "/etc/netns/$name"
    done
    ip link del "${prefix}br" 2>/dev/null || true
    rm -rf "$dir"
}

case ${1:-} in
    up) up "$2" "$3" "$4" ;;
    down) down "$2" "$3" ;;
    *) sed -n '2,6p' "$0" | cut -c3-; exit 2 ;;
esac
