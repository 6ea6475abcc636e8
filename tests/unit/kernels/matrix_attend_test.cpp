// Attention over a paged cache, and the small kernels of a token: compared with fp64, and bit by
// bit between instruction sets.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "kernel_numbers.h"
#include "kernels/matrix/attend.h"
#include "kernels/matrix/matrix_tables.h"
#include "matrix_numbers.h"
#include "support/catch.h"

using namespace dslaunch;
using namespace dslaunch::kernels;
using namespace dslaunch::test;

namespace {

// A cache of LENGTH positions, and its numbers in fp32.
struct Cache {
    std::vector<std::vector<std::byte>> pages;
    std::vector<const void*> keys, values;
    std::vector<float> key_numbers, value_numbers;  // [positions, kv_heads, width]
};

std::vector<std::byte> page_bytes(const std::vector<float>& numbers, DType dtype,
                                  std::vector<float>& meant) {
    std::vector<std::byte> out(numbers.size() * static_cast<size_t>(dtype_bytes(dtype)));
    if (dtype == DType::kF32) {
        std::memcpy(out.data(), numbers.data(), out.size());
        meant.insert(meant.end(), numbers.begin(), numbers.end());
        return out;
    }
    auto* const halves = reinterpret_cast<uint16_t*>(out.data());
    to_half(numbers.data(), halves, std::ssize(numbers), dtype);
    for (size_t i = 0; i < numbers.size(); ++i)
        meant.push_back(static_cast<float>(meaning(halves[i], dtype)));
    return out;
}

Cache make_cache(const AttendShape& shape, int64_t length) {
    Cache cache;
    const int64_t count = (length + shape.page_positions - 1) / shape.page_positions;
    const int64_t numel = shape.page_positions * shape.kv_heads * shape.width;
    for (int64_t page = 0; page < count; ++page) {
        const auto seed = static_cast<unsigned>(page);
        cache.pages.push_back(
            page_bytes(normal_numbers(numel, 100 + seed), shape.cache, cache.key_numbers));
        cache.pages.push_back(
            page_bytes(normal_numbers(numel, 9000 + seed), shape.cache, cache.value_numbers));
    }
    for (size_t i = 0; i < cache.pages.size(); i += 2) {
        cache.keys.push_back(cache.pages[i].data());
        cache.values.push_back(cache.pages[i + 1].data());
    }
    return cache;
}

// Computes one head of one row in fp64, by the definition.
std::vector<double> attended(const AttendShape& shape, const Cache& cache, const AttendRow& row,
                             int64_t head) {
    const int64_t kv_head = head / (shape.heads / shape.kv_heads);
    const auto at = [&](int64_t p) { return (p * shape.kv_heads + kv_head) * shape.width; };
    double weights = 0;
    std::vector<double> out(static_cast<size_t>(shape.width));
    for (int64_t p = row.begin; p < row.length; ++p) {
        double score = 0;
        for (int64_t i = 0; i < shape.width; ++i)
            score += double{row.q[head * shape.width + i]} * cache.key_numbers[at(p) + i];
        score *= shape.scale;
        if (shape.softcap != 0) score = shape.softcap * std::tanh(score / shape.softcap);
        const double weight = std::exp(score);
        weights += weight;
        for (int64_t i = 0; i < shape.width; ++i) out[i] += weight * cache.value_numbers[at(p) + i];
    }
    for (double& x : out) x /= weights;
    return out;
}

struct MatrixAttendCase {
    int64_t heads, kv_heads, width, page_positions;
};
// Cases with shared heads, with one head each, with one head for very many, and with odd widths and
// pages.
constexpr MatrixAttendCase kCases[] = {{4, 2, 64, 16},  {3, 3, 40, 5},   {8, 1, 128, 32},
                                       {71, 1, 24, 64}, {2, 1, 100, 33}, {1, 1, 1, 1}};

// Returns rows that see [begin, length), of which the last one sees LENGTH positions. WINDOW is the
// longest range that a row sees; 0: any.
std::vector<AttendRow> make_rows(const AttendShape& shape, const Cache& cache,
                                 const std::vector<float>& q, std::vector<float>& out,
                                 int64_t length, int64_t window) {
    const int64_t numel = shape.heads * shape.width;
    const int64_t count = std::ssize(q) / numel;
    std::vector<AttendRow> rows;
    for (int64_t r = 0; r < count; ++r) {
        const int64_t seen = std::max<int64_t>(1, length - count + 1 + r);
        rows.push_back({q.data() + r * numel, out.data() + r * numel, cache.keys.data(),
                        cache.values.data(), seen,
                        window == 0 ? 0 : std::max<int64_t>(0, seen - window)});
    }
    return rows;
}

}  // namespace

