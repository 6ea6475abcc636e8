// Every fixture model, cut into every number of segments. It must have the same bits as the whole
// model, and the numbers that stock PyTorch has written.
#include "graph/segment/segmented_model.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/ops/rand.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "support/catch.h"
#include "support/fixtures.h"
#include "support/whole_run.h"

namespace dslaunch {

using namespace graph;
namespace {

using test::Fixture;
using test::MutableState;
using test::run_module;
using test::run_segments;
using test::RunResult;
using test::segment_counts;

constexpr DrawKey kKey{7, 3, 5};

// Returns the whole run with which a model's cuts are compared: the model's own forward, or the
// graph in one segment if the model draws random numbers.
RunResult whole_run(const Fixture& fixture, const SegmentedModel& one,
                    const std::vector<c10::IValue>& arguments) {
    if (fixture.facts.at("random") == true) return run_segments(one, arguments, kKey, false);
    return run_module(one, arguments, fixture.options.loss);
}

constexpr double kRoundingRate = 1e-5;  // the rate in tests/fixtures/README.md

// Returns the size of the numbers that are added for a parameter's gradient; processors add them in
// different orders. It is the size of the gradient itself, or of larger terms that cancel. The
// terms of a linear layer's bias are the terms of its weight without the row's input as a factor.
// Inputs are of order one here, so the terms are as large as a column of the weight's gradient. The
// bias of attention's keys needs this: softmax does not see it, its terms cancel, and PyTorch's
// number is only rounding too.
double rounded_size(const nlohmann::json& gradients, const std::string& parameter) {
    const double size = gradients.at(parameter).at("abs_sum").get<double>();
    const size_t stem = parameter.size() - std::min(parameter.size(), std::string("bias").size());
    if (parameter.substr(stem) != "bias") return size;
    const auto weight = gradients.find(parameter.substr(0, stem) + "weight");
    if (weight == gradients.end()) return size;
    double columns = 1;
    for (size_t d = 1; d < weight->at("shape").size(); ++d)
        columns *= weight->at("shape")[d].get<double>();
    return std::max(size, weight->at("abs_sum").get<double>() / columns);
}

// Returns "" if GRADIENT is PyTorch's, up to TOLERANCE of its sums and elements.
std::string far_from(const nlohmann::json& reference, const at::Tensor& gradient,
                     double tolerance) {
    const at::Tensor values = gradient.to(at::kDouble).flatten();
    const auto differs = [&](const at::Tensor& value, const nlohmann::json& expected) {
        // A gradient that is not a number is far from every number.
        return !(std::abs(value.item<double>() - expected.get<double>()) <= tolerance);
    };
    if (differs(values.abs().sum(), reference.at("abs_sum"))) return "the sum of sizes differs";
    if (differs(values.sum(), reference.at("sum"))) return "the sum differs";
    for (size_t i = 0; i < reference.at("first").size(); ++i)
        if (differs(values[static_cast<int64_t>(i)], reference.at("first")[i]))
            return "element " + std::to_string(i) + " differs";
    return "";
}

}  // namespace

TEST_CASE(
    "a model cut into any number of segments has the loss and gradients of the model run whole") {
    at::set_num_threads(1);
    const auto names = test::fixture_names();
    REQUIRE(names.size() >= 18);
    for (const std::string& name : names) {
        Fixture fixture = Fixture::load(name);
        const SegmentedModel one = fixture.cut(1);
        REQUIRE(one.segments().size() == 1);
        REQUIRE(one.cut_places() > 0);
        const MutableState before(one);
        const auto arguments = fixture.batch(one);
        const RunResult whole = whole_run(fixture, one, arguments);
        REQUIRE(!whole.gradients.empty());
        for (const int64_t count : segment_counts(one.cut_places())) {
            const SegmentedModel cut = fixture.cut(count);
            CHECK(static_cast<int64_t>(cut.segments().size()) == count);
            for (const bool recompute : {false, true}) {
                before.restore();
                INFO(name << " in " << count << " segments" << (recompute ? ", recomputed" : ""));
                CHECK(difference(run_segments(cut, arguments, kKey, recompute), whole) == "");
            }
        }
    }
}

TEST_CASE("losses and gradients are those that stock PyTorch computed") {
    for (const std::string& name : test::fixture_names()) {
        const nlohmann::json facts = test::fixture_facts(name);
        const nlohmann::json& step = facts.at("step");
        if (step.is_null()) continue;
        Fixture fixture = Fixture::load(name, step.at("mode") == "train");
        const SegmentedModel cut = fixture.cut(3);
        const RunResult run = run_segments(cut, fixture.batch(cut), kKey, false);
        INFO(name);
        const double loss = step.at("loss").get<double>();
        CHECK(std::abs(run.loss - loss) <= kRoundingRate * std::abs(loss));
        const nlohmann::json& gradients = step.at("gradients");
        CHECK(run.gradients.size() == gradients.size());
        for (const auto& [parameter, reference] : gradients.items()) {
            INFO(parameter);
            REQUIRE(run.gradients.count(parameter) == 1);
            const at::Tensor& gradient = run.gradients.at(parameter);
            const double tolerance = kRoundingRate * rounded_size(gradients, parameter);
            CHECK(far_from(reference, gradient, tolerance) == "");
            // A gradient that is only rounding cannot be wrong by a small factor; a real gradient
            // in its place would be far off.
            const bool is_rounding = reference.at("abs_sum").get<double>() < tolerance;
            CHECK(is_rounding == (parameter.find(".key.bias") != std::string::npos));
            const at::Tensor wrong = is_rounding ? gradient + 10 * tolerance : gradient * 1.001;
            CHECK(far_from(reference, wrong, tolerance) != "");
        }
        for (const auto& parameter : step.at("without_gradient"))
            CHECK(run.gradients.count(parameter.get<std::string>()) == 0);
    }
}

TEST_CASE("dropout depends on seed, step and micro batch, and on nothing else") {
    for (const std::string name : {"gpt-dropout", "bert-dropout"}) {
        Fixture fixture = Fixture::load(name);
        const SegmentedModel cut = fixture.cut(4);
        const auto arguments = fixture.batch(cut);
        const auto loss_with = [&](const DrawKey& key) {
            return run_segments(cut, arguments, key, false).loss;
        };
        std::set<double> losses;
        for (const DrawKey& key : {DrawKey{1, 0, 0}, DrawKey{2, 0, 0}, DrawKey{1, 1, 0},
                                   DrawKey{1, 0, 1}, DrawKey{1, 1, 1}})
            losses.insert(loss_with(key));
        INFO(name);
        CHECK(losses.size() == 5);
        // Earlier draws from the generator do not matter.
        const double first = loss_with({1, 0, 0});
        at::manual_seed(99);
        static_cast<void>(at::rand({17}));
        CHECK(loss_with({1, 0, 0}) == first);
    }
}

TEST_CASE("evaluation of a model with dropout does not depend on the key") {
    Fixture fixture = Fixture::load("gpt-dropout", /*training=*/false);
    const SegmentedModel cut = fixture.cut(2);
    const auto arguments = fixture.batch(cut);
    CHECK(run_segments(cut, arguments, {1, 0, 0}, false).loss ==
          run_segments(cut, arguments, {2, 5, 9}, false).loss);
}

TEST_CASE("equal layers share one compiled graph") {
    Fixture fixture = Fixture::load("gpt");
    const SegmentedModel cut = fixture.cut(0);
    std::set<const torch::jit::Code*> codes;
    for (const Segment& segment : cut.segments()) codes.insert(segment.code.get());
    // The model has three equal blocks, and different segments before and after them.
    CHECK(cut.segments().size() >= 4);
    CHECK(codes.size() + 2 <= cut.segments().size());
}

TEST_CASE("segments read every parameter that forward reads, and name the others") {
    Fixture fixture = Fixture::load("tied-frozen-unused");
    const SegmentedModel cut = fixture.cut(5);
    std::set<std::string> unused;
    for (const int index : cut.unused_parameters())
        unused.insert(fixture.model.parameters()[index].name);
    CHECK(unused == std::set<std::string>{"unused.weight", "unused.bias"});
}

// The call through an interface may reach experts.1, which a later segment reads as an input of its
// own. If the list lacked experts.1, an update could run at the same time as the call.
TEST_CASE("a segment that calls through an interface reads every parameter, each once") {
    Fixture fixture = Fixture::load("interface");
    const SegmentedModel cut = fixture.cut(5);
    const size_t all = fixture.model.parameters().size();
    int callers = 0;
    bool reads_as_input_too = false;
    for (const Segment& segment : cut.segments()) {
        const std::vector<int> parameters = cut.parameters_of(segment);
        const std::set<int> once(parameters.begin(), parameters.end());
        CHECK(once.size() == parameters.size());
        if (!segment.takes_module) {
            reads_as_input_too |= std::ranges::any_of(segment.parameters, [&](int index) {
                return fixture.model.parameters()[index].name.starts_with("experts.1.");
            });
            CHECK(parameters == segment.parameters);
            continue;
        }
        ++callers;
        CHECK(parameters.size() == all);
    }
    CHECK(callers == 1);
    CHECK(reads_as_input_too);
}

}  // namespace dslaunch
