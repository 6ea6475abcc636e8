"""Writes compression_reference.json: losses of fixtures trained by stock PyTorch with the compressed
layers of DeepSpeed 0.19.6, the last version that has them. compression_test.cpp reads it.

    python compression_reference.py FOLDER

FOLDER is the unpacked source of deepspeed 0.19.6 (`pip download deepspeed==0.19.6 --no-deps
--no-binary :all:`). Any newer deepspeed may be installed: its `compression` package, which is
missing there, is taken from FOLDER.
"""

import copy
import json
import pathlib
import sys

import torch

HERE = pathlib.Path(__file__).resolve().parent
FIXTURES = HERE.parent.parent / "fixtures"
sys.path.insert(0, str(FIXTURES))

import data_order  # noqa: E402
import make_models  # noqa: E402
import reference_run  # noqa: E402

STEPS, SEED = 20, 1234


def method(shared, params, modules, **more):
    shared = {"enabled": True, "schedule_offset": 0, **shared}
    return {"shared_parameters": shared,
            "different_groups": {"g1": {"params": params, "modules": modules, **more}}}


def weights(bits, modules, groups=1, kind="symmetric", in_forward=True, **params):
    shared = {"quantize_weight_in_forward": in_forward, "quantize_groups": groups,
              "quantization_type": kind}
    for name in ("schedule_offset", "fp16_mixed_quantize"):
        if name in params:
            shared[name] = params.pop(name)
    params = {"start_bits": bits, "target_bits": bits, "quantization_period": 1, **params}
    return {"weight_quantization": method(shared, params, modules)}


def activations(bits, modules, kind, calibration, offset=0):
    shared = {"quantization_type": kind, "range_calibration": calibration,
              "schedule_offset": offset}
    return {"activation_quantization": method(shared, {"bits": bits}, modules)}


def pruning(name, how, ratio, modules, **shared):
    return {name: method({"method": how, **shared}, {"dense_ratio": ratio}, modules)}


RUNS = [
    ("8 bits", "gpt", weights(8, ["blocks"])),
    ("4 bits, with a minimum", "gpt", weights(4, ["fc", "out$", "wte"], 4, "asymmetric")),
    ("three values", "gpt", weights(2, ["qkv", "proj", "fc", "out$"])),
    ("two values", "gpt", weights(1, ["blocks"], 8, schedule_offset=4)),
    ("8 to 4 bits", "gpt",
     weights(8, ["blocks"], 2, in_forward=False, target_bits=4, quantization_period=3)),
    ("6 to 3 bits, later and mixed", "gpt",
     weights(6, ["blocks"], 2, "asymmetric", in_forward=False, target_bits=3,
             quantization_period=2, schedule_offset=3,
             fp16_mixed_quantize={"enabled": True, "quantize_change_ratio": 0.25})),
    ("activations by row", "gpt", activations(8, ["blocks"], "asymmetric", "dynamic")),
    ("activations in a range", "gpt", activations(8, ["blocks"], "symmetric", "static", 2)),
    ("masks of the first weights", "gpt",
     {**pruning("sparse_pruning", "l1", 0.3, ["qkv"]),
      **pruning("row_pruning", "l1", 0.5, ["fc"], schedule_offset=5)}),
    ("masks of scores", "gpt",
     {**pruning("sparse_pruning", "topk", 0.4, ["qkv"]),
      **pruning("row_pruning", "topk", 0.5, ["fc"]),
      **pruning("head_pruning", "topk", 0.5, ["proj"], num_heads=4)}),
    ("all together", "gpt",
     {**weights(4, ["blocks"], 2), **activations(8, ["blocks"], "symmetric", "dynamic"),
      **pruning("sparse_pruning", "l1", 0.5, ["fc"]),
      **pruning("row_pruning", "l1", 0.75, ["fc"])}),
    ("a convolution in 8 bits", "convnet", weights(8, ["conv", "stem.0", "head"], 2)),
    ("activations of convolutions", "convnet", activations(8, ["conv"], "symmetric", "dynamic")),
    ("channels", "convnet", pruning("channel_pruning", "topk", 0.5, ["conv1"])),
]
WORLDS = {"8 bits": 2, "activations in a range": 2}
# Runs that are made once more with a learning rate of 0: the weights stay equal in all steps, so
# losses show what schedules do, and nothing else.
FIXED = ["two values", "8 to 4 bits", "6 to 3 bits, later and mixed", "activations by row",
         "activations in a range", "masks of the first weights", "a convolution in 8 bits",
         "activations of convolutions"]

METHODS = ["weight_quantization", "activation_quantization", "sparse_pruning", "row_pruning",
           "head_pruning", "channel_pruning"]


def fnv1a(text):
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = ((value ^ byte) * 0x100000001B3) % 2**64
    return value


def begin_scores(module):
    """Draws scores as dslaunch does: the same distribution as DeepSpeed's, other numbers."""
    for name, parameter in module.named_parameters():
        if not name.endswith("_scores"):
            continue
        sizes = list(parameter.shape)
        inputs = parameter[0].numel() if len(sizes) > 1 else sizes[0]
        generator = torch.Generator().manual_seed(SEED ^ fnv1a(name))
        bound = 1 / inputs**0.5
        parameter.data = torch.empty(sizes).uniform_(-bound, bound, generator=generator)


