// The descent on a layer's outputs, for a layer that is one matrix: its gradients are known in
// closed form, and for a few inputs all ways to round can be tried.
#include "compress/layer_descent.h"

#include <cmath>
#include <random>

#include "support/catch.h"

namespace dslaunch::compress {
namespace {

// Outputs x W^T, W [out, in].
class ProductLayer final : public LayerFunction {
  public:
    ProductLayer(int64_t out, int64_t in)
        : out_(static_cast<size_t>(out)),
          in_(static_cast<size_t>(in)),
          weight_(out_ * in_),
          gradient_(out_ * in_) {}

    std::span<float> weight(size_t) override { return weight_; }
    std::span<const float> gradient(size_t) override { return gradient_; }
    double difference(const LayerText& text) override { return go(text, false); }
    double add_gradients(const LayerText& text) override { return go(text, true); }
    void clear_gradients() override { std::ranges::fill(gradient_, 0.0F); }

  private:
    double go(const LayerText& text, bool adds) {
        double sum = 0;
        for (size_t row = 0; row < static_cast<size_t>(text.rows); ++row)
            for (size_t o = 0; o < out_; ++o) {
                double error = -static_cast<double>(text.outputs[row * out_ + o]);
                for (size_t i = 0; i < in_; ++i)
                    error += static_cast<double>(weight_[o * in_ + i]) * text.inputs[row * in_ + i];
                sum += error * error;
                for (size_t i = 0; adds && i < in_; ++i)
                    gradient_[o * in_ + i] +=
                        static_cast<float>(2 * error * text.inputs[row * in_ + i]);
            }
        return sum;
    }

    size_t out_, in_;
    std::vector<float> weight_, gradient_;
};

// Texts of random rows and the exact outputs of a random matrix. As in models, the inputs of a row
// depend on a few common factors, so errors of one weight can make up for errors of others.
constexpr int64_t kFactors = 4;
struct Problem {
    int64_t out, in;
    std::vector<float> numbers;
    std::vector<std::vector<float>> inputs, outputs;
    std::vector<LayerText> texts;

    Problem(int64_t out, int64_t in, uint32_t seed) : out(out), in(in) {
        std::mt19937 random(seed);
        std::normal_distribution<float> normal;
        for (int64_t i = 0; i < out * in; ++i) numbers.push_back(normal(random));
        std::vector<float> loads;
        for (int64_t i = 0; i < kFactors * in; ++i) loads.push_back(normal(random));
        for (int64_t length = 5; length < 12; ++length) {
            inputs.emplace_back();
            outputs.emplace_back();
            for (int64_t row = 0; row < length; ++row) {
                std::vector<float> factors;
                for (int64_t f = 0; f < kFactors; ++f) factors.push_back(normal(random));
                for (int64_t i = 0; i < in; ++i) {
                    float input = 0.1F * normal(random);
                    for (int64_t f = 0; f < kFactors; ++f)
                        input += factors[static_cast<size_t>(f)] *
                                 loads[static_cast<size_t>(f * in + i)];
                    inputs.back().push_back(input);
                }
                for (int64_t o = 0; o < out; ++o) {
                    double sum = 0;
                    for (int64_t i = 0; i < in; ++i)
                        sum += static_cast<double>(numbers[static_cast<size_t>(o * in + i)]) *
                               inputs.back()[static_cast<size_t>(row * in + i)];
                    outputs.back().push_back(static_cast<float>(sum));
                }
            }
        }
        for (size_t text = 0; text < inputs.size(); ++text)
            texts.push_back({inputs[text], outputs[text], std::ssize(inputs[text]) / in});
    }

