#include "compress/layer_descent.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/splitmix64.h"

namespace dslaunch::compress {
namespace {

constexpr int64_t kDescentRows = 8;  // of a weight, for one thread at a time
constexpr float kOffsetMax = 0.5F;   // more would be the rounding of another number
constexpr float kNarrowest = 0.1F;   // the least part of its widest range that a group keeps
constexpr int64_t kTimesTried = 4;   // how often the texts are all tried during a descent

float sign_of(float number) {
    return static_cast<float>(static_cast<int>(number > 0) - static_cast<int>(number < 0));
}

// A weight during the descent: each number has an offset, and each group has two parts.
class DescentState {
  public:
    DescentState(DescentWeight weight, kernels::ThreadTeam& team)
        : weight_(std::move(weight)), team_(team), offsets_(weight_.numbers.size()) {
        rounded_ = {weight_.out, weight_.in, weight_.form, {}, {}};
        rounded_.codes.resize(weight_.numbers.size());
        const auto groups = static_cast<size_t>(weight_.out * rounded_.groups());
        DSL_CHECK(std::ssize(weight_.numbers) == weight_.out * weight_.in &&
                      weight_.ranges.size() == groups && weight_.narrowed.size() == groups,
                  "{} numbers in {} groups are no matrix [{}, {}]", weight_.numbers.size(),
                  weight_.ranges.size(), weight_.out, weight_.in);
        rounded_.scales.resize(groups);
        for (size_t group = 0; group < groups; ++group) {
            const GroupRange &widest = weight_.ranges[group], &own = weight_.narrowed[group];
            GroupRange part{widest.low < 0 ? own.low / widest.low : 1,
                            widest.high > 0 ? own.high / widest.high : 1};
            // Without a minimum, both ends have the same part.
            if (!weight_.form.has_minimum) part.low = part.high = std::min(part.low, part.high);
            parts_.push_back(part);
        }
    }

    // Rounds the numbers, and writes what the codes stand for into VALUES.
    void round(std::span<float> values) {
        for_groups([&](size_t group, size_t begin, size_t length) {
            const GroupScale scale = scale_of(weight_.form, range(group));
            rounded_.scales[group] = scale;
            for (size_t i = begin; i < begin + length; ++i) {
                const uint8_t code =
                    code_of(weight_.form, scale, weight_.numbers[i] + offsets_[i] * scale.scale);
                rounded_.codes[i] = code;
                values[i] = number_of(weight_.form, scale, code);
            }
        });
    }

    // Takes a step of length RATE against the signs of GRADIENTS, the gradients of the values that
    // round() wrote. Rounding counts as the identity, as in the paper.
    void step(std::span<const float> gradients, float rate) {
        const float codes = static_cast<float>((1 << weight_.form.bits) - 1);
        for_groups([&](size_t group, size_t begin, size_t length) {
            const GroupScale& scale = rounded_.scales[group];
            const auto zero = static_cast<float>(scale.zero);
            const float low = range(group).low;
            float of_scale = 0, of_clipped = 0;
            for (size_t i = begin; i < begin + length; ++i) {
                const float position = weight_.numbers[i] / scale.scale;
                const float place = position + offsets_[i] + zero;
                const float code = static_cast<float>(rounded_.codes[i]) - zero;
                const bool is_clipped = place < -kOffsetMax || place > codes + kOffsetMax;
                if (is_clipped) {
                    of_scale +=
                        gradients[i] * (weight_.form.has_minimum ? code - low / scale.scale : code);
                    of_clipped += gradients[i];
                } else {
                    of_scale += gradients[i] * (code - position);
                    offsets_[i] = std::clamp(offsets_[i] - rate * sign_of(gradients[i]),
                                             -kOffsetMax, kOffsetMax);
                }
            }
            GroupRange& part = parts_[group];
            if (weight_.form.has_minimum) {
                const float of_low = of_clipped - of_scale / codes;
                const float of_high = of_scale / codes;
                // The lower end is negative: a larger part moves it down.
                narrow(part.low, -of_low, rate);
                narrow(part.high, of_high, rate);
            } else {
                narrow(part.low, of_scale, rate);
                part.high = part.low;
            }
        });
    }

    [[nodiscard]] const RoundedMatrix& rounded() const { return rounded_; }

  private:
    static void narrow(float& part, float gradient, float rate) {
        part = std::clamp(part - rate * sign_of(gradient), kNarrowest, 1.0F);
    }

    [[nodiscard]] GroupRange range(size_t group) const {
        const GroupRange &widest = weight_.ranges[group], &part = parts_[group];
        return {widest.low * part.low, widest.high * part.high};
    }