class Moq:
    """The rounding of DeepSpeed's optimizer step: fp32 weights stay, forward reads rounded ones.
    DeepSpeed does it with its fp16 copies of the weights."""

    def __init__(self, module, section):
        import deepspeed.ops.quantizer

        # A CUDA kernel, which is not used here.
        deepspeed.ops.quantizer.ds_quantizer = None
        from deepspeed.runtime.quantize import Quantizer

        shared = section["shared_parameters"]
        mix = shared.get("fp16_mixed_quantize", {})
        self.quantizer = Quantizer(
            shared["quantize_groups"], mix.get("enabled", False),
            mix.get("quantize_change_ratio", 0.001), shared["quantization_type"], "nearest")
        self.offset = shared["schedule_offset"]
        self.parameters = [p for p in module.parameters() if getattr(p, "start_bits", None)]
        self.masters = None

    def round(self):
        self.masters = [p.data.clone() for p in self.parameters]
        self.quantizer.quantize([self.parameters], False, False, None)

    def restore(self):
        if self.masters is not None:
            for parameter, master in zip(self.parameters, self.masters):
                parameter.data = master
            self.masters = None


def switch_on(compressed, config, step):
    """What the scheduler of DeepSpeed does. Its own cannot run: with l1 and topk it reads
    schedule_offset_end, which DeepSpeed 0.19.6 never sets."""
    for name in METHODS:
        section = config.get(name)
        if section is None or step < section["shared_parameters"]["schedule_offset"]:
            continue
        for layer in compressed[name]:
            setattr(layer, name.replace("quantization", "quantization_enabled")
                    if "quantization" in name else f"{name}_enabled", True)


def make(path, name, config):
    from deepspeed.compression.compress import get_module_name, init_compression

    torch.manual_seed(SEED)
    module = make_models.FIXTURES[name].make()
    module.load_state_dict(torch.jit.load(str(path)).state_dict())
    module = init_compression(module, {"compression_training": copy.deepcopy(config)})
    begin_scores(module)
    compressed = {}
    for method_name, section in config.items():
        for group in section["different_groups"].values():
            names = [found for word in group["modules"]
                     for found in get_module_name("g", module, word, set())[0]]
            compressed[method_name] = [module.get_submodule(found) for found in names]
    return module.train(), compressed


def train(name, config, world_size, options):
    fixture = make_models.FIXTURES[name]
    path = FIXTURES / "models" / f"{name}.pt"
    source = make_models.source_of(fixture.data)
    ranks, all_compressed = zip(*[make(path, name, config) for _ in range(world_size)])
    optimizers = [torch.optim.AdamW(rank.parameters(), **options, foreach=False)
                  for rank in ranks]
    section = config.get("weight_quantization")
    by_optimizer = section and not section["shared_parameters"]["quantize_weight_in_forward"]
    moqs = [Moq(rank, section) for rank in ranks] if by_optimizer else []
    losses = []
    for step in range(STEPS):
        total = 0.0
        for number, module in enumerate(ranks):
            switch_on(all_compressed[number], config, step)
            for moq in moqs[number:number + 1]:
                # The scheduler runs when the engine runs it: before the first forward pass, and in
                # each update after the offset.
                if step > moq.offset or (step == 0 and moq.offset == 0):
                    moq.round()
            picked = data_order.sample_numbers(
                step, 0, number, accumulation=1, world_size=world_size, batch=fixture.batch,
                sample_count=len(source))
            value = reference_run.loss_of(module, source.rows(picked), fixture.loss)
            value.backward()
            for moq in moqs[number:number + 1]:
                moq.restore()
            total += value.item()
        losses.append(total / world_size)
        reference_run.average_gradients([list(rank.parameters()) for rank in ranks])
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    return losses


def main():
    import deepspeed
    import deepspeed.runtime

    deepspeed.__path__.insert(0, str(pathlib.Path(sys.argv[1]) / "deepspeed"))
    for name in [name for name in sys.modules if name.startswith("deepspeed.compression")]:
        del sys.modules[name]
    deepspeed.runtime.__path__.append(str(pathlib.Path(sys.argv[1]) / "deepspeed" / "runtime"))
    torch.set_num_threads(1)
    torch._C._set_graph_executor_optimize(False)
    runs = []
    for about, name, config in RUNS:
        world_size = WORLDS.get(about, 1)
        losses = train(name, config, world_size, make_models.OPTIMIZER)
        run = {"about": about, "model": name, "world_size": world_size, "config": config,
               "losses": losses}
        if about in FIXED:
            options = {**make_models.OPTIMIZER, "lr": 0.0}
            run["fixed_losses"] = train(name, config, world_size, options)
        runs.append(run)
        print(about, losses[0], losses[-1], flush=True)
    lines = ",\n".join(json.dumps(run) for run in runs)
    text = f'{{"torch": "{torch.__version__}", "deepspeed": "0.19.6",\n"runs": [\n{lines}\n]}}\n'
    (HERE / "compression_reference.json").write_text(text)


if __name__ == "__main__":
    main()
