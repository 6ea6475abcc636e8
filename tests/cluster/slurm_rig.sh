#!/usr/bin/env bash
# A Slurm of several nodes on this machine for the tests: network and UTS namespaces, one munged, one slurmctld, one slurmd per node.
#   slurm_rig.sh up DIR PREFIX COUNT    nodes PREFIX1 to PREFIX<COUNT>, the controller on PREFIX0; files in DIR
#   slurm_rig.sh exec DIR PREFIX CMD…   runs CMD on PREFIX0 with what sbatch, salloc, srun need
#   slurm_rig.sh lose DIR PREFIX N      pulls the plug of node N: its link goes down and all its processes get KILL
#   slurm_rig.sh down DIR PREFIX        ends what it started, jobs included, and removes the namespaces
# Exit code 77: something needed is missing, and the last line says what. PREFIX: at most 6 letters. Files of an
# installed Slurm are not touched. A step's signals go to its tasks' process groups (proctrack/pgid): where Slurm runs
# in earnest, with cgroups, they go to the tasks alone, and either way not to the processes that a task starts elsewhere.
set -euo pipefail
export PATH=$PATH:/usr/sbin:/sbin
missing() { echo "$*"; exit 77; }
address() { echo "10.92.$(($1 / 250)).$(($1 % 250 + 1))"; }

# Becomes a command inside a node, so that $! is the command's own id.
enter() { # DIR NAME CMD…
    local dir=$1 name=$2
    shift 2
    export SLURM_CONF=$dir/slurm.conf
    exec ip netns exec "$name" unshare --uts bash -c 'hostname "$0" && exec "$@"' "$name" "$@"
}

daemon() { # DIR NAME LOG CMD…
    local dir=$1 name=$2 log=$3
    shift 3
    (enter "$dir" "$name" setsid "$@") </dev/null >>"$dir/$log" 2>&1 &
    disown
}

config() { # DIR PREFIX COUNT
    local dir=$1 prefix=$2 count=$3 i
    cat <<END
ClusterName=$prefix
SlurmctldHost=${prefix}0($(address 0))
SlurmUser=root
SlurmdUser=root
SlurmctldPort=16917
SlurmdPort=16918
AuthType=auth/munge
AuthInfo=socket=$dir/munge.socket
CryptoType=crypto/munge
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool.%n
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/%n.pid
SlurmctldLogFile=$dir/slurmctld.log
SlurmdLogFile=$dir/%n.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
SlurmdTimeout=30
MessageTimeout=5
KillWait=10
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1
MailProg=/bin/true
JobRequeue=0
TreeWidth=1024
END
    for i in $(seq 1 "$count"); do
        echo "NodeName=$prefix$i NodeAddr=$(address "$i") CPUs=8 RealMemory=1024 State=UNKNOWN"
    done
    echo "PartitionName=test Nodes=ALL Default=YES MaxTime=INFINITE State=UP"
}

up() {
    local dir=$1 prefix=$2 count=$3 i name program
    [ "$(id -u)" = 0 ] || missing "the Slurm tests need root"
    for program in ip:iproute2 munged:munge srun:slurm-wlm slurmctld:slurm-wlm slurmd:slurm-wlm; do
        command -v "${program%%:*}" >/dev/null ||
            missing "${program%%:*} is missing (apt-get install --no-install-recommends slurm-wlm munge iproute2)"
    done
    ip netns add "${prefix}0" 2>/dev/null || missing "the Slurm tests need the right to make network namespaces"
    mkdir -p "$dir/state" "$dir/key"
    chmod 755 "$dir"
    chmod 700 "$dir/key" "$dir/state"
    ip link add "${prefix}br" type bridge
    ip link set "${prefix}br" up
    echo "127.0.0.1 localhost" >"$dir/hosts"
    for i in $(seq 0 "$count"); do echo "$(address "$i") $prefix$i" >>"$dir/hosts"; done
    for i in $(seq 0 "$count"); do
        name=$prefix$i
        [ "$i" = 0 ] || ip netns add "$name"
        ip link add "${name}v" type veth peer name eth0 netns "$name"
        ip link set "${name}v" master "${prefix}br" up
        ip -n "$name" addr add "$(address "$i")/16" dev eth0
        ip -n "$name" link set eth0 up
        ip -n "$name" link set lo up
        mkdir -p "/etc/netns/$name"
        cp "$dir/hosts" "/etc/netns/$name/hosts"
    done
    config "$dir" "$prefix" "$count" >"$dir/slurm.conf"
    echo "CgroupPlugin=cgroup/v1" >"$dir/cgroup.conf"
    (umask 077 && head -c 128 /dev/urandom >"$dir/key/munge.key")
    daemon "$dir" "${prefix}0" munged.out munged --foreground --key-file="$dir/key/munge.key" \
        --socket="$dir/munge.socket" --pid-file="$dir/munged.pid" --log-file="$dir/munged.log" \
        --seed-file="$dir/key/seed" --num-threads=2
    await 100 test -S "$dir/munge.socket"
    daemon "$dir" "${prefix}0" slurmctld.out slurmctld -D -f "$dir/slurm.conf"
    for i in $(seq 1 "$count"); do
        mkdir -p "$dir/spool.$prefix$i"
        daemon "$dir" "$prefix$i" "$prefix$i.out" slurmd -D -N "$prefix$i" -f "$dir/slurm.conf"
    done
    await 300 all_idle "$dir" "$prefix" "$count"
}

await() { # TENTHS CMD…
    local tenths=$1
    shift
    for _ in $(seq "$tenths"); do "$@" >/dev/null 2>&1 && return; sleep 0.1; done
    echo "Slurm did not come up: $*" >&2
    exit 1
}
all_idle() { # DIR PREFIX COUNT
    [ "$( (enter "$1" "${2}0" sinfo -h -N -t idle -o %N) | sort -u | grep -c .)" = "$3" ]
}

kill_node() { # NAME; a process may fork between the listing and the kill
    local pid
    for _ in 1 2 3; do
        for pid in $(ip netns pids "$1" 2>/dev/null); do kill -KILL "$pid" 2>/dev/null || true; done
    done
}

down() {
    local dir=$1 prefix=$2 name
    for name in $(ip netns list | cut -d' ' -f1 | grep -E "^$prefix[0-9]+\$" || true); do kill_node "$name"; done
    for name in $(ip netns list | cut -d' ' -f1 | grep -E "^$prefix[0-9]+\$" || true); do
        ip link del "${name}v" 2>/dev/null || true
        ip netns del "$name"
        rm -rf "/etc/netns/$name"
    done
    ip link del "${prefix}br" 2>/dev/null || true
    rm -rf "$dir"
}

case ${1:-} in
    up) up "$2" "$3" "$4" ;;
    exec) dir=$2 name=${3}0; shift 3; enter "$dir" "$name" "$@" ;;
    lose) ip -n "$3$4" link set eth0 down; kill_node "$3$4" ;;
    down) down "$2" "$3" ;;
    *) sed -n '2,8p' "$0" | cut -c3-; exit 2 ;;
esac
