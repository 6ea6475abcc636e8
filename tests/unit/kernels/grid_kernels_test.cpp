// The kernels of a GPU, run in a loop over their grid. They must give the bits of the scalar
// kernels.
#include "support/host_grid.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernel_numbers.h"
#include "support/catch.h"

namespace dslaunch {

using namespace kernels;
using namespace test;

namespace {

// Numbers of elements: none, one, around a vector, odd, prime, around a block of a grid, and
// several blocks of the norm.
const std::vector<int64_t> kSizes = {0, 1, 3, 4, 5, 31, 1021, 1024, 1025, 10'007, 40'009};

// Returns normal values, mixed with zeros, subnormal numbers, infinities and NaN.
std::vector<float> numbers(int64_t numel, unsigned seed, bool special = true) {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    const float rare[] = {0.0F, -0.0F, 1e-41F, -3e-45F, kInfinity, -kInfinity, 3e38F, NAN};
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    std::vector<float> out(static_cast<size_t>(numel));
    for (float& x : out) x = special && random() % 7 == 0 ? rare[random() % 8] : normal(random);
    return out;
}

std::vector<float> squares(std::vector<float> values) {
    for (float& x : values) x *= x;
    return values;
}

bool same_halves(const std::vector<uint16_t>& a, const std::vector<uint16_t>& b, DType dtype) {
    return std::ranges::equal(a, b, [&](uint16_t x, uint16_t y) {
        return x == y || (std::isnan(meaning(x, dtype)) && std::isnan(meaning(y, dtype)));
    });
}

struct GridKernelsState {
    std::vector<float> parameters, first, second, third;
    std::vector<uint16_t> half;

    explicit GridKernelsState(int64_t numel)
        : parameters(numbers(numel, 1)),
          first(numbers(numel, 2)),
          second(squares(numbers(numel, 3))),
          third(squares(numbers(numel, 5))),
          half(static_cast<size_t>(numel), 0) {}

    [[nodiscard]] FlatRange range(std::span<const float* const> gradients, DType dtype) {
        FlatRange all;
        all.numel = std::ssize(parameters);
        all.gradients = gradients;
        all.gradient_scale = 0.37F;
        all.parameters = parameters;
        all.first = first;
        all.second = second;
        all.third = third;
        if (is_half(dtype)) {
            all.half_parameters = half;
            all.half_dtype = dtype;
        }
        return all;
    }
};

template <typename Rule, typename Step>
void check_update(const Step& step, void (*scalar)(const FlatRange&, const Step&, Isa)) {
    for (const int64_t numel : kSizes)
        for (const int sources : {1, 3})
            for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
                INFO(numel << " elements, " << sources << " sources, " << dtype_name(dtype));
                std::vector<std::vector<float>> gradients;
                std::vector<const float*> pointers;
                for (int s = 0; s < sources; ++s)
                    gradients.push_back(numbers(numel, 10 + static_cast<unsigned>(s)));
                for (const std::vector<float>& gradient : gradients)
                    pointers.push_back(gradient.data());
                GridKernelsState expected(numel), got(numel);
                scalar(expected.range(pointers, dtype), step, Isa::kScalar);
                if (numel > 0) {
                    const FlatRange range = got.range(pointers, dtype);
                    grid_update_on_host(arrays_of(range, step), {0, numel},
                                        Rule{constants_of(step)});
                }
                CHECK(same(got.parameters, expected.parameters));
                CHECK(same(got.first, expected.first));
                CHECK(same(got.second, expected.second));
                CHECK(same(got.third, expected.third));
                if (is_half(dtype)) CHECK(same_halves(got.half, expected.half, dtype));
            }
}

}  // namespace

