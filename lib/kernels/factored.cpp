#include "kernels/factored.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/check.h"

namespace dslaunch::kernels {

namespace {

constexpr int64_t kLanes = 16;

// Adds the squares of a row of COLUMNS elements to SUMS, element by element. Returns the sum of the
// squares.
double add_row(const float* gradients, int64_t columns, const SquareStep& step, double* sums) {
    double lanes[kLanes] = {};
    for (int64_t begin = 0; begin < columns; begin += kLanes) {
        const int64_t n = std::min(kLanes, columns - begin);
        for (int64_t lane = 0; lane < n; ++lane) {
            const double g = static_cast<double>(gradients[begin + lane]) * step.scale;
            const double square = g * g + step.eps;
            lanes[lane] += square;
            sums[begin + lane] += square;
        }
    }
    double sum = 0;
    for (const double lane : lanes) sum += lane;
    return sum;
}

float moved(float moment, double keep, double square) {
    return static_cast<float>(keep * static_cast<double>(moment) + (1 - keep) * square);
}

}  // namespace

void move_factors(const float* gradients, const FactoredShape& shape, const SquareStep& step,
                  std::span<float> row, std::span<float> column) {
    DSL_CHECK(std::ssize(row) == shape.matrices * shape.rows &&
                  std::ssize(column) == shape.matrices * shape.columns,
              "the factors have {} and {} elements, which do not match the shape", row.size(),
              column.size());
    std::vector<double> sums(static_cast<size_t>(shape.columns));
    for (int64_t matrix = 0; matrix < shape.matrices; ++matrix) {
        std::ranges::fill(sums, 0.0);
        float* const rows = row.data() + matrix * shape.rows;
        for (int64_t r = 0; r < shape.rows; ++r, gradients += shape.columns)
            rows[r] = moved(rows[r], step.keep,
                            add_row(gradients, shape.columns, step, sums.data()) /
                                static_cast<double>(shape.columns));
        float* const columns = column.data() + matrix * shape.columns;
        for (int64_t c = 0; c < shape.columns; ++c)
            columns[c] = moved(columns[c], step.keep,
                               sums[static_cast<size_t>(c)] / static_cast<double>(shape.rows));
    }
}

void factored_direction(const float* gradients, const FactoredShape& shape, float scale,
                        std::span<const float> row, std::span<const float> column, float* out) {
    std::vector<float> of_column(static_cast<size_t>(shape.columns));
    for (int64_t matrix = 0; matrix < shape.matrices; ++matrix) {
        const float* const rows = row.data() + matrix * shape.rows;
        const float* const columns = column.data() + matrix * shape.columns;
        double mean = 0;
        for (int64_t r = 0; r < shape.rows; ++r) mean += static_cast<double>(rows[r]);
        mean /= static_cast<double>(shape.rows);
        for (int64_t c = 0; c < shape.columns; ++c)
            of_column[static_cast<size_t>(c)] = 1.0F / std::sqrt(columns[c]);
        for (int64_t r = 0; r < shape.rows; ++r) {
            const auto of_row =
                static_cast<float>(scale / std::sqrt(static_cast<double>(rows[r]) / mean));
            for (int64_t c = 0; c < shape.columns; ++c)
                out[c] = gradients[c] * of_row * of_column[static_cast<size_t>(c)];
            gradients += shape.columns;
            out += shape.columns;
        }
    }
}

void whole_direction(const float* gradients, const SquareStep& step, std::span<float> variance,
                     float* out) {
    for (size_t i = 0; i < variance.size(); ++i) {
        const double g = static_cast<double>(gradients[i]) * step.scale;
        variance[i] = moved(variance[i], step.keep, g * g + step.eps);
        out[i] = static_cast<float>(g / std::sqrt(static_cast<double>(variance[i])));
    }
}

}  // namespace dslaunch::kernels
