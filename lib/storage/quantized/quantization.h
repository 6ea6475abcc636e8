// The rounding of a Hugging Face folder's weights, as `quantization_config` in its config.json says
// it: folders of compressed-tensors, of GPTQ, of AWQ, and of auto-round, which uses the layouts of
// the last two. Data path: config.json -> [here] -> quantized_weight.h. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/text/json_place.h"

namespace dslaunch::storage {

// The program whose names and layouts a folder uses. Folders of auto-round use the names and
// layouts of GPTQ or AWQ.
enum class QuantizationMethod : uint8_t { kCompressedTensors, kGptq, kAwq };

// The rounding of a layer's inputs before the product. Each row (a token) is rounded by itself. If
// its largest magnitude is m, it becomes integers of 8 bits with the scale m / 127.5, or floats of
// 8 bits with the scale m / 448.
enum class InputRounding : uint8_t { kNone, kInt8, kE4m3 };

// The format of a layer's quantized weights.
struct WeightScheme {
    int bits = 8;
    bool is_float = false;  // the 8-bit float of base/float8.h; else integers
    bool is_symmetric = true;
    // The number of inputs that share a scale. 0 means one scale for each row, -1 means one scale
    // for the whole weight.
    int64_t group = 0;

    bool operator==(const WeightScheme&) const = default;
};

// The fields of a folder's quantization_config that say what stored numbers mean.
struct Quantization {
    QuantizationMethod method = QuantizationMethod::kCompressedTensors;
    std::vector<WeightScheme> schemes;  // at least one; a layer's tensors say which one it has
    InputRounding inputs = InputRounding::kNone;
    bool stores_zeros_less_one = false;  // GPTQ's first format: a zero point is stored minus 1
};

// Reads PLACE, a quantization_config. Returns nothing if PLACE is empty, or if it has settings of
// bitsandbytes without 4 or 8 bits. (A model that was merged and saved in 16 bits still has such
// settings.) Throws Error{kInput} with the place for a method, a format or a setting that this
// version does not read.
[[nodiscard]] std::optional<Quantization> parse_quantization(const JsonPlace& place);

// Returns "compressed-tensors", "gptq" or "awq".
[[nodiscard]] std::string_view method_name(QuantizationMethod method);

}  // namespace dslaunch::storage
