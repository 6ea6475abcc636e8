// A rounded weight as the tensors of compressed-tensors, and the quantization_config that describes
// them. Data path: rounding.h -> [here] -> compressed_folder.h. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "compress/rounding.h"
#include "storage/files/safetensors.h"
#include "storage/quantized/quantization.h"

namespace dslaunch::compress {

// A form in which a folder's layers are stored.
struct FolderForm {
    std::string name;       // "int4"
    RoundingForm rounding;  // its group is the largest group; a layer may have a smaller group
    storage::InputRounding inputs = storage::InputRounding::kNone;
    bool is_packed = true;  // several codes in a word; false: a byte for each code
};

// A tensor that is to be written, with its bytes.
struct PackedTensor {
    storage::SafetensorsEntry entry;  // without its bytes
    std::vector<std::byte> bytes;
};

// Returns the tensors of MATRIX: MODULE.weight_packed or MODULE.weight, MODULE.weight_scale, ….
[[nodiscard]] std::vector<PackedTensor> packed_tensors(const FolderForm& form,
                                                       const std::string& module,
                                                       const RoundedMatrix& matrix);

// Returns the quantization_config. GROUPS: the names of the rounded modules by the size of their
// groups; size 0 means that each row is one group. IGNORED: the modules that are not rounded.
[[nodiscard]] nlohmann::ordered_json quantization_config(
    const FolderForm& form, const std::map<int64_t, std::vector<std::string>>& groups,
    const std::vector<std::string>& ignored);

}  // namespace dslaunch::compress
