// The values of a pickle, the names that it may hold, and the use of each. Data path: pickle ->
// restricted_unpickler.h -> [here]. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch::storage {

// A value of a pickle: plain data.
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

    // Returns the value of a dict's text key; null: there is none, or this is not a dict. The last
    // of equal keys counts, as in Python.
    [[nodiscard]] const PickleValue* find(std::string_view key) const;
};

// Who wrote a pickle: torch.save and DeepSpeed, or torch.jit.save, whose pickles LibTorch reads.
enum class PickleWords : uint8_t { kCheckpoint, kScript };

enum class PickleUse : uint8_t {
    kNone,       // refused
    kName,       // stands for itself, never called
    kDict,       // makes an empty dict
    kList,       // makes a list of its argument's items
    kSize,       // a tuple
    kTensor,     // (storage, offset, shape, strides, …)
    kParameter,  // (tensor, …)
    kTyped,      // (the tensor's maker, class, its arguments, attributes)
    kRecord,     // arguments and state are kept beside the name
    // Only in pickles of torch.jit.save:
    kQuantized,  // (storage, offset, shape, strides, (scheme, …), …)
    kNothing,    // makes None, whatever its argument is
    kListOf,     // (list), whose items are of one type
    kTypeTag,    // (list or dict, its type in words)
    kComplex,    // (real, imaginary)
    kDevice,     // (text)
    kObject      // an object of a class of the archive, or an enumerator
};

// Returns NAME's use. NAME: module and name with a blank between, "torch FloatStorage".
[[nodiscard]] PickleUse use_of(std::string_view name, PickleWords words);

// Returns the bytes of an element of storage class NAME, "torch FloatStorage"; nothing: not known.
[[nodiscard]] std::optional<int64_t> storage_element_bytes(std::string_view name);

}  // namespace dslaunch::storage
