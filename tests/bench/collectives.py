"""Measure collectives beside Gloo alone, torch.distributed and DeepSpeed's operator over shared
memory, turn by turn, and print one table. Called by collectives.sh.

  collectives.py --bench build/release/bin/bench_collectives [--turns N] [--calls N]
                 [--kib 64,1024,4096,65536] [--write docs/measurements.md]

`one host` is two processes with one thread each; `two hosts` are two processes that meet over
loopback, as dslaunch's hosts do. A figure is bytes of one rank's tensor over the time of a call, in
GB/s: the median over turns of the slowest rank's mean call. A `copy` is each rank's into new
memory, as a tensor group's results are, all at once; Gloo and the operator work in place. `bucket`
fills a bucket of gradients, reduces it and copies the sums out; `in place` is what a step pays,
whose gradients are born and read there.
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import sys

import page

HERE = pathlib.Path(__file__).resolve().parent
LIMIT_S = 300
# (row, who runs it, its name of the operation)
ONE_HOST = [
    ("a copy by each rank", "dslaunch", "copy"),
    ("sum: dslaunch, tensor group", "dslaunch", "sum"),
    ("sum: dslaunch, bucket", "dslaunch", "bucket"),
    ("sum: dslaunch, bucket, in place", "dslaunch", "in-place"),
    ("sum: DeepSpeed's shm operator", "shm", "sum"),
    ("sum: Gloo alone", "dslaunch", "gloo-sum"),
    ("sum: torch.distributed", "gloo", "sum"),
    ("gather: dslaunch", "dslaunch", "gather"),
    ("gather: Gloo alone", "dslaunch", "gloo-gather"),
    ("gather: torch.distributed", "gloo", "gather"),
    ("exchange: dslaunch", "dslaunch", "exchange"),
    ("exchange: torch.distributed", "gloo", "exchange"),
]
TWO_HOSTS = [row for row in ONE_HOST if row[1] != "shm" and row[2] != "copy"]


def run(command, more=None):
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"} | (more or {})
    done = subprocess.run(
        list(map(str, command)), env=environment, capture_output=True, text=True, timeout=LIMIT_S
    )
    if done.returncode:
        raise SystemExit(f"{command[0]}: {done.stderr[-2000:]}")
    return done.stdout


def seconds_of(who, operations, options, hosts):
    """Seconds by (operation, bytes) of one start of WHO."""
    jobs = [f"{operation}:{kib << 10}" for operation in operations for kib in options.kib]
    if who == "dslaunch":
        text = run([options.bench, hosts, options.calls, *jobs])
    else:
        command = [sys.executable, "-W", "ignore", "-m", "torch.distributed.run"]
        command += ["--standalone", "--nproc_per_node", "2", HERE / "collectives_peer.py", who]
        text = run([*command, options.calls, *jobs], {"GLOO_SOCKET_IFNAME": "lo"})
    lines = [line.split() for line in text.splitlines() if line.count(" ") == 2]
    return {(name, int(size)): float(seconds) for name, size, seconds in lines}


def measure(rows, options, hosts):
    """Lists of seconds by (who, operation, bytes)."""
    taken = {}
    for _ in range(options.turns):
        for who in dict.fromkeys(row[1] for row in rows):
            operations = [row[2] for row in rows if row[1] == who]
            for (name, size), seconds in seconds_of(who, operations, options, hosts).items():
                taken.setdefault((who, name, size), []).append(seconds)
    return taken


def table(title, rows, taken, options):
    lines = [f"| {title}, GB/s | " + " | ".join(f"{kib} KiB" for kib in options.kib) + " |"]
    lines.append("|---" * (len(options.kib) + 1) + "|")
    for row, who, operation in rows:
        cells = []
        for kib in options.kib:
            size = kib << 10
            cells.append(f"{size / statistics.median(taken[who, operation, size]) / 1e9:.2f}")
        lines.append(f"| {row} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bench", type=pathlib.Path, required=True)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--calls", type=int, default=40)
    parser.add_argument("--kib", default="64,1024,4096,65536")
    parser.add_argument("--write", type=pathlib.Path)
    options = parser.parse_args()
    options.kib = [int(word) for word in options.kib.split(",")]
    load_before = os.getloadavg()[0]
    tables = [
        table(title, rows, measure(rows, options, hosts), options)
        for title, rows, hosts in (("one host", ONE_HOST, "2"), ("two hosts", TWO_HOSTS, "1,1"))
    ]
    facts = f"{options.turns} interleaved turns of {options.calls} calls, medians"
    text = "\n\n".join([page.heading(facts, load_before=load_before), *tables])
    print(text, flush=True)
    if options.write:
        page.write_section(options.write, "collectives", text)


if __name__ == "__main__":
    main()
