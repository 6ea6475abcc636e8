// Models that dslaunch itself can make: trainable TorchScript modules with fresh weights, ready to
// be saved. The same options give the same bytes of weights on every machine with the same
// LibTorch. No threads.
#pragma once

#include <torch/csrc/jit/api/module.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "graph/nodes/names.h"

namespace dslaunch::graph {

// The shape of a GPT and the seed of its weights.
struct GptOptions {
    int64_t vocab = 256;  // rows of the token embedding; 256: one token is one byte of text
    int64_t width = 128;  // width of the residual stream, a multiple of heads
    int64_t heads = 4;
    int64_t layers = 4;
    int64_t context = 128;  // longest sequence in tokens
    double dropout = 0.0;   // 0 <= dropout < 1; at 0 the graph has no dropout
    bool is_tied = false;   // the output layer uses wte.weight; there is no head.weight then
    uint64_t seed = 1234;
};

// Returns the options of "tiny" (0.9 M parameters), "small" (29 M) or "medium" (185 M). For any
// other SIZE, throws Error{kUsage}, which names the three sizes.
[[nodiscard]] GptOptions gpt_options(std::string_view size);

// Makes a module: forward(tokens, targets) -> mean cross entropy; logits(tokens) -> [B, T, vocab].
// SHAPE: tokens, targets [B, T] int64, T <= context. Parameters are fp32: wte.weight, wpe.weight,
// blocks.I.{ln1,qkv,proj,ln2,fc,out}.{weight,bias}, ln_f.*, head.weight. Matrices are drawn from
// normal(0, 0.02), divided by sqrt(2 layers) if they write to the residual stream; biases are 0;
// the weights of norms are 1. `vocab` and `context` are constants of the class. The module is in
// train mode. Throws Error{kUsage}, naming the option that is out of range.
[[nodiscard]] Module make_gpt(const GptOptions& options);

// The shape of a multilayer perceptron and the seed of its weights.
struct MlpOptions {
    std::vector<int64_t> widths = {1000, 1000, 10};  // input, hidden…, output
    uint64_t seed = 1234;
};

// Makes a module: forward(x) -> output. SHAPE: x [B, widths.front()] fp32, output [B,
// widths.back()]. Linear layers hidden.0, hidden.1, …, out with ReLU between. Draws weights and
// biases from uniform(±1/sqrt(inputs)) as nn.Linear does. Throws Error{kUsage} for fewer than two
// widths or a width below 1.
[[nodiscard]] Module make_mlp(const MlpOptions& options);

// Returns the number of elements of all parameters; a shared parameter counts once.
[[nodiscard]] int64_t parameters_numel(const Module& module);

}  // namespace dslaunch::graph
