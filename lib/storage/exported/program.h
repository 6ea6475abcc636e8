// An exported program (torch.export) as its archive describes it in models/model.json: operators in
// order, their arguments and results, and the meaning of the inputs and outputs. Data path: zip
// record -> [here] -> graph/archive, which makes a module of it. Source: PyTorch's
// torch/_export/serde/schema.py, major version 8. Also reads the tables that say which record
// contains each weight or constant (data/weights/model_weights_config.json,
// data/constants/model_constants_config.json). Pure, no LibTorch.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace dslaunch::storage {

// A number that the graph computes (`name`), or a constant.
template <typename T>
struct SymbolOr {
    std::string name;  // empty if `number` is the value
    T number{};
};
using SymInt = SymbolOr<int64_t>;
using SymFloat = SymbolOr<double>;
using SymBool = SymbolOr<bool>;

// A tensor that the graph computes or gets.
struct TensorName {
    std::string name;  // empty for a None in a list of optional tensors
};

// Codes of enumerations in the schema.
struct ScalarTypeCode {  // torch.dtype
    int64_t code = 0;
};
struct MemoryFormatCode {  // torch.memory_format
    int64_t code = 0;
};
struct LayoutCode {  // torch.layout
    int64_t code = 0;
};
// A torch.device, without its index.
struct DeviceName {
    std::string type;  // "cpu", "cuda"
};
struct ExportedGraph;
// A graph that is an argument of a node: a branch or the body of a loop.
struct SubGraph {
    std::string name;
    std::shared_ptr<const ExportedGraph> graph;  // shared by copies of the argument
};

// None is std::monostate.
using ExportedValue =
    std::variant<std::monostate, TensorName, std::vector<TensorName>, int64_t, std::vector<int64_t>,
                 double, std::vector<double>, bool, std::vector<bool>, std::string,
                 std::vector<std::string>, SymInt, std::vector<SymInt>, SymFloat,
                 std::vector<SymFloat>, SymBool, ScalarTypeCode, MemoryFormatCode, LayoutCode,
                 DeviceName, SubGraph>;

// An argument of an operator.
struct ExportedArgument {
    std::string name;  // the operator's parameter; empty if the argument is positional
    ExportedValue value;
};

// A call of an operator.
struct ExportedNode {
    std::string target;  // "torch.ops.aten.linear.default", "_operator.mul"
    std::vector<ExportedArgument> inputs;
    std::vector<ExportedValue> outputs;
    std::string module_path;   // calling module's path, "blocks.3.attn"; empty at the top
    std::string module_class;  // its class, "torch.nn.modules.linear.Linear"
    std::string source;        // the line of code, "model.py:41"; empty if not known
};

// Calls in the order in which they run.
struct ExportedGraph {
    std::vector<ExportedValue> inputs;
    std::vector<ExportedValue> outputs;
    std::vector<ExportedNode> nodes;
    std::map<std::string, int64_t> tensor_dtypes;  // the code of the type, by the value's name
    bool has_single_output = false;  // a subgraph that returns one tensor, not a list of one
};

// The meaning of one of the graph's inputs.
struct ExportedInput {
    // kUser: an argument of forward().
    enum class Kind { kUser, kParameter, kBuffer, kConstant };
    Kind kind = Kind::kUser;
    std::string value;   // name in the graph
    std::string target;  // name in the module of a parameter, buffer or constant
    bool is_persistent = true;
    // For kUser: true if the value is a tensor. If tracing replaced the argument by a constant,
    // `fixed` is this constant.
    bool is_tensor = true;
    std::optional<ExportedValue> fixed;
    std::vector<int64_t> sizes;  // kUser: sizes at export, -1 if it may differ; empty if unknown
};

// An output of forward().
struct ExportedOutput {
    std::string key;  // in forward's dict or class; empty if positional
    ExportedValue value;
};

// The whole content of a program's record.
struct ExportedProgram {
    ExportedGraph graph;
    std::vector<ExportedInput> inputs;    // in the order of graph.inputs
    std::vector<ExportedOutput> outputs;  // forward's outputs, in order
    bool is_dict = false;                 // forward returns a dict, or an object with named parts
    // The buffers to which the graph assigns new values: the buffer's name in the module, and the
    // new value's name in the graph. Empty unless the graph is functional.
    std::map<std::string, std::string> mutated_buffers;
    std::string torch_version;
    std::string schema;  // "8.17"
};

// Reads TEXT, a program's record in an archive. Throws Error{kInput} that begins with PATH and the
// position in the text, if TEXT is damaged, has another major version, or contains a field or kind
// of value that this reader does not know.
[[nodiscard]] ExportedProgram parse_exported_program(const std::string& path,
                                                     std::string_view text);

// An entry of a table of weights or constants.
struct ExportedTensor {
    std::string record;  // "weight_0", in the table's folder; tied tensors share a record
    bool is_parameter = false;
    bool requires_grad = false;
    int64_t dtype = 0;  // code of the schema's ScalarType
    // Sizes, strides and offset are in elements. The bytes of the record are the tensor's storage.
    std::vector<int64_t> sizes;
    std::vector<int64_t> strides;
    int64_t offset = 0;
    int64_t reach = 0;  // the storage has at least this many elements
    int64_t numel = 0;  // more than in the storage if elements are shared (stride 0)
};

// Reads a table of tensors, by name in the module. Throws Error{kInput} that begins with PATH, if
// TEXT is damaged, if a tensor is stored as a pickle, or if sizes are not numbers, are negative, or
// are too large.
[[nodiscard]] std::map<std::string, ExportedTensor> parse_weights_table(const std::string& path,
                                                                        std::string_view text);

}  // namespace dslaunch::storage
