#include "graph/models/models.h"

#include "base/error.h"
#include "graph/models/module_builder.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/ScalarType.h>
#include <torch/csrc/jit/api/module.h>

#include <cmath>

namespace dslaunch::graph {

torch::jit::Module make_mlp(const MlpOptions& options) {
    const std::vector<int64_t>& widths = options.widths;
    if (widths.size() < 2)
        fail(ExitCode::kUsage,
             "--widths needs at least the input's and the output's, as in 1000,1000,10");
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
        parts.parameters.emplace_back("weight", drawn({outputs, inputs}));
        parts.parameters.emplace_back("bias", drawn({outputs}));
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
