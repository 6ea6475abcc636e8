// The kernels of a GPU for 1-bit exchanges, run by a loop over their grid, against the scalar
// kernels: equal bits.
#include "kernels/cuda/grid_signs.h"

#include <random>
#include <vector>

#include "kernel_numbers.h"
#include "kernels/one_bit.h"
#include "support/catch.h"
#include "support/host_grid.h"

namespace dslaunch {

using namespace kernels;
using namespace test;

namespace {

constexpr int64_t kSizes[] = {1, 7, 8, 9, 16, 31, 1021, 16'384};

std::vector<float> normal_numbers(int64_t numel, unsigned seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    std::vector<float> out(static_cast<size_t>(numel));
    for (float& x : out) x = random() % 7 == 0 ? 0.0F : normal(random);
    return out;
}

}  // namespace

TEST_CASE("signs are taken and given on a grid as the scalar kernels do") {
    for (const int64_t numel : kSizes) {
        INFO(numel << " elements");
        const std::vector<float> values = normal_numbers(numel, 1);
        std::vector<float> error = normal_numbers(numel, 2), expected = error;
        std::vector<uint8_t> bits(static_cast<size_t>(sign_bytes(numel))), expected_bits = bits;
        const float scale =
            compress_signs(values.data(), 0.3F, expected, expected_bits.data(), Isa::kScalar);
        const GridSigns block{values.data(), error.data(), bits.data(), numel};
        double lanes[kNormLanes];
        for (int lane = 0; lane < kNormLanes; ++lane) lanes[lane] = lane_correct(block, 0.3F, lane);
        const float found = scale_of_squares(add_lanes(lanes), numel);
        CHECK(found == scale);
        for_grid(sign_bytes(numel),
                 [&](const GridPlace& place) { grid_take_signs(block, found, place); });
        CHECK(bits == expected_bits);
        CHECK(same(error, expected));
        for (const bool adds : {false, true}) {
            std::vector<float> out = values, expected_out = values;
            expand_signs(bits.data(), scale, adds, expected_out, Isa::kScalar);
            for_grid(numel, [&](const GridPlace& place) {
                grid_give_signs({bits.data(), out.data(), numel}, scale, adds, place);
            });
            CHECK(same(out, expected_out));
        }
    }
}

TEST_CASE("hosts that moved come together on a grid as the scalar kernels bring them") {
    for (const int64_t numel : kSizes) {
        std::vector<float> parameters = normal_numbers(numel, 3),
                           meeting = normal_numbers(numel, 4);
        std::vector<float> momentum = normal_numbers(numel, 5), variance = normal_numbers(numel, 6);
        for (float& v : variance) v *= v;
        std::vector<float> p = parameters, met = meeting, m = momentum;
        std::vector<float> expected(parameters.size()), found(parameters.size());
        const LocalMoves moves{numel, p.data(), met.data(), m.data(), variance.data(), 1e-8F, 0.1F};
        local_moves(moves, expected.data(), Isa::kScalar);
        take_moves(moves, expected.data(), 0.25F, Isa::kScalar);
        const GridMoves grid{parameters.data(),
                             meeting.data(),
                             momentum.data(),
                             variance.data(),
                             1e-8F,
                             0.1F,
                             numel};
        for_grid(numel, [&](const GridPlace& place) { grid_moves(grid, found.data(), place); });
        CHECK(same(found, expected));
        for_grid(numel, [&](const GridPlace& place) {
            grid_take_moves(grid, found.data(), 0.25F, place);
        });
        CHECK(same(parameters, p));
        CHECK(same(meeting, met));
        CHECK(same(momentum, m));
    }
}

}  // namespace dslaunch
