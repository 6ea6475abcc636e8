"""Compares loss scales with DeepSpeed's, step by step:

    python tests/parity/loss_scale_deepspeed.py build/release/bin/dslaunch

First the rules alone, on sequences of 600 steps and every choice of the keys: DeepSpeed's
DynamicLossScaler, which its ZeRO stages use, and the rules of its FP16_Optimizer and
FP16_UnfusedOptimizer, which know neither hysteresis nor the error at the minimum. Then whole jobs
of 300 steps in fp16: a linear model whose gradient is its input times the scale, so that it
overflows where the input says and where the scale has grown too far, trained by DeepSpeed at ZeRO
stages 1 to 3 and by dslaunch. Skipped steps and scales have to be equal.
"""

import itertools
import json
import logging
import os
import pathlib
import random
import subprocess
import sys
import tempfile

import deepspeed
import numpy as np
import torch
from deepspeed.accelerator import get_accelerator
from deepspeed.runtime.fp16 import fused_optimizer, loss_scaler, unfused_optimizer
from deepspeed.runtime.precision_config import DeepSpeedFP16Config

STEPS, JOB_STEPS, WIDTH = 600, 300, 8


def second_telling(config, overflows, zero=True):
    """dslaunch's rules. Without ZERO: every overflow halves, and the minimum is no error."""
    scale, good, hysteresis = 2.0 ** config.initial_scale_power, 0, config.hysteresis
    for overflow in overflows:
        if overflow:
            good = 0
            if zero and config.hysteresis != 1 and hysteresis != 1:
                hysteresis -= 1
            elif zero and scale == config.min_loss_scale:
                return
            else:
                scale = max(scale / 2, config.min_loss_scale)
        else:
            if config.consecutive_hysteresis:
                hysteresis = config.hysteresis
            if good > 0 and good % config.loss_scale_window == 0:
                hysteresis, scale = config.hysteresis, scale * 2
            good += 1
        yield scale


def of_zero(config, overflows):
    scaler = loss_scaler.CreateLossScaler(
        torch.half, 0, True, config.dynamic_loss_scale_args())
    for overflow in overflows:
        try:
            scaler.update_scale(overflow)
        except Exception as error:
            assert "already at minimum" in str(error), error
            return
        yield scaler.loss_scale


def of_optimizer(kind, config, overflows):
    optimizer = object.__new__(kind)
    optimizer.verbose = False
    optimizer.loss_scale_config = loss_scaler.LossScaleConfig(
        low_precision_dtype=torch.half, dynamic_loss_scale=True, static_loss_scale=0,
        dynamic_loss_args=config.dynamic_loss_scale_args())
    for overflow in overflows:
        kind._update_scale(optimizer, overflow)
        yield optimizer.loss_scale_config.cur_scale


def sequences():
    draw = random.Random(24)
    yield [False] * STEPS
    yield [step % 101 == 100 for step in range(STEPS)]
    yield [step < 12 or 300 <= step < 307 for step in range(STEPS)]
    yield [step in (0, 2, 5, 250, 252, 400) for step in range(STEPS)]
    for part in (0.003, 0.02, 0.1, 0.3, 0.7):
        yield [draw.random() < part for _ in range(STEPS)]


def compare_rules():
    steps = dict.fromkeys(("zero", "fused", "unfused"), 0)
    axes = itertools.product((4, 16, 32), (1, 2, 8, 100), (1, 2, 3, 7), (False, True), (1, 3, 8))
    for power, window, hysteresis, consecutive, minimum in axes:
        config = DeepSpeedFP16Config(
            enabled=True, initial_scale_power=power, loss_scale_window=window,
            hysteresis=hysteresis, consecutive_hysteresis=consecutive, min_loss_scale=minimum)
        for overflows in sequences():
            theirs = list(of_zero(config, overflows))
            assert theirs == list(second_telling(config, overflows)), config
            steps["zero"] += len(theirs)
            for name, kind in (("fused", fused_optimizer.FP16_Optimizer),
                               ("unfused", unfused_optimizer.FP16_UnfusedOptimizer)):
                theirs = list(of_optimizer(kind, config, overflows))
                assert theirs == list(second_telling(config, overflows, zero=False)), config
                steps[name] += len(theirs)
    print("rules alone: equal scales after each of", steps, "steps")


