// A weight that a folder stores rounded, in several tensors. Returns its numbers as fp32. Data
// path: quantization.h and the folder's tensors -> [here] -> huggingface/folder_weights.h. Threads:
// const functions, any.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "storage/files/mapped_file.h"
#include "storage/files/safetensors.h"
#include "storage/quantized/quantization.h"

namespace dslaunch::storage {

// A tensor that belongs to a quantized weight, and the file that has its bytes.
struct QuantizedPart {
    std::shared_ptr<const MappedFile> file;  // shared by all tensors in it
    SafetensorsEntry entry;
};

// The tensors of one layer by the last part of their names: "weight_packed", "weight_scale", …
using QuantizedParts = std::map<std::string, QuantizedPart, std::less<>>;

// Returns true if a tensor whose name ends with ".SUFFIX" may belong to a weight quantized by
// METHOD.
[[nodiscard]] bool is_quantized_part(QuantizationMethod method, std::string_view suffix);

// A quantized weight. The constructor has checked that its tensors fit each other.
class QuantizedWeight {
  public:
    // MODULE is the layer's name for messages, such as "model.layers.0.mlp.up_proj". Throws
    // Error{kInput} naming the file and the tensor if a tensor is missing, has a type or shape that
    // does not fit the other tensors, or does not fit HOW.
    QuantizedWeight(const Quantization& how, const std::string& module, QuantizedParts parts);

    // Returns [outputs, inputs].
    [[nodiscard]] const std::vector<int64_t>& shape() const { return shape_; }
    // Returns the tensor with the weight's codes. Scales and zero points are in other tensors.
    [[nodiscard]] const QuantizedPart& codes() const { return *codes_; }
    // Writes the numbers of ROW, [inputs], to OUT. REQUIRES: 0 <= ROW < outputs.
    void read_row(int64_t row, std::span<float> out) const;

  private:
    enum class Layout : uint8_t { kPacked, kPlain, kGptq, kAwq };

    [[nodiscard]] const SafetensorsEntry* find(std::string_view suffix) const;
    [[nodiscard]] const SafetensorsEntry& need(std::string_view suffix) const;
    [[noreturn]] void refuse(const SafetensorsEntry& entry, const std::string& why) const;
    void require_type(const SafetensorsEntry& entry, DType dtype) const;
    void require_shape(const SafetensorsEntry& entry, std::span<const int64_t> shape) const;
    void check_packed(const Quantization& how);
    void check_plain(const Quantization& how);
    void check_transposed(const Quantization& how);
    [[nodiscard]] int64_t inputs_of(int64_t words, int bits) const;
    [[nodiscard]] WeightScheme scheme_of_shapes(const Quantization& how,
                                                const SafetensorsEntry& codes,
                                                const SafetensorsEntry& zeros,
                                                const SafetensorsEntry& scales) const;
    void check_scales(const Quantization& how, int bits, bool is_float);
    void read_group_index(std::string_view suffix);
    [[nodiscard]] uint32_t code_at(int64_t row, int64_t column) const;
    [[nodiscard]] int zero_at(int64_t row, int64_t group) const;
    [[nodiscard]] float scale_at(int64_t row, int64_t group) const;
    [[nodiscard]] int64_t group_of(int64_t column) const;

    std::string module_;
    QuantizedParts parts_;
    std::vector<int64_t> shape_;
    Layout layout_ = Layout::kPacked;
    const QuantizedPart* codes_ = nullptr;  // points into parts_, like the next two
    const SafetensorsEntry* scales_ = nullptr;
    const SafetensorsEntry* zeros_ = nullptr;  // null if the rounding is symmetric
    int bits_ = 8;
    int64_t group_ = 0;         // number of inputs in a group
    int64_t groups_ = 1;        // number of groups in a row
    bool is_whole_ = false;     // the whole weight has one scale
    bool adds_one_ = false;     // a stored zero point is 1 too small
    std::vector<int32_t> own_;  // the group of each input, if the file gives it
};

}  // namespace dslaunch::storage
