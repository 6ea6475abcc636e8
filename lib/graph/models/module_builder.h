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

// The embedded text of gpt.torchscript, mlp.torchscript and transformer.torchscript.
extern const char* const kGptSource;
extern const char* const kMlpSource;
extern const char* const kTransformerSource;

// The parts of one object. The names are the attributes that the class text uses.
struct ModuleParts {
    std::vector<std::pair<std::string, at::Tensor>> parameters;
    std::vector<std::pair<std::string, torch::jit::Module>> children;
    // Constants of the class: integers, floats, switches, lists of floats.
    std::vector<std::pair<std::string, c10::IValue>> constants;
};

// What differs between models that share a source text.
struct SourceChoices {
    std::map<std::string, std::string> names;       // what stands for `$NAME`
    std::map<std::string, int64_t> children_total;  // of a list of children, by its name
};

// SOURCE cut at its `class NAME:` lines, each body moved left by one level. `for x in self.LIST:`
// and `for i, x in enumerate(self.LIST):` and their indented bodies are written out once for each
// child of LIST, which are named "0", "1", …; `$NAME` is replaced; comments and lone `pass` go.
[[nodiscard]] std::map<std::string, std::string> class_bodies(std::string_view source,
                                                              const SourceChoices& choices);

// Objects of the classes of one source text. Objects of a class whose parts have the same names,
// types and constants share one type, so equal layers share one graph.
class ModuleBuilder {
  public:
    // PACKAGE becomes part of the type names: __torch__.dslaunch.PACKAGE.CLASS.
    ModuleBuilder(std::string_view source, std::string package, const SourceChoices& choices);

    // A new object of CLASS_NAME; its methods are compiled with the first object of its type.
    // REQUIRES: the class is in the source.
    [[nodiscard]] torch::jit::Module make(const std::string& class_name, const ModuleParts& parts);

  private:
    std::string package_;
    std::map<std::string, std::string> bodies_;
    std::map<std::string, c10::ClassTypePtr> types_;  // by class and parts
    std::map<std::string, int> types_of_class_;
    // Shared with every object made: TorchScript objects keep their compilation unit alive.
    std::shared_ptr<torch::jit::CompilationUnit> unit_;
};

}  // namespace dslaunch::graph
