// The maps by which newer versions of DeepSpeed say where each element of a split tensor lies
// (`affine_map` in `universal_checkpoint_info`). Such a map needs no rule, and takes precedence
// over the rules. Data path: a rank's model file -> [here] -> split_rules.h. Pure, but throws
// Error{kInput} for a map that is not supported or does not fit.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "storage/foreign/joining.h"
#include "storage/foreign/torch_file.h"

namespace dslaunch::storage {

// Reads MAP, a tensor's affine_map in FILE, and returns how the ranks' parts are joined to the
// tensor NAME. SHAPES has the shape of each rank's part.
[[nodiscard]] Joining joining_of_map(const TorchFile& file, const PickleValue& map,
                                     const std::string& name,
                                     const std::vector<std::vector<int64_t>>& shapes);

}  // namespace dslaunch::storage
