#include "graph/models/text_model.h"

#include <ATen/ops/tensor.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>
#include <torch/csrc/jit/runtime/graph_executor.h>

#include <algorithm>

#include "base/check.h"
#include "base/error.h"
#include "base/text.h"
#include "base/text/torch_reason.h"

namespace dslaunch::graph {
namespace {

// Returns how many arguments FORWARD needs in addition to the module itself.
int64_t arguments_needed(const torch::jit::Method& forward) {
    return std::ranges::count_if(
               forward.function().getSchema().arguments(),
               [](const c10::Argument& argument) { return !argument.default_value(); }) -
           1;
}

std::string logits_method(const Module& module) {
    if (module.find_method("logits")) return "logits";
    const auto forward = module.find_method("forward");
    if (!forward)
        fail(ExitCode::kInput, "the model has neither logits(tokens) nor forward(tokens)");
    if (const int64_t needed = arguments_needed(*forward); needed != 1)
        fail(ExitCode::kInput,
             "the model's forward takes {} arguments, so it cannot be called with tokens alone; to "
             "generate text, the model needs a method logits(tokens) -> [batch, length, "
             "vocabulary] (@torch.jit.export in Python)",
             needed);
    return "forward";
}

}  // namespace

int64_t longest_sequence(const Module& module) {
    if (const auto constant = module.type()->findConstant("context"))
        if (constant->isInt()) return constant->toInt();
    if (module.hasattr("context") && module.attr("context").isInt())
        return module.attr("context").toInt();
    for (const auto& parameter : module.named_parameters()) {
        const std::string name = "." + parameter.name;
        for (const char* ending :
             {".wpe.weight", ".position_embeddings.weight", ".embed_positions.weight"})
            if (name.ends_with(ending)) return parameter.value.size(0);
    }
    return 0;
}

bool has_logits_method(const Module& module) {
    if (module.find_method("logits")) return true;
    const auto forward = module.find_method("forward");
    return forward && arguments_needed(*forward) == 1;
}

TextModel::TextModel(Module module, at::Device device, int64_t context_max)
    : module_(std::move(module)),
      method_(logits_method(module_)),
      device_(device),
      context_(context_max > 0 ? context_max : longest_sequence(module_)) {
    // Switches off the profiling executor. It would compile the model again for each token, because
    // each token changes the shape of the text.
    torch::jit::setGraphExecutorOptimize(false);
    module_.eval();
    module_.to(device_);
    vocab_ = next_logits({0}).size(0);
}

at::Tensor TextModel::next_logits(const std::vector<int64_t>& tokens) {
    DSL_CHECK(!tokens.empty(), "an empty text");
    const c10::InferenceMode no_gradients;
    const size_t seen =
        context_ > 0 ? std::min(tokens.size(), static_cast<size_t>(context_)) : tokens.size();
    const std::vector<int64_t> window(tokens.end() - static_cast<ptrdiff_t>(seen), tokens.end());
    const at::Tensor input = at::tensor(window, at::kLong).unsqueeze(0).to(device_);
    IValue output;
    try {
        output = module_.get_method(method_)({input});
    } catch (const std::exception& error) {
        fail(ExitCode::kInput, "the model's {} failed on {} tokens: {}", method_, seen,
             torch_reason(error));
    }
    if (!output.isTensor() || output.toTensor().dim() != 3 ||
        !output.toTensor().is_floating_point())
        fail(ExitCode::kInput,
             "the model's {} does not return logits of shape [batch, length, vocabulary]", method_);
    return output.toTensor()[0][-1].to(at::kCPU, at::kFloat);
}

}  // namespace dslaunch::graph
