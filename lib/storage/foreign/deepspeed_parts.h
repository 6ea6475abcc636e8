// Functions that the readers of DeepSpeed's files share. Pure, but they throw Error{kInput} for
// files that they refuse.
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

// Ranges of the mapped files, in the order of the elements that they contain.
using Chunks = std::vector<std::span<const std::byte>>;

// Throws Error{kInput} that begins with PATH.
template <typename... Args>
[[noreturn]] void refuse(const std::string& path, fmt::format_string<Args...> format,
                         Args&&... args) {
    fail(ExitCode::kInput, "{}: {}", path,
         printable(fmt::format(format, std::forward<Args>(args)...)));
}

// Returns VALUE; OTHERWISE if it is null or no integer.
[[nodiscard]] int64_t integer_or(const PickleValue* value, int64_t otherwise);
// Returns the value of KEY in DICT. Throws Error{kInput} naming FILE and KEY if there is none.
[[nodiscard]] const PickleValue& need(const TorchFile& file, const PickleValue& dict,
                                      const char* key);

// Returns the ZeRO stage that an optimizer's STATE contains; -1 if its entry for the stage has an
// unknown form; nothing if STATE has no such entry.
[[nodiscard]] std::optional<int64_t> zero_stage_in(const PickleValue& state);

// Returns ELEMENTS of CHUNKS; fewer if CHUNKS end earlier. The elements are counted across all
// chunks and have WIDTH bytes each.
[[nodiscard]] Chunks slice(const Chunks& chunks, Range elements, int64_t width = kMasterBytes);
// Returns the number of elements, of 4 bytes each.
[[nodiscard]] int64_t numel_of(const Chunks& chunks);

// Returns the shape in a torch.Size; nothing if VALUE is not a torch.Size or has too many elements.
[[nodiscard]] std::optional<std::vector<int64_t>> shape_of(const PickleValue& value);
// Returns the number of elements of a tensor with SHAPE.
[[nodiscard]] int64_t numel_of(const std::vector<int64_t>& shape);

// Returns the number of updates in STEP: an integer, or a torch tensor with one fp32 number. If
// STEP is null, returns 0.
[[nodiscard]] int64_t updates_of(const TorchFile& file, const PickleValue* step);

// Returns true if MASTERS, rounded to TENSOR's floating dtype, equal TENSOR. MASTERS are fp32 and
// must have as many elements as TENSOR. Compares only some elements at both ends of each chunk. Two
// NaN are equal.
[[nodiscard]] bool rounds_to(const Chunks& masters, const TorchTensor& tensor);

// Throws Error{kInput} naming FILE if FILE and FIRST, which contain the models of two ranks, are
// from different saves.
void check_same_model(const TorchFile& file, const TorchFile& first);

// Returns true if A and B contain the same plain values; ignores tensors.
[[nodiscard]] bool has_same_values(const PickleValue& a, const PickleValue& b);

}  // namespace dslaunch::storage
