#include "storage/pickle/pickle_names.h"

#include <algorithm>
#include <array>

namespace dslaunch::storage {

namespace {

struct Known {
    std::string_view name;
    PickleUse use;
};

constexpr std::array kCheckpoint = {
    Known{"collections OrderedDict", PickleUse::kDict},
    Known{"collections defaultdict", PickleUse::kDict},
    Known{"__builtin__ set", PickleUse::kList},
    Known{"builtins set", PickleUse::kList},
    Known{"__builtin__ frozenset", PickleUse::kList},
    Known{"builtins frozenset", PickleUse::kList},
    Known{"__builtin__ dict", PickleUse::kName},
    Known{"builtins dict", PickleUse::kName},
    Known{"__builtin__ list", PickleUse::kName},
    Known{"builtins list", PickleUse::kName},
    Known{"torch Size", PickleUse::kSize},
    Known{"torch._utils _rebuild_tensor_v2", PickleUse::kTensor},
    Known{"torch._utils _rebuild_parameter", PickleUse::kParameter},
    Known{"torch._utils _rebuild_parameter_with_state", PickleUse::kParameter},
    Known{"torch._tensor _rebuild_from_type_v2", PickleUse::kTyped},
    Known{"torch Tensor", PickleUse::kName},
    Known{"torch.nn.parameter Parameter", PickleUse::kName},
    Known{"torch DoubleStorage", PickleUse::kName},
    Known{"torch FloatStorage", PickleUse::kName},
    Known{"torch HalfStorage", PickleUse::kName},
    Known{"torch BFloat16Storage", PickleUse::kName},
    Known{"torch LongStorage", PickleUse::kName},
    Known{"torch IntStorage", PickleUse::kName},
    Known{"torch ShortStorage", PickleUse::kName},
    Known{"torch CharStorage", PickleUse::kName},
    Known{"torch ByteStorage", PickleUse::kName},
    Known{"torch BoolStorage", PickleUse::kName},
    Known{"torch ComplexFloatStorage", PickleUse::kName},
    Known{"torch float64", PickleUse::kName},
    Known{"torch float32", PickleUse::kName},
    Known{"torch float16", PickleUse::kName},
    Known{"torch bfloat16", PickleUse::kName},
    Known{"torch int64", PickleUse::kName},
    Known{"torch int32", PickleUse::kName},
    Known{"torch int16", PickleUse::kName},
    Known{"torch int8", PickleUse::kName},
    Known{"torch uint8", PickleUse::kName},
    Known{"torch bool", PickleUse::kName},
    Known{"deepspeed.runtime.fp16.loss_scaler LossScaler", PickleUse::kRecord},
    Known{"deepspeed.runtime.fp16.loss_scaler DynamicLossScaler", PickleUse::kRecord},
    Known{"deepspeed.runtime.zero.config ZeroStageEnum", PickleUse::kRecord},
    Known{"deepspeed.utils.tensor_fragment fragment_address", PickleUse::kRecord},
    // Objects that a user's client_state for save_checkpoint() may contain.
    Known{"argparse Namespace", PickleUse::kRecord},
    Known{"_codecs encode", PickleUse::kRecord},
    Known{"numpy dtype", PickleUse::kRecord},
    Known{"numpy.core.multiarray scalar", PickleUse::kRecord},
    Known{"numpy._core.multiarray scalar", PickleUse::kRecord},
};

// LibTorch accepts more names, which are left out here: sparse tensors, whose indices it does not
// check; tables of tensors beside the pickle; and remote references, which model files do not
// contain.
constexpr std::array kScript = {
    Known{"torch._utils _rebuild_tensor_v2", PickleUse::kTensor},
    Known{"torch._utils _rebuild_qtensor", PickleUse::kQuantized},
    Known{"collections OrderedDict", PickleUse::kNothing},
    Known{"torch.jit._pickle build_intlist", PickleUse::kListOf},
    Known{"torch.jit._pickle build_tensorlist", PickleUse::kListOf},
    Known{"torch.jit._pickle build_doublelist", PickleUse::kListOf},
    Known{"torch.jit._pickle build_boollist", PickleUse::kListOf},
    Known{"torch.jit._pickle restore_type_tag", PickleUse::kTypeTag},
    Known{"builtins complex", PickleUse::kComplex},
    Known{"torch device", PickleUse::kDevice},
    Known{"torch per_tensor_affine", PickleUse::kName},
    Known{"torch per_tensor_symmetric", PickleUse::kName},
    Known{"torch per_channel_affine", PickleUse::kName},
    Known{"torch per_channel_symmetric", PickleUse::kName},
    Known{"torch per_channel_affine_float_qparams", PickleUse::kName},
};

struct StorageClass {
    std::string_view name;
    int64_t element_bytes;
};
// Types of less than a byte are left out: nothing here computes with them.
constexpr std::array kStorages = {
    StorageClass{"torch ByteStorage", 1},
    StorageClass{"torch CharStorage", 1},
    StorageClass{"torch BoolStorage", 1},
    StorageClass{"torch QInt8Storage", 1},
    StorageClass{"torch QUInt8Storage", 1},
    StorageClass{"torch Float8_e5m2Storage", 1},
    StorageClass{"torch Float8_e4m3fnStorage", 1},
    StorageClass{"torch Float8_e5m2fnuzStorage", 1},
    StorageClass{"torch Float8_e4m3fnuzStorage", 1},
    StorageClass{"torch ShortStorage", 2},
    StorageClass{"torch UInt16Storage", 2},
    StorageClass{"torch HalfStorage", 2},
    StorageClass{"torch BFloat16Storage", 2},
    StorageClass{"torch IntStorage", 4},
    StorageClass{"torch UInt32Storage", 4},
    StorageClass{"torch FloatStorage", 4},
    StorageClass{"torch QInt32Storage", 4},
    StorageClass{"torch ComplexHalfStorage", 4},
    StorageClass{"torch LongStorage", 8},
    StorageClass{"torch UInt64Storage", 8},
    StorageClass{"torch DoubleStorage", 8},
    StorageClass{"torch ComplexFloatStorage", 8},
    StorageClass{"torch ComplexDoubleStorage", 16},
};

// Returns true for classes named in LibTorch's way: "__torch__.torch.nn.modules.linear Linear".
bool is_class_of_archive(std::string_view name) {
    constexpr std::string_view kRoot = "__torch__";
    if (!name.starts_with(kRoot)) return false;
    const size_t blank = name.find(' ');
    const std::string_view module = name.substr(0, blank);
    if (module != kRoot && module[kRoot.size()] != '.') return false;
    return std::ranges::all_of(name, [](unsigned char c) {
        return c == '_' || c == '.' || c == ' ' || c >= 0x80 || (c >= '0' && c <= '9') ||
               ((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
    });
}

}  // namespace

PickleUse use_of(std::string_view name, PickleWords words) {
    const auto in = [&](const auto& table) {
        const auto* found = std::ranges::find(table, name, &Known::name);
        return found == table.end() ? PickleUse::kNone : found->use;
    };
    if (words == PickleWords::kCheckpoint) return in(kCheckpoint);
    if (is_class_of_archive(name)) return PickleUse::kObject;
    return storage_element_bytes(name) ? PickleUse::kName : in(kScript);
}

std::optional<int64_t> storage_element_bytes(std::string_view name) {
    const auto* found = std::ranges::find(kStorages, name, &StorageClass::name);
    return found == kStorages.end() ? std::nullopt : std::optional(found->element_bytes);
}

const PickleValue* PickleValue::find(std::string_view key) const {
    if (kind != Kind::kDict) return nullptr;
    for (size_t i = items.size(); i >= 2; i -= 2)
        if (items[i - 2]->kind == Kind::kText && items[i - 2]->text == key) return items[i - 1];
    return nullptr;
}

}  // namespace dslaunch::storage
