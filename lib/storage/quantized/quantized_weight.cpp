#include "storage/quantized/quantized_weight.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/float8.h"
#include "base/kinds/dtype.h"
#include "base/kinds/shape_text.h"
#include "base/text.h"
#include "storage/quantized/bit_packing.h"

namespace dslaunch::storage {
namespace {

// Returns text like "4 bits in groups of 128".
std::string text_of(const WeightScheme& scheme) {
    return scheme.group == 0 ? fmt::format("{} bits in one group", scheme.bits)
                             : fmt::format("{} bits in groups of {}", scheme.bits, scheme.group);
}

// In AWQ's layout, a word of 32 bits contains the codes of 8 columns, 4 bits each. The lowest bit
// of the code of column i is bit `4 * kAwqPlaces[i]`.
constexpr int64_t kAwqCodes = 8;
constexpr int64_t kAwqPlaces[kAwqCodes] = {0, 4, 1, 5, 2, 6, 3, 7};

constexpr int64_t kWeightSizeMax = int64_t{1} << 28;

uint32_t code_word(const SafetensorsEntry& entry, int64_t index) {
    uint32_t word = 0;
    std::memcpy(&word, entry.bytes.data() + index * 4, sizeof word);
    return word;
}

int64_t numbers_in(const SafetensorsEntry& entry) {
    return std::ssize(entry.bytes) / dtype_bytes(entry.dtype);
}

}  // namespace

bool is_quantized_part(QuantizationMethod method, std::string_view suffix) {
    static const std::set<std::string_view> compressed = {
        "weight_packed", "weight_scale", "weight_zero_point", "weight_shape", "weight_g_idx"};
    static const std::set<std::string_view> transposed = {"qweight", "qzeros", "scales", "g_idx"};
    return method == QuantizationMethod::kCompressedTensors ? compressed.contains(suffix)
                                                            : transposed.contains(suffix);
}

const SafetensorsEntry* QuantizedWeight::find(std::string_view suffix) const {
    const auto found = parts_.find(suffix);
    return found == parts_.end() ? nullptr : &found->second.entry;
}

const SafetensorsEntry& QuantizedWeight::need(std::string_view suffix) const {
    if (const SafetensorsEntry* const entry = find(suffix)) return *entry;
    fail(ExitCode::kInput,
         "{}: the quantized weight of `{}` has no tensor `{}.{}`: the folder is incomplete, or its "
         "quantization_config belongs to another folder",
         parts_.begin()->second.file->path(), printable(module_), printable(module_), suffix);
}

void QuantizedWeight::refuse(const SafetensorsEntry& entry, const std::string& why) const {
    std::string path;
    for (const auto& [suffix, part] : parts_)
        if (&part.entry == &entry) path = part.file->path();
    fail(ExitCode::kInput, "{}: tensor `{}` {}", path, printable(entry.name), why);
}

void QuantizedWeight::require_type(const SafetensorsEntry& entry, DType dtype) const {
    if (entry.dtype != dtype)
        refuse(entry,
               fmt::format("has type {}, but this tensor of a quantized weight must have type {}",
                           dtype_name(entry.dtype), dtype_name(dtype)));
}

void QuantizedWeight::require_shape(const SafetensorsEntry& entry,
                                    std::span<const int64_t> shape) const {
    if (!std::ranges::equal(entry.shape, shape))
        refuse(entry, fmt::format("has shape {}, but the weight's other tensors need {}",
                                  shape_text(entry.shape), shape_text(shape)));
}

QuantizedWeight::QuantizedWeight(const Quantization& how, const std::string& module,
                                 QuantizedParts parts)
    : module_(module), parts_(std::move(parts)), adds_one_(how.stores_zeros_less_one) {
    DSL_CHECK(!parts_.empty() && !how.schemes.empty(), "a rounded weight without tensors");
    if (how.method != QuantizationMethod::kCompressedTensors) {
        layout_ = how.method == QuantizationMethod::kGptq ? Layout::kGptq : Layout::kAwq;
        check_transposed(how);
        return;
    }
    if (find("weight") != nullptr) {
        layout_ = Layout::kPlain;
        check_plain(how);
        return;
    }
    check_packed(how);
}

void QuantizedWeight::check_packed(const Quantization& how) {
    const SafetensorsEntry& codes = need("weight_packed");
    const SafetensorsEntry& shape = need("weight_shape");
    codes_ = &parts_.find("weight_packed")->second;
    require_type(codes, DType::kI32);
    if (shape.shape != std::vector<int64_t>{2} ||
        (shape.dtype != DType::kI64 && shape.dtype != DType::kI32))
        refuse(shape, "must be two integers, the weight's sizes");
    for (int64_t i = 0; i < 2; ++i) {
        int64_t size = 0;  // little-endian: the low bytes come first
        std::memcpy(&size, shape.bytes.data() + i * dtype_bytes(shape.dtype),
                    static_cast<size_t>(dtype_bytes(shape.dtype)));
        if (size < 1 || size > kWeightSizeMax)
            refuse(shape, fmt::format("has the size {}, but sizes must be from 1 to {}", size,
                                      kWeightSizeMax));
        shape_.push_back(size);
    }
    std::set<int> fitting;
    for (const WeightScheme& scheme : how.schemes)
        if (!scheme.is_float &&
            codes.shape == std::vector<int64_t>{shape_[0], packed_words(shape_[1], scheme.bits)})
            fitting.insert(scheme.bits);
    if (fitting.size() != 1)
        refuse(codes,
               fmt::format("has shape {}, but {} of quantization_config fits this shape for a "
                           "weight of shape {}",
                           shape_text(codes.shape),
                           fitting.empty() ? "no number of bits" : "more than one number of bits",
                           shape_text(shape_)));
    check_scales(how, *fitting.begin(), false);
}

void QuantizedWeight::check_plain(const Quantization& how) {
    const SafetensorsEntry& codes = need("weight");
    codes_ = &parts_.find("weight")->second;
    const bool is_float = codes.dtype == DType::kF8E4M3;
    if (!is_float) require_type(codes, DType::kI8);
    if (codes.shape.size() != 2 || codes.shape[0] < 1 || codes.shape[1] < 1)
        refuse(codes, fmt::format("has shape {}, but a layer's weight has two dimensions",
                                  shape_text(codes.shape)));
    shape_ = codes.shape;
    check_scales(how, 8, is_float);
}

// Checks scales and zero points. Their shapes give the size of a group.
void QuantizedWeight::check_scales(const Quantization& how, int bits, bool is_float) {
    bits_ = bits;
    const SafetensorsEntry& scales = need("weight_scale");
    scales_ = &scales;
    zeros_ = find("weight_zero_point");
    if (scales.dtype != DType::kF32 && scales.dtype != DType::kBF16 && scales.dtype != DType::kF16)
        refuse(scales, fmt::format("has type {}, but scales are F32, BF16 or F16",
                                   dtype_name(scales.dtype)));
    is_whole_ = numbers_in(scales) == 1 && scales.shape.size() < 2;
    if (!is_whole_) {
        if (scales.shape.size() != 2 || scales.shape[0] != shape_[0] || scales.shape[1] < 1)
            refuse(scales,
                   fmt::format("has shape {}, but the weight {} needs a row for each output",
                               shape_text(scales.shape), shape_text(shape_)));
        groups_ = scales.shape[1];
    }
    read_group_index("weight_g_idx");
    if (own_.empty() && shape_[1] % groups_ != 0)
        refuse(scales, fmt::format("has {} groups, which do not divide {} inputs evenly", groups_,
                                   shape_[1]));
    group_ = (shape_[1] + groups_ - 1) / groups_;
    const auto fits = [&](const WeightScheme& scheme) {
        const bool group = scheme.group > 0    ? group_ == scheme.group
                           : scheme.group == 0 ? !is_whole_ && groups_ == 1
                                               : is_whole_;
        return scheme.bits == bits && scheme.is_float == is_float && group &&
               scheme.is_symmetric == (zeros_ == nullptr);
    };
    if (std::ranges::none_of(how.schemes, fits))
        refuse(
            scales,
            fmt::format(
                "has shape {}{}: no group of layers in quantization_config matches these scales",
                shape_text(scales.shape), zeros_ == nullptr ? "" : ", and there are zero points"));
    if (zeros_ == nullptr) return;
    if (layout_ == Layout::kPlain) {
        require_type(*zeros_, DType::kI8);
        return require_shape(*zeros_, scales.shape);
    }
    require_type(*zeros_, DType::kI32);
    require_shape(*zeros_, std::vector<int64_t>{packed_words(shape_[0], bits), groups_});
}

// Returns the number of inputs of a weight with WORDS rows of 32-bit words. In AWQ's layout, each
// row belongs to one input. In other layouts, a column of words contains the codes of all inputs,
// BITS bits each. Returns 0 if such codes cannot fill a column exactly.
int64_t QuantizedWeight::inputs_of(int64_t words, int bits) const {
    if (layout_ == Layout::kAwq) return words;
    return words * 32 % bits == 0 ? words * 32 / bits : 0;
}

// Returns the scheme in HOW that fits the shapes of CODES, ZEROS and SCALES. Returns the first
// scheme if none fits; later checks then report the mismatch. Refuses the weight if two schemes
// fit.
WeightScheme QuantizedWeight::scheme_of_shapes(const Quantization& how,
                                               const SafetensorsEntry& codes,
                                               const SafetensorsEntry& zeros,
                                               const SafetensorsEntry& scales) const {
    const WeightScheme* found = nullptr;
    for (const WeightScheme& scheme : how.schemes) {
        const int64_t in = inputs_of(codes.shape[0], scheme.bits);
        const int64_t group = scheme.group == 0 ? in : scheme.group;
        const std::vector<int64_t> fitting = {scales.shape[0],
                                              packed_words(scales.shape[1], scheme.bits)};
        if (in == 0 || (in + group - 1) / group != scales.shape[0] || zeros.shape != fitting)
            continue;
        if (found != nullptr)
            refuse(codes, fmt::format("has shape {}, which fits two settings of "
                                      "quantization_config: {}, and {}",
                                      shape_text(codes.shape), text_of(*found), text_of(scheme)));
        found = &scheme;
    }
    return found == nullptr ? how.schemes.front() : *found;
}

// Checks the tensors of GPTQ and of AWQ, which store the weight with its inputs as rows.
void QuantizedWeight::check_transposed(const Quantization& how) {
    const SafetensorsEntry& codes = need("qweight");
    const SafetensorsEntry& zeros = need("qzeros");
    const SafetensorsEntry& scales = need("scales");
    codes_ = &parts_.find("qweight")->second;
    scales_ = &scales;
    zeros_ = &zeros;
    require_type(codes, DType::kI32);
    require_type(zeros, DType::kI32);
    if (scales.dtype != DType::kF16 && scales.dtype != DType::kBF16 && scales.dtype != DType::kF32)
        require_type(scales, DType::kF16);
    if (codes.shape.size() != 2 || scales.shape.size() != 2 || codes.shape[0] < 1 ||
        scales.shape[0] < 1 || scales.shape[1] < 1 || codes.shape[0] > kWeightSizeMax)
        refuse(codes,
               fmt::format("has shape {} and the scales have shape {}, but both must have two "
                           "dimensions, from 1 to {}",
                           shape_text(codes.shape), shape_text(scales.shape), kWeightSizeMax));
    const WeightScheme scheme = scheme_of_shapes(how, codes, zeros, scales);
    bits_ = scheme.bits;
    groups_ = scales.shape[0];
    const int64_t out = scales.shape[1];
    shape_ = {out, inputs_of(codes.shape[0], bits_)};
    if (shape_[1] == 0)
        refuse(codes,
               fmt::format(
                   "has {} rows of 32-bit words, which are not a whole number of codes of {} bits",
                   codes.shape[0], bits_));
    if (layout_ == Layout::kAwq && out % kAwqCodes != 0)
        refuse(scales, fmt::format("has {} outputs, but AWQ needs a multiple of {} outputs", out,
                                   kAwqCodes));
    const int64_t words = packed_words(out, bits_);
    require_shape(codes,
                  std::vector<int64_t>{codes.shape[0], layout_ == Layout::kAwq ? words : out});
    require_shape(zeros, std::vector<int64_t>{groups_, words});
    group_ = scheme.group == 0 ? shape_[1] : scheme.group;
    if ((shape_[1] + group_ - 1) / group_ != groups_)
        refuse(scales, fmt::format("has {} groups, but {} inputs in groups of {} make {} groups",
                                   groups_, shape_[1], group_, (shape_[1] + group_ - 1) / group_));
    read_group_index("g_idx");
}

void QuantizedWeight::read_group_index(std::string_view suffix) {
    const SafetensorsEntry* const index = find(suffix);
    if (index == nullptr) return;
    require_type(*index, DType::kI32);
    require_shape(*index, std::vector<int64_t>{shape_[1]});
    own_.resize(static_cast<size_t>(shape_[1]));
    std::memcpy(own_.data(), index->bytes.data(), index->bytes.size());
    // Some writers store -1 as the group of each input if the inputs are in the order of their
    // groups.
    if (std::ranges::all_of(own_, [](int32_t group) { return group == -1; })) own_.clear();
    for (const int32_t group : own_)
        if (group < 0 || group >= groups_)
            refuse(*index, fmt::format("puts an input into group {}, but there are only {} groups",
                                       group, groups_));
}

int64_t QuantizedWeight::group_of(int64_t column) const {
    return own_.empty() ? column / group_ : own_[static_cast<size_t>(column)];
}

float QuantizedWeight::scale_at(int64_t row, int64_t group) const {
    if (is_whole_) return number_at(*scales_, 0);
    const bool is_transposed = layout_ == Layout::kGptq || layout_ == Layout::kAwq;
    return number_at(*scales_, is_transposed ? group * shape_[0] + row : row * groups_ + group);
}

uint32_t QuantizedWeight::code_at(int64_t row, int64_t column) const {
    const SafetensorsEntry& codes = codes_->entry;
    if (layout_ == Layout::kGptq)
        return packed_code(bits_, column,
                           [&](int64_t word) { return code_word(codes, word * shape_[0] + row); });
    if (layout_ == Layout::kAwq) {
        const uint32_t word = code_word(codes, column * (shape_[0] / kAwqCodes) + row / kAwqCodes);
        return word >> (4 * kAwqPlaces[row % kAwqCodes]) & 15U;
    }
    const int64_t words = codes.shape[1];
    return packed_code(bits_, column,
                       [&](int64_t word) { return code_word(codes, row * words + word); });
}

// Returns the code that stands for 0.
int QuantizedWeight::zero_at(int64_t row, int64_t group) const {
    const int middle = 1 << (bits_ - 1);
    if (zeros_ == nullptr) return middle;
    if (layout_ == Layout::kPlain) {
        const int64_t index = is_whole_ ? 0 : row * groups_ + group;
        return middle +
               static_cast<int>(std::to_integer<int8_t>(zeros_->bytes[static_cast<size_t>(index)]));
    }
    if (layout_ == Layout::kAwq) {
        const uint32_t word = code_word(*zeros_, group * (shape_[0] / kAwqCodes) + row / kAwqCodes);
        return static_cast<int>(word >> (4 * kAwqPlaces[row % kAwqCodes]) & 15U);
    }
    const bool by_row = layout_ == Layout::kGptq;
    const uint32_t zero = packed_code(bits_, row, [&](int64_t word) {
        return code_word(*zeros_,
                         by_row ? group * zeros_->shape[1] + word : word * groups_ + group);
    });
    // GPTQ stores each zero point minus 1, so 1 is added here. Subtraction and addition wrap
    // around: the zero point 0 is stored as the largest code.
    return static_cast<int>(adds_one_ ? (zero + 1) & ((1U << bits_) - 1) : zero);
}

void QuantizedWeight::read_row(int64_t row, std::span<float> out) const {
    const SafetensorsEntry& codes = codes_->entry;
    const int64_t columns = shape_[1];
    int64_t group = -1;
    float scale = 0;
    int zero = 0;
    for (int64_t c = 0; c < columns; ++c) {
        if (const int64_t own = group_of(c); own != group) {
            group = own;
            scale = scale_at(row, group);
            zero = zero_at(row, group);
        }
        float code = 0;
        if (layout_ != Layout::kPlain) {
            code = static_cast<float>(static_cast<int>(code_at(row, c)) - zero);
        } else {
            const std::byte stored = codes.bytes[static_cast<size_t>(row * columns + c)];
            code = codes.dtype == DType::kF8E4M3
                       ? fp32_of_e4m3(std::to_integer<uint8_t>(stored))
                       : static_cast<float>(std::to_integer<int8_t>(stored) + 128 - zero);
        }
        out[static_cast<size_t>(c)] = code * scale;
    }
}

}  // namespace dslaunch::storage
