// A value of a pickle, which restricted_unpickler.h makes: plain data. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch::storage {

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

}  // namespace dslaunch::storage
