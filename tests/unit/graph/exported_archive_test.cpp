// Exported programs as modules: pitfalls of their graphs, in programs that are written out here.
// Whole archives of torch.export.save are among the fixtures, which the other tests of this folder
// read.
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/frontend/schema_matching.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "graph/archive/forward_of_program.h"
#include "graph/archive/mapped_archive.h"
#include "graph/archive/model.h"
#include "graph/archive/python_operators.h"
#include "graph/lower/lower.h"
#include "support/catch.h"
#include "support/fixtures.h"
#include "support/temporary_folder.h"
#include "support/text_tools.h"

namespace dslaunch::graph {
namespace {

using Json = nlohmann::json;
using List = std::vector<Json>;
using Catch::Contains;

Json tensor(const std::string& name) {
    return {{"as_tensor", {{"name", name}}}};
}
Json integer(int64_t value) {
    return {{"as_int", value}};
}
Json size_named(const std::string& name) {
    return {{"as_sym_int", {{"as_name", name}}}};
}

Json argument(const std::string& name, const Json& value) {
    return {{"name", name}, {"arg", value}, {"kind", 1}};
}

Json node(const std::string& target, const List& inputs, const List& outputs) {
    return {{"target", target},
            {"inputs", inputs},
            {"outputs", outputs},
            {"metadata",
             {{"stack_trace", "File \"net.py\", line 7, in forward"},
              {"nn_module_stack", "L__self__,,net.Net;L__self___head,head,net.Head"}}}};
}

Json graph(const List& inputs, const List& nodes, const List& outputs, bool single = false) {
    return {{"inputs", inputs},
            {"outputs", outputs},
            {"nodes", nodes},
            {"tensor_values", Json::object()},
            {"sym_int_values", Json::object()},
            {"sym_bool_values", Json::object()},
            {"is_single_tensor_return", single}};
}

// Returns a program of w (a parameter), b (a buffer) and x (an argument).
storage::ExportedProgram program(const List& nodes, const std::string& result) {
    const Json signature = {
        {"input_specs",
         {{{"parameter", {{"arg", {{"name", "w"}}}, {"parameter_name", "head.w"}}}},
          {{"buffer",
            {{"arg", {{"name", "b"}}},
             {"buffer_name", "num_batches_tracked"},
             {"persistent", true}}}},
          {{"user_input", {{"arg", tensor("x")}}}}}},
        {"output_specs", {{{"user_output", {{"arg", tensor(result)}}}}}}};
    const Json whole = {
        {"graph_module",
         {{"graph", graph({tensor("w"), tensor("b"), tensor("x")}, nodes, {tensor(result)})},
          {"signature", signature},
          {"module_call_graph", Json::array()}}},
        {"opset_version", Json::object()},
        {"range_constraints", Json::object()},
        {"schema_version", {{"major", 8}, {"minor", 17}}}};
    return storage::parse_exported_program("test", whole.dump());
}

// Returns the program as a module in which w is [1, 2, 3] and b is 0.
torch::jit::Module module_of(const List& nodes, const std::string& result,
                             int* fixed_to_evaluation = nullptr) {
    const auto unit = std::make_shared<torch::jit::CompilationUnit>();
    torch::jit::Module root(c10::QualifiedName("__torch__.Root"), unit);
    torch::jit::Module head(c10::QualifiedName("__torch__.Head"), unit);
    for (torch::jit::Module* module : {&root, &head})
        module->register_attribute("training", c10::BoolType::get(), true);
    head.register_parameter("w", at::arange(1, 4, at::kFloat).set_requires_grad(true), false);
    root.register_module("head", head);
    root.register_buffer("num_batches_tracked", at::zeros({}, at::kLong));
    const ForwardOfProgram forward = forward_of_program(program(nodes, result), root, {});
    root.type()->addMethod(
        unit->create_function(c10::QualifiedName(*root.type()->name(), "forward"), forward.graph));
    if (fixed_to_evaluation != nullptr) *fixed_to_evaluation = forward.fixed_to_evaluation;
    return root;
}

at::Tensor run(const List& nodes, const std::string& result, const at::Tensor& x) {
    return module_of(nodes, result).forward({x}).toTensor();
}

std::string why_refused(const List& nodes, const std::string& result) {
    return test::error_of(ExitCode::kInput, [&] { (void)module_of(nodes, result); });
}

}  // namespace

TEST_CASE("a number in the place of a tensor is the number's own operator") {
    const List nodes = {
        node("torch.ops.aten.add.Tensor",
             {argument("self", tensor("x")), argument("other", integer(2)),
              argument("alpha", integer(3))},
             {tensor("y")}),
        node("torch.ops.aten.mul.Tensor",
             {argument("self", tensor("y")), argument("other", tensor("w"))}, {tensor("z")})};
    // The result keeps x's type. It would also do so with a tensor of int64, but not with one of
    // float64.
    const at::Tensor z = run(nodes, "z", at::ones({3}));
    CHECK(at::equal(z, at::tensor({7.0f, 14.0f, 21.0f})));
    CHECK(z.requires_grad());
}

TEST_CASE("a number in front of a tensor is added, multiplied and subtracted as Python does") {
    const Json third = {{"as_float", 0.25}};
    const auto with = [&](const std::string& target, const List& more) {
        List inputs = {argument("self", third), argument("other", tensor("x"))};
        inputs.insert(inputs.end(), more.begin(), more.end());
        return run({node(target, inputs, {tensor("y")})}, "y", at::full({2}, 4.0f));
    };
    const Json alpha = argument("alpha", {{"as_float", 0.5}});
    CHECK(at::equal(with("torch.ops.aten.add.Tensor", {}), at::full({2}, 4.25f)));
    CHECK(at::equal(with("torch.ops.aten.add.Tensor", {alpha}), at::full({2}, 2.25f)));
    CHECK(at::equal(with("torch.ops.aten.sub.Tensor", {}), at::full({2}, -3.75f)));
    CHECK(at::equal(with("torch.ops.aten.sub.Tensor", {alpha}), at::full({2}, -1.75f)));
    CHECK(at::equal(with("torch.ops.aten.mul.Tensor", {}), at::full({2}, 1.0f)));
}

TEST_CASE("a flag in the place of a number is 0 or 1") {
    const List nodes = {node("torch.ops.aten.masked_fill.Scalar",
                             {argument("self", tensor("x")), argument("mask", tensor("m")),
                              argument("value", {{"as_bool", true}})},
                             {tensor("y")})};
    List all = {node("torch.ops.aten.gt.Scalar",
                     {argument("self", tensor("x")), argument("other", integer(2))},
                     {tensor("m")})};
    all.insert(all.end(), nodes.begin(), nodes.end());
    CHECK(at::equal(run(all, "y", at::tensor({1.0f, 5.0f})), at::tensor({1.0f, 1.0f})));
}

TEST_CASE("the experts of transformers are products of each expert's rows") {
    constexpr const char* kTarget = "torch.ops.transformers.grouped_mm_fallback.default";
    torch::jit::CompilationUnit unit;
    torch::jit::Function* const known = function_of_python_operator(unit, kTarget);
    REQUIRE(known != nullptr);
    CHECK(function_of_python_operator(unit, kTarget) == known);
    CHECK(function_of_python_operator(unit, "torch.ops.transformers.other.default") == nullptr);
    // A graph that calls the function, and the same graph with the operator in its place.
    auto called = std::make_shared<torch::jit::Graph>();
    const std::vector<torch::jit::Value*> arguments = {called->addInput(), called->addInput(),
                                                       called->addInput()};
    called->registerOutput(called->insertFunctionCall(
        known, torch::jit::MatchedSchema{arguments, {at::TensorType::get()}, {}, "grouped_mm"}));
    auto replaced = called->copy();
    replace_python_calls(*replaced);
    CHECK(replaced->outputs()[0]->node()->kind().toQualString() ==
          std::string("dslaunch::grouped_mm"));

    for (const auto& graph : {called, replaced}) {
        torch::jit::GraphFunction function("experts", graph, nullptr);
        const at::Tensor x = at::arange(1, 5, at::kFloat).view({4, 1}).set_requires_grad(true);
        const at::Tensor w =
            at::tensor({1.0f, 10.0f, 100.0f}).view({3, 1, 1}).set_requires_grad(true);
        // Two rows of the first expert, no row of the second, one of the third, and one of no
        // expert.
        const at::Tensor ends = at::tensor({2, 2, 3}, at::kInt);
        const at::Tensor y = function({x, w, ends}).toTensor();
        CHECK(at::equal(y.flatten(), at::tensor({1.0f, 2.0f, 300.0f, 0.0f})));
        y.sum().backward();
        CHECK(at::equal(w.grad().flatten(), at::tensor({3.0f, 0.0f, 3.0f})));
        CHECK(at::equal(x.grad().flatten(), at::tensor({1.0f, 1.0f, 100.0f, 0.0f})));
        const at::Tensor none =
            function({x.detach().slice(0, 0, 0), w, at::zeros({3}, at::kLong)}).toTensor();
        CHECK(none.sizes() == at::IntArrayRef({0, 1}));
    }
    CHECK_THAT(why_refused({node(kTarget, {argument("input", tensor("x"))}, {tensor("y")})}, "y"),
               Contains("it has 1 arguments, but 3 are expected"));
}

TEST_CASE("defaults that the program leaves out, sizes and arithmetic on them are there") {
    const List nodes = {
        node("torch.ops.aten.sym_size.int",
             {argument("self", tensor("x")), argument("dim", integer(0))}, {size_named("s0")}),
        node("_operator.floordiv", {argument("", size_named("s0")), argument("", integer(2))},
             {size_named("half")}),
        node("torch.ops.aten.view.default",
             {argument("self", tensor("x")),
              argument("size", {{"as_sym_ints",
                                 {{{"as_name", "half"}}, {{"as_int", 2}}, {{"as_int", 3}}}}})},
             {tensor("v")}),
        node("torch.ops.aten.sum.dim_IntList",
             {argument("self", tensor("v")), argument("dim", {{"as_ints", {1}}})}, {tensor("s")})};
    for (const int64_t rows : {2, 4, 10}) {
        const at::Tensor sums = run(nodes, "s", at::ones({rows, 3}));
        CHECK(at::equal(sums, at::full({rows / 2, 3}, 2.0)));
    }
}

TEST_CASE(
    "an operator of several tensors gives each its name, and a list of tensors may hold None") {
    const List nodes = {
        node("torch.ops.aten.max.dim", {argument("self", tensor("x")), argument("dim", integer(1))},
             {tensor("values"), tensor("indices")}),
        node("torch.ops.aten.index.Tensor",
             {argument("self", tensor("x")),
              argument("indices",
                       {{"as_optional_tensors", {{{"as_none", true}}, tensor("indices")}}})},
             {tensor("picked")}),
        node("torch.ops.aten.split.Tensor",
             {argument("self", tensor("picked")), argument("split_size", integer(1))},
             {{{"as_tensors", {{{"name", "first"}}, {{"name", "second"}}}}}})};
    const at::Tensor x = at::tensor({1.0f, 9.0f, 2.0f, 8.0f, 3.0f, 4.0f}).view({2, 3});
    CHECK(at::equal(run(nodes, "second", x), at::tensor({3.0f, 8.0f}).view({1, 2})));
}

TEST_CASE("dropout, its probability in attention and the count of batches follow the mode") {
    const List nodes = {
        node("torch.ops.aten.add_.Tensor",
             {argument("self", tensor("b")), argument("other", integer(1))}, {tensor("add_")}),
        node("torch.ops.aten.dropout.default",
             {argument("input", tensor("x")), argument("p", {{"as_float", 0.5}}),
              argument("train", {{"as_bool", true}})},
             {tensor("d")}),
        node("torch.ops.aten.scaled_dot_product_attention.default",
             {argument("query", tensor("d")), argument("key", tensor("d")),
              argument("value", tensor("d")), argument("dropout_p", {{"as_float", 0.9}})},
             {tensor("y")})};
    torch::jit::Module module = module_of(nodes, "y");
    const at::Tensor x = at::ones({1, 1, 8, 4});
    module.train(true);
    CHECK_FALSE(at::equal(module.forward({x}).toTensor(), x));
    CHECK(module.attr("num_batches_tracked").toTensor().item<int64_t>() == 1);
    module.eval();
    CHECK(at::allclose(module.forward({x}).toTensor(), x));
    CHECK(module.attr("num_batches_tracked").toTensor().item<int64_t>() == 1);

    // The mode is decided when the graph is lowered: no branch is left.
    Model model = Model::adopt(module);
    for (const bool training : {true, false}) {
        LowerOptions options;
        options.trains = training;
        const LoweredGraph lowered = lower(model, options);
        for (const torch::jit::Node* left : lowered.graph->nodes())
            CHECK(left->kind() != c10::prim::If);
    }
}

TEST_CASE("dropout that was exported in evaluation stays off and is counted") {
    const List nodes = {node("torch.ops.aten.dropout.default",
                             {argument("input", tensor("x")), argument("p", {{"as_float", 0.5}}),
                              argument("train", {{"as_bool", false}})},
                             {tensor("d")})};
    int fixed = 0;
    torch::jit::Module module = module_of(nodes, "d", &fixed);
    CHECK(fixed == 1);
    module.train(true);
    CHECK(at::equal(module.forward({at::ones({64})}).toTensor(), at::ones({64})));
}

TEST_CASE("a graph without gradients gives values that want none") {
    const Json inner = graph(
        {tensor("a")},
        {node("torch.ops.aten.mul.Tensor",
              {argument("self", tensor("a")), argument("other", tensor("a"))}, {tensor("square")})},
        {tensor("square")}, true);
    const List nodes = {
        node("torch.ops.higher_order.wrap_with_set_grad_enabled",
             {argument("", {{"as_bool", false}}),
              argument("", {{"as_graph", {{"name", "inner"}, {"graph", inner}}}}),
              argument("", tensor("w"))},
             {tensor("still")}),
        node("torch.ops.aten.mul.Tensor",
             {argument("self", tensor("still")), argument("other", tensor("w"))}, {tensor("y")})};
    torch::jit::Module module = module_of(nodes, "y");
    module.forward({at::ones({1})}).toTensor().sum().backward();
    const at::Tensor w = module.attr("head").toModule().attr("w").toTensor();
    CHECK(at::equal(w.grad(), at::tensor({1.0f, 4.0f, 9.0f})));  // w², not 3 w²
}

TEST_CASE("a branch on data takes the side that the data choose") {
    const auto side = [](const char* target) {
        return graph({tensor("a")},
                     {node(target, {argument("self", tensor("a")), argument("other", integer(10))},
                           {tensor("r")})},
                     {tensor("r")}, true);
    };
    const List nodes = {
        node("torch.ops.aten.sum.default", {argument("self", tensor("x"))}, {tensor("s")}),
        node("torch.ops.aten.gt.Scalar",
             {argument("self", tensor("s")), argument("other", integer(0))}, {tensor("p")}),
        node("torch.ops.higher_order.cond",
             {argument("", tensor("p")),
              argument("", {{"as_graph",
                             {{"name", "yes"}, {"graph", side("torch.ops.aten.add.Tensor")}}}}),
              argument("", {{"as_graph",
                             {{"name", "no"}, {"graph", side("torch.ops.aten.mul.Tensor")}}}}),
              argument("", {{"as_tensors", {{{"name", "w"}}}}})},
             {{{"as_tensors", {{{"name", "y"}}}}}})};
    CHECK(at::equal(run(nodes, "y", at::ones({1})), at::tensor({11.0f, 12.0f, 13.0f})));
    CHECK(at::equal(run(nodes, "y", -at::ones({1})), at::tensor({10.0f, 20.0f, 30.0f})));
}

TEST_CASE("what cannot run is refused with its module and its line") {
    const std::string place = " in head (net.py:7): ";
    CHECK_THAT(why_refused({node("torch.ops.mylib.flash.default", {argument("x", tensor("x"))},
                                 {tensor("y")})},
                           "y"),
               Contains("torch.ops.mylib.flash.default" + place + "LibTorch has no such operator"));
    CHECK_THAT(
        why_refused({node("math.gamma", {argument("", integer(1))}, {size_named("y")})}, "x"),
        Contains(place + "it is a Python function"));
    CHECK_THAT(why_refused({node("torch.ops.aten.relu.default",
                                 {argument("self", tensor("x")), argument("new", integer(1))},
                                 {tensor("y")})},
                           "y"),
               Contains(place + "its argument `new` does not exist"));
    CHECK_THAT(why_refused({node("torch.ops.higher_order.while_loop", List{}, {tensor("y")})}, "y"),
               Contains(place + "this kind of control flow"));
    CHECK_THAT(why_refused({node("torch.ops.aten.relu.default", {argument("self", tensor("no"))},
                                 {tensor("y")})},
                           "y"),
               Contains("`no` is used before any node computes it"));
    CHECK_THAT(why_refused({node("torch.ops.aten.relu.default", List{}, {tensor("y")})}, "y"),
               Contains(place + "its argument `self` is missing"));
}

TEST_CASE("tensors of an exported archive lie in its mapping, tied ones once") {
    const std::string path = test::fixture_archive("exported-llama");
    const LoadedArchive loaded = load_exported(path);
    REQUIRE(loaded.files.size() == 1);
    const std::span<const std::byte> file = loaded.files[0]->bytes();
    for (const auto& parameter : loaded.module.named_parameters()) {
        INFO(parameter.name);
        const auto* begin = static_cast<const std::byte*>(parameter.value.storage().data());
        CHECK((begin >= file.data() && begin < file.data() + file.size()));
    }
    const Model model = Model::load(path);
    const auto tied = std::ranges::find_if(
        model.parameters(), [](const ModelParameter& p) { return !p.aliases.empty(); });
    REQUIRE(tied != model.parameters().end());
    CHECK(tied->name == "model.model.embed_tokens.weight");
    CHECK(tied->aliases == std::vector<std::string>{"model.lm_head.weight"});
}

TEST_CASE("nodes of an exported program name their module and source line") {
    test::Fixture fixture = test::Fixture::load("exported-llama");
    const LoweredGraph lowered = lower(fixture.model, fixture.options);
    bool found = false;
    for (const torch::jit::Node* one : lowered.graph->nodes())
        found = found || (module_path(*one) == "model.model.layers.1.mlp.gate_proj" &&
                          describe_node(*one).find(" (linear.py:") != std::string::npos);
    CHECK(found);
}

TEST_CASE("a damaged exported archive is refused by name") {
    const test::TemporaryFolder folder;
    const std::string path = folder.path() + "/bad.pt2";
    const auto refuses = [&](const std::string& content) {
        test::write_file(path, content);
        return test::error_of(ExitCode::kInput, [&] { (void)Model::load(path); });
    };
    const std::string whole = test::content_of(test::fixture_archive("exported-convnet"));
    CHECK_THAT(refuses(whole.substr(0, whole.size() / 2)), Contains(path));
    std::string other = whole;
    const size_t at = other.find("\"major\": 8");
    REQUIRE(at != std::string::npos);
    other[at + 9] = '7';
    CHECK_THAT(refuses(other), Contains(path) && Contains("schema 7."));
}

}  // namespace dslaunch::graph
