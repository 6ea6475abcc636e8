#include "worker/compress/torch_layer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/jit/runtime/graph_executor.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/kinds/half_arrays.h"
#include "graph/models/transformer.h"

namespace dslaunch::worker {
namespace {

class TorchLayer final : public compress::LayerFunction {
  public:
    TorchLayer(const storage::TransformerConfig& config, int64_t layer,
               std::span<const std::string> names, storage::FolderWeights& weights)
        : width_(config.width), weights_(names.size()) {
        module_ = graph::make_transformer_layer(
            config, layer, [&](const std::string& name, at::IntArrayRef sizes) {
                const at::Tensor tensor = fp32_tensor(weights, name, sizes);
                const auto found = std::ranges::find(names, name);
                if (found != names.end())
                    weights_[static_cast<size_t>(found - names.begin())] = tensor;
                return tensor;
            });
        for (const at::Tensor& parameter : module_.parameters()) parameter.set_requires_grad(false);
        for (size_t i = 0; i < names.size(); ++i) {
            DSL_CHECK(weights_[i].defined(), "layer {} has no weight {}", layer, names[i]);
            weights_[i].set_requires_grad(true);
            weights_[i].mutable_grad() = at::zeros_like(weights_[i]);
        }
    }

    std::span<float> weight(size_t index) override { return numbers_of(weights_[index]); }
    std::span<const float> gradient(size_t index) override {
        return numbers_of(weights_[index].grad());
    }
    double difference(const compress::LayerText& text) override {
        const at::NoGradGuard no_gradients;
        return sum_of_squares(text).item<double>();
    }
    double add_gradients(const compress::LayerText& text) override {
        const at::AutoGradMode with_gradients(true);
        const at::Tensor sum = sum_of_squares(text);
        sum.backward();
        return sum.item<double>();
    }
    void clear_gradients() override {
        for (at::Tensor& weight : weights_) weight.mutable_grad().zero_();
    }

  private:
    static at::Tensor fp32_tensor(storage::FolderWeights& weights, const std::string& name,
                                  at::IntArrayRef sizes) {
        const storage::FolderWeight weight = weights.take(name, {sizes.data(), sizes.size()});
        at::Tensor made = at::empty(sizes, at::kFloat);
        to_fp32(weight.entry.bytes.data(), weight.entry.dtype, made.numel(),
                made.mutable_data_ptr<float>());
        return made;
    }

    static std::span<float> numbers_of(const at::Tensor& tensor) {
        return {tensor.mutable_data_ptr<float>(), static_cast<size_t>(tensor.numel())};
    }

    at::Tensor rows_of(std::span<const float> rows, int64_t count) const {
        return at::from_blob(const_cast<float*>(rows.data()), {1, count, width_}, at::kFloat);
    }

    at::Tensor sum_of_squares(const compress::LayerText& text) {
        const at::Tensor made =
            module_.forward({rows_of(text.inputs, text.rows), torch::jit::IValue()}).toTensor();
        return (made - rows_of(text.outputs, text.rows)).square().sum();
    }

    int64_t width_;
    graph::Module module_;
    std::vector<at::Tensor> weights_;  // parameters of the module
};

}  // namespace

compress::MakeLayerFunction torch_layers(const storage::TransformerConfig& config) {
    // Without this, the executor would compile the layer again for each length of a text.
    torch::jit::setGraphExecutorOptimize(false);
    return [&config](int64_t layer, std::span<const std::string> names,
                     storage::FolderWeights& weights) -> std::unique_ptr<compress::LayerFunction> {
        return std::make_unique<TorchLayer>(config, layer, names, weights);
    };
}

}  // namespace dslaunch::worker