class Linear(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.linspace(-1, 1, WIDTH))

    def forward(self, x):
        return (x.float() * self.weight.float()).mean()  # a scale of 2^16 is infinite in fp16


def inputs():
    """A gradient is an eighth of a row times the scale: rows of 2^30 overflow at any scale, those
    of 2^-6 to 2^8 once it is large enough."""
    draw = np.random.default_rng(5)
    rows = np.exp2(draw.uniform(-6, 8, (JOB_STEPS, 1)).astype(np.float32))
    rows = np.repeat(rows, WIDTH, axis=1)
    for step in (3, 4, 5, 40, 90, 91, 150, 200, 201, 202, 203, 260):
        rows[step] = np.float32(2.0**30)
    return rows


def ds_config(stage, fp16):
    return {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": stage},
            "fp16": {"enabled": True, **fp16}, "gradient_clipping": 0.0,
            "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "torch_adam": True}}}


def by_deepspeed(stage, fp16, rows):
    model = Linear()
    engine, *_ = deepspeed.initialize(
        model=model, model_parameters=model.parameters(), config=ds_config(stage, fp16))
    trace = []
    for row in rows:
        scale = float(engine.optimizer.loss_scale)
        engine.backward(engine(torch.tensor(row[None])))
        engine.step()
        trace.append((scale, bool(engine.optimizer.overflow)))
    with deepspeed.zero.GatheredParameters(list(model.parameters())):
        return trace, model.weight.detach().float().clone()


def by_dslaunch(program, stage, fp16, rows):
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder)
        torch.jit.script(Linear()).save(str(place / "linear.pt"))
        np.save(place / "rows.npy", rows)
        config = ds_config(stage, fp16) | {
            "dslaunch": {"data": {"train": str(place / "rows.npy"), "shuffle": False},
                         "steps": len(rows)}}
        (place / "ds_config.json").write_text(json.dumps(config))
        done = subprocess.run(
            [program, "--num_gpus", "1", "--device", "cpu", "--output", str(place / "out"),
             "--config", str(place / "ds_config.json"), str(place / "linear.pt")],
            capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        lines = map(json.loads, (place / "out" / "metrics.jsonl").read_text().splitlines())
        trace = [(line["loss_scale"], line.get("skipped", False)) for line in lines
                 if "loss" in line]
        from safetensors.torch import load_file

        return trace, load_file(str(place / "out" / "model.safetensors"))["weight"]


def compare_jobs(program):
    get_accelerator().is_fp16_supported = lambda: True  # said of CPUs without fp16 instructions
    rows = inputs()
    choices = [
        {"loss_scale_window": 7, "hysteresis": 2, "min_loss_scale": 1},
        {"loss_scale_window": 3, "hysteresis": 3, "consecutive_hysteresis": True},
        {"initial_scale_power": 24, "loss_scale_window": 20, "hysteresis": 1},
        {"loss_scale": 256.0},
    ]
    for fp16 in choices:
        for stage in (1, 2, 3):
            theirs, their_weight = by_deepspeed(stage, fp16, rows)
            ours, our_weight = by_dslaunch(program, stage, fp16, rows)
            assert len(ours) == len(theirs) == JOB_STEPS
            first = next((i for i in range(JOB_STEPS) if ours[i] != theirs[i]), None)
            skipped = sum(overflow for _, overflow in ours)
            scales = len({scale for scale, _ in ours})
            far = (our_weight - their_weight.to(our_weight)).abs().max().item()
            print(f"stage {stage}, {fp16}: {JOB_STEPS} steps, {skipped} skipped, {scales} scales, "
                  f"first difference {first}, weights differ by {far:.1e}", flush=True)
            assert first is None, (ours[first], theirs[first])


def main():
    logging.disable(logging.CRITICAL)
    os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1",
                      MASTER_PORT="29544")
    deepspeed.init_distributed("gloo")
    compare_rules()
    compare_jobs(sys.argv[1])


if __name__ == "__main__":
    main()
