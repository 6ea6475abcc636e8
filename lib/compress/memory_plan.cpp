#include "compress/memory_plan.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/kinds/dtype.h"
#include "base/text.h"
#include "decoder/decode/key_value_cache.h"

namespace dslaunch::compress {
namespace {

constexpr int64_t kNumber = sizeof(float);
// The number of matrices [in, in] that are in use while a weight is rounded: the mean moments, the
// moments in the order of the rounding, and three in inverse_factor().
constexpr int64_t kSquares = 5;
// The number of fp32 copies of a weight while it is rounded: its numbers, its rounded numbers and,
// if there are texts, its numbers in the order of the rounding and two copies to compare outputs.
constexpr int64_t kCopies = 5, kCopiesToNearest = 2;

int64_t square(int64_t in) {
    return in * in * kNumber;
}

// Returns the bytes of the moments of all inputs of SIZES.
int64_t moments_of(std::span<const WeightSize> sizes) {
    int64_t bytes = 0;
    for (size_t i = 0; i < sizes.size(); ++i)
        if (i == 0 || sizes[i].input != sizes[i - 1].input) bytes += square(sizes[i].in);
    return bytes;
}

// Returns the bytes that a batch needs while it goes through a layer: the buffers of the decoder,
// and the transposed inputs for InputMoments.
int64_t pass_of(const storage::TransformerConfig& config, std::span<const LayerSizes> layers,
                const WalkSize& texts) {
    int64_t widest = std::max(config.width, config.mlp_width);
    for (const LayerSizes& layer : layers)
        for (const WeightSize& weight : layer) widest = std::max(widest, weight.in);
    const int64_t heads = config.heads * config.head_width;
    const int64_t keys = config.key_heads * config.head_width;
    const int64_t mlp =
        std::max({config.mlp_width, config.expert_width, config.shared_expert_width});
    // Each row needs these buffers: hidden, normed and two branches; query, mixed and fused; key
    // and value; gate and up; and the transposed inputs twice, because some forms also keep rounded
    // inputs.
    const int64_t row = 4 * config.width + 3 * heads + 4 * keys + 2 * mlp + 2 * widest;
    const decoder::CacheShape cache{1, config.heads, config.key_heads, texts.pages, DType::kF32};
    return texts.rows_max * row * kNumber +
           texts.pages * decoder::KeyValueCache::page_bytes(config, cache);
}

// Returns the bytes of the rounding that needs the most memory.
int64_t rounding_of(std::span<const LayerSizes> layers, bool has_texts) {
    int64_t most = 0;
    for (const LayerSizes& layer : layers)
        for (const WeightSize& weight : layer) {
            const int64_t numbers = weight.out * weight.in;
            const int64_t copies = (has_texts ? kCopies : kCopiesToNearest) * kNumber;
            most = std::max(
                most, numbers * (copies + 1) + (has_texts ? kSquares * square(weight.in) : 0));
        }
    return most;
}

// Returns the bytes of a descent on a layer with NUMBERS weights: each has a number, an offset, a
// value and its gradient, and two codes. The activations of the longest text are kept for its
// gradients.
int64_t descent_of(const storage::TransformerConfig& config, int64_t numbers,
                   const WalkSize& texts) {
    constexpr int64_t kCodes = 2, kNumbers = 4;
    const int64_t heads = config.heads * config.head_width;
    const int64_t keys = config.key_heads * config.head_width;
    const int64_t mlp =
        std::max({config.mlp_width, config.expert_width, config.shared_expert_width});
    // Each row has these activations and their gradients: hidden rows and norms; queries and keys,
    // before and after the rotation; values and the mix; and the parts of the MLP.
    const int64_t row = 2 * (8 * config.width + 4 * heads + 4 * keys + 4 * mlp);
    return numbers * (kNumbers * kNumber + kCodes) + texts.text_max * row * kNumber;
}

std::string list_of(const MemoryNeed& need) {
    std::string list;
    const auto add = [&](const char* what, Bytes bytes) {
        if (bytes.value > 0) list += fmt::format("{} {}, ", what, to_text(bytes));
    };
    add("calibration texts", need.texts);
    add("a layer's quantized weights", need.weights);
    add("statistics of its inputs", need.moments);
    add("a forward pass of a batch", need.pass);
    add("the rounding of a weight", need.rounding);
    add("the descent on a layer", need.descent);
    return list + fmt::format(
                      "and a reserve of {}; a pass, a rounding and a descent do not happen at the "
                      "same time",
                      to_text(need.spare));
}

}  // namespace

std::vector<Range> portions_of(const LayerSizes& layer, Bytes moments_max) {
    std::vector<Range> portions;
    int64_t bytes = 0;
    for (int64_t i = 0; i < std::ssize(layer); ++i) {
        const WeightSize& weight = layer[static_cast<size_t>(i)];
        const bool shares = i > 0 && weight.input == layer[static_cast<size_t>(i - 1)].input;
        const int64_t own = shares ? 0 : square(weight.in);
        if (portions.empty() || (!shares && bytes + own > moments_max.value)) {
            portions.push_back({i, 0});
            bytes = 0;
        }
        bytes += own;
        ++portions.back().numel;
    }
    return portions;
}

MemoryPlan plan_memory(const storage::TransformerConfig& config, std::span<const LayerSizes> layers,
                       const WalkSize& texts, const std::optional<MemoryLimit>& limit) {
    const bool has_texts = texts.tokens > 0;
    MemoryPlan plan;
    int64_t weights = 0, all_moments = 0, one_input = 0;
    for (const LayerSizes& layer : layers) {
        int64_t numbers = 0;
        for (const WeightSize& weight : layer) {
            numbers += weight.out * weight.in;
            one_input = std::max(one_input, square(weight.in));
        }
        weights = std::max(weights, numbers);
        all_moments = std::max(all_moments, moments_of(layer));
    }
    const int64_t stored = dtype_bytes(config.dtype);
    plan.largest_layer = {weights * stored};
    // A descent needs the rows of the exact model besides.
    plan.need.texts = {texts.tokens * config.width * kNumber * (texts.descends ? 2 : 1)};
    plan.need.weights = {weights * (has_texts ? 1 + stored : 1)};
    plan.need.pass = {has_texts ? pass_of(config, layers, texts) : 0};
    plan.need.rounding = {rounding_of(layers, has_texts)};
    if (texts.descends) plan.need.descent = {descent_of(config, weights, texts)};
    plan.need.spare = {plan.need.total().value / 5};
    plan.moments_max = {std::numeric_limits<int64_t>::max()};
    if (!has_texts) one_input = all_moments = 0;
    if (limit) {
        const MemoryNeed& need = plan.need;
        const Bytes left = limit->left - need.texts - need.weights - need.spare -
                           std::max(need.pass, need.rounding);
        plan.need.moments = {one_input};
        if (need.total() > limit->left)
            fail(ExitCode::kSetup,
                 "compressing a layer needs {} of memory ({}), but only {} is free ({}): free more "
                 "memory{}",
                 to_text(plan.need.total()), list_of(plan.need), to_text(limit->left), limit->name,
                 has_texts ? ", or calibrate with fewer or shorter rows (--calibration-rows)" : "");
        plan.moments_max = left;
    }
    plan.need.moments = {std::min(all_moments, plan.moments_max.value)};
    if (has_texts)
        for (const LayerSizes& layer : layers)
            plan.passes = std::max(plan.passes, std::ssize(portions_of(layer, plan.moments_max)));
    return plan;
}

}  // namespace dslaunch::compress