TEST_CASE("each optimizer on a grid has the bits of the scalar kernels") {
    for (const bool decoupled : {true, false}) {
        AdamStep adam{.lr = 1e-2, .weight_decay = 0.1, .decoupled_decay = decoupled, .step = 3};
        check_update<Adam>(adam, &adam_step);
        adam.beta1 = 0.3;  // the other form of the mean
        check_update<Adam>(adam, &adam_step);
    }
    check_update<AmsgradAdam>(AdamStep{.lr = 1e-2, .step = 3, .amsgrad = true}, &adam_step);
    check_update<EpsInsideAdam>(
        AdamStep{.lr = 1e-2, .eps = 0.1, .bias_correction = false, .eps_inside_sqrt = true},
        &adam_step);
    AdamStep frozen{.lr = 1e-2, .weight_decay = 0.1, .bias_correction = false};
    frozen.frozen_variance = true;
    for (const double beta1 : {0.9, 0.3, 0.0}) {
        frozen.beta1 = beta1;
        check_update<FrozenAdam>(frozen, &adam_step);
    }
    check_update<Adagrad>(AdagradStep{.lr = 1e-2, .lr_decay = 0.1, .weight_decay = 0.1, .step = 2},
                          &adagrad_step);
    check_update<Lion>(LionStep{.lr = 1e-2, .weight_decay = 0.1}, &lion_step);
    for (const bool first : {true, false})
        for (const bool nesterov : {true, false})
            check_update<Sgd>(SgdStep{.lr = 1e-2,
                                      .momentum = 0.9,
                                      .dampening = nesterov ? 0 : 0.1,
                                      .weight_decay = 0.1,
                                      .nesterov = nesterov,
                                      .first_step = first},
                              &sgd_step);
    check_update<Sgd>(SgdStep{.lr = 1e-2}, &sgd_step);
}

TEST_CASE("an update of a range on a grid leaves what is around it alone") {
    constexpr int64_t kNumel = 4096, kBegin = 1024, kPart = 1027;
    const AdamStep step{.lr = 1e-2};
    const std::vector<float> gradient = numbers(kNumel, 4);
    const float* const source = gradient.data();
    GridKernelsState expected(kNumel), got(kNumel);
    FlatRange range = expected.range({&source, 1}, DType::kF32);
    range.begin = kBegin;
    range.numel = kPart;
    adam_step(range, step, Isa::kScalar);
    range = got.range({&source, 1}, DType::kF32);
    grid_update_on_host(arrays_of(range, step), {kBegin, kPart}, Adam{constants_of(step)});
    CHECK(same(got.parameters, expected.parameters));
    CHECK(same(got.second, expected.second));
}

// A share with `dslaunch.shard: row` begins at any element, and its states at other elements. No
// access may be wider than its address allows; the undefined behaviour sanitizer checks this.
TEST_CASE("arrays that begin at any element are updated, summed and rounded") {
    constexpr int64_t kNumel = 1027, kMore = 8;
    const AdamStep step{.lr = 1e-2};
    const std::vector<float> gradient = numbers(kNumel + kMore, 5);
    for (int offset = 0; offset < 4; ++offset) {
        INFO("offset " << offset);
        const float* const source = gradient.data() + (offset + 3) % 4;
        GridKernelsState expected(kNumel + kMore), got(kNumel + kMore);
        const auto shifted = [&](GridKernelsState& state) {
            FlatRange range = state.range({&source, 1}, DType::kBF16);
            range.numel = kNumel;
            range.parameters = range.parameters.subspan(offset);
            range.first = range.first.subspan((offset + 1) % 4);
            range.second = range.second.subspan((offset + 2) % 4);
            range.half_parameters = range.half_parameters.subspan(offset);
            return range;
        };
        adam_step(shifted(expected), step, Isa::kScalar);
        grid_update_on_host(arrays_of(shifted(got), step), {0, kNumel}, Adam{constants_of(step)});
        CHECK(same(got.parameters, expected.parameters));
        CHECK(same(got.first, expected.first));
        CHECK(same(got.second, expected.second));
        CHECK(same_halves(got.half, expected.half, DType::kBF16));

        const std::vector<const float*> sources = {source};
        accumulate_sum(sources, 0.3F, expected.first.data() + offset, kNumel, Isa::kScalar);
        for_grid(kNumel, [&](const GridPlace& place) {
            grid_sum(grid_sources(sources), 0.3F, true, got.first.data() + offset, kNumel, place);
        });
        CHECK(same(got.first, expected.first));
    }
}

