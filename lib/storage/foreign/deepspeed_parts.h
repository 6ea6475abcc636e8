// The readers of DeepSpeed's files share these parts. Pure but where a file is refused:
// Error{kInput}.
#pragma once

#include <fmt/core.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/range.h"
#include "base/text.h"
#include "storage/foreign/torch_file.h"

namespace dslaunch::storage {

inline constexpr int64_t kMasterBytes = 4;  // bytes of an element of weights and states, fp32

// Neighbours in the order of elements, in the mapped files.
using Chunks = std::vector<std::span<const std::byte>>;

template <typename... Args>
[[noreturn]] void refuse(const std::string& path, fmt::format_string<Args...> format,
                         Args&&... args) {
    fail(ExitCode::kInput, "{}: {}", path,
         printable(fmt::format(format, std::forward<Args>(args)...)));
}

[[nodiscard]] int64_t integer_or(const PickleValue* value, int64_t otherwise);
// Throws Error{kInput} naming FILE and KEY.
[[nodiscard]] const PickleValue& need(const TorchFile& file, const PickleValue& dict,
                                      const char* key);

// ELEMENTS of what CHUNKS hold one after the other, 4 bytes each. Fewer where they end before.
[[nodiscard]] Chunks slice(const Chunks& chunks, Range elements);
[[nodiscard]] int64_t numel_of(const Chunks& chunks);

// Shape of a torch.Size; nothing where it is none or has more elements than can be.
[[nodiscard]] std::optional<std::vector<int64_t>> shape_of(const PickleValue& value);
[[nodiscard]] int64_t numel_of(const std::vector<int64_t>& shape);

// The update count of a state: an integer, or torch's tensor of one fp32; null: 0.
[[nodiscard]] int64_t updates_of(const TorchFile& file, const PickleValue* step);

// True when TENSOR, floating, is what MASTERS (fp32, as many elements) become in its dtype. Some
// elements of the begin and the end of each chunk are looked at. Two NaN are equal.
[[nodiscard]] bool rounds_to(const Chunks& masters, const TorchTensor& tensor);

// Throws Error{kInput} if FOLDER is a universal checkpoint, as DeepSpeed's ds_to_universal.py
// writes it, or has one and no other: it names the one that it was made from.
void refuse_universal(const std::string& folder);

// True when A and B hold the same plain values; tensors are not looked at.
[[nodiscard]] bool same_values(const PickleValue& a, const PickleValue& b);

}  // namespace dslaunch::storage
