// Pickles as data. Everything that torch.save, torch.jit.save and DeepSpeed write becomes a graph
// of plain values; nothing is imported or called. A pickle with a name outside of the short lists
// in pickle_names.cpp is refused. No recursion; memory and time grow with the pickle's bytes and
// end at the limits below. Pure.
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
inline constexpr int64_t kPickleValuesMax = int64_t{4} << 20;  // and entries of its memo
inline constexpr int64_t kPickleDepthMax = 64;                 // values inside values
// A module inside another is two values deep. LibTorch destroys them by calls inside calls.
inline constexpr int64_t kScriptDepthMax = 512;

class Pickle {
  public:
    // Throws Error{kInput} naming PATH, the offset in the pickle and the bytes there if it is cut
    // short, over a limit, cyclic, of protocol 0, 1 or beyond 5, or refused.
    Pickle(const std::string& path, std::span<const std::byte> bytes,
           PickleWords words = PickleWords::kCheckpoint);

    // Returns the root, which lives as long as the Pickle.
    [[nodiscard]] const PickleValue& root() const { return *root_; }
    // Returns all values that the pickle makes, also the ones that the root does not hold.
    [[nodiscard]] const std::deque<PickleValue>& values() const { return values_; }

  private:
    friend class Unpickler;
    std::deque<PickleValue> values_;
    const PickleValue* root_ = nullptr;
};

}  // namespace dslaunch::storage
