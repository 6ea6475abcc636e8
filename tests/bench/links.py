"""Measure a step between two hosts at a link's rate: dslaunch beside PyTorch DDP and FSDP2 and
DeepSpeed, turn by turn. Called by links.sh, as root: the hosts are network namespaces, and tc
holds the link between them to the rate in both directions, by a queue that drops nothing.

  links.py --inputs DIR --ours DSLAUNCH [--rates 1gbit,10gbit] [--only NAME,...] [--turns N]
           [--steps N] [--batch N] [--context N] [--write docs/measurements.md]

NAME is a row of the table: compute, ddp, fsdp2, deepspeed0..3, deepspeed3-quantized,
dslaunch0..3, dslaunch1-quantized..3-quantized. One rank a host, one thread a rank. A figure is the
median over turns of a turn's median step (its first two steps left out). A peer that cannot start
gets a row with its reason.
"""

import argparse
import collections
import contextlib
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

import page

HERE = pathlib.Path(__file__).resolve().parent
HOSTS, NETWORK, WARM_UP_STEPS, LIMIT_S = ("dsl-a", "dsl-b"), "10.77.0", 2, 300
PEERS = ["compute", "ddp", "fsdp2", *(f"deepspeed{s}" for s in range(4)), "deepspeed3-quantized"]
OURS = [f"dslaunch{s}" for s in range(4)] + [f"dslaunch{s}-quantized" for s in (1, 2, 3)]


def ip(*words):
    subprocess.run(["ip", *words], check=True)


def address(host):
    return f"{NETWORK}.{host + 1}"


@contextlib.contextmanager
def two_hosts(rate):
    """Two namespaces and a link of RATE between them."""
    try:
        for name in HOSTS:
            ip("netns", "add", name)
        ip("link", "add", "eth0", "netns", HOSTS[0], "type", "veth", "peer", "name", "eth0",
           "netns", HOSTS[1])  # fmt: skip
        for host, name in enumerate(HOSTS):
            ip("-n", name, "address", "add", f"{address(host)}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                ip("-n", name, "link", "set", device, "up")
            subprocess.run(
                ["ip", "netns", "exec", name, "tc", "qdisc", "add", "dev", "eth0", "root", "tbf",
                 "rate", rate, "burst", "256kb", "limit", "64mb"],
                check=True,
            )  # fmt: skip
        yield
    finally:
        for name in HOSTS:
            subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL)


def run_on_hosts(commands, folder, environments):
    """One command a host; the last lines of the first that fails, or None."""
    processes, logs = [], []
    for host, (command, more) in enumerate(zip(commands, environments)):
        environment = {k: v for k, v in os.environ.items() if k != "LOCAL_RANK"} | more
        environment |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        logs.append(folder / f"log.{host}")
        with open(logs[-1], "wb") as out:
            words = ["ip", "netns", "exec", HOSTS[host], *map(str, command)]
            processes.append(
                subprocess.Popen(words, stdout=out, stderr=subprocess.STDOUT, env=environment)
            )
    deadline, failed = time.monotonic() + LIMIT_S, None
    while any(process.poll() is None for process in processes):
        for host, process in enumerate(processes):
            if failed is None and (process.poll() or time.monotonic() > deadline):
                failed = host
                for other in processes:
                    other.terminate()
                deadline = time.monotonic() + 20
        if failed is not None and time.monotonic() > deadline:
            for other in processes:
                other.kill()
        time.sleep(0.02)
    if failed is None and any(process.returncode for process in processes):
        failed = next(h for h, process in enumerate(processes) if process.returncode)
    return None if failed is None else logs[failed].read_text(errors="replace")


def run_peer(options, name, folder):
    commands, environments = [], []
    for host in range(2):
        command = [sys.executable, HERE / "peer.py", "--peer", name.split("-")[0]]
        command += ["--archive", options.inputs / "gpt-small.pt"]
        command += ["--tokens", options.inputs / "kjv.bytes.u16.bin"]
        command += ["--result", folder / "figures", "--batch", options.batch]
        command += ["--context", options.context, "--steps", options.steps]
        commands.append(command + (["--quantized"] if name.endswith("-quantized") else []))
        environments.append(
            {
                "RANK": str(host),
                "WORLD_SIZE": "2",
                "LOCAL_RANK": "0",
                "LOCAL_WORLD_SIZE": "1",
                "MASTER_ADDR": address(0),
                "MASTER_PORT": "29500",
                "GLOO_SOCKET_IFNAME": "eth0",
            }
        )
    failure = run_on_hosts(commands, folder, environments)
    if failure is not None:
        return failure
    ranks = [json.loads((folder / f"figures.{rank}").read_text()) for rank in range(2)]
    largest = [max(both) for both in zip(*(rank["step_ms"] for rank in ranks))]
    return {
        "step_ms": statistics.median(largest[WARM_UP_STEPS:]),
        "loss": statistics.mean(rank["losses"][-1] for rank in ranks),
    }


