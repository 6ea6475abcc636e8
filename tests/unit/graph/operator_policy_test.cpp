// Compares every operator that LibTorch registers with the rule that lets models use it.
#include "graph/trust/operator_policy.h"

#include <ATen/core/function_schema.h>
#include <fmt/ranges.h>
#include <torch/csrc/jit/frontend/function_schema_parser.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "support/catch.h"
#include "support/text_tools.h"

namespace dslaunch::graph {
namespace {

using Names = std::set<std::string>;

std::vector<c10::FunctionSchema> all_schemas() {
    std::vector<c10::FunctionSchema> schemas;
    for (const auto& operation : torch::jit::getAllOperators())
        schemas.push_back(operation->schema());
    return schemas;
}

std::string space_of(const c10::FunctionSchema& schema) {
    return schema.name().substr(0, schema.name().find("::"));
}

std::string refusal_of(const std::string& schema) {
    return why_refused(torch::jit::parseSchema(schema));
}

}  // namespace

TEST_CASE("of all operators those have no hand outside of tensors that a model may use") {
    const std::vector<c10::FunctionSchema> schemas = all_schemas();
    REQUIRE(schemas.size() > 3500);
    // Found in the text of a schema, not in its types.
    const char* reaching[] = {"Storage",       "Stream(",   " Stream ", "RRef(",    "PyObject",
                              "Capsule",       "Quantizer", "filename", "str path", "fd ",
                              "ptr",           "pointer",   "handle",   "address",  "group_name",
                              "process_group", "url",       "hostname", "library"};
    const Names own_spaces = {"aten",       "prim",     "quantized",
                              "_quantized", "profiler", "quantization"};
    int let_in = 0;
    for (const c10::FunctionSchema& schema : schemas) {
        if (!why_refused(schema).empty()) continue;
        ++let_in;
        const std::string text = toString(schema);
        INFO(text);
        CHECK((own_spaces.count(space_of(schema)) > 0 || space_of(schema) == "dsl_test"));
        for (const char* word : reaching) CHECK_FALSE(test::mentions(text, word));
        const size_t class_at = text.find("__torch__");
        if (class_at != std::string::npos)
            CHECK((text.substr(class_at).starts_with("__torch__.torch.classes.quantized.") ||
                   text.substr(class_at).starts_with("__torch__.torch.classes.rnn.") ||
                   text.substr(class_at).starts_with("__torch__.torch.classes.profiler._Record")));
    }
    CHECK(let_in > 3000);
}

// A new LibTorch may have other operators, about which a person must then decide.
TEST_CASE("the operators on tensors that are refused are these") {
    Names refused, nodes;
    for (const c10::FunctionSchema& schema : all_schemas()) {
        if (why_refused(schema).empty()) continue;
        if (space_of(schema) == "aten" || space_of(schema) == "quantized" ||
            space_of(schema) == "_quantized" || space_of(schema) == "profiler")
            refused.insert(schema.name());
        if (space_of(schema) == "prim") nodes.insert(schema.name());
    }
    std::erase_if(refused, [](const std::string& name) {
        const std::string_view own = std::string_view(name).substr(name.find("::") + 2);
        const bool is_private = own.starts_with("_") && !own.starts_with("__");
        return own.find("backward") != std::string_view::npos ||
               (name.starts_with("aten::") && is_private);
    });
    const Names expected = {"aten::batch_norm_update_stats",
                            "aten::ccol_indices",
                            "aten::col_indices",
                            "aten::crow_indices",
                            "aten::from_file",
                            "aten::get_gradients",
                            "aten::linalg_ldl_solve",
                            "aten::manual_seed",
                            "aten::mkldnn_rnn_layer",
                            "aten::record_stream",
                            "aten::row_indices",
                            "aten::save",
                            "aten::segment_reduce",
                            "aten::set",
                            "aten::set_",
                            "profiler::_call_end_callbacks_on_jit_fut",
                            "profiler::_record_function_enter",
                            "profiler::_record_function_exit"};
    INFO(fmt::format("{}", fmt::join(refused, " ")));
    CHECK(refused == expected);
    INFO(fmt::format("{}", fmt::join(nodes, " ")));
    CHECK(nodes.count("prim::IgnoredPythonOp") == 1);
    CHECK(nodes.count("prim::id") == 1);
    for (const char* name : {"prim::PythonOp", "prim::rpc_sync", "prim::rpc_async",
                             "prim::rpc_remote", "prim::CudaFusionGroup"})
        CHECK_FALSE(why_node_refused(name).empty());
}

// Called with an index or a size of its caller's choice, each of these wrote or read beyond its
// tensors and ended the process.
TEST_CASE("operators that believe what they get are refused") {
    for (const char* schema :
         {"aten::max_pool2d_with_indices_backward(Tensor grad_output, Tensor self, int[2] "
          "kernel_size, int[2] stride, int[2] padding, int[2] dilation, bool ceil_mode, Tensor "
          "indices) -> Tensor",
          "aten::adaptive_max_pool2d_backward(Tensor grad_output, Tensor self, Tensor indices) -> "
          "Tensor",
          "aten::_embedding_bag_per_sample_weights_backward(Tensor grad, Tensor weight, Tensor "
          "indices, Tensor offsets, Tensor offset2bag, int mode, int padding_idx=-1) -> Tensor",
          "aten::segment_reduce(Tensor data, str reduce, *, Tensor? lengths=None, bool "
          "unsafe=False) -> Tensor",
          "aten::_cummax_helper(Tensor self, Tensor(a!) values, Tensor(b!) indices, int dim) -> ()",
          "aten::_sobol_engine_draw(Tensor quasi, int n, Tensor sobolstate, int dimension, int "
          "num_generated, ScalarType? dtype) -> (Tensor, Tensor)",
          "aten::_convert_indices_from_coo_to_csr(Tensor self, int size, *, bool "
          "out_int32=False) -> Tensor",
          "aten::_reshape_alias(Tensor(a) self, int[] size, int[] stride) -> Tensor(a)",
          "aten::_fused_sgd_(Tensor(a!)[] self, Tensor(b!)[] grads) -> ()",
          "aten::linalg_ldl_solve(Tensor LD, Tensor pivots, Tensor B, *, bool hermitian=False) -> "
          "Tensor"}) {
        INFO(schema);
        CHECK_FALSE(refusal_of(schema).empty());
    }
}

TEST_CASE("what models use is let in") {
    const Names usual = {"aten::linear",
                         "aten::conv2d",
                         "aten::conv1d",
                         "aten::_convolution_mode",
                         "aten::lstm",
                         "aten::gru",
                         "aten::scaled_dot_product_attention",
                         "aten::einsum",
                         "aten::gelu",
                         "aten::embedding",
                         "aten::embedding_bag",
                         "aten::layer_norm",
                         "aten::batch_norm",
                         "aten::dropout",
                         "aten::softmax",
                         "aten::cross_entropy_loss",
                         "aten::nll_loss_nd",
                         "aten::index_put_",
                         "aten::scatter_reduce",
                         "aten::gather",
                         "aten::masked_fill",
                         "aten::as_strided",
                         "aten::resize_",
                         "aten::copy_",
                         "aten::bernoulli_",
                         "aten::randn",
                         "aten::multinomial",
                         "aten::to",
                         "aten::div",
                         "aten::stft",
                         "aten::fft_rfft",
                         "aten::linalg_svd",
                         "aten::searchsorted",
                         "aten::meshgrid",
                         "aten::pad",
                         "aten::__interpolate",
                         "aten::upsample_bilinear2d",
                         "aten::_assert_async",
                         "aten::format",
                         "aten::warn",
                         "aten::join",
                         "aten::split",
                         "aten::keys",
                         "aten::items",
                         "aten::append",
                         "aten::len",
                         "aten::__contains__",
                         "aten::percentFormat",
                         "aten::sorted",
                         "aten::set_grad_enabled",
                         "aten::is_autocast_enabled",
                         "aten::wait",
                         "aten::_unsafe_index",
                         "aten::_unsafe_view",
                         "aten::_softmax",
                         "aten::_native_batch_norm_legit_functional",
                         "aten::_pack_padded_sequence",
                         "aten::_transformer_encoder_layer_fwd",
                         "aten::__derive_index",
                         "aten::unsafe_split",
                         "aten::grad",
                         "aten::requires_grad_",
                         "aten::_foreach_add",
                         "aten::quantize_per_tensor",
                         "aten::fake_quantize_per_tensor_affine",
                         "quantized::linear_dynamic",
                         "quantized::conv2d",
                         "quantized::linear",
                         "prim::RaiseException",
                         "prim::device",
                         "prim::dtype",
                         "prim::NumToTensor",
                         "prim::is_cuda",
                         "prim::tolist",
                         "prim::unchecked_cast",
                         "prim::min",
                         "prim::max"};
    Names found;
    for (const c10::FunctionSchema& schema : all_schemas()) {
        if (usual.count(schema.name()) == 0) continue;
        found.insert(schema.name());
        INFO(toString(schema));
        CHECK(why_refused(schema).empty());
    }
    CHECK(found == usual);
    for (const char* node :
         {"prim::If", "prim::Loop", "prim::CallMethod", "prim::GetAttr", "prim::Print",
          "prim::fork", "prim::ListConstruct", "prim::isinstance"})
        CHECK(why_node_refused(node).empty());
    // Registered in torchvision's way.
    for (const char* schema :
         {"torchvision::nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
          "torchvision::roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt "
          "pooled_height, SymInt pooled_width, int sampling_ratio, bool aligned) -> Tensor"})
        CHECK(refusal_of(schema).empty());
}

TEST_CASE("an operator of a library is let in by the types of its arguments alone") {
    for (const char* schema :
         {"image::read_file(str filename) -> Tensor",
          "image::write_file(str filename, Tensor "
          "data) -> Tensor",
          "mine::load(Tensor x, str name) -> Tensor", "mine::run(Tensor x, Storage s) -> Tensor",
          "mine::at(Tensor x, Stream s) -> Tensor"})
        CHECK_FALSE(refusal_of(schema).empty());
    CHECK(refusal_of("mine::pool(Tensor x, int[] size, str mode) -> Tensor").empty());
    CHECK_FALSE(why_class_refused("__torch__.torch.classes.aoti.Runner").empty());
    CHECK(why_class_refused("__torch__.models.Net").empty());
}

}  // namespace dslaunch::graph
