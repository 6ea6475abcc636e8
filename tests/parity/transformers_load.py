"""Stock transformers on what `dslaunch ckpt export --format hf` wrote.

    transformers_load.py config NAME FOLDER     config.json of the fixture NAME (gpt2, llama, qwen2)
    transformers_load.py check FOLDER ARCHIVE   FOLDER as from_pretrained loads it, beside the same
                                                checkpoint exported as the TorchScript ARCHIVE

`check` fails when a key is missing, unexpected or of another shape, when a parameter, or a logit of
a model that was given ARCHIVE's parameters by hand, differs in any bit, or the loss by over 1e-6.
"""

import pathlib
import sys

import torch
import transformers

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "fixtures"))
import traced_models


def check(folder, archive):
    loaded, found = transformers.AutoModelForCausalLM.from_pretrained(
        folder, output_loading_info=True, dtype=torch.float32
    )
    for kind in ["missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs"]:
        if found[kind]:
            sys.exit(f"{kind}: {found[kind]}")
    module = torch.jit.load(archive)
    by_hand = transformers.AutoModelForCausalLM.from_config(loaded.config)
    ours = {name.removeprefix("model."): value for name, value in module.named_parameters()}
    compared = 0
    with torch.no_grad():
        for name, parameter in by_hand.named_parameters():
            parameter.copy_(ours[name])
            if not torch.equal(loaded.get_parameter(name), parameter):
                sys.exit(f"{name} differs")
            compared += parameter.numel()
        torch.manual_seed(3)
        tokens = torch.randint(0, loaded.config.vocab_size, (2, 33))
        inputs, labels = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
        logits = loaded.eval()(input_ids=inputs).logits
        expected = by_hand.eval()(input_ids=inputs).logits
        if not torch.equal(logits, expected):
            sys.exit(f"logits differ by up to {(logits - expected).abs().max()}")
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
        graph_loss = module.eval()(inputs, labels)
    if not abs(loss - graph_loss) <= 1e-6 * abs(graph_loss):
        sys.exit(f"loss {loss} and that of the archive's graph {graph_loss}")
    print(f"EQUAL {compared} parameters, {logits.numel()} logits, loss {loss:.6f}")


def main():
    if sys.argv[1] == "config":
        getattr(traced_models, sys.argv[2])().model.config.save_pretrained(sys.argv[3])
    else:
        check(sys.argv[2], sys.argv[3])


if __name__ == "__main__":
    main()
