// Rounding to few bits and masks, compared with DeepSpeed 0.19.6. Expected values are what the
// functions of its deepspeed/compression/utils.py (SymQuantizer, AsymQuantizer, TernaryQuantizer,
// BinaryQuantizer, TopKBinarizer) return for values() in PyTorch 2.11, and its
// deepspeed/runtime/quantize.py for the bits.
#include "graph/rounding/rounding.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <vector>

#include "graph/rounding/compressed_parameter.h"
#include "support/catch.h"

namespace dslaunch::compress_tests {

using namespace graph;

namespace {

// Returns [6, 4] with the values ((37 i) mod 64 - 31) / 32, which fp32 holds exactly.
at::Tensor values() {
    return ((at::arange(24, at::kLong) * 37).remainder(64) - 31)
        .to(at::kFloat)
        .div(32)
        .view({6, 4});
}

void check_equal(const at::Tensor& found, const std::vector<float>& expected) {
    const at::Tensor flat = found.reshape({-1});
    REQUIRE(flat.numel() == std::ssize(expected));
    for (int64_t i = 0; i < flat.numel(); ++i) {
        INFO("element " << i);
        CHECK(flat[i].item<float>() == expected[static_cast<size_t>(i)]);
    }
}

}  // namespace

TEST_CASE("weights in 8 to 1 bits are the values that DeepSpeed's quantizers return") {
    const at::Tensor weight = values();
    at::Tensor in_8_bits = weight.clone();
    in_8_bits.view({-1})[19] = 127.0F / 128;  // the grid has no +1
    CHECK(on_grid(weight, {8}).equal(in_8_bits));
    check_equal(on_grid(weight, {4, 3}),
                {-0.96875F,   0.2421875F,   -0.60546875F, 0.484375F,    -0.36328125F, 0.84765625F,
                 0,           -0.84765625F, 0.2265625F,   -0.56640625F, 0.56640625F,  -0.2265625F,
                 0.79296875F, 0.11328125F,  -0.79296875F, 0.33984375F,  -0.5F,        0.75F,
                 -0.125F,     0.875F,       0.125F,       -0.75F,       0.5F,         -0.375F});
    check_equal(on_grid(weight, {3, 2, false}), {-0.890625F,
                                                 0.22265625F,
                                                 -0.66796875F,
                                                 0.4453125F,
                                                 -0.4453125F,
                                                 0.66796875F,
                                                 0,
                                                 -0.890625F,
                                                 0.22265625F,
                                                 -0.66796875F,
                                                 0.66796875F,
                                                 -0.22265625F,
                                                 0.66796875F,
                                                 0,
                                                 -0.890625F,
                                                 0.4453125F,
                                                 -0.4453125F,
                                                 0.66796875F,
                                                 -0.22265625F,
                                                 0.66796875F,
                                                 0.22265625F,
                                                 -0.66796875F,
                                                 0.4453125F,
                                                 -0.4453125F});
    const float a = 0.7098214030265808F, b = 0.6388888955116272F;
    check_equal(on_grid(weight, {2, 2}),
                {-a, 0, -a, a, 0, a, 0, -a, 0, -a, a, 0, b, 0, -b, b, -b, b, 0, b, 0, -b, b, -b});
    const float c = 0.546875F, d = 0.4765625F, e = 0.5F;
    check_equal(on_grid(weight, {1, 3}), {-c, c, -c, c, -c, c, -c, -c, d, -d, d, -d,
                                          d,  d, -d, d, -e, e, -e, e,  e, -e, e, -e});
}

TEST_CASE("values in a given range are those of DeepSpeed's static activations") {
    const at::Tensor range = at::tensor({-0.5F, 0.75F});
    check_equal(on_grid_of_range(values(), range, 4, true).narrow(0, 0, 2),
                {-0.75F, 0.1875F, -0.65625F, 0.46875F, -0.375F, 0.65625F, 0, -0.75F});
    check_equal(on_grid_of_range(values(), range, 4, false).narrow(0, 0, 2),
                {-0.46875F, 0.15625F, -0.46875F, 0.46875F, -0.3125F, 0.703125F, 0, -0.46875F});
}

TEST_CASE("a mask keeps the ceiling of its part, the first of equal scores") {
    const std::vector<float> expected = {1, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0,
                                         1, 0, 1, 0, 0, 1, 0, 1, 0, 1, 0, 0};
    check_equal(largest(values().abs(), 0.3).to(at::kFloat), expected);
    check_equal(largest(values().abs().sum(1), 0.5).to(at::kFloat), {1, 0, 0, 1, 1, 0});
    check_equal(largest(at::zeros({5}), 0.5).to(at::kFloat), {1, 1, 1, 0, 0});
    CHECK(largest(values(), 1).all().item<bool>());
}

TEST_CASE("a group whose values are equal has a grid without a step, and stays as it is") {
    const at::Tensor zeros = at::zeros({2, 4}), constant = at::full({2, 4}, 0.3F);
    for (const int64_t bits : {8, 4, 2, 1}) CHECK(on_grid(zeros, {bits, 2}).equal(zeros));
    CHECK(on_grid(zeros, {8, 2, false}).equal(zeros));
    CHECK(on_grid(constant, {8, 2, false}).equal(constant));
    const at::Tensor range = at::zeros({2});
    CHECK(on_grid_of_range(zeros, range, 8, true).equal(zeros));
}

TEST_CASE("rounding by chance is right on average, within a step, and the same for the same seed") {
    const at::Tensor weight = values().repeat({500, 1});
    const Grid grid{4, 1, true, true, 11};
    const at::Tensor once = on_grid(weight, grid), again = on_grid(weight, grid);
    CHECK(once.equal(again));
    Grid other = grid;
    other.seed = 12;
    CHECK_FALSE(once.equal(on_grid(weight, other)));
    CHECK_FALSE(once.equal(on_grid(weight, {4})));
    const double step = 2.0 / 16;
    // The largest value, 1, is not on the grid and is always rounded down.
    const at::Tensor inner = weight.abs() < 1 - step;
    const at::Tensor error = (once - weight).masked_select(inner);
    CHECK(error.abs().max().item<double>() < step);
    // The error of one value has at most the variance step^2 / 4; five standard deviations.
    const auto count = static_cast<double>(error.numel());
    CHECK(std::abs(error.mean().item<double>()) < 5 * step / 2 / std::sqrt(count));
}

TEST_CASE("16-bit weights are rounded in fp32 and stored in their type") {
    const at::Tensor half = values().to(at::kBFloat16);
    const at::Tensor found = on_grid(half, {4, 3});
    CHECK(found.scalar_type() == at::kBFloat16);
    CHECK(found.equal(on_grid(half.to(at::kFloat), {4, 3}).to(at::kBFloat16)));
}

TEST_CASE("the unrounded part falls with each rounding, and is whole again when a bit goes") {
    const config::BitSchedule schedule{false, 8, 7, 4, 0, 0.25};
    const std::vector<double> expected = {0.75, 0.5, 0.25, 1, 0.75, 0.5, 0.25, 0, 0};
    for (size_t i = 0; i < expected.size(); ++i)
        CHECK(bits_after(schedule, static_cast<int64_t>(i)).unrounded == Approx(expected[i]));
    WeightRounding rounding;
    rounding.schedule = schedule;
    const at::Tensor weight = values();
    const at::Tensor mixed = weight * 0.75 + on_grid(weight, {8}) * 0.25;
    CHECK(rounding.of(weight, 0, 0).equal(mixed));
    CHECK(rounding.of(weight, 3, 0).equal(weight));
    CHECK(rounding.of(weight, 8, 0).equal(on_grid(weight, {7})));
}

TEST_CASE("masks of elements, rows and heads fall on the right parts of a weight, turned or not") {
    const at::Tensor weight = values();  // [out 6, in 4]
    CompressedParameter made;
    WeightMask mask;
    mask.sort = MaskSort::kRows;
    made.masks = {mask};
    const at::Tensor rows = at::tensor({1, 0, 0, 1, 1, 0}).to(at::kBool);
    const auto of = [&](const at::Tensor& source) {
        return [source](const WeightMask&) { return source; };
    };
    CHECK(made.read(weight, 0, 0, of(rows)).equal(weight * rows.view({6, 1})));
    const at::Tensor bias = values().view({-1}).narrow(0, 0, 6);
    CHECK(made.read(bias, 0, 0, of(rows)).equal(bias * rows));
    made.masks[0].is_transposed = true;
    CHECK(
        made.read(weight.t().contiguous(), 0, 0, of(rows)).equal((weight * rows.view({6, 1})).t()));
    made.masks[0].sort = MaskSort::kHeads;
    const at::Tensor heads = at::tensor({1, 0}).to(at::kBool);
    const at::Tensor columns = at::tensor({1, 1, 0, 0});
    CHECK(made.read(weight.t().contiguous(), 0, 0, of(heads)).equal((weight * columns).t()));
    made.masks[0].is_transposed = false;
    made.masks[0].offset = 3;
    CHECK(made.read(weight, 2, 0, of(heads)).equal(weight));
    CHECK(made.read(weight, 3, 0, of(heads)).equal(weight * columns));
    made.masks[0] = {MaskSort::kElements, true, 0, 0.3, 0, false};
    CHECK(made.read(weight, -1, 0, of(weight.abs())).equal(weight * largest(weight.abs(), 0.3)));
}

}  // namespace dslaunch::compress_tests
