// TorchScript modules from class text plus weights, without Python: the text of a .torchscript file
// gives each class its methods, the caller gives each object its weights, children and constants.
// One thread.
#pragma once

#include <torch/csrc/jit/api/module.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dslaunch::graph {

// The embedded text of gpt.torchscript and mlp.torchscript.
extern const char* const kGptSource;
extern const char* const kMlpSource;

// The parts of one object. The names are the attributes that the class text uses.
struct ModuleParts {
    std::vector<std::pair<std::string, at::Tensor>> parameters;
    std::vector<std::pair<std::string, torch::jit::Module>> children;
    std::vector<std::pair<std::string, c10::IValue>> constants;  // constants of the class, equal in
                                                                 // all its objects
};

// SOURCE cut at its `class NAME:` lines, each body moved left by one level. `for x in self.LIST:`
// and its indented body are written out once for each of the children_total children, which are
// named "0", "1", …; comments and lone `pass` go.
[[nodiscard]] std::map<std::string, std::string> class_bodies(std::string_view source,
                                                              int64_t children_total);

// Objects of the classes of one source text; all objects of a class share one type, so equal layers
// share one graph.
class ModuleBuilder {
  public:
    // PACKAGE becomes part of the type names: __torch__.dslaunch.PACKAGE.CLASS.
    ModuleBuilder(std::string_view source, std::string package, int64_t children_total);

    // A new object of CLASS_NAME; its methods are compiled with the class's first object.
    // REQUIRES: the class is in the source; all objects of a class have the same names and kinds of
    // parts.
    [[nodiscard]] torch::jit::Module make(const std::string& class_name, const ModuleParts& parts);

  private:
    std::string package_;
    std::map<std::string, std::string> bodies_;
    std::map<std::string, c10::ClassTypePtr> types_;
    // Shared with every object made: TorchScript objects keep their compilation unit alive.
    std::shared_ptr<torch::jit::CompilationUnit> unit_;
};

}  // namespace dslaunch::graph