TEST_CASE("attention is that of its definition, with equal bits however it is called") {
    for (const MatrixAttendCase& one : kCases)
        for (const int64_t length : {1, 7, 33, 1025, 2100})
            for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16})
                for (const int64_t window : {0, 40}) {
                    AttendShape shape{one.heads,
                                      one.kv_heads,
                                      one.width,
                                      one.page_positions,
                                      dtype,
                                      1 / std::sqrt(static_cast<float>(one.width)),
                                      window == 0 ? 0.0F : 5.0F};
                    const Cache cache = make_cache(shape, length);
                    constexpr int64_t kRows = 3;
                    const std::vector<float> q = normal_numbers(kRows * one.heads * one.width, 21);
                    std::vector<float> out(q.size());
                    const std::vector<AttendRow> rows =
                        make_rows(shape, cache, q, out, length, window);
                    AttendScratch scratch;
                    ThreadTeam alone(1), team(3);
                    INFO(one.heads << " heads of " << one.width << ", length " << length << " "
                                   << dtype_name(dtype) << " window " << window);
                    attend(shape, rows, scratch, alone, MatrixIsa::kScalar);
                    const std::vector<float> reference = out;
                    for (const AttendRow& row : rows)
                        for (int64_t h = 0; h < shape.heads; ++h) {
                            const std::vector<double> expected = attended(shape, cache, row, h);
                            // After sums in fp32, scores below 16 have an error of 2^-20, weights
                            // have the same relative error, and a mean of values below 6 has both
                            // errors.
                            for (int64_t i = 0; i < shape.width; ++i)
                                REQUIRE(std::abs(row.out[h * shape.width + i] - expected[i]) <=
                                        2 * 6 * 0x1p-20);
                        }
                    for (const MatrixIsa isa : available_matrix_isas()) {
                        attend(shape, rows, scratch, team, isa);
                        REQUIRE(out == reference);
                        for (const AttendRow& row : rows)
                            attend(shape, {&row, 1}, scratch, alone, isa);
                        REQUIRE(out == reference);
                    }
                }
}

TEST_CASE("pages that a row's window does not reach are not read") {
    for (const int64_t page_positions : {1, 5, 16, 64}) {
        const AttendShape shape{2, 1, 16, page_positions, DType::kF32, 0.25F, 0};
        Cache cache = make_cache(shape, 100);
        const std::vector<float> q = normal_numbers(32, 22);
        std::vector<float> out(32), expected(32);
        AttendScratch scratch;
        ThreadTeam team(1);
        AttendRow row{q.data(), expected.data(), cache.keys.data(), cache.values.data(), 90, 81};
        attend(shape, {&row, 1}, scratch, team);
        for (size_t i = 0; i < cache.keys.size(); ++i) {
            const auto first = static_cast<int64_t>(i) * page_positions;
            if (first < row.length && first + page_positions > row.begin) continue;
            cache.keys[i] = cache.values[i] = nullptr;
        }
        row.out = out.data();
        for (const MatrixIsa isa : available_matrix_isas()) {
            attend(shape, {&row, 1}, scratch, team, isa);
            REQUIRE(out == expected);
        }
    }
}

