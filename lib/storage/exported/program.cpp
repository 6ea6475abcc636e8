#include "storage/exported/program.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "base/text/json_place.h"
#include "storage/scripted/script_tensors.h"

namespace dslaunch::storage {

namespace {

constexpr int64_t kMajor = 8;

std::vector<int64_t> integers(const JsonPlace& list) {
    std::vector<int64_t> values;
    list.for_elements([&](const JsonPlace& element) { values.push_back(element.integer()); });
    return values;
}

TensorName tensor_name(const JsonPlace& place) {
    place.expect_object({"name"});
    return {place.at("name").text()};
}

TensorName optional_tensor(const JsonPlace& place) {
    const auto [kind, value] = place.only();
    if (kind == "as_none") return {};
    if (kind != "as_tensor") place.refuse("expected a tensor or none");
    return tensor_name(value);
}

template <typename T>
SymbolOr<T> symbol_or(const JsonPlace& place, const char* constant,
                      const std::function<T(const JsonPlace&)>& read) {
    const auto [kind, value] = place.only();
    if (kind == "as_name") return {value.text(), T{}};
    if (kind != constant) place.refuse("expected a number or the name of a symbol");
    return {"", read(value)};
}

SymInt sym_int(const JsonPlace& place) {
    return symbol_or<int64_t>(place, "as_int", [](const JsonPlace& v) { return v.integer(); });
}

SymFloat sym_float(const JsonPlace& place) {
    return symbol_or<double>(place, "as_float", [](const JsonPlace& v) { return v.number(); });
}

SymBool sym_bool(const JsonPlace& place) {
    return symbol_or<bool>(place, "as_bool", [](const JsonPlace& v) { return v.boolean(); });
}

template <typename T>
std::vector<T> list_of(const JsonPlace& list, T (*read)(const JsonPlace&)) {
    std::vector<T> values;
    list.for_elements([&](const JsonPlace& element) { values.push_back(read(element)); });
    return values;
}

ExportedGraph graph_of(const JsonPlace& place);

using ReadValue = ExportedValue (*)(const JsonPlace&);

// Returns a table: for each kind of argument in the schema ("as_int"), the function that reads it.
const std::map<std::string_view, ReadValue>& kinds() {
    using Place = const JsonPlace&;
    static const std::map<std::string_view, ReadValue> table = {
        {"as_none", [](Place) -> ExportedValue { return std::monostate{}; }},
        {"as_tensor", [](Place p) -> ExportedValue { return tensor_name(p); }},
        {"as_tensors", [](Place p) -> ExportedValue { return list_of(p, tensor_name); }},
        {"as_optional_tensor", [](Place p) -> ExportedValue { return optional_tensor(p); }},
        {"as_optional_tensors",
         [](Place p) -> ExportedValue { return list_of(p, optional_tensor); }},
        {"as_int", [](Place p) -> ExportedValue { return p.integer(); }},
        {"as_ints", [](Place p) -> ExportedValue { return integers(p); }},
        {"as_float", [](Place p) -> ExportedValue { return p.number(); }},
        {"as_floats",
         [](Place p) -> ExportedValue {
             return list_of<double>(p, [](Place of) { return of.number(); });
         }},
        {"as_bool", [](Place p) -> ExportedValue { return p.boolean(); }},
        {"as_bools",
         [](Place p) -> ExportedValue {
             return list_of<bool>(p, [](Place of) { return of.boolean(); });
         }},
        {"as_string", [](Place p) -> ExportedValue { return p.text(); }},
        {"as_strings",
         [](Place p) -> ExportedValue {
             return list_of<std::string>(p, [](Place of) { return of.text(); });
         }},
        {"as_sym_int", [](Place p) -> ExportedValue { return sym_int(p); }},
        {"as_sym_ints", [](Place p) -> ExportedValue { return list_of(p, sym_int); }},
        {"as_sym_float", [](Place p) -> ExportedValue { return sym_float(p); }},
        {"as_sym_floats", [](Place p) -> ExportedValue { return list_of(p, sym_float); }},
        {"as_sym_bool", [](Place p) -> ExportedValue { return sym_bool(p); }},
        {"as_scalar_type", [](Place p) -> ExportedValue { return ScalarTypeCode{p.integer()}; }},
        {"as_memory_format",
         [](Place p) -> ExportedValue { return MemoryFormatCode{p.integer()}; }},
        {"as_layout", [](Place p) -> ExportedValue { return LayoutCode{p.integer()}; }},
        {"as_device",
         [](Place p) -> ExportedValue {
             p.expect_object({"type", "index"});
             return DeviceName{p.at("type").text()};
         }},
        {"as_graph",
         [](Place p) -> ExportedValue {
             p.expect_object({"name", "graph"});
             return SubGraph{p.at("name").text(),
                             std::make_shared<const ExportedGraph>(graph_of(p.at("graph")))};
         }},
    };
    return table;
}

ExportedValue value_of(const JsonPlace& place) {
    const auto [kind, value] = place.only();
    const auto found = kinds().find(kind);
    if (found == kinds().end())
        place.refuse(fmt::format("values of the kind `{}` cannot be read", printable(kind)));
    return found->second(value);
}

// Stores the path and the class of the module that called NODE, such as "blocks.3.attn". STACK has
// the calls that led to it, the outermost first, each with a key, a path and a class:
// "L__self__,,model.Gpt;L__self___blocks_3_attn,blocks.3.attn,…".
void take_innermost_module(const std::string& stack, ExportedNode& node) {
    const std::string last = stack.substr(stack.rfind(';') + 1);
    const size_t begin = last.find(','), end = last.rfind(',');
    if (begin == std::string::npos || end <= begin) return;
    std::string& path = node.module_path;
    path = last.substr(begin + 1, end - begin - 1);
    for (const std::string_view root : {"L['self'].", "L__self__."})
        if (path.starts_with(root)) path.erase(0, root.size());
    if (path == "L['self']" || path == "L__self__") path.clear();
    node.module_class = last.substr(end + 1);
}

// Returns "model.py:41" for the last `File "/a/model.py", line 41, in forward` of a Python trace.
std::string innermost_line(const std::string& trace) {
    constexpr std::string_view kFile = "File \"", kLine = "\", line ";
    const size_t file = trace.rfind(kFile);
    if (file == std::string::npos) return "";
    const size_t begin = file + kFile.size(), end = trace.find(kLine, begin);
    if (end == std::string::npos) return "";
    const std::string path = trace.substr(begin, end - begin);
    const size_t number = end + kLine.size();
    const size_t digits = trace.find_first_not_of("0123456789", number);
    return path.substr(path.rfind('/') + 1) + ":" + trace.substr(number, digits - number);
}

ExportedNode node_of(const JsonPlace& place) {
    place.expect_object(
        {"target", "inputs", "outputs", "metadata", "is_hop_single_tensor_return", "name"});
    ExportedNode node;
    node.target = place.at("target").text();
    place.at("inputs").for_elements([&](const JsonPlace& input) {
        input.expect_object({"name", "arg", "kind"});
        node.inputs.push_back({input.at("name").text(), value_of(input.at("arg"))});
    });
    place.at("outputs").for_elements(
        [&](const JsonPlace& output) { node.outputs.push_back(value_of(output)); });
    const JsonPlace metadata = place.at("metadata");
    if (metadata.has("nn_module_stack"))
        take_innermost_module(metadata.at("nn_module_stack").text(), node);
    if (metadata.has("stack_trace"))
        node.source = innermost_line(metadata.at("stack_trace").text());
    return node;
}

ExportedGraph graph_of(const JsonPlace& place) {
    place.expect_object({"inputs", "outputs", "nodes", "tensor_values", "sym_int_values",
                         "sym_bool_values", "is_single_tensor_return", "custom_obj_values",
                         "sym_float_values"});
    ExportedGraph graph;
    graph.inputs = list_of(place.at("inputs"), value_of);
    graph.outputs = list_of(place.at("outputs"), value_of);
    graph.nodes = list_of(place.at("nodes"), node_of);
    place.at("tensor_values").for_members([&](const std::string& name, const JsonPlace& meta) {
        graph.tensor_dtypes.emplace(name, meta.at("dtype").integer());
    });
    if (place.has("is_single_tensor_return"))
        graph.has_single_output = place.at("is_single_tensor_return").boolean();
    return graph;
}

// Returns the name of VALUE in the graph; empty for a constant.
std::string name_in_graph(const ExportedValue& value) {
    if (const auto* tensor = std::get_if<TensorName>(&value)) return tensor->name;
    if (const auto* number = std::get_if<SymInt>(&value)) return number->name;
    if (const auto* number = std::get_if<SymFloat>(&value)) return number->name;
    if (const auto* flag = std::get_if<SymBool>(&value)) return flag->name;
    return "";
}

ExportedInput user_input(const JsonPlace& spec) {
    spec.expect_object({"arg"});
    ExportedInput input;
    const ExportedValue value = value_of(spec.at("arg"));
    input.value = name_in_graph(value);
    input.is_tensor = std::holds_alternative<TensorName>(value);
    if (input.value.empty()) input.fixed = value;
    return input;
}

// Returns the sizes of a tensor. META is the tensor's entry in the table of values. The size of a
// dynamic dimension, for example of the batch, is -1.
std::vector<int64_t> sizes_of(const JsonPlace& meta) {
    std::vector<int64_t> sizes;
    meta.at("sizes").for_elements([&](const JsonPlace& size) {
        const auto [kind, extent] = size.only();
        sizes.push_back(kind == "as_int" ? extent.integer() : -1);
    });
    return sizes;
}

ExportedInput held_input(const JsonPlace& spec, ExportedInput::Kind kind, const char* target) {
    ExportedInput input;
    input.kind = kind;
    input.value = tensor_name(spec.at("arg")).name;
    input.target = spec.at(target).text();
    if (spec.has("persistent")) input.is_persistent = spec.at("persistent").boolean();
    return input;
}

ExportedInput constant_input(const JsonPlace& spec) {
    spec.expect_object({"name", "value"});
    ExportedInput input;
    input.is_tensor = false;
    input.value = spec.at("name").text();
    input.fixed = value_of(spec.at("value"));
    return input;
}

ExportedInput input_of(const JsonPlace& place) {
    using Kind = ExportedInput::Kind;
    const auto [kind, spec] = place.only();
    if (kind == "user_input") return user_input(spec);
    if (kind == "parameter") return held_input(spec, Kind::kParameter, "parameter_name");
    if (kind == "buffer") return held_input(spec, Kind::kBuffer, "buffer_name");
    if (kind == "tensor_constant") return held_input(spec, Kind::kConstant, "tensor_constant_name");
    if (kind == "constant_input") return constant_input(spec);
    place.refuse(fmt::format("inputs of the kind `{}` cannot be read", printable(kind)));
}

// A node of a treespec: its number of leaves and the names of its children.
struct Tree {
    int64_t leaves = 1;
    bool is_dict = false;
    std::vector<std::string> keys;  // of a dict, or an object with named parts
    std::vector<Tree> children;
};

Tree tree_of(const JsonPlace& place) {
    place.expect_object({"type", "context", "children_spec"});
    Tree tree;
    if (!place.has("type")) return tree;  // a leaf
    tree.children = list_of(place.at("children_spec"), tree_of);
    tree.leaves = 0;
    for (const Tree& child : tree.children) tree.leaves += child.leaves;
    const std::string& type = place.at("type").text();
    if (type == "builtins.list" || type == "builtins.tuple" || !place.has("context")) return tree;
    // Dicts and classes store their keys as JSON. If the context is not a list of texts, there are
    // no keys.
    const nlohmann::json keys = nlohmann::json::parse(place.at("context").text(), nullptr, false);
    if (!keys.is_array() || keys.size() != tree.children.size()) return tree;
    for (const nlohmann::json& key : keys)
        if (!key.is_string()) return tree;
    tree.is_dict = true;
    tree.keys = keys.get<std::vector<std::string>>();
    return tree;
}

// Returns the tree of forward's outputs. In the list of calls, forward is the call with an empty
// name.
std::optional<Tree> output_tree(const std::string& path, const JsonPlace& module) {
    std::optional<Tree> tree;
    module.at("module_call_graph").for_elements([&](const JsonPlace& call) {
        call.expect_object({"fqn", "signature"});
        if (!call.at("fqn").text().empty() || !call.has("signature")) return;
        const JsonPlace spec = call.at("signature").at("out_spec");
        const JsonPlace::Json json = JsonPlace::parse(path + ": out_spec", spec.text());
        // [version, tree]
        if (!json.is_array() || json.size() != 2) spec.refuse("this is not a treespec");
        const std::string name = path + ": out_spec";
        tree = tree_of(JsonPlace(name, json[1]));
    });
    return tree;
}

// Returns the keys of forward's outputs, one for each leaf.
std::vector<std::string> leaf_keys(const Tree& tree) {
    std::vector<std::string> keys;
    for (size_t child = 0; child < tree.children.size(); ++child) {
        const std::string key = tree.is_dict ? tree.keys[child] : "";
        for (int64_t leaf = 0; leaf < tree.children[child].leaves; ++leaf)
            keys.push_back(tree.children[child].children.empty() || !tree.is_dict
                               ? key
                               : fmt::format("{}.{}", key, leaf));
    }
    return keys;
}

void read_outputs(const std::string& path, const JsonPlace& module, ExportedProgram& program) {
    module.at("signature").at("output_specs").for_elements([&](const JsonPlace& place) {
        const auto [kind, spec] = place.only();
        if (kind == "user_output" || kind == "loss_output") {
            program.outputs.push_back({"", kind == "user_output"
                                               ? value_of(spec.at("arg"))
                                               : ExportedValue(tensor_name(spec.at("arg")))});
        } else if (kind == "buffer_mutation") {
            program.mutated_buffers[spec.at("buffer_name").text()] =
                tensor_name(spec.at("arg")).name;
        } else if (kind == "parameter_mutation") {
            place.refuse(
                fmt::format("forward writes to the parameter `{}`, and after run_decompositions() "
                            "a program no longer records where gradients are off; export the model "
                            "without run_decompositions()",
                            printable(spec.at("parameter_name").text())));
        } else {
            place.refuse(fmt::format("outputs of the kind `{}` cannot be read", printable(kind)));
        }
    });
    const std::optional<Tree> tree = output_tree(path, module);
    if (!tree || tree->leaves != std::ssize(program.outputs)) return;
    program.is_dict = tree->is_dict;
    const std::vector<std::string> keys = leaf_keys(*tree);
    for (size_t i = 0; i < keys.size(); ++i) program.outputs[i].key = keys[i];
}

void check_version(const JsonPlace& root, ExportedProgram& program) {
    const JsonPlace version = root.at("schema_version");
    version.expect_object({"major", "minor"});
    const int64_t major = version.at("major").integer(), minor = version.at("minor").integer();
    program.schema = fmt::format("{}.{}", major, minor);
    if (major != kMajor)
        version.refuse(
            fmt::format("it was exported with schema {}, but this version supports {}.x: export "
                        "the model again with PyTorch 2.9 or newer",
                        program.schema, kMajor));
}

}  // namespace

ExportedProgram parse_exported_program(const std::string& path, std::string_view text) {
    const JsonPlace::Json json = JsonPlace::parse(path, text);
    const JsonPlace root(path, json);
    ExportedProgram program;
    check_version(root, program);
    root.expect_object({"graph_module", "opset_version", "range_constraints", "schema_version",
                        "verifiers", "torch_version", "guards_code"});
    if (root.has("torch_version")) program.torch_version = root.at("torch_version").text();
    const JsonPlace module = root.at("graph_module");
    module.expect_object(
        {"graph", "signature", "module_call_graph", "metadata", "treespec_namedtuple_fields"});
    program.graph = graph_of(module.at("graph"));
    const JsonPlace signature = module.at("signature");
    signature.expect_object({"input_specs", "output_specs"});
    program.inputs = list_of(signature.at("input_specs"), input_of);
    if (program.inputs.size() != program.graph.inputs.size())
        signature.refuse(fmt::format("the signature has {} inputs, but the graph has {}",
                                     program.inputs.size(), program.graph.inputs.size()));
    const JsonPlace values = module.at("graph").at("tensor_values");
    for (ExportedInput& input : program.inputs) {
        if (input.kind != ExportedInput::Kind::kUser || !values.has(input.value.c_str())) continue;
        input.sizes = sizes_of(values.at(input.value.c_str()));
    }
    read_outputs(path, module, program);
    return program;
}

namespace {

int64_t natural(const JsonPlace& place) {
    const auto [kind, value] = place.only();
    if (kind != "as_int") place.refuse("a weight's size must be a number");
    const int64_t number = value.integer();
    if (number < 0) place.refuse("a weight's size must not be negative");
    return number;
}

std::vector<int64_t> naturals(const JsonPlace& list) {
    std::vector<int64_t> numbers;
    list.for_elements([&](const JsonPlace& element) { numbers.push_back(natural(element)); });
    return numbers;
}

ExportedTensor tensor_of(const JsonPlace& entry) {
    entry.expect_object({"path_name", "is_param", "use_pickle", "tensor_meta"});
    if (entry.has("use_pickle") && entry.at("use_pickle").boolean())
        entry.refuse(
            "it is stored as a pickle, which is not supported (a tensor subclass?): convert the "
            "module's parameters and buffers to plain tensors before torch.export");
    ExportedTensor tensor;
    tensor.record = entry.at("path_name").text();
    if (tensor.record.empty() || tensor.record.find('/') != std::string::npos)
        entry.at("path_name").refuse("this is not a record's name");
    tensor.is_parameter = entry.at("is_param").boolean();
    const JsonPlace meta = entry.at("tensor_meta");
    meta.expect_object(
        {"dtype", "sizes", "requires_grad", "device", "strides", "storage_offset", "layout"});
    constexpr int64_t kStrided = 7;  // code in the schema's Layout
    if (meta.at("layout").integer() != kStrided)
        meta.at("layout").refuse("only dense tensors are supported");
    tensor.dtype = meta.at("dtype").integer();
    tensor.requires_grad = meta.at("requires_grad").boolean();
    tensor.sizes = naturals(meta.at("sizes"));
    tensor.strides = naturals(meta.at("strides"));
    tensor.offset = natural(meta.at("storage_offset"));
    const std::optional<TensorExtent> extent =
        tensor_extent(tensor.offset, tensor.sizes, tensor.strides);
    if (!extent) meta.refuse("no tensor can have these sizes, strides and offset");
    tensor.reach = extent->reach;
    tensor.numel = extent->numel;
    return tensor;
}

}  // namespace

std::map<std::string, ExportedTensor> parse_weights_table(const std::string& path,
                                                          std::string_view text) {
    const JsonPlace::Json json = JsonPlace::parse(path, text);
    const JsonPlace root(path, json);
    root.expect_object({"config"});
    std::map<std::string, ExportedTensor> tensors;
    root.at("config").for_members([&](const std::string& name, const JsonPlace& entry) {
        tensors.emplace(name, tensor_of(entry));
    });
    return tensors;
}

}  // namespace dslaunch::storage
