#include "compress/packed_tensors.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "base/kinds/half_arrays.h"
#include "storage/quantized/bit_packing.h"

namespace dslaunch::compress {
namespace {

using Json = nlohmann::ordered_json;

PackedTensor tensor(std::string name, DType dtype, std::vector<int64_t> shape) {
    int64_t bytes = dtype_bytes(dtype);
    for (const int64_t size : shape) bytes *= size;
    return {{std::move(name), dtype, std::move(shape), {}},
            std::vector<std::byte>(static_cast<size_t>(bytes))};
}

PackedTensor words_tensor(const std::string& name, int64_t rows, int64_t columns,
                          const std::vector<uint32_t>& words) {
    PackedTensor made = tensor(name, DType::kI32, {rows, columns});
    std::memcpy(made.bytes.data(), words.data(), made.bytes.size());
    return made;
}

// Packs the codes of each row into 32-bit words. Each row begins with a new word.
PackedTensor packed_codes(const std::string& module, const RoundedMatrix& matrix) {
    const int bits = matrix.form.bits;
    const int64_t columns = storage::packed_words(matrix.in, bits);
    std::vector<uint32_t> words(static_cast<size_t>(matrix.out * columns));
    for (int64_t row = 0; row < matrix.out; ++row) {
        uint32_t* const own = words.data() + row * columns;
        for (int64_t i = 0; i < matrix.in; ++i)
            storage::pack_code(bits, i, matrix.codes[static_cast<size_t>(row * matrix.in + i)],
                               [&](int64_t word) -> uint32_t& { return own[word]; });
    }
    return words_tensor(module + ".weight_packed", matrix.out, columns, words);
}

// Packs the zero points, one for each group of each row. A word contains the zero points of one
// group in successive rows; the next word contains the zero points of the next group.
PackedTensor packed_zeros(const std::string& module, const RoundedMatrix& matrix) {
    const int bits = matrix.form.bits;
    const int64_t groups = matrix.groups(), rows = storage::packed_words(matrix.out, bits);
    std::vector<uint32_t> words(static_cast<size_t>(rows * groups));
    for (int64_t g = 0; g < groups; ++g)
        for (int64_t row = 0; row < matrix.out; ++row)
            storage::pack_code(
                bits, row,
                static_cast<uint32_t>(matrix.scales[static_cast<size_t>(row * groups + g)].zero),
                [&](int64_t word) -> uint32_t& {
                    return words[static_cast<size_t>(word * groups + g)];
                });
    return words_tensor(module + ".weight_zero_point", rows, groups, words);
}

PackedTensor stored_scales(const std::string& module, const RoundedMatrix& matrix) {
    const DType dtype = matrix.form.scale;
    PackedTensor made = tensor(module + ".weight_scale", dtype, {matrix.out, matrix.groups()});
    std::vector<float> scales;
    for (const GroupScale& group : matrix.scales) scales.push_back(group.scale);
    from_fp32(scales.data(), dtype, std::ssize(scales), made.bytes.data());
    return made;
}

// Stores a byte for each code: an 8-bit float, or an integer from -128 to 127.
PackedTensor plain_codes(const std::string& module, const RoundedMatrix& matrix) {
    PackedTensor made =
        tensor(module + ".weight", matrix.form.is_float ? DType::kF8E4M3 : DType::kI8,
               {matrix.out, matrix.in});
    const int middle = matrix.form.is_float ? 0 : 128;
    for (size_t i = 0; i < matrix.codes.size(); ++i)
        made.bytes[i] = static_cast<std::byte>(matrix.codes[i] - middle);
    return made;
}

Json weights_json(const FolderForm& form, int64_t group) {
    Json weights;
    weights["num_bits"] = form.rounding.bits;
    weights["type"] = form.rounding.is_float ? "float" : "int";
    weights["symmetric"] = !form.rounding.has_minimum;
    weights["strategy"] = group == 0 ? "channel" : "group";
    weights["group_size"] = group == 0 ? Json(nullptr) : Json(group);
    weights["dynamic"] = false;
    return weights;
}

Json inputs_json(storage::InputRounding inputs) {
    if (inputs == storage::InputRounding::kNone) return nullptr;
    Json json;
    json["num_bits"] = 8;
    json["type"] = inputs == storage::InputRounding::kE4m3 ? "float" : "int";
    json["symmetric"] = true;
    json["strategy"] = "token";
    json["dynamic"] = true;
    return json;
}

}  // namespace

std::vector<PackedTensor> packed_tensors(const FolderForm& form, const std::string& module,
                                         const RoundedMatrix& matrix) {
    std::vector<PackedTensor> made;
    made.push_back(form.is_packed ? packed_codes(module, matrix) : plain_codes(module, matrix));
    made.push_back(stored_scales(module, matrix));
    if (!form.is_packed) return made;
    if (form.rounding.has_minimum) made.push_back(packed_zeros(module, matrix));
    made.push_back(tensor(module + ".weight_shape", DType::kI64, {2}));
    const int64_t shape[] = {matrix.out, matrix.in};
    std::memcpy(made.back().bytes.data(), shape, sizeof shape);
    return made;
}

Json quantization_config(const FolderForm& form,
                         const std::map<int64_t, std::vector<std::string>>& groups,
                         const std::vector<std::string>& ignored) {
    const std::string format = form.is_packed           ? "pack-quantized"
                               : form.rounding.is_float ? "float-quantized"
                                                        : "int-quantized";
    // Gives the most frequent group size to all linear layers. Modules with another group size are
    // listed by name, because an entry with a module's name takes precedence.
    const auto commonest =
        std::ranges::max_element(groups, {}, [](const auto& own) { return own.second.size(); });
    Json json;
    json["quant_method"] = "compressed-tensors";
    json["format"] = format;
    json["quantization_status"] = "compressed";
    Json& all = json["config_groups"];
    for (const auto& [group, modules] : groups) {
        Json one;
        one["targets"] = group == commonest->first ? Json{"Linear"} : Json(modules);
        one["weights"] = weights_json(form, group);
        one["input_activations"] = inputs_json(form.inputs);
        one["output_activations"] = nullptr;
        one["format"] = format;
        all["group_" + std::to_string(all.size())] = one;
    }
    json["ignore"] = ignored;
    json["kv_cache_scheme"] = nullptr;
    return json;
}

}  // namespace dslaunch::compress
