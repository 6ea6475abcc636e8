#!/usr/bin/env bash
# Hosts for the ssh tests: network namespaces on one bridge, each with an sshd of its own. Nothing leaves the machine.
#   rig.sh up DIR PREFIX COUNT [NAMES]  namespaces PREFIX0 (where the launcher runs) to PREFIX<COUNT>; files in DIR. With
#                                 NAMES there are so many host names n1, n2, ..., in turn for these namespaces
#   rig.sh more-networks DIR COUNT    beside eth0: docker0 with one address on all hosts, and eth1, faster by name and
#                                     speed, which reaches from host to host only among the first two
#   rig.sh down DIR PREFIX        ends what it started and removes the namespaces
# Exit code 77: something needed is missing, and the last line says what. PREFIX: at most 6 letters.
set -euo pipefail
missing() { echo "$*"; exit 77; }

up() {
    local dir=$1 prefix=$2 count=$3 names=${4:-$3} i
    [ "$(id -u)" = 0 ] || missing "the ssh tests need root"
    command -v ip >/dev/null || missing "the ssh tests need iproute2"
    [ -x /usr/sbin/sshd ] || missing "the ssh tests need openssh-server"
    command -v ssh-keygen >/dev/null || missing "the ssh tests need openssh-client"
    ip netns add "${prefix}0" 2>/dev/null || missing "the ssh tests need the right to make network namespaces"
    mkdir -p "$dir/home" /run/sshd
    chmod 700 "$dir"
    echo "$prefix" >"$dir/prefix"
    local key
    for key in user other host; do ssh-keygen -q -t ed25519 -N '' -f "$dir/$key"; done
    install -m 600 "$dir/user.pub" "$dir/authorized_keys"
    ip link add "${prefix}br" type bridge
    ip link set "${prefix}br" up
    echo "127.0.0.1 localhost" >"$dir/hosts"
    for i in $(seq 0 "$count"); do echo "10.91.7.$((i + 1)) n$i" >>"$dir/hosts"; done
    for i in $(seq $((count + 1)) "$names"); do echo "10.91.7.$(((i - 1) % count + 2)) n$i" >>"$dir/hosts"; done
    for i in $(seq 1 "$names"); do echo "n$i $(cut -d' ' -f1,2 "$dir/host.pub")"; done >"$dir/known_hosts"
    config "$dir" user "$dir/known_hosts" 22 >"$dir/good"
    config "$dir" other "$dir/known_hosts" 22 >"$dir/wrong_key"
    config "$dir" user /dev/null 22 >"$dir/unknown_host_key"
    config "$dir" user "$dir/known_hosts" 2 >"$dir/refused"
    sed "s| .*| $(cut -d' ' -f1,2 "$dir/other.pub")|" "$dir/known_hosts" >"$dir/changed_hosts"
    config "$dir" user "$dir/changed_hosts" 22 >"$dir/changed_host_key"
    ssh-keygen -q -t ed25519 -N secret -f "$dir/locked"
    cat "$dir/locked.pub" >>"$dir/authorized_keys"
    config "$dir" locked "$dir/known_hosts" 22 >"$dir/locked_key"
    # A key that no authorized_keys lists, with a certificate of an authority that every sshd trusts.
    ssh-keygen -q -t ed25519 -N '' -f "$dir/authority"
    ssh-keygen -q -t ed25519 -N '' -f "$dir/certified"
    ssh-keygen -q -s "$dir/authority" -I rig -n root "$dir/certified.pub"
    mv "$dir/certified-cert.pub" "$dir/certificate.pub"
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
    # A plain shell and an empty home: what a login script does would be measured, or waited for.
    # With PRIVATE=DIR each host has an empty DIR of its own. With PASSWORDS=FILE that is its /etc/shadow, DIR its
    # home, and its sshd takes passwords, and keys from the home's .ssh/authorized_keys.
    local home=$dir/home options=(-o "AuthorizedKeysFile=$dir/authorized_keys" -o PasswordAuthentication=no)
    [ -z "${PASSWORDS:-}" ] || { home=$PRIVATE; options=(-o PasswordAuthentication=yes -o PermitRootLogin=yes); }
    sed "s|^root:.*|root:x:0:0:root:$home:/bin/sh|" /etc/passwd >"/etc/netns/$name/passwd"
    [ "$i" = 0 ] && return
    server "$dir" "$name" "${options[@]}" -o "MaxStartups=${MAX_STARTUPS:-10:30:100}"
    # One that takes passwords only, at another port.
    [ "$i" != 1 ] || server "$dir" "${name}p" -p 2222 -o PubkeyAuthentication=no
}

