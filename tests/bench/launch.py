"""Times launchers that start nothing on hosts of tests/cluster/rig.sh; tests/bench/launch.sh calls it.

The rows take turns. Per run: wall seconds, processor seconds of the launcher and its children, and
processor seconds on the hosts, as their sshds count them for all that they started.
"""
import argparse
import glob
import os
import shutil
import statistics
import subprocess
import sys
import time

import page

NAMES = 250
PORT = 29511


def commands(options):
    """Row name -> (hosts, command line, environment); peers that are missing are left out."""
    rig, binary = options.rig, os.path.abspath(options.dslaunch)
    config = f"{rig}/good"
    for count in (4, NAMES):
        with open(f"{rig}/hosts-{count}", "w") as file:
            file.writelines(f"n{i} slots=1\n" for i in range(1, count + 1))
    ours = [binary, "--quiet", "--ssh-config", config, "--hostfile"]
    pdsh = {"PDSH_SSH_ARGS_APPEND": f"-F {config} -o LogLevel=ERROR"}
    rows = {
        "dslaunch": (4, ours + [f"{rig}/hosts-4", "/bin/true"], {}),
        "dslaunch --launcher openssh": (4, ours + [f"{rig}/hosts-4", "--launcher", "openssh", "/bin/true"], {}),
    }
    if shutil.which("pdsh"):
        rows["pdsh"] = (4, ["pdsh", "-R", "ssh", "-f", "1024", "-w", "n[1-4]", "true"], pdsh)
    else:
        print("left out: pdsh is not installed", file=sys.stderr)
    python = f"{options.peers}/bin/python"
    if os.access(f"{options.peers}/bin/deepspeed", os.X_OK):
        with open(f"{rig}/nothing.py", "w") as file:
            file.write("pass\n")
        rows["deepspeed (pdsh)"] = (4, [
            python, f"{options.peers}/bin/deepspeed", "--hostfile", f"{rig}/hosts-4", "--no_ssh_check",
            "--master_addr", "10.91.7.2", f"{rig}/nothing.py"], pdsh | {"DS_ACCELERATOR": "cpu"})
    else:
        print(f"left out: no deepspeed in {options.peers}", file=sys.stderr)
    if os.access(f"{options.peers}/bin/torchrun", os.X_OK):
        each = " & ".join(
            f"ssh -F {config} n{i + 1} {python} -m torch.distributed.run --nnodes 4 --nproc_per_node 1 --node_rank {i} "
            f"--master_addr 10.91.7.2 --master_port {PORT} --no-python /bin/true" for i in range(4))
        rows["torchrun (one ssh a host)"] = (4, ["sh", "-c", f"{each} & wait"], {})
    else:
        print(f"left out: no torchrun in {options.peers}", file=sys.stderr)
    for fanout in (0, 16):
        rows[f"dslaunch --fanout {fanout}, {NAMES} names"] = (
            NAMES, ours + [f"{rig}/hosts-{NAMES}", "--fanout", str(fanout), "/bin/true"], {})
    if shutil.which("pdsh"):
        rows[f"pdsh, {NAMES} names"] = (
            NAMES, ["pdsh", "-R", "ssh", "-f", "1024", "-w", f"n[1-{NAMES}]", "true"], pdsh)
    return rows


def hosts_seconds(rig):
    """What the sshds' children, and theirs, have used and were waited for."""
    ticks = 0
    for path in glob.glob(f"{rig}/*.pid"):
        with open(path) as file:
            pid = file.read().strip()
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        ticks += int(fields[13]) + int(fields[14])
    return ticks / os.sysconf("SC_CLK_TCK")


def run(options, command, environment):
    hosts_before = hosts_seconds(options.rig)
    began = time.monotonic()
    process = subprocess.Popen(["ip", "netns", "exec", options.space, *command], env=os.environ | environment,
                               stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    error = process.stderr.read().decode(errors="replace")
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.monotonic() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"{' '.join(command)[:200]}\nended with {process.returncode}:\n{error[-2000:]}")
    time.sleep(0.3)  # the last sshds are reaped
    return wall, usage.ru_utime + usage.ru_stime, hosts_seconds(options.rig) - hosts_before


def table(results, rows, turns, load_before):
    lines = [page.heading(f"{turns} interleaved turns, medians",
                          "launcher and hosts share these processors", load_before=load_before), "",
             "| | hosts | wall s | of turns | / pdsh | launcher's CPU s | hosts' CPU s |", "|---|---|---|---|---|---|---|"]
    walls = {name: statistics.median(r[0] for r in results[name]) for name in results}
    for name, runs in results.items():
        count = rows[name][0]
        pdsh = walls.get("pdsh" if count == 4 else f"pdsh, {NAMES} names")
        lines.append(f"| {name} | {count} | {walls[name]:.2f} | {min(r[0] for r in runs):.2f}..{max(r[0] for r in runs):.2f} | "
                     f"{walls[name] / pdsh if pdsh else float('nan'):.2f} | {statistics.median(r[1] for r in runs):.2f} | "
                     f"{statistics.median(r[2] for r in runs):.2f} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rig", required=True)
    parser.add_argument("--space", required=True, help="network namespace of the launcher")
    parser.add_argument("--peers", required=True)
    parser.add_argument("--dslaunch", default="build/release/bin/dslaunch")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--only", help="rows whose names begin with one of these, separated by commas")
    parser.add_argument("--write", help="page to write the table into")
    options = parser.parse_args()
    rows = commands(options)
    if options.only:
        rows = {n: r for n, r in rows.items() if any(n.startswith(o) for o in options.only.split(","))}
    load_before = os.getloadavg()[0]
    results = {name: [] for name in rows}
    for turn in range(options.turns + 1):
        for name, (_, command, environment) in rows.items():
            result = run(options, command, environment)
            print(f"{'warm-up' if turn == 0 else turn}: {name}: {result[0]:.2f} s", file=sys.stderr)
            if turn > 0:  # the first fills caches
                results[name].append(result)
    text = table(results, rows, options.turns, load_before)
    print(text)
    if options.write:
        page.write_section(options.write, "launch", text)


if __name__ == "__main__":
    main()