    [[nodiscard]] double squares() const {
        double sum = 0;
        for (const auto& rows : outputs)
            for (const float number : rows) sum += static_cast<double>(number) * number;
        return sum;
    }
};

RoundingForm form_of(int bits, bool has_minimum, int64_t group) {
    return {bits, false, has_minimum, group, true, DType::kF16};
}

DescentResult descend_on(const Problem& problem, const RoundingForm& form, int64_t steps,
                         int threads = 1) {
    kernels::ThreadTeam team(threads);
    ProductLayer layer(problem.out, problem.in);
    std::vector<DescentWeight> weights;
    weights.push_back(descent_weight(form, problem.numbers, problem.out, nullptr, team));
    return descend(layer, std::move(weights), problem.texts, {steps, 16}, team);
}

double error_of(const Problem& problem, const RoundedMatrix& weight) {
    kernels::ThreadTeam team(1);
    ProductLayer layer(problem.out, problem.in);
    std::ranges::copy(numbers_of(weight, team), layer.weight(0).begin());
    double sum = 0;
    for (const LayerText& text : problem.texts) sum += layer.difference(text);
    return std::sqrt(sum / problem.squares());
}

TEST_CASE("a descent begins at the nearest codes and reports the errors of its weights") {
    for (const bool has_minimum : {true, false})
        for (const int bits : {2, 3, 4, 8}) {
            INFO(bits << " bits, minimum " << has_minimum);
            const Problem problem(12, 32, 7);
            const RoundingForm form = form_of(bits, has_minimum, 16);
            kernels::ThreadTeam team(1);
            const RoundedMatrix nearest =
                round_to_nearest(form, problem.numbers, problem.out, team);
            const DescentResult made = descend_on(problem, form, 100);
            CHECK(made.before == Approx(error_of(problem, nearest)).epsilon(1e-6));
            CHECK(made.after == Approx(error_of(problem, made.weights[0])).epsilon(1e-6));
            CHECK(made.weights[0].form == form);
            for (const uint8_t code : made.weights[0].codes) REQUIRE(code < (1 << bits));
            CHECK(made.after < 0.9 * made.before);
        }
}

TEST_CASE("without steps, or with gradients that say nothing, the codes stay the nearest ones") {
    const Problem problem(4, 16, 3);
    const RoundingForm form = form_of(3, true, 8);
    kernels::ThreadTeam team(1);
    const RoundedMatrix nearest = round_to_nearest(form, problem.numbers, problem.out, team);
    CHECK(descend_on(problem, form, 0).weights[0].codes == nearest.codes);
    class Deaf final : public LayerFunction {
      public:
        std::span<float> weight(size_t) override { return numbers; }
        std::span<const float> gradient(size_t) override { return zeros; }
        double difference(const LayerText&) override { return 1; }
        double add_gradients(const LayerText&) override { return 1; }
        void clear_gradients() override {}
        std::vector<float> numbers = std::vector<float>(64), zeros = std::vector<float>(64);
    } deaf;
    std::vector<DescentWeight> weights;
    weights.push_back(descent_weight(form, problem.numbers, problem.out, nullptr, team));
    const DescentResult made = descend(deaf, std::move(weights), problem.texts, {20, 8}, team);
    CHECK(made.weights[0].codes == nearest.codes);
}

TEST_CASE("a descent comes near the best of all ways to round up or down") {
    double descended = 0, best_of_all = 0, to_nearest = 0;
    for (uint32_t seed = 1; seed <= 20; ++seed) {
        const Problem problem(1, 8, seed);
        const RoundingForm form = form_of(3, true, 0);
        kernels::ThreadTeam team(1);
        RoundedMatrix tried = round_to_nearest(form, problem.numbers, 1, team);
        const RoundedMatrix nearest = tried;
        double best = error_of(problem, nearest);
        to_nearest += best;
        for (uint32_t ways = 0; ways < 256; ++ways) {
            for (size_t i = 0; i < 8; ++i) {
                const GroupScale& scale = nearest.scales[0];
                const float place = problem.numbers[i] / scale.scale;
                const float side = (ways >> i) % 2 == 0 ? std::floor(place) : std::ceil(place);
                tried.codes[i] = code_of(form, scale, side * scale.scale);
            }
            best = std::min(best, error_of(problem, tried));
        }
        best_of_all += best;
        descended += descend_on(problem, form, 400).after;
    }
    // The descent may choose other ranges too, but does not try all ways.
    CHECK(descended < best_of_all + 0.5 * (to_nearest - best_of_all));
}

TEST_CASE("the result of a descent does not depend on the number of threads") {
    const Problem problem(40, 48, 11);
    for (const bool has_minimum : {true, false}) {
        const RoundingForm form = form_of(2, has_minimum, 16);
        const DescentResult one = descend_on(problem, form, 60),
                            three = descend_on(problem, form, 60, 3);
        CHECK(one.weights[0].codes == three.weights[0].codes);
        CHECK(one.after == three.after);
    }
}

TEST_CASE("a descent that begins with compensated numbers is no worse than compensation") {
    const Problem problem(12, 32, 5);
    const RoundingForm form = form_of(2, true, 16);
    kernels::ThreadTeam team(1);
    std::vector<float> moments(static_cast<size_t>(problem.in * problem.in));
    int64_t rows = 0;
    for (const LayerText& text : problem.texts)
        for (int64_t row = 0; row < text.rows; ++row, ++rows)
            for (int64_t i = 0; i < problem.in; ++i)
                for (int64_t k = 0; k < problem.in; ++k)
                    moments[static_cast<size_t>(i * problem.in + k)] +=
                        text.inputs[static_cast<size_t>(row * problem.in + i)] *
                        text.inputs[static_cast<size_t>(row * problem.in + k)];
    for (float& moment : moments) moment /= static_cast<float>(rows);
    const InputOrder inputs = order_inputs(moments, problem.in, 0.1, team);
    const RoundedMatrix compensated =
        round_with_compensation(form, problem.numbers, problem.out, inputs, team);
    std::vector<DescentWeight> weights;
    weights.push_back(descent_weight(form, problem.numbers, problem.out, &inputs, team));
    ProductLayer layer(problem.out, problem.in);
    const DescentResult made = descend(layer, std::move(weights), problem.texts, {100, 16}, team);
    CHECK(made.before == Approx(error_of(problem, compensated)).epsilon(1e-6));
    CHECK(made.after <= made.before);
}

}  // namespace
}  // namespace dslaunch::compress
