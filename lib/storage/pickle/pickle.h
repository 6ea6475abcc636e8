// Reads pickles as data. Everything that torch.save, torch.jit.save and DeepSpeed write becomes a
// graph of plain values; nothing is imported or called. A pickle with a name that is not in the
// short lists of pickle_names.cpp is refused. No recursion; memory and time grow with the pickle's
// size, up to the limits below. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "storage/pickle/pickle_names.h"

namespace dslaunch::storage {

inline constexpr int64_t kPickleBytesMax = int64_t{256} << 20;
inline constexpr int64_t kPickleValuesMax = int64_t{4} << 20;  // of values, and of memo entries
inline constexpr int64_t kPickleDepthMax = 64;                 // how deep values may be nested
// The limit of nesting in pickles of torch.jit.save. Each module inside another adds two levels.
// There is a limit because LibTorch destroys nested values recursively.
inline constexpr int64_t kScriptDepthMax = 512;

// The values of a pickle, which it owns.
class Pickle {
  public:
    // Throws Error{kInput} naming PATH, the offset in the pickle and the bytes there if the pickle
    // is cut short, exceeds a limit, is cyclic, uses protocol 0, 1 or a protocol above 5, or is
    // refused.
    Pickle(const std::string& path, std::span<const std::byte> bytes,
           PickleWords words = PickleWords::kCheckpoint);

    // Returns the root value, which is valid as long as the Pickle lives.
    [[nodiscard]] const PickleValue& root() const { return *root_; }
    // Returns all values that the pickle makes, including those that are not part of the root
    // value.
    [[nodiscard]] const std::deque<PickleValue>& values() const { return values_; }

  private:
    friend class Unpickler;
    std::deque<PickleValue> values_;
    const PickleValue* root_ = nullptr;
};

}  // namespace dslaunch::storage