TEST_CASE("sums on a grid have the bits of the scalar kernels, and sums that are added too") {
    for (const int64_t numel : kSizes)
        for (const int count : {1, 2, 5, 8}) {
            INFO(numel << " elements of " << count);
            std::vector<std::vector<float>> sources;
            std::vector<const float*> pointers;
            for (int s = 0; s < count; ++s)
                sources.push_back(numbers(numel, 20 + static_cast<unsigned>(s)));
            for (const std::vector<float>& source : sources) pointers.push_back(source.data());
            for (const bool adds : {false, true}) {
                std::vector<float> expected = numbers(numel, 30), got = expected;
                if (adds) {
                    accumulate_sum(pointers, 0.3F, expected.data(), numel, Isa::kScalar);
                } else {
                    ordered_sum(pointers, 0.3F, expected.data(), numel, Isa::kScalar);
                }
                for_grid(numel, [&](const GridPlace& place) {
                    grid_sum(grid_sources(pointers), 0.3F, adds, got.data(), numel, place);
                });
                CHECK(same(got, expected));
            }
        }
}

TEST_CASE("numbers are rounded on a grid as the scalar kernels round them") {
    for (const int64_t numel : kSizes)
        for (const DType dtype : {DType::kBF16, DType::kF16}) {
            const std::vector<float> values = numbers(numel, 40);
            std::vector<uint16_t> expected(values.size()), got(values.size());
            to_half(values.data(), expected.data(), numel, dtype, Isa::kScalar);
            for_grid(numel, [&](const GridPlace& place) {
                grid_to_half(values.data(), got.data(), dtype == DType::kBF16, numel, place);
            });
            CHECK(same_halves(got, expected, dtype));
        }
}

TEST_CASE("squares are summed on a grid in the scalar kernels' order") {
    for (const int64_t numel : kSizes) {
        const std::vector<float> values = numbers(numel, 50, /*special=*/false);
        const int64_t block = std::min(numel, kNormBlockNumel);
        CHECK(squares_on_host(values.data(), block) ==
              sum_of_squares(values.data(), block, Isa::kScalar));
    }
}

TEST_CASE("a number that is not finite sets its array's flag and no other") {
    constexpr int64_t kNumel = 5003;
    for (const float bad : {NAN, INFINITY, -INFINITY})
        for (const int64_t at : {int64_t{0}, int64_t{2500}, kNumel - 1}) {
            std::vector<float> good = numbers(kNumel, 60, /*special=*/false), spoilt = good;
            good[7] = std::numeric_limits<float>::max();
            spoilt[at] = bad;
            float flags[3] = {0, 0, 0};
            GridFlags launch{};
            launch.arrays[0] = {good.data(), kNumel};
            launch.arrays[1] = {spoilt.data(), kNumel};
            launch.arrays[2] = {nullptr, 0};
            launch.flags = flags;
            for (int array = 0; array < 3; ++array)
                for_grid(kNumel, [&](const GridPlace& place) {
                    grid_flag_nonfinite(launch, array, place);
                });
            CHECK(flags[0] == 0);
            CHECK(flags[1] == 1);
            CHECK(flags[2] == 0);
        }
}

TEST_CASE("a grid goes over every element once, however many there are") {
    // More elements than the largest grid takes at once: its threads take further elements.
    constexpr int64_t kGridNumel = kBlocksMax * kThreads * kVector;
    std::vector<float> filled(static_cast<size_t>(kGridNumel + 4099), 0);
    for_grid(std::ssize(filled), [&](const GridPlace& place) {
        grid_fill(filled.data(), 2.5F, std::ssize(filled), place);
    });
    CHECK(std::ranges::count(filled, 2.5F) == std::ssize(filled));

    // More than 2^31 elements, tested by the geometry alone: an element's thread meets the element
    // once.
    for (const int64_t numel : {(int64_t{1} << 31) + 3, (int64_t{1} << 34) + 1}) {
        const int64_t threads = blocks_over(numel) * kThreads;
        CHECK(blocks_over(numel) == kBlocksMax);
        for (const int64_t element : {int64_t{0}, int64_t{1} << 31, numel / 3, numel - 1}) {
            const int64_t thread = element / kVector % threads;
            int64_t met = 0;
            for_vectors(0, numel, {thread, threads}, [&](int64_t at, int n) {
                met += element >= at && element < at + n ? 1 : 0;
                CHECK((at >= 0 && at + n <= numel));
            });
            CHECK(met == 1);
        }
    }
}

}  // namespace dslaunch
