"""Measure pipelines of dslaunch beside Python peers, turn by turn, and print one table.

  pipeline.py --inputs DIR --ours COMMAND [--only NAME,...] [--turns N] [--steps N] [--micro M]
              [--batch B] [--context T]

Each turn is a fresh start; a figure is the median over turns of a turn's median step (its first
three left out). Idle share: what part of its ranks' time a step leaves over beside the same
micro batches and update computed by one process alone (compute), which has no bubble, no
transfers and no other stage.
"""

import argparse
import collections
import json
import os
import pathlib
import shlex
import statistics
import sys
import tempfile

import compare_peers
import page

HERE = pathlib.Path(__file__).resolve().parent
STAGES = 2
OURS = {
    "dslaunch gpipe": "gpipe",
    "dslaunch 1f1b": "1f1b",
    "dslaunch interleaved": "interleaved",
    "dslaunch zb-h1": "zb-h1",
    "dslaunch zb-v": "zb-v",
}
PEERS = ["compute", "deepspeed", "torch"]


def peer_figures(options, name, folder):
    ranks = 1 if name == "compute" else STAGES
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += [f"--nproc_per_node={ranks}", HERE / "pipeline_peer.py", "--peer", name]
    command += ["--archive", options.inputs / "gpt-small.pt"]
    command += ["--tokens", options.inputs / "kjv.bytes.u16.bin", "--result", folder / "figures"]
    for key in ["batch", "context", "steps", "micro"]:
        command += [f"--{key}", str(getattr(options, key))]
    try:
        compare_peers.run(command, folder, lambda pid: None)
    except SystemExit as failure:  # DeepSpeed's shared memory is seen to abort at its end
        print(f"{name} once more: {failure}".splitlines()[0], file=sys.stderr, flush=True)
        compare_peers.run(command, folder, lambda pid: None)
    each = [json.loads((folder / f"figures.{rank}").read_text()) for rank in range(ranks)]
    slowest = [max(times) for times in zip(*(rank["step_ms"] for rank in each))]
    return {
        "step_ms": statistics.median(slowest[compare_peers.WARM_UP_STEPS :]),
        "peak_rss_bytes": max(rank["peak_rss_bytes"] for rank in each),
        "loss": each[-1]["losses"][-1],
    }


def our_figures(options, name, folder):
    shape = compare_peers.Shape("", "fp32", options.batch, options.context, options.steps, ())
    config = compare_peers.our_config("dslaunch0", options.inputs, shape)
    config |= {"train_batch_size": options.batch * options.micro}
    config |= {"gradient_accumulation_steps": options.micro}
    config["dslaunch"]["pipeline"] = {"stages": STAGES, "schedule": OURS[name]}
    command = options.ours + [options.inputs / "gpt-small.pt"]
    figures = compare_peers.run_ours(command, config, folder, None)
    return {key: figures[key] for key in ["step_ms", "peak_rss_bytes", "loss"]}


def measure(options, names):
    turns = collections.defaultdict(list)
    for turn in range(options.turns):
        for name in names:
            with tempfile.TemporaryDirectory(prefix="dsl-bench-") as temporary:
                take = our_figures if name in OURS else peer_figures
                figures = take(options, name, pathlib.Path(temporary))
            turns[name].append(figures)
            text = f"{figures['step_ms']:.1f} ms, loss {figures['loss']:.5f}"
            print(f"turn {turn + 1}/{options.turns} {name}: {text}", file=sys.stderr, flush=True)
    return {
        name: {key: statistics.median(one[key] for one in each) for key in each[0]}
        | {"range": (min(o["step_ms"] for o in each), max(o["step_ms"] for o in each))}
        for name, each in turns.items()
    }


def report(options, medians, load_before):
    from importlib.metadata import version

    alone = medians.get("compute", {}).get("step_ms")
    bubble = (STAGES - 1) / (options.micro + STAGES - 1)
    peers = ", ".join(f"{name} {version(name)}" for name in ["torch", "deepspeed"])
    print(
        page.heading(
            peers,
            f"{options.turns} interleaved turns, medians",
            "one thread a rank",
            load_before=load_before,
        )
        + "\n\n"
        f"gpt-small, fp32, {STAGES} stages of one rank, {options.micro} micro batches of "
        f"{options.batch} x {options.context} tokens, AdamW; the bubble of 1F1B and GPipe is "
        f"{bubble:.1%} where stages take equally long:\n\n"
        "| | step ms | of turns | idle share | peak RSS MiB | last loss |\n|---|---|---|---|---|---|"
    )
    for name, m in medians.items():
        ranks = 1 if name == "compute" else STAGES
        idle = f"{1 - alone / (ranks * m['step_ms']):.1%}" if alone and ranks > 1 else ""
        print(
            f"| {name} | {m['step_ms']:.1f} | {m['range'][0]:.1f}..{m['range'][1]:.1f} | {idle} "
            f"| {m['peak_rss_bytes'] / 2**20:.0f} | {m['loss']:.5f} |"
        )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--inputs", type=pathlib.Path, required=True)
    parser.add_argument("--ours", type=shlex.split, required=True)
    parser.add_argument("--only", type=lambda text: text.split(","), default=[*PEERS, *OURS])
    for name, fallback in {"turns": 3, "steps": 12, "micro": 8, "batch": 1, "context": 256}.items():
        parser.add_argument(f"--{name}", type=int, default=fallback)
    options = parser.parse_args()
    options.ours += ["--num_gpus", str(STAGES)]
    load_before = os.getloadavg()[0]
    report(options, measure(options, options.only), load_before)


if __name__ == "__main__":
    main()
