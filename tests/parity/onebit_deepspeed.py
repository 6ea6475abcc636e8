"""Trains the small model of tests/unit/zero/exchange/plain_model.h by DeepSpeed's own OnebitAdam,
ZeroOneAdam and OnebitLamb over Gloo on CPUs, and prints their losses beside dslaunch's algorithm (a scale for each
block) and beside DeepSpeed's written a second time (a scale for each tensor, of LAMB for all
of them): the second shows that the algorithm is understood, the first what other choices change.

    pip download --no-deps --no-binary :all: deepspeed==0.15.4   # 0.19 has dropped them
    python tests/parity/onebit_deepspeed.py deepspeed-0.15.4/deepspeed [onebit zeroone lamb]

The packing of bits, a CUDA extension there, is numpy's here. DeepSpeed's first call, which throws its
gradient away, is made with gradients of 0, and the count of steps is set back.
"""
import importlib.util
import math
import os
import pathlib
import sys
import types

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

HOSTS, STEPS, LR, DECAY, BLOCK = 2, 200, 0.004, 0.05, 64
ONE_BIT = {"freeze_step": 30}
ZERO_ONE = {"var_freeze_step": 80, "var_update_scaler": 8, "local_step_scaler": 24,
            "local_step_clipper": 4}
LAMB = {"freeze_step": 30, "max_coeff": 0.6}


def wave(shape, start):
    numel = int(np.prod(shape))
    return (torch.arange(numel, dtype=torch.float64) * 3.0 + start).sin().view(shape).float()


def parameters():
    return {"b1": wave([20], 0.2) * 0.1, "gain": torch.ones(1) * 0.9, "w1": wave([7, 20], 0.1) * 0.5,
            "w2": wave([20, 17], 0.4) * 0.4, "w3": wave([17, 3], 0.5) * 0.5}


def loss_of(p, micro_batch):
    x, y = wave([2, 7], 1.0 + 31.0 * micro_batch), wave([2, 3], 2.0 + 17.0 * micro_batch)
    h = torch.tanh(x @ p["w1"] + p["b1"])
    h = torch.tanh((h * p["gain"]) @ p["w2"])
    z = h @ p["w3"]
    return ((z - y) * (z - y)).mean()


