// Ring attention with ranks that are threads, compared with LibTorch's attention of the whole, in
// each type.
#include "graph/sharing/share_attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <c10/core/ScalarType.h>

#include <limits>
#include <mutex>
#include <string>
#include <vector>

#include "graph/sharing/thread_group.h"
#include "support/catch.h"

namespace dslaunch {

using namespace graph;

namespace {

at::Tensor waves(const std::vector<int64_t>& sizes, double phase, at::ScalarType dtype) {
    int64_t numel = 1;
    for (const int64_t size : sizes) numel *= size;
    return (at::arange(numel, at::kDouble) * 1.7 + phase).sin().view(sizes).to(dtype);
}

// Attention of 2 samples, 3 heads of width 16, 24 positions.
struct Case {
    at::Tensor query, key, value, mask;
    bool causal = false;

    static Case of(at::ScalarType dtype, int64_t value_width = 16) {
        return {waves({2, 3, 24, 16}, 1, dtype),
                waves({2, 3, 24, 16}, 2, dtype),
                waves({2, 3, 24, value_width}, 3, dtype),
                {}};
    }
};

// Returns the attention, and the gradients of query, key and value for one gradient of the
// attention.
std::vector<at::Tensor> whole_of(const Case& made) {
    std::vector<at::Tensor> inputs;
    for (const at::Tensor* x : {&made.query, &made.key, &made.value})
        inputs.push_back(x->detach().clone().requires_grad_());
    const at::Tensor out = at::scaled_dot_product_attention(
        inputs[0], inputs[1], inputs[2],
        made.mask.defined() ? std::optional(made.mask) : std::nullopt, 0, made.causal);
    out.backward(waves(out.sizes().vec(), 4, out.scalar_type()));
    return {out.detach(), inputs[0].grad(), inputs[1].grad(), inputs[2].grad()};
}

std::vector<at::Tensor> ring_of(const Case& made, int size) {
    std::vector<std::vector<at::Tensor>> by_rank(static_cast<size_t>(size));
    run_tensor_ranks(size, [&](TensorGroup& group) {
        const int64_t rows = made.query.size(2) / size, first = group.rank() * rows;
        std::vector<at::Tensor> inputs;
        for (const at::Tensor* x : {&made.query, &made.key, &made.value})
            inputs.push_back(x->narrow(2, first, rows).clone().requires_grad_());
        AttentionOperands operands{inputs[0], inputs[1], inputs[2], made.mask};
        if (made.mask.defined() && made.mask.size(-2) > 1)
            operands.mask = made.mask.narrow(-2, first, rows);
        AttentionOptions options;
        options.is_causal = made.causal;
        const at::Tensor out = ring_attention(operands, options, group, 0);
        const at::Tensor gradient =
            waves({2, 3, made.query.size(2), made.value.size(3)}, 4, out.scalar_type());
        out.backward(gradient.narrow(2, first, rows));
        by_rank[group.rank()] = {out.detach(), inputs[0].grad(), inputs[1].grad(),
                                 inputs[2].grad()};
    });
    std::vector<at::Tensor> whole;
    for (size_t i = 0; i < 4; ++i) {
        std::vector<at::Tensor> parts;
        for (const auto& rank : by_rank) parts.push_back(rank[i]);
        whole.push_back(at::cat(parts, 2));
    }
    return whole;
}

double difference(const Case& made, int size) {
    const std::vector<at::Tensor> whole = whole_of(made), ring = ring_of(made, size);
    double most = 0;
    for (size_t i = 0; i < whole.size(); ++i) {
        CHECK(ring[i].scalar_type() == whole[i].scalar_type());
        CHECK(ring[i].isfinite().all().item<bool>());
        most = std::max(
            most, (ring[i].to(at::kDouble) - whole[i].to(at::kDouble)).abs().max().item<double>());
    }
    return most;
}

}  // namespace

TEST_CASE("a ring computes the whole's attention and gradients") {
    // Elements are of the order of 1, so these are a few units of each type's last place.
    const std::vector<std::pair<at::ScalarType, double>> types = {
        {at::kDouble, 1e-14}, {at::kFloat, 4e-6}, {at::kBFloat16, 0.04}, {at::kHalf, 5e-3}};
    for (const auto& [dtype, bound] : types) {
        for (const int size : {1, 2, 3, 8}) {
            for (const bool causal : {false, true}) {
                // For values of width 16 LibTorch's kernel is used, for others the formula.
                for (const int64_t width : {16, 10}) {
                    INFO(c10::toString(dtype) << " on " << size << ", values of " << width);
                    Case made = Case::of(dtype, width);
                    made.causal = causal;
                    CHECK(difference(made, size) < bound);
                }
            }
        }
    }
}

TEST_CASE("a ring with masks that leave queries without keys") {
    for (const int64_t width : {16, 10}) {
        for (const int size : {2, 3}) {
            INFO("on " << size << ", values of " << width);
            Case made = Case::of(at::kFloat, width);
            made.mask = at::ones({24, 24}, at::kBool).tril(-9);
            CHECK(difference(made, size) < 4e-6);
            made.mask = at::ones({2, 1, 1, 24}, at::kBool);
            made.mask.narrow(0, 0, 1).narrow(3, 5, 19).fill_(false);
            CHECK(difference(made, size) < 4e-6);
        }
    }
}

TEST_CASE("a query whose keys all have the lowest number is the mean of all values") {
    // The padding mask that decoders add. With the lowest finite number everywhere, all keys are
    // equal.
    Case made = Case::of(at::kFloat, 10);
    made.mask =
        at::full_like(made.query.select(3, 0).select(1, 0), -std::numeric_limits<float>::max())
            .view({2, 1, 1, 24});
    const std::vector<at::Tensor> ring = ring_of(made, 3);
    const at::Tensor mean = made.value.mean(2, true);
    CHECK((ring[0] - mean).abs().max().item<float>() < 1e-6F);
}

TEST_CASE("a rank of a ring that is elsewhere in the graph is named") {
    CHECK_THROWS_WITH(
        run_tensor_ranks(
            2,
            [&](TensorGroup& group) {
                const at::Tensor x = waves({1, 1, 4, 4}, 1, at::kFloat);
                static_cast<void>(ring_attention({x, x, x, {}}, {}, group, group.rank()));
            }),
        Catch::Contains("at collective"));
}

}  // namespace dslaunch