namespace {

using TokenKernel = std::function<std::vector<float>(const std::vector<float>&, MatrixIsa)>;
using Definition = std::function<double(const std::vector<double>&, size_t)>;

struct Row {
    const char* name;
    TokenKernel kernel;
    Definition expected;
    double bound;  // of the error, for numbers of a normal distribution
};

std::vector<float> weights_of(size_t width) {
    return normal_numbers(static_cast<int64_t>(width), 30);
}

double mean_of(const std::vector<double>& x, const std::function<double(double)>& f) {
    double sum = 0;
    for (const double one : x) sum += f(one);
    return sum / static_cast<double>(x.size());
}

TokenKernel gated(Gate act) {
    return [act](const std::vector<float>& x, MatrixIsa isa) {
        std::vector<float> out(x.size());
        const std::vector<float> up = weights_of(x.size());
        token_kernels_of(isa).gate[static_cast<size_t>(act)](x.data(), up.data(), out.data(),
                                                             std::ssize(x));
        return out;
    };
}

std::vector<Row> token_rows() {
    // Means of width numbers and products in fp32: some 2^-20 of values below 16.
    constexpr double kClose = 0x1p-16;
    const auto norm = [](const std::vector<float>& x, MatrixIsa isa) {
        std::vector<float> out(x.size());
        const std::vector<float> w = weights_of(x.size());
        token_kernels_of(isa).rms_norm(x.data(), std::ssize(x), {w.data(), nullptr, 1e-5F, true},
                                       out.data());
        return out;
    };
    const auto layer = [](const std::vector<float>& x, MatrixIsa isa) {
        std::vector<float> out(x.size());
        const std::vector<float> w = weights_of(x.size());
        token_kernels_of(isa).layer_norm(x.data(), std::ssize(x),
                                         {w.data(), w.data(), 1e-5F, false}, out.data());
        return out;
    };
    const auto soft = [](const std::vector<float>& x, MatrixIsa isa) {
        std::vector<float> out(x.size());
        token_kernels_of(isa).softmax(x.data(), std::ssize(x), out.data());
        return out;
    };
    return {
        {"rms_norm", norm,
         [](const std::vector<double>& x, size_t i) {
             const double mean = mean_of(x, [](double v) { return v * v; });
             return x[i] / std::sqrt(mean + 1e-5) * (1 + double{weights_of(x.size())[i]});
         },
         kClose},
        {"layer_norm", layer,
         [](const std::vector<double>& x, size_t i) {
             const double mean = mean_of(x, [](double v) { return v; });
             const double variance = mean_of(x, [&](double v) { return (v - mean) * (v - mean); });
             const double w = weights_of(x.size())[i];
             return (x[i] - mean) / std::sqrt(variance + 1e-5) * w + w;
         },
         kClose},
        {"silu", gated(Gate::kSilu),
         [](const std::vector<double>& x, size_t i) {
             return x[i] / (1 + std::exp(-x[i])) * weights_of(x.size())[i];
         },
         kClose},
        {"gelu", gated(Gate::kGelu),
         [](const std::vector<double>& x, size_t i) {
             return x[i] / 2 * std::erfc(-x[i] / std::sqrt(2.0)) * weights_of(x.size())[i];
         },
         kClose},
        {"gelu_tanh", gated(Gate::kGeluTanh),
         [](const std::vector<double>& x, size_t i) {
             const double u =
                 std::sqrt(2 / std::acos(-1.0)) * (x[i] + 0.044715 * std::pow(x[i], 3));
             return x[i] / 2 * (1 + std::tanh(u)) * weights_of(x.size())[i];
         },
         kClose},
        {"quick_gelu", gated(Gate::kQuickGelu),
         [](const std::vector<double>& x, size_t i) {
             return x[i] / (1 + std::exp(-1.702 * x[i])) * weights_of(x.size())[i];
         },
         kClose},
        {"relu", gated(Gate::kRelu),
         [](const std::vector<double>& x, size_t i) {
             return std::max(x[i], 0.0) * weights_of(x.size())[i];
         },
         kClose},
        {"relu2", gated(Gate::kReluSquared),
         [](const std::vector<double>& x, size_t i) {
             return std::pow(std::max(x[i], 0.0), 2) * weights_of(x.size())[i];
         },
         kClose},
        {"softmax", soft,
         [](const std::vector<double>& x, size_t i) {
             const auto weight = [](double v) { return std::exp(v); };
             return weight(x[i]) / mean_of(x, weight) / static_cast<double>(x.size());
         },
         kClose},
    };
}

}  // namespace

