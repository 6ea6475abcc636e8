// The sizes and switches of a decoder as values of a GGUF file, and the reverse: a config.json made
// from such values. A model that llama.cpp computes differently is refused. Source: llama.cpp's
// converter, its loader, and the constants that it has in its graphs. Data path: config.json <->
// [here] <-> gguf_model_writer.h, gguf_model_reader.h. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "storage/gguf/gguf_file.h"
#include "storage/gguf/gguf_values.h"
#include "storage/huggingface/gguf_names.h"
#include "storage/huggingface/transformer_switches.h"

namespace dslaunch::storage {

// Factors of rotary positions, which a file stores as a separate tensor.
struct GgufFactors {
    std::string tensor;
    std::vector<float> numbers;
};

// Returns the numbers by which llama.cpp divides the frequencies of ROPE, which is of kind kLlama3:
// one number for each pair.
[[nodiscard]] std::vector<float> llama3_factors(const Rope& rope);

// Adds the values for CONFIG to VALUES. Returns the tensors of factors. Throws Error{kInput} that
// begins with PLACE if llama.cpp would compute a different model.
[[nodiscard]] std::vector<GgufFactors> add_config_values(const TransformerConfig& config,
                                                         const GgufFamily& family,
                                                         const std::string& place,
                                                         GgufValues& values);

// Returns the largest context with which llama.cpp gives the same results as CONFIG: the model's
// context, or one window if llama.cpp ignores the windows of this family.
[[nodiscard]] int64_t gguf_context(const TransformerConfig& config, const GgufFamily& family);

// Returns the config.json of the model in FILE, without the numbers of special tokens. DTYPE: the
// type of the weights for which it is made; nothing: the type of FILE's largest tensor. Throws
// Error{kInput} naming the file for a family that is not read, or values that a config.json of the
// family cannot express.
[[nodiscard]] std::string config_of_gguf(const GgufContent& file, std::optional<DType> dtype = {});

}  // namespace dslaunch::storage
