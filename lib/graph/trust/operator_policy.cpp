#include "graph/trust/operator_policy.h"

#include <ATen/core/class_type.h>
#include <ATen/core/jit_type.h>
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <map>
#include <span>

namespace dslaunch::graph {

namespace {

using c10::Type;
using c10::TypeKind;

constexpr std::string_view kClassesInCpp = "__torch__.torch.classes.";

// Namespaces of LibTorch whose operators are for its own passes, for other processes, devices or
// tests. What they reach is not seen in their types: addresses and groups of processes by name.
constexpr std::string_view kForeignNamespaces[] = {"_c10d_functional",
                                                   "_c10d_functional_autograd",
                                                   "_dtensor",
                                                   "_test",
                                                   "aoti_torch",
                                                   "c10d",
                                                   "c10d_functional",
                                                   "cuda",
                                                   "debug_mode_ops",
                                                   "debugprims",
                                                   "dist_autograd",
                                                   "dslaunch",
                                                   "export",
                                                   "inductor",
                                                   "ivalue",
                                                   "mkl",
                                                   "mkldnn",
                                                   "mkldnn_prepacked",
                                                   "nccl",
                                                   "nnapi",
                                                   "nvprims",
                                                   "onednn",
                                                   "onnx",
                                                   "prepacked",
                                                   "rngprims",
                                                   "rpc",
                                                   "static_runtime",
                                                   "streaming",
                                                   "symm_mem",
                                                   "tensorexpr",
                                                   "tensorpipe",
                                                   "torch_xla",
                                                   "xpu"};

// Returns operators that the types would let in, each with its reason.
const std::map<std::string_view, const char*>& denied() {
    static constexpr const char* kMemory =
        "it gives a tensor memory without looking whether it lies in it";
    static constexpr const char* kSeed = "it sets the random numbers of the whole process";
    static constexpr const char* kProcess = "it changes settings of the whole process";
    static const std::map<std::string_view, const char*> reasons{
        {"aten::_cufft_clear_plan_cache", kProcess},
        {"aten::_cufft_set_plan_cache_max_size", kProcess},
        {"aten::_indices_copy_unsafe", kMemory},
        {"aten::_nested_view_from_buffer", kMemory},
        {"aten::_nested_view_from_buffer_copy", kMemory},
        {"aten::_nested_view_from_jagged", kMemory},
        {"aten::_nested_view_from_jagged_copy", kMemory},
        {"aten::_print", "it writes to the output of the process"},
        {"aten::_reshape_alias", kMemory},
        {"aten::_reshape_alias_copy", kMemory},
        {"aten::_sparse_bsc_tensor_unsafe", kMemory},
        {"aten::_sparse_bsr_tensor_unsafe", kMemory},
        {"aten::_sparse_compressed_tensor_unsafe", kMemory},
        {"aten::_sparse_coo_tensor_unsafe", kMemory},
        {"aten::_sparse_csc_tensor_unsafe", kMemory},
        {"aten::_sparse_csr_tensor_unsafe", kMemory},
        {"aten::from_file", "it opens files, and writes to them"},
        {"aten::get_gradients", "it asks other processes"},
        {"aten::manual_seed", kSeed},
        {"aten::save", "it writes files"},
        {"aten::set", kMemory},
        {"aten::set_", kMemory},
    };
    return reasons;
}

// Arguments in words that choose among ways to compute, of operators on tensors. Names of
// dimensions are words too.
constexpr std::string_view kOptionsInWords[] = {
    "UPLO",        "activation", "algorithm", "api_name",     "approximate",   "assert_msg",
    "device_type", "dim",        "dim0",      "dim1",         "dim2",          "dims",
    "driver",      "end_dim",    "equation",  "indexing",     "interpolation", "mode",
    "names",       "norm",       "ord",       "order",        "out_dim",       "outdim",
    "p",           "pad_mode",   "padding",   "padding_side", "reduce",        "rounding_mode",
    "side",        "start_dim"};

// Functions of texts, and of lists and dicts that hold texts.
constexpr std::string_view kFunctionsOfTexts[] = {"Complex",
                                                  "_assert_scalar",
                                                  "Delete",
                                                  "Float",
                                                  "Int",
                                                  "__contains__",
                                                  "__getitem__",
                                                  "_set_item",
                                                  "add",
                                                  "any",
                                                  "append",
                                                  "capitalize",
                                                  "center",
                                                  "clear",
                                                  "copy",
                                                  "count",
                                                  "device",
                                                  "dict",
                                                  "endswith",
                                                  "eq",
                                                  "expandtabs",
                                                  "extend",
                                                  "find",
                                                  "format",
                                                  "ge",
                                                  "get",
                                                  "get_autocast_dtype",
                                                  "gt",
                                                  "hash",
                                                  "index",
                                                  "insert",
                                                  "isalnum",
                                                  "isalpha",
                                                  "isdecimal",
                                                  "isdigit",
                                                  "isidentifier",
                                                  "islower",
                                                  "isnumeric",
                                                  "isprintable",
                                                  "isspace",
                                                  "istitle",
                                                  "isupper",
                                                  "items",
                                                  "join",
                                                  "keys",
                                                  "le",
                                                  "len",
                                                  "list",
                                                  "ljust",
                                                  "lower",
                                                  "lstrip",
                                                  "lt",
                                                  "mul",
                                                  "ne",
                                                  "ord",
                                                  "partition",
                                                  "percentFormat",
                                                  "pop",
                                                  "popitem",
                                                  "remove",
                                                  "replace",
                                                  "reverse",
                                                  "rfind",
                                                  "rindex",
                                                  "rjust",
                                                  "rpartition",
                                                  "rsplit",
                                                  "rstrip",
                                                  "setdefault",
                                                  "slice",
                                                  "sort",
                                                  "sorted",
                                                  "split",
                                                  "splitlines",
                                                  "startswith",
                                                  "str",
                                                  "strip",
                                                  "swapcase",
                                                  "title",
                                                  "update",
                                                  "upper",
                                                  "values",
                                                  "warn",
                                                  "zfill"};

// Nodes that a graph is made of, and functions of TorchScript's own. Those of its passes (groups
// that were fused, profiles), of Python and of other processes are missing.
constexpr std::string_view kNodesOfGraphs[] = {"AutogradAdd",
                                               "AutogradAllNonZero",
                                               "AutogradAllZero",
                                               "AutogradAnyNonZero",
                                               "AutogradZero",
                                               "BroadcastSizes",
                                               "CallFunction",
                                               "CallMethod",
                                               "ChunkSizes",
                                               "Constant",
                                               "ConstantChunk",
                                               "CreateObject",
                                               "DictConstruct",
                                               "EmptyListLiteral",
                                               "Enter",
                                               "EnumName",
                                               "EnumValue",
                                               "Exit",
                                               "GetAttr",
                                               "HasAttr",
                                               "If",
                                               "IfThenElse",
                                               "ImplicitTensorToNum",
                                               "ListConstruct",
                                               "ListUnpack",
                                               "Loop",
                                               "ModuleContainerIndex",
                                               "NumToTensor",
                                               "Print",
                                               "RaiseException",
                                               "ReductionSizes",
                                               "SetAttr",
                                               "StringIndex",
                                               "TupleConstruct",
                                               "TupleIndex",
                                               "TupleSlice",
                                               "TupleUnpack",
                                               "Uninitialized",
                                               "VarConcat",
                                               "VarStack",
                                               "abs",
                                               "annotate",
                                               "awaitable",
                                               "awaitable_nowait",
                                               "awaitable_wait",
                                               "data",
                                               "device",
                                               "dtype",
                                               "fork",
                                               "grad",
                                               "index",
                                               "is_cpu",
                                               "is_cuda",
                                               "is_ipu",
                                               "is_maia",
                                               "is_meta",
                                               "is_mkldnn",
                                               "is_mps",
                                               "is_mtia",
                                               "is_nested",
                                               "is_quantized",
                                               "is_sparse",
                                               "is_sparse_csr",
                                               "is_vulkan",
                                               "is_xla",
                                               "is_xpu",
                                               "isinstance",
                                               "itemsize",
                                               "layout",
                                               "max",
                                               "min",
                                               "name",
                                               "nbytes",
                                               "rangelist",
                                               "requires_grad",
                                               "shape",
                                               "tolist",
                                               "type",
                                               "unchecked_cast",
                                               "unchecked_unwrap_optional"};

bool is_in(std::span<const std::string_view> names, std::string_view name) {
    return std::ranges::find(names, name) != names.end();
}

// Returns what a value of TYPE could reach, "a stream of a device"; null: numbers and texts alone.
const char* reach_of(const Type& type) {
    switch (type.kind()) {
        case TypeKind::StorageType:
            return "the memory of a tensor";
        case TypeKind::StreamObjType:
            return "a stream of a device";
        case TypeKind::RRefType:
            return "an object of another process";
        case TypeKind::PyObjectType:
            return "an object of Python";
        case TypeKind::CapsuleType:
        case TypeKind::QuantizerType:
        case TypeKind::FunctionType:
        case TypeKind::AnyClassType:
        case TypeKind::InterfaceType:
            return "an object of the program";
        case TypeKind::ClassType: {
            const auto& name = type.expectRef<c10::ClassType>().name();
            return name && why_class_refused(name->qualifiedName()).empty()
                       ? nullptr
                       : "an object of the program";
        }
        default:
            for (const c10::TypePtr& inner : type.containedTypes())
                if (const char* reach = reach_of(*inner)) return reach;
            return nullptr;
    }
}

bool holds(const Type& type, TypeKind kind) {
    return type.kind() == kind ||
           std::ranges::any_of(type.containedTypes(),
                               [&](const c10::TypePtr& inner) { return holds(*inner, kind); });
}

bool has_tensor(const std::vector<c10::Argument>& arguments) {
    return std::ranges::any_of(arguments, [](const c10::Argument& argument) {
        return holds(*argument.type(), TypeKind::TensorType);
    });
}

}  // namespace

std::string why_refused(const c10::FunctionSchema& schema) {
    const std::string& full = schema.name();
    const size_t colons = full.find("::");
    const std::string_view space = std::string_view(full).substr(0, colons);
    const std::string_view name = std::string_view(full).substr(colons + 2);
    if (space == "prim") return why_node_refused(full);
    // Names of parts of a trace, which `with torch.profiler.record_function(…)` writes. Older ones
    // keep a pointer in a tensor.
    if (space == "profiler")
        return !has_tensor(schema.arguments()) && !has_tensor(schema.returns())
                   ? ""
                   : "it keeps a pointer in a tensor";
    if (is_in(kForeignNamespaces, space))
        return fmt::format("operators of {} are for LibTorch itself and for other processes",
                           space);
    const auto found = denied().find(full);
    if (found != denied().end()) return found->second;
    for (const auto* arguments : {&schema.arguments(), &schema.returns()})
        for (const c10::Argument& argument : *arguments)
            if (const char* reach = reach_of(*argument.type()))
                return fmt::format("it takes or gives {}", reach);
    const bool on_tensors = has_tensor(schema.arguments()) || has_tensor(schema.returns());
    if (space == "aten" && is_in(kFunctionsOfTexts, name)) return "";
    for (const c10::Argument& argument : schema.arguments())
        if (holds(*argument.type(), TypeKind::StringType) &&
            !(on_tensors && is_in(kOptionsInWords, argument.name())))
            return fmt::format("it takes a text `{}`, which may name anything", argument.name());
    return "";
}

std::string why_node_refused(std::string_view kind) {
    constexpr std::string_view kPrim = "prim::";
    if (kind.starts_with(kPrim) && is_in(kNodesOfGraphs, kind.substr(kPrim.size()))) return "";
    return "it is for LibTorch's own passes, Python or other processes";
}

bool is_class_in_cpp(std::string_view name) {
    return name.starts_with(kClassesInCpp);
}

std::string why_class_refused(std::string_view name) {
    // Weights of quantized layers in the order of the processor's instructions; a part of a trace.
    constexpr std::array<std::string_view, 3> kPlain = {"quantized.", "rnn.",
                                                        "profiler._RecordFunction"};
    if (!is_class_in_cpp(name)) return "";
    const std::string_view rest = name.substr(kClassesInCpp.size());
    for (const std::string_view plain : kPlain)
        if (rest.starts_with(plain)) return "";
    return "it is a class in C++";
}

}  // namespace dslaunch::graph
