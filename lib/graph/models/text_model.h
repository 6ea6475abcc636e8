// Text from a trained language model: the next token is drawn from its logits, again and again. One
// thread.
#pragma once

#include <torch/csrc/jit/api/module.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace dslaunch::graph {

struct GenerateOptions {
    int64_t tokens = 200;      // number of tokens to generate
    double temperature = 0.8;  // divides the logits; 0: always the likeliest token
    int64_t top_k = 40;        // draw among the k likeliest only; 0: among all
    uint64_t seed = 1;         // equal seeds give equal tokens on one machine
};

// A token drawn from LOGITS. SHAPE: [vocab], any float type, cpu. REQUIRES: temperature >= 0, top_k
// >= 0.
[[nodiscard]] int64_t draw_token(const at::Tensor& logits, const GenerateOptions& options,
                                 at::Generator& generator);

class TextModel {
  public:
    // MODULE has a method logits(tokens) -> [B, T, vocab], or its forward takes only tokens and
    // returns that. MODULE is put into eval mode on DEVICE. CONTEXT_MAX 0: the module's own limit,
    // from its `context` or its position embedding. Throws Error{kInput} when the module is neither
    // kind or gives no logits.
    TextModel(torch::jit::Module module, at::Device device, int64_t context_max);

    [[nodiscard]] int64_t vocab() const { return vocab_; }
    // Tokens that the model can see at once; 0: it names no limit.
    [[nodiscard]] int64_t context() const { return context_; }

    // Continues PROMPT and calls ON_TOKEN for each token made, in order. Only the last context()
    // tokens are seen. REQUIRES: PROMPT is not empty. Throws Error{kInput} for a prompt token
    // outside the vocabulary.
    void generate(std::vector<int64_t> prompt, const GenerateOptions& options,
                  const std::function<void(int64_t)>& on_token);

  private:
    // SHAPE: [vocab] fp32 cpu, the logits of the token after TOKENS.
    [[nodiscard]] at::Tensor next_logits(const std::vector<int64_t>& tokens);

    torch::jit::Module module_;
    std::string method_;
    at::Device device_;
    int64_t context_ = 0;
    int64_t vocab_ = 0;
};

// Vocabularies up to this size are bytes plus a few special tokens.
constexpr int64_t kByteVocabMax = 272;

// The text of a byte token: the byte itself; control characters other than newline and tab as \xNN,
// for a model must not control a terminal; a token above 255 as <256>.
[[nodiscard]] std::string byte_token_text(int64_t token);

}  // namespace dslaunch::graph