# SHLVL: bash would read ~/.bashrc for each session, which may take longer than all the rest.
# OMPI_MCA_orte_tmpdir_base: the daemons of one mpirun name their folders in /tmp alike, which these hosts share, and now and
# then two make the same one at the same time.
server() { # DIR NAME OPTIONS...
    local dir=$1 name=$2 tries
    shift 2
    mkdir -p "$dir/$name.ompi"
    ip netns exec "${name%p}" sh -c '[ -z "$1" ] || { mkdir -p "$1" "$2" && mount --bind "$2" "$1"; }
        [ -z "$3" ] || mount --bind "$3" /etc/shadow
        shift 3; exec "$@"' host "${PRIVATE:-}" "$dir/private/${name%p}" "${PASSWORDS:-}" /usr/sbin/sshd -f /dev/null \
        -E "$dir/$name.log" -o "PidFile=$dir/$name.pid" -o "HostKey=$dir/host" -o StrictModes=no \
        -o "TrustedUserCAKeys=$dir/authority.pub" -o UsePAM=no -o "SetEnv=SHLVL=1 OMPI_MCA_orte_tmpdir_base=$dir/$name.ompi" "$@"
    for tries in $(seq 3000); do [ -s "$dir/$name.pid" ] && return; sleep 0.02; done
    echo "no sshd in $name after $tries tries" >&2
    exit 1
}

more_networks() {
    local prefix count=$2 i name
    prefix=$(cat "$1/prefix")
    ip link add "${prefix}b2" type bridge
    ip link set "${prefix}b2" up
    for i in $(seq 0 "$count"); do
        name=$prefix$i
        ip -n "$name" link add docker0 type bridge
        ip -n "$name" addr add 172.17.0.1/16 dev docker0
        ip -n "$name" link set docker0 up
        ip link add "${name}w" type veth peer name eth1 netns "$name"
        ip link set "${name}w" up
        [ "$i" -gt 2 ] || ip link set "${name}w" master "${prefix}b2"
        ip -n "$name" addr add "10.92.7.$((i + 1))/24" dev eth1
        ip -n "$name" link set eth1 up
    done
}

down() {
    local dir=$1 prefix=$2 name pid
    for name in $(ip netns list | cut -d' ' -f1 | grep -E "^$prefix[0-9]+\$" || true); do
        for pid in $(ip netns pids "$name"); do kill -KILL "$pid" 2>/dev/null || true; done
        # A namespace goes when the kernel has time for it, and its links with it; the next rig has the same names.
        ip link del "${name}v" 2>/dev/null || true
        ip link del "${name}w" 2>/dev/null || true
        ip netns del "$name"
        rm -rf "/etc/netns/$name"
    done
    ip link del "${prefix}br" 2>/dev/null || true
    ip link del "${prefix}b2" 2>/dev/null || true
    rm -rf "$dir"
}

case ${1:-} in
    up) up "$2" "$3" "$4" "${5:-$4}" ;;
    more-networks) more_networks "$2" "$3" ;;
    down) down "$2" "$3" ;;
    *) sed -n '2,8p' "$0" | cut -c3-; exit 2 ;;
esac
