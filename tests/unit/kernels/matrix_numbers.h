// Matrices for tests: weights in every form, and products in fp64 to compare with.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/flat_optimizer.h"
#include "kernels/matrix/multiply.h"
#include "kernels/matrix/packed_matrix.h"
#include "kernels/thread_team.h"

namespace dslaunch::test {

inline constexpr kernels::MatrixForm kForms[] = {
    kernels::MatrixForm::kF32,  kernels::MatrixForm::kBf16, kernels::MatrixForm::kFp16,
    kernels::MatrixForm::kInt8, kernels::MatrixForm::kInt4, kernels::MatrixForm::kNf4};

inline std::vector<kernels::MatrixIsa> available_matrix_isas() {
    std::vector<kernels::MatrixIsa> out;
    for (const kernels::MatrixIsa isa : kernels::kMatrixIsas)
        if (kernels::matrix_isa_available(isa)) out.push_back(isa);
    return out;
}

// Returns NUMEL normal numbers with the mean 0.
inline std::vector<float> normal_numbers(int64_t numel, unsigned seed, float deviation = 1) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0, deviation);
    std::vector<float> out(static_cast<size_t>(numel));
    for (float& x : out) x = normal(random);
    return out;
}

// A matrix that owns its bytes, and the numbers that these bytes stand for.
struct Matrix {
    kernels::MatrixShape shape;
    std::vector<std::byte> bytes;
    std::vector<float> meaning;  // [out, in]

    [[nodiscard]] kernels::PackedMatrix view() const { return {shape, bytes.data()}; }
};

inline Matrix make_matrix(const kernels::MatrixShape& shape, const std::vector<float>& weights,
                          kernels::MatrixIsa isa = kernels::MatrixIsa::kScalar, int threads = 1) {
    using namespace kernels;
    Matrix out{shape, std::vector<std::byte>(static_cast<size_t>(matrix_bytes(shape))), weights};
    ThreadTeam team(threads);
    const auto numel = static_cast<int64_t>(weights.size());
    auto* const halves = reinterpret_cast<uint16_t*>(out.bytes.data());
    if (shape.form == MatrixForm::kF32)
        std::memcpy(out.bytes.data(), weights.data(), out.bytes.size());
    else if (!is_packed(shape.form))
        to_half(weights.data(), halves, numel,
                shape.form == MatrixForm::kBf16 ? DType::kBF16 : DType::kF16, Isa::kScalar);
    else
        quantize(shape, {weights.data(), DType::kF32, {0, shape.out}}, out.bytes, team, isa);
    dequantize(out.view(), {0, shape.out}, out.meaning.data());
    return out;
}

}  // namespace dslaunch::test
