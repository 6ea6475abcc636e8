#include "decoder/decode/layer_mlp.h"

#include <algorithm>
#include <cmath>

namespace dslaunch::decoder {

using storage::ActivationKind;

namespace {

// kernels::Gate lists the activations in the same order.
static_assert(static_cast<int>(ActivationKind::kReluSquared) ==
              static_cast<int>(kernels::Gate::kReluSquared));

}  // namespace

void LayerMlp::run(const LayerWeights& layer, const float* x, int64_t rows, float* out) {
    if (!layer.experts.empty()) return experts(layer, x, rows, out);
    dense(layer.mlp, x, rows, out);
}

void LayerMlp::dense(const MlpWeights& mlp, const float* x, int64_t rows, float* out) {
    const int64_t width = outputs_of(mlp.up);
    grow(gate_, rows * width);
    grow(up_, rows * width);
    const bool gated = !is_empty(mlp.gate);
    const auto activate = math_.kernels().gate[static_cast<size_t>(config_.activation)];
    const RowMath::Use uses[] = {{&mlp.up, up_.data()}, {&mlp.gate, gate_.data()}};
    math_.multiply({uses, gated ? 2U : 1U}, x, config_.width, rows);
    math_.for_rows(rows, [&](int64_t row) {
        float* up = up_.data() + row * width;
        activate(gated ? gate_.data() + row * width : up, gated ? up : nullptr, up, width);
    });
    const RowMath::Use down{&mlp.down, out};
    math_.multiply({&down, 1}, up_.data(), width, rows);
}

// Runs each expert on the rows that selected it, and adds the outputs, weighted by the router.
void LayerMlp::experts(const LayerWeights& layer, const float* x, int64_t rows, float* out) {
    const int64_t width = config_.width, count = config_.experts;
    std::vector<float> shares(static_cast<size_t>(rows * count));
    const RowMath::Use router{&layer.router, shares.data()};
    math_.multiply({&router, 1}, x, width, rows);
    struct Choice {
        int64_t row = 0;
        float weight = 0;
    };
    std::vector<std::vector<Choice>> chosen(static_cast<size_t>(count));
    std::vector<int64_t> order(static_cast<size_t>(count));
    for (int64_t row = 0; row < rows; ++row) {
        float* share = shares.data() + row * count;
        math_.kernels().softmax(share, count, share);
        for (int64_t e = 0; e < count; ++e) order[e] = e;
        const auto best = order.begin() + config_.experts_chosen;
        std::partial_sort(order.begin(), best, order.end(), [&](int64_t a, int64_t b) {
            return share[a] > share[b] || (share[a] == share[b] && a < b);
        });
        float sum = 0;
        for (auto e = order.begin(); e != best; ++e) sum += share[*e];
        for (auto e = order.begin(); e != best; ++e)
            chosen[*e].push_back(
                {row, config_.expert_weights_sum_to_one ? share[*e] / sum : share[*e]});
    }
    std::fill_n(out, rows * width, 0.0F);
    std::vector<float> from, to;
    for (size_t e = 0; e < chosen.size(); ++e) {
        const std::vector<Choice>& own = chosen[e];
        if (own.empty()) continue;
        const int64_t own_rows = std::ssize(own);
        grow(from, own_rows * width);
        grow(to, own_rows * width);
        for (int64_t i = 0; i < own_rows; ++i)
            std::copy_n(x + own[i].row * width, width, from.data() + i * width);
        dense(layer.experts[e], from.data(), own_rows, to.data());
        for (int64_t i = 0; i < own_rows; ++i) {
            float* sum = out + own[i].row * width;
            for (int64_t k = 0; k < width; ++k) sum[k] += own[i].weight * to[i * width + k];
        }
    }
    if (config_.shared_expert_width > 0) add_shared_expert(layer, x, rows, out);
}

// Adds the output of the shared expert to every row. If the expert has a gate, multiplies the
// output by the sigmoid of the gate.
void LayerMlp::add_shared_expert(const LayerWeights& layer, const float* x, int64_t rows,
                                 float* out) {
    const int64_t width = config_.width;
    std::vector<float> factors(static_cast<size_t>(rows), 1.0F);
    if (!is_empty(layer.shared_expert_gate)) {
        const RowMath::Use gate{&layer.shared_expert_gate, factors.data()};
        math_.multiply({&gate, 1}, x, width, rows);
        for (float& factor : factors) factor = 1.0F / (1.0F + std::exp(-factor));
    }
    std::vector<float> made(static_cast<size_t>(rows * width));
    dense(layer.shared_expert, x, rows, made.data());
    for (int64_t i = 0; i < rows * width; ++i) out[i] += factors[i / width] * made[i];
}

}  // namespace dslaunch::decoder
