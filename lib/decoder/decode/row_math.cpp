#include "decoder/decode/row_math.h"

#include <algorithm>
#include <cmath>

#include "base/float8.h"

namespace dslaunch::decoder {

using storage::InputRounding;
using storage::NormKind;

namespace {

// A loop over fewer rows than this runs on the calling thread, since waking the team would take
// longer.
constexpr int64_t kRowsForTeam = 16;
constexpr int64_t kRowsOfChunk = 4;

// Rounds the row X as compressed-tensors does while a model runs, and writes the result to OUT.
void round_inputs(InputRounding how, std::span<const float> x, float* out) {
    float largest = 0;
    for (const float number : x) largest = std::max(largest, std::fabs(number));
    const bool is_float = how == InputRounding::kE4m3;
    const float scale = largest / (is_float ? kE4m3Max : 127.5F);
    if (scale == 0) {
        std::ranges::copy(x, out);
        return;
    }
    for (size_t i = 0; i < x.size(); ++i) {
        const float code = x[i] / scale;
        out[i] = scale * (is_float ? fp32_of_e4m3(e4m3_of(std::clamp(code, -kE4m3Max, kE4m3Max)))
                                   : std::clamp(std::nearbyint(code), -128.0F, 127.0F));
    }
}

}  // namespace

void grow(std::vector<float>& buffer, int64_t numel) {
    if (std::ssize(buffer) < numel) buffer.resize(static_cast<size_t>(numel));
}

bool is_empty(const LinearWeights& layer) {
    return layer.weight.matrix.data == nullptr;
}

int64_t outputs_of(const LinearWeights& layer) {
    return layer.weight.matrix.shape.out;
}

void RowMath::for_rows(int64_t rows, const std::function<void(int64_t row)>& work) {
    if (rows < kRowsForTeam) {
        for (int64_t row = 0; row < rows; ++row) work(row);
        return;
    }
    team_.for_chunks((rows + kRowsOfChunk - 1) / kRowsOfChunk, [&](int64_t chunk) {
        const int64_t begin = chunk * kRowsOfChunk;
        for (int64_t row = begin; row < std::min(begin + kRowsOfChunk, rows); ++row) work(row);
    });
}

void RowMath::norm(const NormWeights& norm, const float* x, int64_t width, float* out,
                   int64_t rows) {
    const auto epsilon = static_cast<float>(config_.norm_epsilon);
    if (!norm.is_present) {
        std::copy_n(x, rows * width, out);
        return;
    }
    const int64_t weight_rows = std::max<int64_t>(std::ssize(norm.weight) / width, 1);
    const float* bias = norm.bias.empty() ? nullptr : norm.bias.data();
    for_rows(rows, [&](int64_t row) {
        const float* from = x + row * width;
        float* to = out + row * width;
        const float* weight =
            norm.weight.empty() ? nullptr : norm.weight.data() + row % weight_rows * width;
        if (config_.norm == NormKind::kLayer || config_.norm == NormKind::kLayerOfOne) {
            kernels_.layer_norm(from, width, {weight, bias, epsilon, false}, to);
        } else {
            const bool one_plus = config_.norm == NormKind::kRmsOfOne;
            kernels_.rms_norm(from, width, {weight, nullptr, epsilon, one_plus}, to);
        }
    });
}

const float* RowMath::rounded_inputs(InputRounding how, const float* x, int64_t in, int64_t rows) {
    if (how == InputRounding::kNone) return x;
    grow(rounded_, rows * in);
    for_rows(rows, [&](int64_t row) {
        round_inputs(how, {x + row * in, static_cast<size_t>(in)}, rounded_.data() + row * in);
    });
    return rounded_.data();
}

void RowMath::multiply(std::span<const Use> uses, const float* x, int64_t in, int64_t rows) {
    const InputRounding rounding = uses.front().layer->inputs;
    if (std::ranges::any_of(uses, [&](const Use& use) { return use.layer->inputs != rounding; })) {
        for (const Use& use : uses) multiply({&use, 1}, x, in, rows);
        return;
    }
    if (observer_) observer_(uses, x, in, rows);
    std::vector<kernels::Product> products;
    bool has_adapters = false;
    for (const Use& use : uses) {
        const LinearWeights& layer = *use.layer;
        products.push_back({layer.weight.matrix, use.y, outputs_of(layer),
                            layer.bias.empty() ? nullptr : layer.bias.data(), false});
        has_adapters = has_adapters || layer.adapter.has_value();
    }
    const kernels::ActivationRows x_rows{rounded_inputs(rounding, x, in, rows), rows, in, in};
    // A file may have matrices of several types. If one of the matrices is bf16, prepares the
    // activations for bf16, because matrices of every type can be multiplied by activations in this
    // form.
    const kernels::Product* first = &products.front();
    for (const kernels::Product& product : products)
        if (product.matrix.shape.form == kernels::MatrixForm::kBf16) first = &product;
    activations_.assign(x_rows, first->matrix.shape, team_);
    kernels::multiply(products, activations_, team_);
    if (!has_adapters) return;
    for (const Use& use : uses) {
        if (!use.layer->adapter) continue;
        const LowRank& change = *use.layer->adapter;
        const int64_t rank = change.a.matrix.shape.out;
        grow(adapter_, rows * rank);
        const kernels::Product down{change.a.matrix, adapter_.data(), rank, nullptr, false};
        activations_.assign({x, rows, in, in}, change.a.matrix.shape, team_);
        kernels::multiply({&down, 1}, activations_, team_);
        const kernels::Product up{change.b.matrix, use.y, outputs_of(*use.layer), nullptr, true};
        activations_.assign({adapter_.data(), rows, rank, rank}, change.b.matrix.shape, team_);
        kernels::multiply({&up, 1}, activations_, team_);
    }
}

}  // namespace dslaunch::decoder
