// Checks that each tensor of a pickle of torch.jit.save is inside its record. Part of
// script_archive.h. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "storage/pickle/pickle.h"

namespace dslaunch::storage {

// Returns the size in bytes of the record that belongs to a storage's key; nothing if there is no
// such record.
using RecordBytes = std::function<std::optional<int64_t>(std::string_view)>;

// Checks each storage against its record, and each tensor against its storage. Returns the number
// of bytes that all tensors and storages would take if they shared no memory. Throws Error{kInput}
// that begins with WHERE, which names the archive and the pickle.
[[nodiscard]] int64_t check_script_tensors(const std::string& where, const Pickle& pickle,
                                           const RecordBytes& record_bytes);

// The extent of a tensor, in elements. The tensor's storage must have at least `reach` elements.
// The tensor itself has `numel` elements. `numel` may be larger than `reach`, because elements may
// share memory (stride 0).
struct TensorExtent {
    int64_t reach = 0;
    int64_t numel = 0;
};

// LibTorch's operators accept no more dimensions.
inline constexpr int64_t kTensorDimsMax = 64;

// Returns the extent of a tensor. Returns nothing if a number is negative or too large, if there
// are not as many strides as sizes, or if there are more dimensions than the limit.
[[nodiscard]] std::optional<TensorExtent> tensor_extent(int64_t offset,
                                                        std::span<const int64_t> sizes,
                                                        std::span<const int64_t> strides);

}  // namespace dslaunch::storage
