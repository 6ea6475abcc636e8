// A trained language model in a module of any kind: computes the logits of a text's next token from
// the whole text. Data path: archive -> [here] -> generate, serve. One thread.
#pragma once

#include <torch/csrc/jit/api/module.h>

#include <cstdint>
#include <string>
#include <vector>

#include "graph/nodes/names.h"

namespace dslaunch::graph {

// Returns the length of the longest sequence that MODULE accepts, according to its attribute
// `context` or its position embedding. Returns 0 if MODULE has no such limit.
[[nodiscard]] int64_t longest_sequence(const Module& module);

// Returns true if MODULE has a method that TextModel can call: logits(tokens), or a forward that
// takes only tokens. Only a run shows whether the result is logits.
[[nodiscard]] bool has_logits_method(const Module& module);

// A module that computes logits, on one device.
class TextModel {
  public:
    // MODULE has a method logits(tokens) -> [B, T, vocab], or its forward takes only tokens and
    // returns such logits. Puts MODULE into eval mode on DEVICE. CONTEXT_MAX: 0 means
    // longest_sequence(). Throws Error{kInput} if the module has no such method, or if the method
    // does not return logits.
    TextModel(Module module, at::Device device, int64_t context_max);

    // Returns the number of logits of a token.
    [[nodiscard]] int64_t vocab() const { return vocab_; }
    // Returns the number of tokens that the model can see at once; 0 if it names no limit.
    [[nodiscard]] int64_t context() const { return context_; }

    // Returns the logits of the token after TOKENS. The model sees only the last context() of
    // TOKENS. SHAPE: [vocab], fp32, on the CPU. Throws Error{kInput} if the module fails or returns
    // no logits. REQUIRES: TOKENS is not empty, and each token is in the vocabulary.
    [[nodiscard]] at::Tensor next_logits(const std::vector<int64_t>& tokens);

  private:
    Module module_;
    std::string method_;
    at::Device device_;
    int64_t context_ = 0;
    int64_t vocab_ = 0;
};

}  // namespace dslaunch::graph