class Scales:
    """Section 4 of the 1-bit Adam paper: BY "tensor" pads to chunks as DeepSpeed, or by "block"."""

    def __init__(self, by, numel):
        self.by, self.numel = by, numel
        divider = HOSTS * 8 // math.gcd(HOSTS, 8)
        self.padded = -(-numel // (HOSTS * divider)) * HOSTS * divider if by == "tensor" else numel
        self.clear()

    def clear(self):
        self.worker = [torch.zeros(self.padded) for _ in range(HOSTS)]
        self.server = torch.zeros(self.padded)

    @staticmethod
    def signs(value):
        return torch.where(value >= 0, 1.0, -1.0)

    def compress(self, value, error, length):
        value = value + error
        told = torch.cat([part.norm() / np.sqrt(part.numel()) * self.signs(part)
                          for part in value.split(length)])
        error.copy_(value - told)
        return told

    def average(self, values):
        length = self.padded if self.by == "tensor" else BLOCK
        flat = [torch.cat([v.flatten(), torch.zeros(self.padded - self.numel)]) for v in values]
        told = [self.compress(v, e, length) for v, e in zip(flat, self.worker)]
        mean = sum(told) / HOSTS
        chunk = self.padded // HOSTS if self.by == "tensor" else BLOCK
        return self.compress(mean, self.server, chunk)[:self.numel].view(values[0].shape)


def reference(kind, by):
    """All hosts in one process; returns the losses."""
    hosts = [{n: t.clone().requires_grad_() for n, t in parameters().items()} for _ in range(HOSTS)]
    names = list(hosts[0])
    m = {n: [torch.zeros_like(hosts[0][n]) for _ in range(HOSTS)] for n in names}
    u = {n: [torch.zeros_like(hosts[0][n]) for _ in range(HOSTS)] for n in names}
    v = {n: torch.zeros_like(hosts[0][n]) for n in names}
    scales = {n: Scales(by, v[n].numel()) for n in names}
    vi, vc, li, lc, frozen, rates, losses = 1, 0, 1, 0, False, 0.0, []
    for t in range(1, STEPS + 1):
        own = [loss_of(p, (t - 1) * HOSTS + h) for h, p in enumerate(hosts)]
        losses.append(sum(x.item() for x in own) / HOSTS)
        grads = [dict(zip(names, torch.autograd.grad(x, list(p.values()))))
                 for x, p in zip(own, hosts)]
        one_bit = kind == "onebit"
        exact = t <= ONE_BIT["freeze_step"] if one_bit else not frozen and t % vi == 0
        meets = not one_bit and frozen and t % li == 0
        rates += LR if frozen else 0
        with torch.no_grad():
            for n in names:
                g = [x[n] for x in grads]
                if exact or (not one_bit and not frozen):
                    mean = sum(g) / HOSTS if exact else scales[n].average(g)
                    if exact:
                        v[n].mul_(0.999).addcmul_(mean, mean, value=0.001)
                    g = [mean] * HOSTS
                for h in range(HOSTS):
                    m[n][h].mul_(0.9).add_(g[h], alpha=0.1)
                if one_bit and not exact:
                    mean = scales[n].average(m[n])
                    m[n] = [mean.clone() for _ in range(HOSTS)]
                d = v[n].sqrt() + 1e-8
                for h in range(HOSTS):
                    way = -LR * (m[n][h] / d + DECAY * hosts[h][n])
                    hosts[h][n] += way
                    u[n][h] += way if frozen else 0
                if meets:
                    for h in range(HOSTS):
                        hosts[h][n] -= u[n][h]
                    mean = scales[n].average([x * d for x in u[n]])
                    for h in range(HOSTS):
                        m[n][h] = -mean / rates
                        hosts[h][n] += mean / d
                        u[n][h].zero_()
        if meets:
            rates = 0.0
        if not one_bit and exact:
            vc += 1
            if vc == ZERO_ONE["var_update_scaler"]:
                vc, vi = 0, vi * 2
        if frozen:
            lc += 1
            if lc == ZERO_ONE["local_step_scaler"]:
                lc, li = 0, min(ZERO_ONE["local_step_clipper"], 2 * li)
        if not one_bit and not frozen and t > ZERO_ONE["var_freeze_step"]:
            frozen = True
            for scale in scales.values():
                scale.clear()
    return losses


def lamb_reference(kind, by):
    """1-bit LAMB of all hosts, which are alike after each update, in one process. By "tensor" as
    DeepSpeed: momenta are scaled to one size and have one scale together, the padding behind them
    keeps what was averaged there, and the mean of the ratios begins at 0. By "block" as dslaunch."""
    theirs = by == "tensor"
    p = {n: t.clone().requires_grad_() for n, t in parameters().items()}
    m = {n: torch.zeros_like(t) for n, t in p.items()}
    v = {n: torch.zeros_like(t) for n, t in p.items()}
    mean, weight, last = ({n: start for n in p} for start in (0.0, 0.0, 1.0))
    fresh, sizes, losses = {}, {n: 1.0 for n in p}, []
    numel = [t.numel() for t in p.values()]
    padding = [torch.zeros(-sum(numel) % (8 * HOSTS))]
    scales = ({"": Scales(by, sum(numel) + padding[0].numel())} if theirs else
              {n: Scales(by, t.numel()) for n, t in p.items()})

    def length(values):
        return values.pow(2).sum().sqrt()

    def average(momenta):
        if not theirs:
            return {n: scales[n].average([x[n] for x in momenta]) for n in p}
        flat = [torch.cat([(x[n] * sizes[n]).flatten() for n in p] + padding) for x in momenta]
        *parts, padding[0] = scales[""].average(flat).split([*numel, padding[0].numel()])
        return {n: part.view(p[n].shape) / sizes[n] for n, part in zip(p, parts)}

    for t in range(1, STEPS + 1):
        own = [loss_of(p, (t - 1) * HOSTS + h) for h in range(HOSTS)]
        losses.append(sum(x.item() for x in own) / HOSTS)
        grads = [dict(zip(p, torch.autograd.grad(x, list(p.values())))) for x in own]
        exact = t <= LAMB["freeze_step"]
        with torch.no_grad():
            if t == LAMB["freeze_step"] + 1 and theirs:
                size = {n: (torch.linalg.norm(m[n]) / np.sqrt(m[n].numel())).item() for n in p}
                sizes = {n: sum(size.values()) / len(size) / s for n, s in size.items()}
            if not exact:
                before = m
                m = average([{n: before[n].clone().mul_(0.9).add_(g[n], alpha=0.1) for n in p}
                             for g in grads])
            for n in p:
                if exact:
                    g = sum(x[n] for x in grads) / HOSTS
                    m[n].mul_(0.9).add_(g, alpha=0.1)
                    v[n].mul_(0.999).addcmul_(g, g, value=0.001)
                    fresh[n] = v[n].clone()
                way = m[n] / (v[n].sqrt() + 1e-8)
                update = way + DECAY * p[n]
                if exact:
                    ratio = min((length(p[n]) / length(update)).item(), LAMB["max_coeff"])
                    mean[n] = 0.9 * mean[n] + 0.1 * ratio
                    weight[n] = 0.9 * weight[n] + 0.1
                else:
                    g = (m[n] - before[n] * 0.9) / 0.1
                    fresh[n].mul_(0.999).addcmul_(g, g, value=0.001)
                    factor = ((v[n].sqrt() + 1e-8) / (fresh[n].sqrt() + 1e-8)).max().item()
                    share = min(1.0, (length(way) / length(update)).item())
                    factor = min(max(factor * share + 1 - share, 0.5), 4.0)
                    factor = min(max(factor, last[n] * 0.9), last[n] * 1.1)
                    last[n] = factor
                    ratio = mean[n] * factor / (1.0 if theirs else weight[n])
                p[n].add_(-LR * ratio * update)
    return losses


def load(root, name, relative):
    spec = importlib.util.spec_from_file_location(name, root / relative)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def deepspeed_modules(root):
    """The modules of ROOT that are needed, with the rest of DeepSpeed in their place."""

    class Packer:
        @staticmethod
        def packbits(values, numel, rank):
            return torch.from_numpy(np.packbits((values >= 0).numpy()))

        @staticmethod
        def unpackbits(values, numel, rank):
            bits = np.unpackbits(values.numpy())
            return torch.from_numpy(bits.astype(np.float32) * 2 - 1)

    accelerator = types.SimpleNamespace(empty_cache=lambda: None,
                                        current_device_name=lambda: "cpu")
    stubs = {
        "deepspeed": {}, "deepspeed.runtime": {}, "deepspeed.runtime.comm": {},
        "deepspeed.comm": {n: getattr(dist, n) for n in dir(dist) if not n.startswith("__")},
        "deepspeed.accelerator": {"get_accelerator": lambda: accelerator},
        "deepspeed.ops": {}, "deepspeed.utils": {},
        "deepspeed.ops.op_builder": {
            "PackbitsBuilder": lambda: types.SimpleNamespace(load=lambda: Packer)},
        "deepspeed.utils.torch": {"required_torch_version": lambda **_: True},
        "deepspeed.utils.logging": {"logger": types.SimpleNamespace(info=print)},
    }
    for name, members in stubs.items():
        module = types.ModuleType(name)
        module.__dict__.update(members)
        module.__path__ = []
        sys.modules[name] = module
    # Gloo wants scalars of one dimension.
    sys.modules["deepspeed.comm"].all_gather = lambda into, one, group: dist.all_gather(
        into, one.reshape(1) if one.dim() == 0 else one, group=group)
    sys.modules["deepspeed"].comm = sys.modules["deepspeed.comm"]
    load(root, "deepspeed.runtime.comm.compressed", "runtime/comm/compressed.py")
    return (load(root, "onebit_adam", "runtime/fp16/onebit/adam.py").OnebitAdam,
            load(root, "zero_one_adam", "runtime/fp16/onebit/zoadam.py").ZeroOneAdam,
            load(root, "one_bit_lamb", "runtime/fp16/onebit/lamb.py").OnebitLamb)


def peer(rank, root, kind, port, queue):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    sys.stdout = open(os.devnull, "w")
    dist.init_process_group("gloo", rank=rank, world_size=HOSTS)
    one_bit, zero_one, lamb = deepspeed_modules(root)
    engine = types.SimpleNamespace(mpu=None, local_rank=rank, enable_backward_allreduce=True)
    engine.mpu = types.SimpleNamespace(get_data_parallel_group=lambda: dist.group.WORLD)
    p = {n: t.clone().requires_grad_() for n, t in parameters().items()}
    common = {"lr": LR, "weight_decay": DECAY, "comm_backend_name": "compressed"}
    made, params = {"onebit": (one_bit, ONE_BIT), "zeroone": (zero_one, ZERO_ONE),
                    "lamb": (lamb, LAMB)}[kind]
    optimizer = made(list(p.values()), engine, **common, **params)
    for tensor in p.values():
        tensor.grad = torch.zeros_like(tensor)
    optimizer.step()
    for state in optimizer.state.values():
        state["step"] = 0
    losses = []
    for t in range(1, STEPS + 1):
        loss = loss_of(p, (t - 1) * HOSTS + rank)
        for tensor, g in zip(p.values(), torch.autograd.grad(loss, list(p.values()))):
            if engine.enable_backward_allreduce:
                dist.all_reduce(g)
                g /= HOSTS
            tensor.grad = g
        optimizer.step()
        losses.append(loss.item())
    queue.put((rank, losses))
    dist.barrier()


def deepspeed(root, kind, port):
    queue = mp.get_context("spawn").SimpleQueue()
    mp.spawn(peer, (root, kind, port, queue), nprocs=HOSTS)
    ranks = [queue.get()[1] for _ in range(HOSTS)]
    return [sum(x) / HOSTS for x in zip(*ranks)]


if __name__ == "__main__":
    torch.set_num_threads(1)
    source = pathlib.Path(sys.argv[1]).resolve()
    for number, kind in enumerate(sys.argv[2:] or ["onebit", "zeroone", "lamb"]):
        theirs = deepspeed(source, kind, 29511 + number)
        written = lamb_reference if kind == "lamb" else reference
        again, ours = written(kind, "tensor"), written(kind, "block")
        off = max(abs(a - b) for a, b in zip(theirs, again))
        print(f"{kind}: DeepSpeed and its algorithm written again differ by {off:.2e} at most; "
              f"mean loss of the last 50 steps: DeepSpeed {np.mean(theirs[-50:]):.5f}, "
              f"a scale for each block {np.mean(ours[-50:]):.5f}, first loss {ours[0]:.5f}")
        print("  losses of blocks at 1, 50, 100, 200:",
              " ".join(f"{ours[t - 1]:.6f}" for t in (1, 50, 100, 200)))
