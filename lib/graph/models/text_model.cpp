#include "graph/models/text_model.h"

#include "base/check.h"
#include "base/error.h"
#include "base/text.h"
#include "base/text/torch_reason.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/multinomial.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/runtime/graph_executor.h>

#include <algorithm>

namespace dslaunch::graph {
namespace {

using torch::jit::Module;

std::string logits_method(const Module& module) {
    if (module.find_method("logits")) return "logits";
    const auto forward = module.find_method("forward");
    if (!forward)
        fail(ExitCode::kInput, "the model has neither logits(tokens) nor forward(tokens)");
    const size_t needed = std::ranges::count_if(
        forward->function().getSchema().arguments(),
        [](const c10::Argument& argument) { return !argument.default_value(); });
    if (needed != 2)  // self and the tokens
        fail(ExitCode::kInput,
             "the model's forward takes {} arguments, so it cannot be given tokens alone; to "
             "generate text it needs "
             "a method logits(tokens) -> [batch, length, vocabulary] (@torch.jit.export in Python)",
             needed - 1);
    return "forward";
}

// The longest sequence that the module names; 0: none.
int64_t context_of(const Module& module) {
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

}  // namespace

int64_t draw_token(const at::Tensor& logits, const GenerateOptions& options,
                   at::Generator& generator) {
    DSL_CHECK(logits.dim() == 1 && options.temperature >= 0 && options.top_k >= 0, "draw_token");
    if (options.temperature == 0) return logits.argmax().item<int64_t>();
    const int64_t vocab = logits.size(0);
    const int64_t kept = options.top_k == 0 ? vocab : std::min(options.top_k, vocab);
    const auto [values, tokens] = (logits.to(at::kFloat) / options.temperature).topk(kept);
    const at::Tensor drawn =
        at::multinomial(at::softmax(values, 0), 1, /*replacement=*/false, generator);
    return tokens[drawn.item<int64_t>()].item<int64_t>();
}

TextModel::TextModel(Module module, at::Device device, int64_t context_max)
    : module_(std::move(module)),
      method_(logits_method(module_)),
      device_(device),
      context_(context_max > 0 ? context_max : context_of(module_)) {
    // Each token is a new shape: the profiling executor would compile again and again.
    torch::jit::setGraphExecutorOptimize(false);
    module_.eval();
    module_.to(device_);
    vocab_ = next_logits({0}).size(0);
}

at::Tensor TextModel::next_logits(const std::vector<int64_t>& tokens) {
    const c10::InferenceMode no_gradients;
    const size_t seen =
        context_ > 0 ? std::min(tokens.size(), static_cast<size_t>(context_)) : tokens.size();
    const std::vector<int64_t> window(tokens.end() - static_cast<ptrdiff_t>(seen), tokens.end());
    const at::Tensor input = at::tensor(window, at::kLong).unsqueeze(0).to(device_);
    c10::IValue output;
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

void TextModel::generate(std::vector<int64_t> prompt, const GenerateOptions& options,
                         const std::function<void(int64_t)>& on_token) {
    DSL_CHECK(!prompt.empty(), "an empty prompt");
    for (int64_t token : prompt)
        if (token < 0 || token >= vocab_)
            fail(ExitCode::kInput, "prompt token {} is outside the model's vocabulary of {}", token,
                 vocab_);
    at::Generator generator = at::detail::createCPUGenerator(options.seed);
    for (int64_t made = 0; made < options.tokens; ++made) {
        const int64_t token = draw_token(next_logits(prompt), options, generator);
        prompt.push_back(token);
        on_token(token);
    }
}

std::string byte_token_text(int64_t token) {
    if (token > 255) return fmt::format("<{}>", token);
    const auto byte = static_cast<unsigned char>(token);
    if (byte == '\n' || byte == '\t' || (byte >= 0x20 && byte != 0x7f))
        return std::string(1, static_cast<char>(byte));
    return fmt::format("\\x{:02x}", byte);
}

}  // namespace dslaunch::graph
