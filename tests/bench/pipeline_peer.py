"""One rank of a pipeline of a Python peer, started by torchrun; writes its figures to
--result.RANK as JSON.

Peers: compute (one rank, no pipeline: what the machine must compute), deepspeed (PipelineModule,
1F1B) and torch (torch.distributed.pipelining, Schedule1F1B); over gloo, one thread a rank, fp32.
All take the same samples: micro batch m of step s is rows (s*M + m)*B and on.
"""

import argparse
import json
import os
import pathlib
import resource
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "fixtures"))
import data_order
import gpt


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--peer", choices=["compute", "deepspeed", "torch"], required=True)
    for name in ["archive", "tokens", "result"]:
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--size", default="small")
    for name in ["batch", "context", "steps", "micro"]:
        parser.add_argument(f"--{name}", type=int, required=True)
    return parser.parse_args()


class Embedding(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.wte, self.wpe = model.wte, model.wpe

    def forward(self, tokens):
        return self.wte(tokens) + self.wpe(torch.arange(tokens.size(1)))


class Head(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.ln_f, self.head = model.ln_f, model.head

    def forward(self, h):
        return self.head(self.ln_f(h))


def layers_of(model):
    return [Embedding(model), *model.blocks, Head(model)]


def loss_of(logits, targets):
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def optimizer_of(parameters):
    return torch.optim.AdamW(parameters, lr=1e-3, weight_decay=0.01, fused=True)


def compute_step(model, options):
    optimizer = optimizer_of(model.parameters())

    def step(batches):
        total = 0.0
        for inputs in batches:
            loss = model(*inputs) / options.micro
            loss.backward()
            total += loss.item()
        optimizer.step()
        optimizer.zero_grad()
        return total

    return step


def deepspeed_step(model, options):
    import deepspeed
    from deepspeed.pipe import PipelineModule

    deepspeed.init_distributed("gloo")
    pipe = PipelineModule(
        layers=layers_of(model), loss_fn=loss_of, num_stages=dist.get_world_size()
    )
    config = {
        "train_micro_batch_size_per_gpu": options.batch,
        "gradient_accumulation_steps": options.micro,
        "steps_per_print": 10**9,
        "gradient_clipping": 0.0,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "weight_decay": 0.01}},
    }
    parameters = [p for p in pipe.parameters() if p.requires_grad]
    engine, *_ = deepspeed.initialize(model=pipe, model_parameters=parameters, config=config)
    return lambda batches: engine.train_batch(iter([(b[0], b[1]) for b in batches])).item()


def torch_step(model, options):
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    dist.init_process_group("gloo")
    rank, stages = dist.get_rank(), dist.get_world_size()
    layers = layers_of(model)
    # As many parameters in each, as DeepSpeed splits by default.
    sizes = [sum(p.numel() for p in layer.parameters()) for layer in layers]
    ends, held, total = [], 0, sum(sizes)
    for index, size in enumerate(sizes):
        held += size
        if held >= total * (len(ends) + 1) / stages:
            ends.append(index + 1)
    begins = [0, *ends[:-1]]
    part = nn.Sequential(*layers[begins[rank] : ends[rank]])
    stage = PipelineStage(part, rank, stages, torch.device("cpu"))
    schedule = Schedule1F1B(stage, options.micro, loss_fn=loss_of)
    optimizer = optimizer_of(part.parameters())

    def step(batches):
        tokens = torch.cat([b[0] for b in batches])
        targets = torch.cat([b[1] for b in batches])
        losses = []
        if rank == 0:
            schedule.step(tokens)
        elif rank == stages - 1:
            schedule.step(target=targets, losses=losses)
        else:
            schedule.step()
        optimizer.step()
        optimizer.zero_grad()
        return torch.stack(losses).mean().item() if losses else 0.0

    return step


def main():
    options = arguments()
    rank = int(os.environ["RANK"])
    torch.set_num_threads(1)
    source = data_order.TokenFile(options.tokens, options.context)
    model = gpt.from_archive(options.archive, options.size)
    make = {"compute": compute_step, "deepspeed": deepspeed_step, "torch": torch_step}
    step = make[options.peer](model, options)
    step_ms, losses = [], []
    for number in range(options.steps):
        start = time.perf_counter()
        batches = []
        for micro in range(options.micro):
            picked = data_order.sample_numbers(
                number,
                micro,
                0,
                accumulation=options.micro,
                world_size=1,
                batch=options.batch,
                sample_count=len(source),
            )
            batches.append(source.rows(picked))
        losses.append(step(batches))
        step_ms.append((time.perf_counter() - start) * 1e3)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    figures = {"rank": rank, "step_ms": step_ms, "losses": losses, "peak_rss_bytes": peak}
    pathlib.Path(f"{options.result}.{rank}").write_text(json.dumps(figures))
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
