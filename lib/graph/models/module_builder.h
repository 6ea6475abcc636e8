// Builds TorchScript modules from the text of classes and from weights, without Python: a
// .torchscript file gives each class its methods, and the caller gives each object its weights,
// children and constants. One thread.
#pragma once

#include <torch/csrc/jit/api/module.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "graph/nodes/names.h"

namespace dslaunch::graph {

// The embedded texts of gpt.torchscript, mlp.torchscript and transformer.torchscript.
extern const char* const kGptSource;
extern const char* const kMlpSource;
extern const char* const kTransformerSource;

// The parts of one object. The names are the attributes that the class text uses.
struct ModuleParts {
    std::vector<std::pair<std::string, at::Tensor>> parameters = {};
    std::vector<std::pair<std::string, Module>> children = {};
    // Constants of the class: integers, floats, switches, lists of floats.
    std::vector<std::pair<std::string, IValue>> constants = {};
};

// Returns the body of each `class NAME:` in SOURCE, with one level of indentation removed. Replaces
// `$NAME` by the name in NAMES. Drops comments and lines with only `pass`.
[[nodiscard]] std::map<std::string, std::string> class_bodies(
    std::string_view source, const std::map<std::string, std::string>& names);

// Returns BODY with its loops over children written out. A loop `for x in self.LIST:` or `for i, x
// in enumerate(self.LIST):` is replaced by its indented lines, once for each child of LIST ("0",
// "1", …). CHILDREN_TOTAL: the number of children, by LIST.
[[nodiscard]] std::string with_loops_written_out(
    const std::string& body, const std::map<std::string, int64_t>& children_total);

// A builder of objects, whose classes are in one source text. Objects of one class share one type
// if their parts have the same names, types and constants, so equal layers share one graph.
class ModuleBuilder {
  public:
    // PACKAGE becomes part of the type names: __torch__.dslaunch.PACKAGE.CLASS. NAMES: the
    // replacement for each `$NAME`.
    ModuleBuilder(std::string_view source, std::string package,
                  const std::map<std::string, std::string>& names);

    // Returns a new object of CLASS_NAME. The methods are compiled with the first object of a type.
    // Loops over children are written out for the children in PARTS. REQUIRES: the source contains
    // the class.
    [[nodiscard]] Module make(const std::string& class_name, const ModuleParts& parts);

  private:
    std::string package_;
    std::map<std::string, std::string> bodies_;
    std::map<std::string, c10::ClassTypePtr> types_;  // by class and parts
    std::map<std::string, int> types_of_class_;
    // Shared with every object: TorchScript objects keep their compilation unit alive.
    std::shared_ptr<CompilationUnit> unit_;
};

}  // namespace dslaunch::graph
