// The table of weights or constants of an exported program's archive: which record holds which
// tensor (data/weights/model_weights_config.json, data/constants/model_constants_config.json). Data
// path: zip record -> [here] -> graph/archive. Pure, no LibTorch.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch::storage {

struct ExportedTensor {
    std::string record;  // in the folder of the table, "weight_0"; tied tensors share one
    bool is_parameter = false;
    bool requires_grad = false;
    int64_t dtype = 0;  // code of the schema's ScalarType
    // UNITS: elements. The bytes of the record are the tensor's storage.
    std::vector<int64_t> sizes;
    std::vector<int64_t> strides;
    int64_t offset = 0;
    int64_t reach = 0;  // the storage has so many elements at least
    int64_t numel = 0;  // more than the storage's where elements are shared (stride 0)
};

// Tensors by name in the module. Throws Error{kInput} that begins with PATH: a damaged table, a
// tensor that only a pickle holds, sizes that are no numbers, negative, or too large to count.
[[nodiscard]] std::map<std::string, ExportedTensor> parse_weights_table(const std::string& path,
                                                                        std::string_view text);

}  // namespace dslaunch::storage
