#include "plan/predict/longer_pass.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.h"

namespace dslaunch::plan {

namespace {

constexpr size_t kPoints = 3;  // through which a polynomial of second degree goes

// The polynomial CONSTANT + LINEAR n + SQUARE n^2 of a sample's tokens n.
struct Growth {
    double constant = 0, linear = 0, square = 0;

    [[nodiscard]] double at(PassSize size) const {
        const auto n = static_cast<double>(size.tokens);
        return constant + static_cast<double>(size.rows) * n * (linear + square * n);
    }
};

// Returns the polynomial through the points (TOKENS, VALUES). A part that explains less than a
// small share of the last value is noise, which would grow with the length: it is left out.
Growth growth_of(const std::array<double, kPoints>& tokens,
                 const std::array<double, kPoints>& values) {
    constexpr double kNoise = 2e-3;
    const double first = (values[1] - values[0]) / (tokens[1] - tokens[0]);
    const double second = (values[2] - values[1]) / (tokens[2] - tokens[1]);
    double square = (second - first) / (tokens[2] - tokens[0]);
    if (square * tokens[2] * tokens[2] < kNoise * values[2]) square = 0;
    const double linear =
        std::max(0.0, square > 0 ? second - square * (tokens[1] + tokens[2]) : second);
    const double constant = values[2] - tokens[2] * (linear + square * tokens[2]);
    if (constant >= 0) return {constant, linear, square};
    // The least growth that reaches the last value from 0.
    return {0, std::max(0.0, values[2] / tokens[2] - square * tokens[2]), square};
}

// Returns the growth of VALUE_OF(pass) over the last PASSES.
template <typename ValueOf>
Growth growth_over(std::span<const MeasuredPass> passes, const ValueOf& value_of) {
    DSL_CHECK(passes.size() >= kPoints, "a growth needs three passes");
    std::array<double, kPoints> tokens{}, values{};
    for (size_t i = 0; i < kPoints; ++i) {
        const MeasuredPass& pass = passes[passes.size() - kPoints + i];
        tokens[i] = static_cast<double>(pass.tokens);
        values[i] = static_cast<double>(value_of(pass));
    }
    return growth_of(tokens, values);
}

int64_t whole(double value) {
    constexpr double kMost = 9e18;
    return std::llround(std::min(value, kMost));
}

// Estimates one number of each segment, and of the batch.
class Estimate {
  public:
    Estimate(std::span<const MeasuredPass> passes, PassSize size) : passes_(passes), size_(size) {}

    template <typename ValueOf>
    [[nodiscard]] int64_t of(const ValueOf& value_of) const {
        return whole(growth_over(passes_, value_of).at(size_));
    }

    // Estimates FIELD, a number of bytes of the segment INDEX.
    [[nodiscard]] Bytes bytes(size_t index, Bytes SegmentInfo::*field) const {
        return Bytes{
            of([&](const MeasuredPass& pass) { return (pass.info.segments[index].*field).value; })};
    }

    // Estimates the sum of PEAK and BLOCKS of the segment INDEX. A tensor that grows beyond
    // kLargeBlock moves from one to the other, so only their sum grows evenly.
    void peaks(size_t index, Bytes SegmentInfo::*peak, Bytes SegmentInfo::*blocks,
               SegmentInfo& into) const {
        const Bytes sum{of([&](const MeasuredPass& pass) {
            const SegmentInfo& segment = pass.info.segments[index];
            return (segment.*peak + segment.*blocks).value;
        })};
        into.*peak = std::min(sum, bytes(index, peak));
        into.*blocks = sum - into.*peak;
    }

  private:
    std::span<const MeasuredPass> passes_;
    PassSize size_;
};

}  // namespace

Bytes pass_bytes(const ModelInfo& info) {
    Bytes most, inputs = info.batch_bytes;
    for (const SegmentInfo& segment : info.segments) {
        const Bytes forward = segment.forward_peak + segment.forward_blocks;
        const Bytes backward = segment.backward_peak + segment.backward_blocks;
        most = std::max(most, inputs + std::max(forward, backward));
        inputs = segment.output_bytes;
    }
    return most;
}

PassCost cost_of_pass(std::span<const MeasuredPass> passes, PassSize size) {
    const Growth seconds =
        growth_over(passes, [](const MeasuredPass& pass) { return pass.seconds; });
    const Growth bytes =
        growth_over(passes, [](const MeasuredPass& pass) { return pass_bytes(pass.info).value; });
    return {seconds.at(size), Bytes{whole(bytes.at(size))}};
}

ModelInfo info_of_pass(std::span<const MeasuredPass> passes, PassSize size) {
    ModelInfo info = passes.back().info;
    for (const MeasuredPass& pass : passes)
        DSL_CHECK(pass.info.segments.size() == info.segments.size(), "passes of different models");
    const Estimate estimate(passes, size);
    info.batch_bytes =
        Bytes{estimate.of([](const MeasuredPass& pass) { return pass.info.batch_bytes.value; })};
    for (size_t s = 0; s < info.segments.size(); ++s) {
        SegmentInfo& segment = info.segments[s];
        segment.output_bytes = estimate.bytes(s, &SegmentInfo::output_bytes);
        segment.activation_bytes = estimate.bytes(s, &SegmentInfo::activation_bytes);
        segment.weight_half_bytes = estimate.bytes(s, &SegmentInfo::weight_half_bytes);
        segment.forward_flops = estimate.of(
            [&](const MeasuredPass& pass) { return pass.info.segments[s].forward_flops; });
        estimate.peaks(s, &SegmentInfo::forward_peak, &SegmentInfo::forward_blocks, segment);
        estimate.peaks(s, &SegmentInfo::backward_peak, &SegmentInfo::backward_blocks, segment);
    }
    return info;
}

}  // namespace dslaunch::plan
