// The names of an exported program, and the values that they stand for in the graph that is made of
// it. Part of forward_of_program.cpp. One thread.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/jit/ir/ir.h>

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "graph/archive/program_places.h"
#include "graph/nodes/names.h"
#include "storage/exported/program.h"

namespace dslaunch::graph {

// A map from names in the exported program to values of the graph. New nodes are added at the
// graph's insert point. Throws Error{kInput} for a name that is not in the map.
class ProgramNames {
  public:
    using ByName = std::map<std::string, Value*>;

    // SELF: the graph's input for the module. PLACES names the node in messages. GRAPH and PLACES
    // must outlive this.
    ProgramNames(Graph& graph, Value* self, const ProgramPlaces& places)
        : graph_(graph), self_(self), places_(places) {}

    // Adds the inputs of PROGRAM: its arguments as inputs of the graph, its parameters and buffers
    // as attributes of the module, and CONSTANTS, by name, as constants.
    void add_inputs(const storage::ExportedProgram& program,
                    const std::map<std::string, at::Tensor>& constants);

    // Returns the value with this NAME.
    [[nodiscard]] Value* find(const std::string& name) const;
    // Returns a new constant.
    [[nodiscard]] Value* constant(const IValue& value);
    // Returns VALUE as an operator's argument. If OPTIONAL is true, a list of tensors may contain
    // None.
    [[nodiscard]] Value* materialize(const storage::ExportedValue& value, bool optional = false);
    // Returns the arguments that NODE passes to the graph it calls: NODE's inputs from FIRST on.
    // Lists are unpacked.
    [[nodiscard]] std::vector<Value*> operands(const storage::ExportedNode& node, size_t first);

    // Gives VALUE the name NAME, in place of any earlier value.
    void set(const std::string& name, Value* value) { values_[name] = value; }
    // Gives RESULT the name in OUTPUT; if OUTPUT lists names, gives them to RESULT's elements.
    void bind(const storage::ExportedValue& output, Value* result);
    // Names OUTPUTS, the values that NODE's graph returns: each gets the name of NODE's output at
    // its position.
    void bind_all(const storage::ExportedNode& node, const std::vector<Value*>& outputs);

    // Return all names, and restore them. A caller saves the names before it converts a graph
    // inside the graph, and restores them afterwards.
    [[nodiscard]] const ByName& values() const { return values_; }
    void restore(ByName values) { values_ = std::move(values); }

    // Returns the inputs that stand for parameters and buffers: a map from the name of the input to
    // the name in the module.
    [[nodiscard]] const std::map<std::string, std::string>& held() const { return held_; }
    // Returns the name of the input that stands for TARGET, a parameter or buffer of the module;
    // nothing if there is none.
    [[nodiscard]] std::optional<std::string> value_of(const std::string& target) const;

  private:
    void add_argument(const storage::ExportedInput& input);
    Value* none();
    template <typename Symbols>
    Value* list_of_numbers(const Symbols& symbols, const c10::TypePtr& element);
    Value* list_of_tensors(const std::vector<storage::TensorName>& names, bool optional);

    Graph& graph_;
    Value* self_;
    const ProgramPlaces& places_;
    ByName values_;
    std::map<std::string, std::string> held_;
};

}  // namespace dslaunch::graph
