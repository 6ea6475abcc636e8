"""Write what transformers' generate() makes of generation_config.json: python
generation_config_reference.py

generation_config_reference.json beside this file, for tests/parity/transformers_test.cpp: for
each config the tokens that the llama of tests/fixtures/huggingface makes of a prompt, where the
likeliest token is always far ahead of the next one (`gap`, in logits, of all steps).

This script needs the environment that tools/peers.sh makes.
"""

import json
import pathlib

import torch
import transformers

HERE = pathlib.Path(__file__).parent
FOLDER = HERE.parent / "fixtures" / "huggingface" / "llama"
PROMPT = [5, 17, 2, 33, 9]


def made(model, config):
    class Gap(transformers.LogitsProcessor):
        smallest = float("inf")

        def __call__(self, ids, scores):
            top = scores.topk(2).values[0]
            if torch.isfinite(top[1]):
                Gap.smallest = min(Gap.smallest, (top[0] - top[1]).item())
            return scores

    whole = transformers.GenerationConfig(pad_token_id=0, **{"eos_token_id": 2, **config})
    model.generation_config = whole
    torch.manual_seed(0)
    ids = torch.tensor([PROMPT])
    out = model.generate(ids, attention_mask=torch.ones_like(ids), logits_processor=[Gap()])
    return out[0, len(PROMPT):].tolist(), Gap.smallest


def main():
    model = transformers.AutoModelForCausalLM.from_pretrained(FOLDER, dtype=torch.float32).eval()
    greedy, _ = made(model, {"do_sample": False, "max_new_tokens": 12, "eos_token_id": None})
    a, b, c = greedy[:3]
    end = {"do_sample": False, "max_new_tokens": 12}
    configs = [
        end,
        {"max_new_tokens": 6, "temperature": 0.6, "top_p": 0.9},
        {**end, "repetition_penalty": 1.8},
        {**end, "repetition_penalty": 0.7},
        {"do_sample": False, "max_length": len(PROMPT) + 7},
        {**end, "eos_token_id": [60, greedy[3]]},
        {**end, "eos_token_id": greedy[1]},
        {**end, "suppress_tokens": [a, c]},
        {**end, "begin_suppress_tokens": [a]},
        {**end, "bad_words_ids": [[a], [b, c], [greedy[4]]]},
        {**end, "bad_words_ids": [[a, b], [greedy[3], greedy[4]]]},
        {**end, "no_repeat_ngram_size": 1},
        {**end, "no_repeat_ngram_size": 2},
        {**end, "sequence_bias": [[[7], 30.0], [[7, 7], -60.0]]},
        {**end, "min_new_tokens": 5, "eos_token_id": [greedy[0], greedy[2]]},
        {**end, "min_length": len(PROMPT) + 4, "eos_token_id": greedy[1]},
        {**end, "forced_eos_token_id": 11},
        {"do_sample": True, "top_k": 1, "temperature": 2.0, "max_new_tokens": 8},
        {"do_sample": True, "min_p": 1.0, "top_k": 0, "max_new_tokens": 8},
        {"do_sample": True, "top_p": 0.0, "top_k": 5, "max_new_tokens": 8},
        {**end, "repetition_penalty": 1.3, "no_repeat_ngram_size": 3, "suppress_tokens": [b],
         "stop_strings": None, "top_k": None, "num_beams": 1},
    ]
    rows = []
    for config in configs:
        tokens, gap = made(model, config)
        rows.append({"config": config, "tokens": tokens})
        print(json.dumps(config), tokens, f"gap {gap:.4f}")
        assert gap > 1e-3, "a near tie: take another prompt"
    (HERE / "generation_config_reference.json").write_text(json.dumps({
        "transformers": transformers.__version__, "torch": torch.__version__, "prompt": PROMPT,
        "rows": rows}, indent=1) + "\n")


main()
