// A trained language model in a module of any kind: the logits of a text's next token, computed
// from the whole text. Data path: archive -> [here] -> generate, serve. One thread.
#pragma once

#include <torch/csrc/jit/api/module.h>

#include <cstdint>
#include <string>
#include <vector>

#include "graph/nodes/names.h"

namespace dslaunch::graph {

// Returns the longest sequence that MODULE takes, by its `context` or its position embedding; 0: it
// names no limit.
[[nodiscard]] int64_t longest_sequence(const Module& module);

// Returns true if MODULE has a method that TextModel calls: logits(tokens), or a forward that takes
// tokens alone. Whether it returns logits shows when it runs.
[[nodiscard]] bool has_logits_method(const Module& module);

class TextModel {
  public:
    // MODULE has a method logits(tokens) -> [B, T, vocab], or its forward takes only tokens and
    // returns that. MODULE is put into eval mode on DEVICE. CONTEXT_MAX 0:
    // longest_sequence(). Throws Error{kInput} when the module is neither
    // kind or gives no logits.
    TextModel(Module module, at::Device device, int64_t context_max);

    [[nodiscard]] int64_t vocab() const { return vocab_; }
    // Returns the number of tokens that the model can see at once; 0: it names no limit.
    [[nodiscard]] int64_t context() const { return context_; }

    // Returns the logits of the token after TOKENS. The model sees the last context() of them.
    // SHAPE: [vocab] fp32 cpu. Throws Error{kInput} if the module fails or returns no logits.
    // REQUIRES: not empty, each in the vocabulary.
    [[nodiscard]] at::Tensor next_logits(const std::vector<int64_t>& tokens);

  private:
    Module module_;
    std::string method_;
    at::Device device_;
    int64_t context_ = 0;
    int64_t vocab_ = 0;
};

}  // namespace dslaunch::graph
