// Pickles as data. What torch.save, torch.jit.save and DeepSpeed write becomes a graph of plain
// values; nothing is imported or called. A pickle that names anything but the short lists in
// pickle_names.cpp is refused. No recursion; memory and time grow with the pickle's bytes and end
// at the limits below. Pure.
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

struct PickleValue {
    enum class Kind : uint8_t {
        kNone,
        kBool,     // integer
        kInteger,  // 64 bits; larger ones are refused
        kReal,
        kText,
        kBytes,    // text
        kList,     // items; sets and frozensets too
        kTuple,    // items; torch.Size too
        kDict,     // items: key, value, key, value; OrderedDict and defaultdict too
        kGlobal,   // text: "torch float32"
        kStorage,  // text: its dtype's class "torch FloatStorage"; items: key, device, numel
        kTensor,   // items: storage, offset in elements, shape, strides; of a script also: perhaps
                   // (scheme of its quantization, …), whether it is trained, hooks
        kRecord,   // an object as it lies there: text: its class; items: arguments, then states
        kObject,   // of a script's class: text: its class; items: its state
        kEnumerator  // of a script's class: text: its class; items: its value
    };
    Kind kind = Kind::kNone;
    int64_t integer = 0;
    double real = 0;
    std::string text = {};
    std::vector<const PickleValue*> items = {};

    // The value that a dict has under a text key; null: none, or no dict. The last of equal keys
    // counts, as in Python.
    [[nodiscard]] const PickleValue* find(std::string_view key) const;
};

class Pickle {
  public:
    // Throws Error{kInput} naming PATH, the offset in the pickle and what stands there, for what is
    // cut short, over a limit, cyclic, of protocol 0, 1 or beyond 5, or refused.
    Pickle(const std::string& path, std::span<const std::byte> bytes,
           PickleWords words = PickleWords::kCheckpoint);

    // Lives as long as the Pickle.
    [[nodiscard]] const PickleValue& root() const { return *root_; }
    // All values that the pickle makes, also those that the root does not hold.
    [[nodiscard]] const std::deque<PickleValue>& values() const { return values_; }

  private:
    friend class Unpickler;
    std::deque<PickleValue> values_;
    const PickleValue* root_ = nullptr;
};

}  // namespace dslaunch::storage
