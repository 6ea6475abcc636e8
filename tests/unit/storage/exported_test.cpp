// Programs of torch.export as text. Valid ones are read, others are refused with the place of their
// fault.
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "storage/exported/program.h"
#include "support/catch.h"
#include "support/text_tools.h"

namespace dslaunch::storage {
namespace {

using Json = nlohmann::json;
using Catch::Contains;

Json tensor_meta(std::vector<int64_t> sizes, std::vector<int64_t> strides) {
    Json meta = {{"dtype", 7},
                 {"requires_grad", true},
                 {"device", {{"type", "cpu"}, {"index", nullptr}}},
                 {"storage_offset", {{"as_int", 0}}},
                 {"layout", 7},
                 {"sizes", Json::array()},
                 {"strides", Json::array()}};
    for (const int64_t size : sizes) meta["sizes"].push_back({{"as_int", size}});
    for (const int64_t stride : strides) meta["strides"].push_back({{"as_int", stride}});
    return meta;
}

Json tensor(const std::string& name) {
    return {{"as_tensor", {{"name", name}}}};
}

// Returns the program forward(x): return {"loss": w * x}
Json program() {
    const Json node = {
        {"target", "torch.ops.aten.mul.Tensor"},
        {"inputs",
         {{{"name", "self"}, {"arg", tensor("w")}, {"kind", 1}},
          {{"name", "other"}, {"arg", tensor("x")}, {"kind", 1}}}},
        {"outputs", {tensor("mul")}},
        {"metadata",
         {{"stack_trace", "  File \"/home/a/model.py\", line 41, in forward\n    return w * x\n"},
          {"nn_module_stack", "L__self__,,model.Net;L__self___head,head,model.Head"}}}};
    const Json graph = {
        {"inputs", {tensor("w"), tensor("x")}},
        {"outputs", {tensor("mul")}},
        {"nodes", {node}},
        {"tensor_values", {{"w", tensor_meta({3}, {1})}, {"x", tensor_meta({3}, {1})}}},
        {"sym_int_values", Json::object()},
        {"sym_bool_values", Json::object()}};
    const Json signature = {
        {"input_specs",
         {{{"parameter", {{"arg", {{"name", "w"}}}, {"parameter_name", "head.weight"}}}},
          {{"user_input", {{"arg", tensor("x")}}}}}},
        {"output_specs", {{{"user_output", {{"arg", tensor("mul")}}}}}}};
    const Json call = {
        {"fqn", ""},
        {"signature",
         {{"inputs", Json::array()},
          {"outputs", Json::array()},
          {"in_spec", ""},
          {"out_spec", R"([1, {"type": "builtins.dict", "context": "[\"loss\"]", )"
                       R"("children_spec": [{"type": null, "context": null, "children_spec": )"
                       R"([]}]}])"}}}};
    return {{"graph_module",
             {{"graph", graph}, {"signature", signature}, {"module_call_graph", {call}}}},
            {"opset_version", {{"aten", 10}}},
            {"range_constraints", Json::object()},
            {"schema_version", {{"major", 8}, {"minor", 17}}},
            {"torch_version", "2.11.0"}};
}

std::string why_refused(const std::string& text) {
    return test::error_of(ExitCode::kInput,
                          [&] { (void)parse_exported_program("models/model.json", text); });
}
std::string why_refused(const Json& json) {
    return why_refused(json.dump());
}

}  // namespace

TEST_CASE("a program is read with its names, its places in the source and its outputs' keys") {
    const ExportedProgram read = parse_exported_program("p", program().dump());
    REQUIRE(read.graph.nodes.size() == 1);
    const ExportedNode& node = read.graph.nodes[0];
    CHECK(node.target == "torch.ops.aten.mul.Tensor");
    CHECK(node.module_path == "head");
    CHECK(node.source == "model.py:41");
    REQUIRE(node.inputs.size() == 2);
    CHECK(std::get<TensorName>(node.inputs[0].value).name == "w");
    REQUIRE(read.inputs.size() == 2);
    CHECK(read.inputs[0].kind == ExportedInput::Kind::kParameter);
    CHECK(read.inputs[0].target == "head.weight");
    CHECK(read.inputs[1].kind == ExportedInput::Kind::kUser);
    CHECK(read.inputs[1].sizes == std::vector<int64_t>{3});
    Json dynamic = program();
    dynamic["graph_module"]["graph"]["tensor_values"]["x"]["sizes"] = {
        {{"as_expr", {{"expr_str", "s0"}}}}};
    CHECK(parse_exported_program("p", dynamic.dump()).inputs[1].sizes == std::vector<int64_t>{-1});
    REQUIRE(read.outputs.size() == 1);
    CHECK(read.is_dict);
    CHECK(read.outputs[0].key == "loss");
    CHECK(read.schema == "8.17");
}

TEST_CASE("a newer minor version is read as long as its fields are known") {
    Json newer = program();
    newer["schema_version"]["minor"] = 99;
    CHECK(parse_exported_program("p", newer.dump()).schema == "8.99");
    newer["graph_module"]["graph"]["nodes"][0]["fused"] = true;
    CHECK_THAT(why_refused(newer),
               Contains("models/model.json: graph_module.graph."
                        "nodes[0]: this version does not support the field `fused`"));
}

TEST_CASE("what a program may not be is refused by its place") {
    Json damaged = program();
    SECTION("another major version") {
        damaged["schema_version"]["major"] = 9;
        CHECK_THAT(why_refused(damaged), Contains("schema_version") && Contains("supports 8.x"));
    }
    SECTION("an unknown kind of value") {
        damaged["graph_module"]["graph"]["nodes"][0]["inputs"][1]["arg"] = {{"as_magic", 1}};
        CHECK_THAT(why_refused(damaged),
                   Contains("nodes[0].inputs[1].arg") && Contains("as_magic"));
    }
    SECTION("two kinds at once") {
        damaged["graph_module"]["graph"]["nodes"][0]["inputs"][1]["arg"]["as_int"] = 1;
        CHECK_THAT(why_refused(damaged), Contains("an object with one field"));
    }
    SECTION("a parameter that forward writes") {
        damaged["graph_module"]["signature"]["output_specs"].push_back(
            {{"parameter_mutation",
              {{"arg", {{"name", "mul"}}}, {"parameter_name", "head.weight"}}}});
        CHECK_THAT(why_refused(damaged),
                   Contains("forward writes to the parameter `head.weight`") &&
                       Contains("without run_decompositions()"));
    }
    SECTION("inputs without a meaning") {
        damaged["graph_module"]["signature"]["input_specs"].erase(0);
        CHECK_THAT(why_refused(damaged),
                   Contains("the signature has 1 inputs, but the graph has 2"));
    }
    SECTION("a missing field") {
        damaged["graph_module"]["graph"].erase("nodes");
        CHECK_THAT(why_refused(damaged), Contains("the field `nodes` is missing"));
    }
}

TEST_CASE("a key twice, a nest without an end and no JSON are refused") {
    CHECK_THAT(why_refused(std::string(R"({"a": 1, "a": 2})")), Contains("the key `a` twice"));
    CHECK_THAT(why_refused(std::string(100'000, '[')), Contains("nested too deep"));
    CHECK_THAT(why_refused(std::string("PK\x03\x04")), Contains("not valid JSON"));
}

TEST_CASE("the table of weights tells what of a record each tensor is") {
    Json table = {{"config",
                   {{"head.weight",
                     {{"path_name", "weight_0"},
                      {"is_param", true},
                      {"use_pickle", false},
                      {"tensor_meta", tensor_meta({3, 4}, {1, 3})}}}}}};
    const auto tensors = parse_weights_table("t", table.dump());
    const ExportedTensor& weight = tensors.at("head.weight");
    CHECK(weight.record == "weight_0");
    CHECK(weight.sizes == std::vector<int64_t>{3, 4});
    CHECK(weight.reach == 12);
    CHECK(weight.is_parameter);

    const auto refuses = [&] {
        return test::error_of(ExitCode::kInput,
                              [&] { (void)parse_weights_table("t", table.dump()); });
    };
    Json& entry = table["config"]["head.weight"];
    SECTION("a pickle") {
        entry["use_pickle"] = true;
        CHECK_THAT(refuses(), Contains("stored as a pickle, which is not supported"));
    }
    SECTION("a way out of the folder") {
        entry["path_name"] = "../../etc/passwd";
        CHECK_THAT(refuses(), Contains("not a record's name"));
    }
    SECTION("a shape that overflows") {
        entry["tensor_meta"] = tensor_meta({int64_t{1} << 40, 8}, {int64_t{1} << 40, 1});
        CHECK_THAT(refuses(), Contains("no tensor can have these sizes"));
    }
    SECTION("a negative stride") {
        entry["tensor_meta"] = tensor_meta({3}, {-1});
        CHECK_THAT(refuses(), Contains("must not be negative"));
    }
    SECTION("strides of another number") {
        entry["tensor_meta"] = tensor_meta({3, 4}, {1});
        CHECK_THAT(refuses(), Contains("no tensor can have these sizes"));
    }
}

}  // namespace dslaunch::storage
