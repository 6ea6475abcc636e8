// Names that the text of a scripted module may use besides TorchScript's own.
#pragma once

#include <torch/csrc/jit/frontend/resolver.h>
#include <torch/csrc/jit/frontend/sugared_value.h>

#include <map>
#include <memory>
#include <string>
#include <utility>

namespace dslaunch::test {

class ScriptNames : public torch::jit::Resolver {
  public:
    using Names = std::map<std::string, std::shared_ptr<torch::jit::SugaredValue>>;
    explicit ScriptNames(Names names) : names_(std::move(names)) {}

    std::shared_ptr<torch::jit::SugaredValue> resolveValue(
        const std::string& name, torch::jit::GraphFunction& function,
        const torch::jit::SourceRange& place) override {
        const auto found = names_.find(name);
        return found != names_.end()
                   ? found->second
                   : torch::jit::nativeResolver()->resolveValue(name, function, place);
    }

  private:
    Names names_;
};

}  // namespace dslaunch::test
