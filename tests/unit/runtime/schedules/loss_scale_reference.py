"""Writes loss_scale_reference.json: what DeepSpeed's DynamicLossScaler does step by step.

Run in an environment with DeepSpeed; loss_scale_test.cpp reads the result. The scaler's arguments
come from DeepSpeed's own reading of the `fp16` section.
"""

import itertools
import json
import logging
import pathlib
import random

import deepspeed
import torch
from deepspeed.runtime.fp16 import loss_scaler
from deepspeed.runtime.precision_config import DeepSpeedFP16Config

STEPS = 24
POWERS = [2, 16]
WINDOWS = [1, 3]
HYSTERESES = [1, 2, 3]
MINIMA = [1, 2, 3]


def overflow_sequences():
    """Strings of 0 (clean) and 1 (overflow), one character per step."""
    draw = random.Random(20)
    return [
        "0" * STEPS,
        "1" * STEPS,
        "01" * (STEPS // 2),
        ("001" * STEPS)[:STEPS],
        "0" * 6 + "11111" + "0" * (STEPS - 11),
        "".join("1" if draw.random() < 0.2 else "0" for _ in range(STEPS)),
        "".join("1" if draw.random() < 0.5 else "0" for _ in range(STEPS)),
    ]


def trace(section, overflows):
    """Where the scale changed and to what, the hysteresis at the end, and the step that raised."""
    arguments = DeepSpeedFP16Config(**section).dynamic_loss_scale_args()
    scaler = loss_scaler.CreateLossScaler(torch.half, 0, True, arguments)
    changes, raised = [], None
    for step, overflow in enumerate(overflows):
        before = scaler.loss_scale
        try:
            scaler.update_scale(overflow == "1")
        except Exception as error:
            assert "already at minimum" in str(error), error
            raised = step
            break
        if scaler.loss_scale != before:
            assert scaler.loss_scale == int(scaler.loss_scale)
            changes.append([step, int(scaler.loss_scale)])
    return {"changes": changes, "hysteresis_left": scaler.cur_hysteresis, "raised": raised}


def main():
    logging.disable(logging.CRITICAL)
    loss_scaler.dist.get_rank = lambda: 0
    sequences = overflow_sequences()
    cases = []
    axes = itertools.product(POWERS, WINDOWS, HYSTERESES, [False, True], MINIMA)
    for power, window, hysteresis, consecutive, minimum in axes:
        section = {
            "enabled": True,
            "initial_scale_power": power,
            "loss_scale_window": window,
            "hysteresis": hysteresis,
            "consecutive_hysteresis": consecutive,
            "min_loss_scale": minimum,
        }
        traces = [trace(section, overflows) for overflows in sequences]
        cases.append({"fp16": section, "traces": traces})
    head = {"deepspeed": deepspeed.__version__, "torch": torch.__version__, "overflows": sequences}
    lines = [f'"{name}": {json.dumps(value)}' for name, value in head.items()]
    body = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    text = "{" + ",\n".join(lines) + ',\n"cases": [\n' + body + "\n]}\n"
    (pathlib.Path(__file__).parent / "loss_scale_reference.json").write_text(text)


if __name__ == "__main__":
    main()
