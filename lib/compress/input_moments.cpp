#include "compress/input_moments.h"

#include <algorithm>
#include <cmath>

#include "kernels/matrix/matrix_shape.h"

namespace dslaunch::compress {
namespace {

using kernels::MatrixForm;

constexpr int64_t kPanel = 256;  // inputs whose moments one product computes
constexpr int64_t kTile = 32;    // side of the square in which numbers are transposed

kernels::PackedMatrix fp32_matrix(const float* numbers, int64_t rows, int64_t columns) {
    return {kernels::matrix_shape(MatrixForm::kF32, rows, columns),
            reinterpret_cast<const std::byte*>(numbers)};
}

}  // namespace

InputMoments::InputMoments(int64_t in) : in_(in), sums_(static_cast<size_t>(in * in)) {}

void InputMoments::add(const float* x, int64_t rows, kernels::ThreadTeam& team) {
    if (rows == 0) return;
    rows_ += rows;
    std::vector<float> transposed(static_cast<size_t>(in_ * rows));
    team.for_chunks((in_ + kTile - 1) / kTile, [&](int64_t chunk) {
        const int64_t end = std::min(in_, (chunk + 1) * kTile);
        for (int64_t first = 0; first < rows; first += kTile)
            for (int64_t i = chunk * kTile; i < end; ++i)
                for (int64_t r = first; r < std::min(rows, first + kTile); ++r)
                    transposed[static_cast<size_t>(i * rows + r)] = x[r * in_ + i];
    });
    for (int64_t begin = 0; begin < in_; begin += kPanel) {
        const int64_t end = std::min(in_, begin + kPanel);
        const kernels::PackedMatrix columns = fp32_matrix(transposed.data(), end, rows);
        activations_.assign({transposed.data() + begin * rows, end - begin, rows, rows},
                            columns.shape, team);
        const kernels::Product product{columns, sums_.data() + begin * in_, in_, nullptr, true};
        kernels::multiply({&product, 1}, activations_, team);
    }
}

std::vector<float> InputMoments::mean() const {
    std::vector<float> mean(sums_.size());
    const float factor = rows_ == 0 ? 0 : 1 / static_cast<float>(rows_);
    for (int64_t i = 0; i < in_; ++i)
        for (int64_t j = 0; j <= i; ++j) {
            const float moment = sums_[static_cast<size_t>(i * in_ + j)] * factor;
            mean[static_cast<size_t>(i * in_ + j)] = moment;
            mean[static_cast<size_t>(j * in_ + i)] = moment;
        }
    return mean;
}

double output_error(std::span<const float> exact, std::span<const float> rounded,
                    const std::vector<float>& moments, int64_t in, kernels::ThreadTeam& team) {
    const int64_t out = std::ssize(exact) / in;
    std::vector<float> numbers(exact.begin(), exact.end()), product(numbers.size());
    // Returns the sum of w M wᵀ over the rows w of NUMBERS.
    const auto energy = [&] {
        kernels::Activations activations;
        const kernels::PackedMatrix matrix = fp32_matrix(moments.data(), in, in);
        activations.assign({numbers.data(), out, in, in}, matrix.shape, team);
        const kernels::Product one{matrix, product.data(), in, nullptr, false};
        kernels::multiply({&one, 1}, activations, team);
        double sum = 0;
        for (size_t i = 0; i < numbers.size(); ++i)
            sum += static_cast<double>(numbers[i]) * product[i];
        return std::max(sum, 0.0);
    };
    const double whole = energy();
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] -= rounded[i];
    return whole > 0 ? std::sqrt(energy() / whole) : 0;
}

}  // namespace dslaunch::compress
