// The kinds of GGUF files that llama.cpp's quantizer writes, and the form that each kind gives to
// each tensor. Source: llama-quant.cpp. Data path: gguf_names.h -> [here] -> gguf_model_writer.h.
// Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "storage/gguf/gguf_form.h"
#include "storage/huggingface/gguf_names.h"
#include "storage/huggingface/transformer_switches.h"

namespace dslaunch::storage {

// The values are the numbers in the file.
enum class GgufFileType : uint32_t {
    kF32 = 0,
    kF16 = 1,
    kQ4_0 = 2,
    kQ8_0 = 7,
    kQ2K = 10,
    kQ3KS = 11,
    kQ4KM = 15,
    kBf16 = 32,
};

// Returns the type called NAME, such as "q4_k_m"; nothing if there is none.
[[nodiscard]] std::optional<GgufFileType> gguf_file_type(std::string_view name);

// Returns the form of each of WEIGHTS in a file of TYPE. HAS_IMPORTANCE says whether the importance
// of the columns is known.
[[nodiscard]] std::vector<GgufForm> gguf_forms(GgufFileType type, const TransformerConfig& config,
                                               const GgufFamily& family,
                                               std::span<const GgufWeight> weights,
                                               bool has_importance);

}  // namespace dslaunch::storage
