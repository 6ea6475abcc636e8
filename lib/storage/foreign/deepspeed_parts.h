// Parts that the readers of DeepSpeed's files share. Pure, but they refuse files with
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

// Ranges of the mapped files that follow each other in the order of elements.
using Chunks = std::vector<std::span<const std::byte>>;

template <typename... Args>
[[noreturn]] void refuse(const std::string& path, fmt::format_string<Args...> format,
                         Args&&... args) {
    fail(ExitCode::kInput, "{}: {}", path,
         printable(fmt::format(format, std::forward<Args>(args)...)));
}

[[nodiscard]] int64_t integer_or(const PickleValue* value, int64_t otherwise);
// Returns KEY's value in DICT. Throws Error{kInput} naming FILE and KEY.
[[nodiscard]] const PickleValue& need(const TorchFile& file, const PickleValue& dict,
                                      const char* key);

// Returns ELEMENTS of CHUNKS, 4 bytes each and one after the other; fewer if CHUNKS end before.
[[nodiscard]] Chunks slice(const Chunks& chunks, Range elements);
[[nodiscard]] int64_t numel_of(const Chunks& chunks);

// Returns the shape of a torch.Size; nothing if it is none or has too many elements.
[[nodiscard]] std::optional<std::vector<int64_t>> shape_of(const PickleValue& value);
[[nodiscard]] int64_t numel_of(const std::vector<int64_t>& shape);

// Returns the update count of a state: an integer, or torch's tensor of one fp32; null: 0.
[[nodiscard]] int64_t updates_of(const TorchFile& file, const PickleValue* step);

// True if MASTERS (fp32, as many elements) rounded to TENSOR's floating dtype give TENSOR. It
// compares some elements at both ends of each chunk. Two NaN are equal.
[[nodiscard]] bool rounds_to(const Chunks& masters, const TorchTensor& tensor);

// Throws Error{kInput} if FOLDER is a universal checkpoint, as DeepSpeed's ds_to_universal.py
// writes it, or has one and no other. The message names the one from which it was made.
void refuse_universal(const std::string& folder);

// True if A and B hold the same plain values; it does not look at tensors.
[[nodiscard]] bool same_values(const PickleValue& a, const PickleValue& b);

}  // namespace dslaunch::storage