    // Calls WORK(group, index of its first number, its numbers) for all groups.
    template <typename Work>
    void for_groups(const Work& work) {
        const int64_t in = weight_.in, wide = rounded_.group(), groups = rounded_.groups();
        team_.for_chunks((weight_.out + kDescentRows - 1) / kDescentRows, [&](int64_t chunk) {
            const int64_t end = std::min(weight_.out, (chunk + 1) * kDescentRows);
            for (int64_t row = chunk * kDescentRows; row < end; ++row)
                for (int64_t g = 0; g < groups; ++g)
                    work(static_cast<size_t>(row * groups + g),
                         static_cast<size_t>(row * in + g * wide),
                         static_cast<size_t>(std::min(wide, in - g * wide)));
        });
    }

    DescentWeight weight_;
    kernels::ThreadTeam& team_;
    RoundedMatrix rounded_;
    std::vector<float> offsets_;     // [out, in], in units of the group's scale
    std::vector<GroupRange> parts_;  // [out, groups]: the parts of the widest ranges' ends
};

// The texts of each step: all texts in a random order, then all in another one, and so on.
class TextOrder {
  public:
    explicit TextOrder(std::span<const LayerText> texts) : texts_(texts) {}

    const LayerText& next() {
        if (place_ == order_.size()) shuffle();
        return texts_[order_[place_++]];
    }

  private:
    void shuffle() {
        order_.resize(texts_.size());
        std::iota(order_.begin(), order_.end(), size_t{0});
        const uint64_t round = rounds_++ << 32U;
        std::ranges::sort(order_, {}, [&](size_t text) { return splitmix64(round + text); });
        place_ = 0;
    }

    std::span<const LayerText> texts_;
    std::vector<size_t> order_;
    size_t place_ = 0;
    uint64_t rounds_ = 0;
};

class Descent {
  public:
    Descent(LayerFunction& layer, std::vector<DescentWeight> weights,
            std::span<const LayerText> texts, const DescentOptions& options,
            kernels::ThreadTeam& team)
        : layer_(layer), texts_(texts), options_(options) {
        for (DescentWeight& weight : weights) states_.emplace_back(std::move(weight), team);
    }

    DescentResult run() {
        double outputs = 0;
        for (const LayerText& text : texts_)
            for (const float number : text.outputs) outputs += static_cast<double>(number) * number;
        TextOrder order(texts_);
        const int64_t between = std::max<int64_t>(1, options_.steps / kTimesTried);
        for (int64_t step = 0; step < options_.steps; ++step) {
            round();
            if (step % between == 0) keep_best();
            layer_.clear_gradients();
            for (int64_t rows = 0; rows < options_.rows;) {
                const LayerText& text = order.next();
                layer_.add_gradients(text);
                rows += text.rows;
            }
            const float left = 1 - static_cast<float>(step) / static_cast<float>(options_.steps);
            const float rate = left / static_cast<float>(options_.steps);
            for (size_t i = 0; i < states_.size(); ++i) states_[i].step(layer_.gradient(i), rate);
        }
        round();
        keep_best();
        const double scale = outputs > 0 ? 1 / outputs : 0;
        best_.before = std::sqrt(first_ * scale);
        best_.after = std::sqrt(least_ * scale);
        return std::move(best_);
    }

  private:
    void round() {
        for (size_t i = 0; i < states_.size(); ++i) states_[i].round(layer_.weight(i));
    }

    // Keeps the weights as they are rounded now, if they are the best so far on all texts.
    void keep_best() {
        double sum = 0;
        for (const LayerText& text : texts_) sum += layer_.difference(text);
        const bool is_first = best_.weights.empty();
        if (is_first) first_ = sum;
        if (!is_first && !(sum < least_)) return;
        least_ = sum;
        best_.weights.clear();
        for (const DescentState& state : states_) best_.weights.push_back(state.rounded());
    }

    LayerFunction& layer_;
    std::span<const LayerText> texts_;
    const DescentOptions options_;
    std::vector<DescentState> states_;
    DescentResult best_;
    double first_ = 0, least_ = 0;
};

}  // namespace

DescentWeight descent_weight(const RoundingForm& form, const std::vector<float>& numbers,
                             int64_t out, const InputOrder* inputs, kernels::ThreadTeam& team) {
    DescentWeight weight{form, {}, {}, {}, out, std::ssize(numbers) / out};
    const auto group = static_cast<size_t>(form.group == 0 ? weight.in : form.group);
    for (size_t begin = 0; begin < numbers.size(); begin += group) {
        const std::span<const float> own(numbers.data() + begin, group);
        std::span<const float> importance;
        if (inputs != nullptr)
            importance = std::span(inputs->importance)
                             .subspan(begin % static_cast<size_t>(weight.in), group);
        weight.ranges.push_back(range_of(own));
        weight.narrowed.push_back(fit_range(form, own, importance));
    }
    weight.numbers = numbers;
    if (inputs != nullptr)
        static_cast<void>(
            round_with_compensation(form, numbers, out, *inputs, team, &weight.numbers));
    return weight;
}

DescentResult descend(LayerFunction& layer, std::vector<DescentWeight> weights,
                      std::span<const LayerText> texts, const DescentOptions& options,
                      kernels::ThreadTeam& team) {
    return Descent(layer, std::move(weights), texts, options, team).run();
}

}  // namespace dslaunch::compress
