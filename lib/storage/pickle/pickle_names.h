// The values of a pickle, the names that it may contain, and what each name is used for. Data path:
// pickle -> pickle.h -> [here]. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch::storage {

// A value of a pickle: plain data.
struct PickleValue {
    // The kinds of values. The comments name the members of PickleValue that a kind uses.
    enum class Kind : uint8_t {
        kNone,
        kBool,     // integer
        kInteger,  // 64 bits; larger ones are refused
        kReal,
        kText,
        kBytes,      // text
        kList,       // items; sets and frozensets too
        kTuple,      // items; torch.Size too
        kDict,       // items: key, value, key, value; OrderedDict and defaultdict too
        kGlobal,     // text: "torch float32"
        kStorage,    // text: its dtype's class "torch FloatStorage"; items: key, device, numel
        kTensor,     // items: storage, offset in elements, shape, strides; in a script also:
                     // (scheme, …) if quantized, whether it is trained, hooks
        kRecord,     // an object as stored: text: its class; items: arguments, then states
        kObject,     // of a script's class: text: its class; items: its state
        kEnumerator  // of a script's class: text: its class; items: its value
    };
    Kind kind = Kind::kNone;
    int64_t integer = 0;
    double real = 0;
    std::string text = {};
    std::vector<const PickleValue*> items = {};

    // Returns the value of the text key KEY in a dict; null if there is no such key or this is not
    // a dict. If a key occurs several times, the last one counts, as in Python.
    [[nodiscard]] const PickleValue* find(std::string_view key) const;
};

// The program that wrote a pickle: torch.save or DeepSpeed (kCheckpoint), or torch.jit.save
// (kScript). It decides which names the pickle may contain.
enum class PickleWords : uint8_t { kCheckpoint, kScript };

// The meaning of a name in a pickle. If the name is called, its comment has the arguments in
// parentheses.
enum class PickleUse : uint8_t {
    kNone,       // refused
    kName,       // a plain name, never called
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

// Returns the meaning of NAME, which is a module and a name separated by a blank: "torch
// FloatStorage".
[[nodiscard]] PickleUse use_of(std::string_view name, PickleWords words);

// Returns the size in bytes of an element of the storage class NAME, "torch FloatStorage"; nothing
// if it is not known.
[[nodiscard]] std::optional<int64_t> storage_element_bytes(std::string_view name);

}  // namespace dslaunch::storage
