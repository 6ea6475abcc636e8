#include "graph/models/models.h"

#include "base/error.h"
#include "graph/models/module_builder.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <c10/core/ScalarType.h>
#include <torch/csrc/jit/api/module.h>

#include <cmath>
#include <set>

namespace dslaunch::graph {
namespace {

using torch::jit::Module;

constexpr double kInitStd = 0.02;

// Makes the parts of one GPT; every weight is drawn from one generator, in the order of the calls.
class GptMaker {
  public:
    explicit GptMaker(const GptOptions& options)
        : options_(options),
          builder_(kGptSource, "gpt", {}),
          generator_(at::detail::createCPUGenerator(options.seed)) {}

    Module model() {
        ModuleParts parts;
        parts.children.emplace_back("wte", embedding(options_.vocab));
        parts.children.emplace_back("wpe", embedding(options_.context));
        parts.children.emplace_back("blocks", blocks());
        parts.children.emplace_back("ln_f", layer_norm());
        if (!options_.tie) {
            ModuleParts head;
            head.parameters.emplace_back("weight",
                                         normal(options_.vocab, options_.width, kInitStd));
            parts.children.emplace_back("head", builder_.make("Head", head));
        }
        parts.constants.emplace_back("vocab", options_.vocab);
        parts.constants.emplace_back("context", options_.context);
        if (options_.dropout > 0) parts.constants.emplace_back("dropout", options_.dropout);
        return builder_.make("GPT", parts);
    }

  private:
    Module blocks() {
        ModuleParts parts;
        for (int64_t layer = 0; layer < options_.layers; ++layer)
            parts.children.emplace_back(std::to_string(layer), block());
        return builder_.make("Blocks", parts);
    }

    Module block() {
        const int64_t width = options_.width;
        // 2 * layers branches add to the residual stream, whose variance stays that of one branch.
        const double residual_std =
            kInitStd / std::sqrt(2.0 * static_cast<double>(options_.layers));
        ModuleParts parts;
        parts.children.emplace_back("ln1", layer_norm());
        parts.children.emplace_back("qkv", linear(normal(3 * width, width, kInitStd)));
        parts.children.emplace_back("proj", linear(normal(width, width, residual_std)));
        parts.children.emplace_back("ln2", layer_norm());
        parts.children.emplace_back("fc", linear(normal(4 * width, width, kInitStd)));
        parts.children.emplace_back("out", linear(normal(width, 4 * width, residual_std)));
        parts.constants.emplace_back("heads", options_.heads);
        parts.constants.emplace_back("width", width);
        if (options_.dropout > 0) parts.constants.emplace_back("dropout", options_.dropout);
        return builder_.make("Block", parts);
    }

    Module linear(const at::Tensor& weight) {
        ModuleParts parts;
        parts.parameters.emplace_back("weight", weight);
        parts.parameters.emplace_back("bias", filled(weight.size(0), 0.0));
        return builder_.make("Linear", parts);
    }

    Module layer_norm() {
        ModuleParts parts;
        parts.parameters.emplace_back("weight", filled(options_.width, 1.0));
        parts.parameters.emplace_back("bias", filled(options_.width, 0.0));
        parts.constants.emplace_back("width", options_.width);
        return builder_.make("LayerNorm", parts);
    }

    Module embedding(int64_t rows) {
        ModuleParts parts;
        parts.parameters.emplace_back("weight", normal(rows, options_.width, kInitStd));
        return builder_.make("Embedding", parts);
    }

    at::Tensor normal(int64_t rows, int64_t columns, double std) {
        return at::empty({rows, columns}, at::kFloat)
            .normal_(0.0, std, generator_)
            .set_requires_grad(true);
    }

    static at::Tensor filled(int64_t numel, double value) {
        return at::full({numel}, value, at::kFloat).set_requires_grad(true);
    }

    const GptOptions& options_;
    ModuleBuilder builder_;
    at::Generator generator_;
};

void check(const GptOptions& options) {
    const std::pair<const char*, int64_t> counts[] = {{"--vocab", options.vocab},
                                                      {"--width", options.width},
                                                      {"--heads", options.heads},
                                                      {"--layers", options.layers},
                                                      {"--context", options.context}};
    for (const auto& [name, value] : counts)
        if (value < 1) fail(ExitCode::kUsage, "{} {}: must be at least 1", name, value);
    if (options.width % options.heads != 0)
        fail(ExitCode::kUsage, "--width {} is not a multiple of --heads {}", options.width,
             options.heads);
    if (!(options.dropout >= 0.0 && options.dropout < 1.0))
        fail(ExitCode::kUsage, "--dropout {}: must be at least 0 and below 1", options.dropout);
}

}  // namespace

GptOptions gpt_options(std::string_view size) {
    if (size == "tiny")
        return {.vocab = 512, .width = 128, .heads = 4, .layers = 4, .context = 128};
    if (size == "small")
        return {.vocab = 4096, .width = 512, .heads = 8, .layers = 8, .context = 256};
    if (size == "medium")
        return {.vocab = 16384, .width = 1024, .heads = 16, .layers = 12, .context = 256};
    fail(ExitCode::kUsage, "--size {}: must be tiny, small or medium", size);
}

Module make_gpt(const GptOptions& options) {
    check(options);
    return GptMaker(options).model();
}

int64_t parameters_numel(const Module& module) {
    std::set<const void*> seen;
    int64_t numel = 0;
    for (const at::Tensor& parameter : module.parameters())
        if (seen.insert(parameter.unsafeGetTensorImpl()).second) numel += parameter.numel();
    return numel;
}

}  // namespace dslaunch::graph
