"""Writes tests/parity/adam_reference.safetensors: what PyTorch's fused CPU Adam, AdamW, Adagrad and
SGD do in ten steps, and Lion written in PyTorch's operators. tests/unit/kernels/adam_parity_test.cpp
makes the same inputs and compares.

    tools/peers.sh VENV && VENV/bin/python tests/parity/adam_reference.py
"""
import pathlib

import numpy as np
import torch
from safetensors.torch import save_file

NUMEL, STEPS, STRIDE = 10_007, 10, 61
LR, BETAS, EPS = 1e-2, (0.9, 0.999), 1e-8
# Name, optimizer, weight decay, beta1.
CASES = [
    ("adamw", torch.optim.AdamW, 0.1, 0.9),
    ("adam", torch.optim.Adam, 0.0, 0.9),
    ("adam_l2", torch.optim.Adam, 0.1, 0.9),
    ("adamw_low_beta1", torch.optim.AdamW, 0.1, 0.3),
]
AMSGRAD = [("adamw_amsgrad", torch.optim.AdamW), ("adam_amsgrad", torch.optim.Adam)]


class Lion(torch.optim.Optimizer):
    """Chen et al. 2023, algorithm 2; the order of its operations is lion-pytorch's."""

    def __init__(self, parameters, lr, betas, weight_decay):
        super().__init__(parameters, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                state = self.state[p]
                m = state.setdefault("exp_avg", torch.zeros_like(p))
                p.mul_(1 - group["lr"] * group["weight_decay"])
                way = m.clone().mul_(beta1).add(p.grad, alpha=1 - beta1).sign_()
                p.add_(way, alpha=-group["lr"])
                m.mul_(beta2).add_(p.grad, alpha=1 - beta2)


# Name, state, optimizer.
OTHERS = [
    ("adagrad", "sum", lambda p: torch.optim.Adagrad(
        p, lr=LR, lr_decay=0.1, weight_decay=0.1, initial_accumulator_value=0.5, fused=True)),
    ("sgd_nesterov", "momentum_buffer", lambda p: torch.optim.SGD(
        p, lr=LR, momentum=0.9, weight_decay=0.1, nesterov=True, fused=True)),
    ("sgd_dampening", "momentum_buffer", lambda p: torch.optim.SGD(
        p, lr=LR, momentum=0.9, dampening=0.3, fused=True)),
    ("lion", "exp_avg", lambda p: Lion(p, lr=LR, betas=BETAS, weight_decay=0.1)),
]


def inputs(salt):
    """Exact in fp32: 24 hashed bits in [-1, 1), times 2^-(i mod 12)."""
    i = np.arange(NUMEL, dtype=np.uint64)
    bits = ((i * 2654435761 + salt * 2246822519) % 2**32) >> 8
    values = bits.astype(np.float64) / 2**23 - 1
    return torch.from_numpy((values * 2.0 ** -(i % 12).astype(np.float64)).astype(np.float32))


def run(optimizer_type, weight_decay, beta1):
    """Parameters, momentum and variance after each step, as [steps, 3, numel]."""
    parameter = torch.nn.Parameter(inputs(0))
    optimizer = optimizer_type([parameter], lr=LR, betas=(beta1, BETAS[1]), eps=EPS,
                               weight_decay=weight_decay, fused=True)
    steps = []
    for step in range(1, STEPS + 1):
        parameter.grad = inputs(step)
        optimizer.step()
        state = optimizer.state[parameter]
        steps.append(torch.stack([parameter.detach(), state["exp_avg"], state["exp_avg_sq"]]))
    return torch.stack(steps)


def run_amsgrad(optimizer_type):
    """Parameters and the three states after each step, as [steps, 4, numel]. beta2 is small, so
    that the variance falls after it has risen."""
    parameter = torch.nn.Parameter(inputs(0))
    optimizer = optimizer_type([parameter], lr=LR, betas=(BETAS[0], 0.5), eps=EPS,
                               weight_decay=0.1, amsgrad=True, fused=True)
    steps = []
    for step in range(1, STEPS + 1):
        parameter.grad = inputs(step)
        optimizer.step()
        state = optimizer.state[parameter]
        values = [state[name] for name in ("exp_avg", "exp_avg_sq", "max_exp_avg_sq")]
        steps.append(torch.stack([parameter.detach(), *values]))
    return torch.stack(steps)


def run_other(make_optimizer, state_name):
    """Parameters and the one state after each step, as [steps, 2, numel]."""
    parameter = torch.nn.Parameter(inputs(0))
    optimizer = make_optimizer([parameter])
    steps = []
    for step in range(1, STEPS + 1):
        parameter.grad = inputs(step)
        optimizer.step()
        steps.append(torch.stack([parameter.detach(), optimizer.state[parameter][state_name]]))
    return torch.stack(steps)


def main():
    torch.set_num_threads(1)
    tensors = {}
    for name, state_name, make_optimizer in OTHERS:
        states = run_other(make_optimizer, state_name)
        tensors[f"{name}.sampled"] = states[:, :, ::STRIDE].contiguous()
    for name, optimizer_type in AMSGRAD:
        states = run_amsgrad(optimizer_type)
        tensors[f"{name}.sampled"] = states[:, :, ::STRIDE].contiguous()
    for name, optimizer_type, weight_decay, beta1 in CASES:
        states = run(optimizer_type, weight_decay, beta1)
        tensors[f"{name}.sampled"] = states[:, :, ::STRIDE].contiguous()
        if name in ("adamw", "adam_l2"):
            tensors[f"{name}.last_parameters"] = states[-1, 0].contiguous()
    versions = {"torch": torch.__version__, "cpu": torch.backends.cpu.get_cpu_capability()}
    save_file(tensors, pathlib.Path(__file__).with_suffix(".safetensors"), metadata=versions)


if __name__ == "__main__":
    main()