def our_config(options, name):
    zero = {"stage": int(name[len("dslaunch")])}
    if name.endswith("-quantized"):
        zero["zero_quantized_gradients"] = True
        if zero["stage"] == 3:
            zero["zero_quantized_weights"] = True
    return {
        "train_batch_size": 2 * options.batch,
        "train_micro_batch_size_per_gpu": options.batch,
        "zero_optimization": zero,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "weight_decay": 0.01}},
        "dslaunch": {
            "steps": options.steps,
            "device": "cpu",
            "data": {
                "train": str(options.inputs / "kjv.bytes.u16.bin"),
                "context": options.context,
                "dtype": "uint16",
                "shuffle": False,
            },
        },
    }


def run_ours(options, name, folder):
    (folder / "token").write_text("0123456789abcdef0123456789abcdef")
    (folder / "token").chmod(0o600)
    (folder / "ds_config.json").write_text(json.dumps(our_config(options, name)))
    commands = [
        [options.ours, "--no_ssh", "--node_rank", host, "--nnodes", 2, "--num_gpus", 1,
         "--master_addr", address(0), "--master_port", 29400, "--token-file", folder / "token",
         options.inputs / "gpt-small.pt", "--config", folder / "ds_config.json",
         "--output", folder / "output"]
        for host in range(2)
    ]  # fmt: skip
    failure = run_on_hosts(commands, folder, [{}, {}])
    if failure is not None:
        return failure
    lines = [json.loads(x) for x in (folder / "output/metrics.jsonl").read_text().splitlines()]
    steps = [line for line in lines if "loss" in line]
    sent = steps[-1]["step_link_bytes"]["by_kind"]
    return {
        "step_ms": statistics.median(line["step_ms"] for line in steps[WARM_UP_STEPS:]),
        "loss": steps[-1]["loss"],
        "sent_mib": sum(kind["sent"] for kind in sent.values()) / 2**20,
    }


def run_once(options, name):
    with tempfile.TemporaryDirectory(prefix="dsl-links-") as temporary:
        run = run_ours if name in OURS else run_peer
        return run(options, name, pathlib.Path(temporary))


def reason_of(log):
    """The last line of a log that names an error."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    named = [line for line in lines if re.match(r"[A-Za-z_.]*(Error|Exception)\b|.*error:", line)]
    return (named or lines or ["no output"])[-1][:160]


def measure(options, rate):
    turns, reasons = collections.defaultdict(list), {}
    with two_hosts(rate):
        for turn in range(options.turns):
            for name in options.only:
                if name in reasons:
                    continue
                figures = run_once(options, name)
                if isinstance(figures, str):
                    reasons[name] = reason_of(figures)
                    print(f"{rate} {name}:\n{figures[-2000:]}", file=sys.stderr, flush=True)
                    continue
                turns[name].append(figures)
                text = f"{figures['step_ms']:.1f} ms, loss {figures['loss']:.4f}"
                print(f"{rate} {turn + 1} {name}: {text}", file=sys.stderr, flush=True)
    rows = ["| | step ms | of turns | / compute | sent a step, MiB | last loss |"]
    rows.append("|---|---|---|---|---|---|")
    base = None
    for name in options.only:
        if name in reasons:
            rows.append(f"| {name} | does not run: {reasons[name]} | | | | |")
            continue
        steps_ms = [one["step_ms"] for one in turns[name]]
        middle = statistics.median(steps_ms)
        base = middle if name == "compute" else base
        ratio = f"{middle / base:.2f}" if base else ""
        last = turns[name][-1]
        sent = f"{last['sent_mib']:.1f}" if "sent_mib" in last else ""
        rows.append(
            f"| {name} | {middle:.0f} | {min(steps_ms):.0f}..{max(steps_ms):.0f} | {ratio} "
            f"| {sent} | {last['loss']:.4f} |"
        )
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inputs", type=pathlib.Path, required=True)
    parser.add_argument("--ours", type=pathlib.Path, required=True)
    parser.add_argument("--rates", default="1gbit,10gbit")
    parser.add_argument("--only", default=",".join(PEERS + OURS))
    parser.add_argument("--write", type=pathlib.Path)
    for name, default in [("turns", 3), ("steps", 7), ("batch", 4), ("context", 256)]:
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    options.only = options.only.split(",")
    options.ours, options.inputs = options.ours.resolve(), options.inputs.resolve()
    if unknown := [name for name in options.only if name not in PEERS + OURS]:
        parser.error(f"no such row: {', '.join(unknown)}; there are {', '.join(PEERS + OURS)}")
    from importlib.metadata import version

    load = os.getloadavg()[0]
    peers = ", ".join(f"{name} {version(name)}" for name in ["torch", "deepspeed"])
    blocks = []
    for rate in options.rates.split(","):
        title = f"**{rate}**, batch {options.batch} x {options.context} tokens:"
        blocks.append("\n".join([title, "", *measure(options, rate)]))
    heading = page.heading(
        peers,
        f"{options.turns} interleaved turns, medians",
        "two hosts of one rank and one thread",
        load_before=load,
    )
    text = "\n\n".join([heading, *blocks]) + "\n"
    if options.write:
        page.write_section(options.write, "links", text)
    else:
        print(text)


if __name__ == "__main__":
    main()