TEST_CASE("the kernels of a token are their definitions, with equal bits everywhere") {
    for (const Row& row : token_rows())
        for (const int64_t width : {1, 3, 15, 16, 17, 100, 1091}) {
            if (width == 1 && std::string_view(row.name) == "layer_norm") continue;  // 0 / epsilon
            const std::vector<float> x = normal_numbers(width, 31);
            const std::vector<double> wide(x.begin(), x.end());
            const std::vector<float> reference = row.kernel(x, MatrixIsa::kScalar);
            INFO(row.name << " of " << width);
            for (size_t i = 0; i < x.size(); ++i)
                REQUIRE(std::abs(reference[i] - row.expected(wide, i)) <= row.bound);
            for (const MatrixIsa isa : available_matrix_isas())
                REQUIRE(row.kernel(x, isa) == reference);
        }
}

TEST_CASE("rotations turn pairs and leave the rest") {
    for (const bool interleaved : {false, true})
        for (const int64_t pairs : {0, 1, 8, 20, 32}) {
            constexpr int64_t kHeads = 3, kWidth = 64;
            const std::vector<float> x = normal_numbers(kHeads * kWidth, 40);
            std::vector<float> cos, sin;
            for (int64_t i = 0; i < pairs; ++i) {
                cos.push_back(std::cos(static_cast<float>(i)));
                sin.push_back(std::sin(static_cast<float>(i)));
            }
            for (const MatrixIsa isa : available_matrix_isas()) {
                std::vector<float> found = x, expected = x;
                const TokenKernels& kernels = token_kernels_of(isa);
                (interleaved ? kernels.rotate_pairs : kernels.rotate_halves)(
                    found.data(), {kHeads, kWidth, cos.data(), sin.data(), pairs});
                for (int64_t h = 0; h < kHeads; ++h)
                    for (int64_t i = 0; i < pairs; ++i) {
                        const int64_t a = h * kWidth + (interleaved ? 2 * i : i);
                        const int64_t b = a + (interleaved ? 1 : pairs);
                        const float left = x[a] * cos[i], right = x[b] * sin[i];
                        const float low = x[b] * cos[i], high = x[a] * sin[i];
                        expected[a] = left - right;
                        expected[b] = low + high;
                    }
                REQUIRE(found == expected);
            }
        }
}

TEST_CASE("functions keep their limits far from 0") {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    const float nan = std::numeric_limits<float>::quiet_NaN();
    for (const MatrixIsa isa : available_matrix_isas())
        for (const Gate act :
             {Gate::kSilu, Gate::kGelu, Gate::kGeluTanh, Gate::kQuickGelu, Gate::kRelu}) {
            const float x[] = {0.0F, 100.0F, -200.0F, 1e30F, -1e30F, kInfinity, nan};
            float y[7];
            token_kernels_of(isa).gate[static_cast<size_t>(act)](x, nullptr, y, 7);
            REQUIRE(y[0] == 0.0F);
            REQUIRE(y[1] == 100.0F);
            REQUIRE(y[2] == 0.0F);
            REQUIRE(y[3] == 1e30F);
            REQUIRE(y[4] == 0.0F);
            REQUIRE(y[5] == kInfinity);
            REQUIRE(std::isnan(y[6]));
        }
    const float masked[] = {-kInfinity, 1.0F, -kInfinity};
    float out[3];
    token_kernels_of().softmax(masked, 3, out);
    REQUIRE(std::vector<float>(out, out + 3) == std::vector<float>{0, 1, 0});
}
