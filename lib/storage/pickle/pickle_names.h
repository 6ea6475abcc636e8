// The names that a pickle may hold, and the use that is made of each. Data path: pickle ->
// restricted_unpickler.h -> [here]. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace dslaunch::storage {

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
    kTyped,      // (what makes the tensor, class, its arguments, attributes)
    kRecord,     // arguments and state are kept beside the name
    // In pickles of torch.jit.save alone:
    kQuantized,  // (storage, offset, shape, strides, (scheme, …), …)
    kNothing,    // makes None of anything
    kListOf,     // (list), whose items are of one type
    kTypeTag,    // (list or dict, its type in words)
    kComplex,    // (real, imaginary)
    kDevice,     // (text)
    kObject      // an object of a class of the archive, or an enumerator
};

// NAME: module and name with a blank between them, "torch FloatStorage".
[[nodiscard]] PickleUse use_of(std::string_view name, PickleWords words);

// Bytes of an element of a storage of the class NAME, "torch FloatStorage"; nothing: not known.
[[nodiscard]] std::optional<int64_t> storage_element_bytes(std::string_view name);

}  // namespace dslaunch::storage
