#include "graph/trust/operator_policy.h"

#include <ATen/core/class_type.h>
#include <ATen/core/jit_type.h>
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <map>

namespace dslaunch::graph {

namespace {

using c10::Type;
using c10::TypeKind;

constexpr std::string_view kClassesInCpp = "__torch__.torch.classes.";

// Namespaces of LibTorch whose operators are for its own passes, for other processes, for devices
// or for tests. Such an operator can reach memory by its address, or a process group by its name,
// although the types of its arguments do not show this.
constexpr std::string_view kForeignNamespaces =
    "_c10d_functional _c10d_functional_autograd _dtensor _test aoti_torch c10d c10d_functional "
    "cuda debug_mode_ops debugprims dist_autograd dslaunch export inductor ivalue mkl mkldnn "
    "mkldnn_prepacked nccl nnapi nvprims onednn onnx prepacked rngprims rpc static_runtime "
    "streaming symm_mem tensorexpr tensorpipe torch_xla xpu";

// Returns the operators that must be refused although the types of their arguments are allowed,
// each with the reason.
const std::map<std::string_view, const char*>& denied() {
    static constexpr const char* kMemory =
        "it places a tensor in memory without checking the bounds";
    static constexpr const char* kBelieves = "it uses indices or sizes without checking them";
    static constexpr const char* kSeed = "it sets the random seed of the whole process";
    static const std::map<std::string_view, const char*> reasons{
        {"aten::batch_norm_update_stats", kBelieves},
        {"aten::ccol_indices", kBelieves},
        {"aten::col_indices", kBelieves},
        {"aten::crow_indices", kBelieves},
        {"aten::from_file", "it opens files and writes to them"},
        {"aten::get_gradients", "it contacts other processes"},
        {"aten::linalg_ldl_solve", kBelieves},
        {"aten::manual_seed", kSeed},
        {"aten::mkldnn_rnn_layer", kBelieves},
        {"aten::row_indices", kBelieves},
        {"aten::save", "it writes files"},
        {"aten::segment_reduce", kBelieves},
        {"aten::set", kMemory},
        {"aten::set_", kMemory},
    };
    return reasons;
}

// Text arguments with which the caller of a tensor operator chooses how the operator computes.
// Names of dimensions are texts too.
constexpr std::string_view kOptionsInWords =
    "UPLO activation algorithm api_name approximate assert_msg device_type dim dim0 dim1 dim2 "
    "dims driver end_dim equation indexing interpolation mode names norm ord order out_dim "
    "outdim p pad_mode padding padding_side reduce rounding_mode side start_dim";

// Functions of texts, and of lists and dicts that contain texts.
constexpr std::string_view kFunctionsOfTexts =
    "Complex _assert_scalar Delete Float Int __contains__ __getitem__ _set_item add any append "
    "capitalize center clear copy count device dict endswith eq expandtabs extend find format ge "
    "get get_autocast_dtype gt hash index insert isalnum isalpha isdecimal isdigit isidentifier "
    "islower isnumeric isprintable isspace istitle isupper items join keys le len list ljust "
    "lower lstrip lt mul ne ord partition percentFormat pop popitem remove replace reverse rfind "
    "rindex rjust rpartition rsplit rstrip setdefault slice sort sorted split splitlines "
    "startswith str strip swapcase title update upper values warn zfill";

// Operators with a private name that models use nevertheless: exported programs consist of some of
// them, and scripted layers of PyTorch call others. All other private operators rely on checks by
// their callers in LibTorch.
constexpr std::string_view kPrivateOfModels =
    "_adaptive_avg_pool2d _adaptive_avg_pool3d _add_relu _addmm_activation _aminmax "
    "_assert_async _assert_scalar _assert_tensor_metadata _autocast_to_full_precision "
    "_autocast_to_reduced_precision _batch_norm_impl_index _batch_norm_no_update "
    "_batch_norm_with_update _batch_norm_with_update_functional _cast_Byte _cast_Char "
    "_cast_Double _cast_Float _cast_Half _cast_Int _cast_Long _cast_Short _cdist_forward "
    "_choose_qparams_per_tensor _conj _conj_copy _conj_physical _convolution _convolution_mode "
    "_ctc_loss _dim_arange _efficientzerotensor _embedding_bag _embedding_bag_forward_only "
    "_euclidean_dist _fake_quantize_learnable_per_channel_affine "
    "_fake_quantize_learnable_per_tensor_affine "
    "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams _fft_c2c _fft_c2r _fft_r2c "
    "_functional_assert_async _functional_assert_scalar _functional_sym_constrain_range "
    "_functional_sym_constrain_range_for_size _fused_dropout _fused_moving_avg_obs_fq_helper "
    "_fused_moving_avg_obs_fq_helper_functional _fused_rms_norm _fused_sdp_choice "
    "_get_tracing_state _grad_sum_to_size _grouped_mm _infer_size _int_mm _is_all_true "
    "_is_any_true _is_zerotensor _linalg_check_errors _linalg_det _linalg_eigh _linalg_eigvals "
    "_linalg_slogdet _linalg_solve_ex _linalg_svd _list_to_tensor _local_scalar_dense "
    "_log_softmax _logcumsumexp _lu_with_info _make_dep_token _masked_scale _masked_softmax "
    "_native_batch_norm_legit _native_batch_norm_legit_functional "
    "_native_batch_norm_legit_no_training _native_multi_head_attention _ncf_unsqueeze _ncf_view "
    "_neg_view _neg_view_copy _nested_tensor_from_mask _nested_tensor_from_mask_left_aligned "
    "_no_grad_embedding_renorm_ _no_grad_fill_ _no_grad_normal_ _no_grad_uniform_ _no_grad_zero_ "
    "_pack_padded_sequence _pack_sequence _pad_circular _pad_enum _pad_packed_sequence "
    "_pdist_forward _prelu_kernel _reshape_from_tensor _safe_softmax _sample_dirichlet "
    "_saturate_weight_to_fp16 _scaled_dot_product_attention_math "
    "_scaled_dot_product_cudnn_attention _scaled_dot_product_efficient_attention "
    "_scaled_dot_product_flash_attention _scaled_dot_product_flash_attention_for_cpu "
    "_scaled_dot_product_fused_attention_overrideable _scaled_grouped_mm _scaled_mm _set_item "
    "_shape_as_tensor _size_if_not_equal _softmax _sparse_addmm _sparse_log_softmax _sparse_mm "
    "_sparse_softmax _sparse_sum _stack _standard_gamma _tensor_to_list _to_copy _to_cpu "
    "_to_dense _to_sparse _to_sparse_bsc _to_sparse_bsr _to_sparse_csc _to_sparse_csr "
    "_transform_bias_rescale_qkv _transformer_encoder_layer_fwd _trilinear _unique _unique2 "
    "_unsafe_index _unsafe_index_put _unsafe_masked_index _unsafe_masked_index_put_accumulate "
    "_unsafe_view _unwrap_optional _upsample_bicubic2d_aa _upsample_bilinear2d_aa "
    "_upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d "
    "_use_cudnn_ctc_loss _use_cudnn_rnn_flatten_weight _version _weight_int4pack_mm "
    "_weight_int8pack_mm _weight_norm _weight_norm_interface";

// Nodes that graphs consist of, and TorchScript's own functions. The list leaves out the nodes of
// its compiler passes (fused groups, profiles), of Python and of other processes.
constexpr std::string_view kNodesOfGraphs =
    "AutogradAdd AutogradAllNonZero AutogradAllZero AutogradAnyNonZero AutogradZero "
    "BroadcastSizes CallFunction CallMethod ChunkSizes Constant ConstantChunk CreateObject "
    "DictConstruct EmptyListLiteral Enter EnumName EnumValue Exit GetAttr HasAttr If IfThenElse "
    "ImplicitTensorToNum ListConstruct ListUnpack Loop ModuleContainerIndex NumToTensor Print "
    "RaiseException ReductionSizes SetAttr StringIndex TupleConstruct TupleIndex TupleSlice "
    "TupleUnpack Uninitialized VarConcat VarStack abs annotate awaitable awaitable_nowait "
    "awaitable_wait data device dtype fork grad index is_cpu is_cuda is_ipu is_maia is_meta "
    "is_mkldnn is_mps is_mtia is_nested is_quantized is_sparse is_sparse_csr is_vulkan is_xla "
    "is_xpu isinstance itemsize layout max min name nbytes rangelist requires_grad shape tolist "
    "type unchecked_cast unchecked_unwrap_optional";

// Returns true if NAME is one of WORDS, which are separated by spaces.
bool is_in(std::string_view words, std::string_view name) {
    if (name.empty() || name.find(' ') != std::string_view::npos) return false;
    for (size_t at = words.find(name); at != std::string_view::npos;
         at = words.find(name, at + 1)) {
        const size_t end = at + name.size();
        if ((at == 0 || words[at - 1] == ' ') && (end == words.size() || words[end] == ' '))
            return true;
    }
    return false;
}

// Returns the reason why aten's operator NAME is not for models; null if models may use it.
const char* why_internal(std::string_view name) {
    // A backward operator trusts the indices and sizes that its forward passes to it.
    if (name.find("backward") != std::string_view::npos)
        return "it computes gradients and uses indices without checking them";
    const bool is_private = name.starts_with("_") && !name.starts_with("__");
    // Operators with this prefix work on each tensor of a list; models use them for averages of
    // weights.
    const bool one_by_one = name.starts_with("_foreach_");
    return is_private && !one_by_one && !is_in(kPrivateOfModels, name)
               ? "it is internal to LibTorch and does not check its arguments"
               : nullptr;
}

// Returns the dangerous thing that a value of TYPE could reach, such as "a stream of a device";
// null if there is none.
const char* reach_of(const Type& type) {
    switch (type.kind()) {
        case TypeKind::StorageType:
            return "the memory of a tensor";
        case TypeKind::StreamObjType:
            return "a device stream";
        case TypeKind::RRefType:
            return "an object of another process";
        case TypeKind::PyObjectType:
            return "a Python object";
        case TypeKind::CapsuleType:
        case TypeKind::QuantizerType:
        case TypeKind::FunctionType:
        case TypeKind::AnyClassType:
        case TypeKind::InterfaceType:
            return "an internal object of the program";
        case TypeKind::ClassType: {
            const auto& name = type.expectRef<c10::ClassType>().name();
            return name && why_class_refused(name->qualifiedName()).empty()
                       ? nullptr
                       : "an internal object of the program";
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
    // `with torch.profiler.record_function(…)` uses these operators to name a part of a trace.
    // Older versions of these operators keep a pointer in a tensor.
    if (space == "profiler")
        return !has_tensor(schema.arguments()) && !has_tensor(schema.returns())
                   ? ""
                   : "it keeps a pointer in a tensor";
    if (is_in(kForeignNamespaces, space))
        return fmt::format(
            "operators of the namespace {} are internal to LibTorch or reach other processes",
            space);
    const auto found = denied().find(full);
    if (found != denied().end()) return found->second;
    if (space == "aten")
        if (const char* why = why_internal(name)) return why;
    for (const auto* arguments : {&schema.arguments(), &schema.returns()})
        for (const c10::Argument& argument : *arguments)
            if (const char* reach = reach_of(*argument.type()))
                return fmt::format("it takes or returns {}", reach);
    const bool on_tensors = has_tensor(schema.arguments()) || has_tensor(schema.returns());
    if (space == "aten" && is_in(kFunctionsOfTexts, name)) return "";
    for (const c10::Argument& argument : schema.arguments())
        if (holds(*argument.type(), TypeKind::StringType) &&
            !(on_tensors && is_in(kOptionsInWords, argument.name())))
            return fmt::format(
                "it takes a string argument `{}`, which could name a file or anything else",
                argument.name());
    return "";
}

std::string why_node_refused(std::string_view kind) {
    constexpr std::string_view kPrim = "prim::";
    if (kind.starts_with(kPrim) && is_in(kNodesOfGraphs, kind.substr(kPrim.size()))) return "";
    return "it is internal to LibTorch, or is for Python or other processes";
}

bool is_class_in_cpp(std::string_view name) {
    return name.starts_with(kClassesInCpp);
}

std::string why_class_refused(std::string_view name) {
    // Allowed classes: the packed weights of quantized layers, and the handle of a named part of a
    // profiler's trace.
    constexpr std::array<std::string_view, 3> kPlain = {"quantized.", "rnn.",
                                                        "profiler._RecordFunction"};
    if (!is_class_in_cpp(name)) return "";
    const std::string_view rest = name.substr(kClassesInCpp.size());
    for (const std::string_view plain : kPlain)
        if (rest.starts_with(plain)) return "";
    return "it is a C++ class";
}

}  // namespace dslaunch::graph
