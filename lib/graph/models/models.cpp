#include "graph/models/models.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Generator.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <cmath>
#include <set>

#include "base/error.h"
#include "graph/models/module_builder.h"

namespace dslaunch::graph {

namespace {

constexpr double kInitStd = 0.02;

// The maker of one GPT's parts. A single generator draws all weights, in the order of the calls.
class GptMaker {
  public:
    explicit GptMaker(const GptOptions& options)
        : options_(options),
          builder_(kGptSource, "gpt", {}),
          generator_(at::detail::createCPUGenerator(options.seed)) {}

    Module model() {
        ModuleParts parts;
        parts.children = {{"wte", embedding(options_.vocab)},
                          {"wpe", embedding(options_.context)},
                          {"blocks", blocks()},
                          {"ln_f", layer_norm()}};
        if (!options_.is_tied) {
            const at::Tensor weight = normal(options_.vocab, options_.width, kInitStd);
            parts.children.emplace_back(
                "head", builder_.make("Head", {.parameters = {{"weight", weight}}}));
        }
        parts.constants = {{"vocab", options_.vocab}, {"context", options_.context}};
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
        // The residual stream adds up 2 * layers branches. With this factor, the sum has the
        // variance of a single branch.
        const double residual_std =
            kInitStd / std::sqrt(2.0 * static_cast<double>(options_.layers));
        ModuleParts parts;
        parts.children = {{"ln1", layer_norm()},
                          {"qkv", linear(normal(3 * width, width, kInitStd))},
                          {"proj", linear(normal(width, width, residual_std))},
                          {"ln2", layer_norm()},
                          {"fc", linear(normal(4 * width, width, kInitStd))},
                          {"out", linear(normal(width, 4 * width, residual_std))}};
        parts.constants = {{"heads", options_.heads}, {"width", width}};
        if (options_.dropout > 0) parts.constants.emplace_back("dropout", options_.dropout);
        return builder_.make("Block", parts);
    }

    Module linear(const at::Tensor& weight) {
        const at::Tensor bias = filled(weight.size(0), 0.0);
        return builder_.make("Linear", {.parameters = {{"weight", weight}, {"bias", bias}}});
    }

    Module layer_norm() {
        ModuleParts parts;
        parts.parameters = {{"weight", filled(options_.width, 1.0)},
                            {"bias", filled(options_.width, 0.0)}};
        parts.constants = {{"width", options_.width}};
        return builder_.make("LayerNorm", parts);
    }

    Module embedding(int64_t rows) {
        const at::Tensor weight = normal(rows, options_.width, kInitStd);
        return builder_.make("Embedding", {.parameters = {{"weight", weight}}});
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

Module make_mlp(const MlpOptions& options) {
    const std::vector<int64_t>& widths = options.widths;
    if (widths.size() < 2)
        fail(ExitCode::kUsage,
             "--widths needs at least two numbers, the input's and the output's width, such as "
             "1000,1000,10");
    for (int64_t width : widths)
        if (width < 1) fail(ExitCode::kUsage, "--widths {}: must be at least 1", width);

    const size_t hidden_total = widths.size() - 2;
    ModuleBuilder builder(kMlpSource, "mlp", {});
    at::Generator generator = at::detail::createCPUGenerator(options.seed);
    const auto linear = [&](size_t layer) {
        const int64_t inputs = widths[layer], outputs = widths[layer + 1];
        const double bound = 1.0 / std::sqrt(static_cast<double>(inputs));
        const auto drawn = [&](at::IntArrayRef shape) {
            return at::empty(shape, at::kFloat)
                .uniform_(-bound, bound, generator)
                .set_requires_grad(true);
        };
        ModuleParts parts;
        parts.parameters = {{"weight", drawn({outputs, inputs})}, {"bias", drawn({outputs})}};
        return builder.make("Linear", parts);
    };
    ModuleParts hidden;
    for (size_t layer = 0; layer < hidden_total; ++layer)
        hidden.children.emplace_back(std::to_string(layer), linear(layer));
    ModuleParts model;
    model.children.emplace_back("hidden", builder.make("Hidden", hidden));
    model.children.emplace_back("out", linear(hidden_total));
    return builder.make("MLP", model);
}

}  // namespace dslaunch::graph
