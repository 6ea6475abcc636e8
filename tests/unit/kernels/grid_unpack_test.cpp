// The GPU kernel that writes out packed weights, run in a loop over its grid. It must give the bits
// of dequantize().
#include "kernels/cuda/grid_unpack.h"

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/cuda/grid_packed.h"
#include "kernels/matrix/packed_matrix.h"
#include "support/catch.h"

namespace dslaunch {

using namespace kernels;

namespace {

// Panels of 16 rows of a matrix, each a packed matrix of its own, and the numbers that they stand
// for.
struct Panels {
    std::vector<uint32_t> words;  // aligned as the device's memory is
    std::vector<float> meant;     // [out, in]
};

Panels pack(const MatrixShape& shape) {
    std::mt19937 random(static_cast<unsigned>(shape.out * 131 + shape.in));
    std::normal_distribution<float> normal;
    const int64_t bytes = matrix_bytes({shape.form, kPanelOutputs, shape.in, shape.group});
    const int64_t panels = (shape.out + kPanelOutputs - 1) / kPanelOutputs;
    Panels made{std::vector<uint32_t>(static_cast<size_t>(panels * bytes / 4)),
                std::vector<float>(static_cast<size_t>(shape.out * shape.in))};
    for (int64_t panel = 0; panel < panels; ++panel) {
        const int64_t first = panel * kPanelOutputs;
        const int64_t rows = std::min(kPanelOutputs, shape.out - first);
        std::vector<float> values(static_cast<size_t>(rows * shape.in));
        for (float& x : values) x = random() % 97 == 0 ? 40.0F : normal(random);
        if (panel == 1) values[0] = INFINITY;  // a group of NaN
        const MatrixShape part{shape.form, rows, shape.in, shape.group};
        auto* const into = reinterpret_cast<std::byte*>(made.words.data()) + panel * bytes;
        ThreadTeam alone(1);
        quantize(part, {values.data(), DType::kF32, {0, rows}}, {into, static_cast<size_t>(bytes)},
                 alone);
        dequantize({part, into}, {0, rows}, made.meant.data() + first * shape.in);
    }
    return made;
}

template <typename Number>
std::vector<Number> unpack_on_grid(const MatrixShape& shape, const Panels& panels, DType dtype) {
    // One more element, which must not change.
    std::vector<Number> dense(static_cast<size_t>(shape.out * shape.in) + 1, Number{77});
    const GridPacked packed = grid_packed(shape, panels.words.data(), dense.data(), dtype);
    const int64_t threads = blocks_over(packed) * kThreads;
    for (int64_t thread = 0; thread < threads; ++thread) grid_unpack(packed, {thread, threads});
    CHECK(dense.back() == Number{77});
    dense.pop_back();
    return dense;
}

void check_unpacked(const MatrixShape& shape) {
    INFO(matrix_form_name(shape.form)
         << " [" << shape.out << ", " << shape.in << "], groups of " << shape.group);
    const Panels panels = pack(shape);
    const std::vector<float> dense = unpack_on_grid<float>(shape, panels, DType::kF32);
    const auto as_bf16 = unpack_on_grid<uint16_t>(shape, panels, DType::kBF16);
    const auto as_fp16 = unpack_on_grid<uint16_t>(shape, panels, DType::kF16);
    int64_t wrong = 0;
    for (size_t i = 0; i < dense.size(); ++i) {
        const float meant = panels.meant[i];
        if (std::isnan(meant)) {
            wrong += std::isnan(dense[i]) && std::isnan(fp32_of_bf16(as_bf16[i])) ? 0 : 1;
            continue;
        }
        wrong += std::memcmp(&dense[i], &meant, sizeof meant) == 0 &&
                         as_bf16[i] == bf16_of(meant) && as_fp16[i] == fp16_of(meant)
                     ? 0
                     : 1;
    }
    CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("packed weights are written out on a grid as the host does") {
    for (const MatrixForm form : {MatrixForm::kInt8, MatrixForm::kInt4, MatrixForm::kNf4})
        for (const int64_t out : {1, 15, 16, 17, 40})
            for (const int64_t in : {1, 7, 8, 31, 32, 33, 64, 100, 260})
                for (const int64_t group : {32, 64}) check_unpacked({form, out, in, group});
}

}  // namespace dslaunch
