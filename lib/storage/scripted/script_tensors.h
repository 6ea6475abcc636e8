// Checks that each tensor of a pickle of torch.jit.save lies in its record. Part of
// script_archive.h. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "storage/pickle/restricted_unpickler.h"

namespace dslaunch::storage {

// Returns the bytes of a storage's record by the storage's key; nothing: there is none.
using RecordBytes = std::function<std::optional<int64_t>(std::string_view)>;

// Checks each storage against its record, and each tensor against its storage. Returns the bytes
// that they would all take without sharing. Throws Error{kInput} that begins with WHERE, the
// archive and the pickle.
[[nodiscard]] int64_t check_script_tensors(const std::string& where, const Pickle& pickle,
                                           const RecordBytes& record_bytes);

// UNITS: elements. The tensor needs a storage of at least `reach` elements. It has `numel`, more
// than the storage's if they share elements (stride 0).
struct TensorExtent {
    int64_t reach = 0;
    int64_t numel = 0;
};

// LibTorch takes no more dimensions in its operators.
inline constexpr int64_t kTensorDimsMax = 64;

// Returns nothing if a number is negative or too large to count with, the strides are not as many
// as the sizes, or there are more dimensions than the limit.
[[nodiscard]] std::optional<TensorExtent> tensor_extent(int64_t offset,
                                                        std::span<const int64_t> sizes,
                                                        std::span<const int64_t> strides);

}  // namespace dslaunch::storage
