// The formulas by which verify checks optimizers' updates, compared with first steps that were
// computed by hand.
#include "job/verify/update_error.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "support/catch.h"

namespace dslaunch::job {
namespace {

using config::OptimizerConfig;
using config::OptimizerKind;

struct Update {
    std::string name;
    OptimizerConfig config;
    UpdateFacts facts;
    ElementValues before, after;
};

OptimizerConfig rule(OptimizerKind kind) {
    OptimizerConfig config;
    config.kind = kind;
    config.beta1 = 0.9;
    config.beta2 = 0.99;
    config.eps = 1e-8;
    config.weight_decay = 0;
    return config;
}

// The gradient is 0.5, the rate 0.1, the parameter 2. From states of 0, each of these rules except
// SGD moves by the whole rate in the gradient's direction.
std::vector<Update> first_updates() {
    std::vector<Update> updates;
    const UpdateFacts facts{0.5, 0.1, 1};
    const ElementValues before{2, 0, 0};
    OptimizerConfig adam = rule(OptimizerKind::kAdam);
    updates.push_back({"Adam", adam, facts, before, {1.9, 0.05, 0.0025}});
    OptimizerConfig adamw = rule(OptimizerKind::kAdamW);
    adamw.weight_decay = 0.5;  // keeps 0.95 of 2
    updates.push_back({"AdamW", adamw, facts, before, {1.8, 0.05, 0.0025}});
    adam.bias_correction = false;  // 0.05 / sqrt(0.0025) is 1
    updates.push_back({"Adam, uncorrected", adam, facts, before, {1.9, 0.05, 0.0025}});
    adam.amsgrad = true;
    // 0.05 / sqrt(0.01) is a half. A largest second moment is a number in fp32.
    const double larger = 0.01F, smaller = 0.001F, square = 0.0025F;
    updates.push_back(
        {"Adam, amsgrad", adam, facts, {2, 0, 0, larger}, {1.95, 0.05, square, larger}});
    updates.push_back(
        {"Adam, amsgrad, larger", adam, facts, {2, 0, 0, smaller}, {1.9, 0.05, square, square}});
    updates.push_back({"Adagrad", rule(OptimizerKind::kAdagrad), facts, before, {1.9, 0.25, 0}});
    updates.push_back({"Lion", rule(OptimizerKind::kLion), facts, before, {1.9, 0.005, 0}});
    OptimizerConfig sgd = rule(OptimizerKind::kSgd);
    updates.push_back({"SGD", sgd, facts, before, {1.95, 0, 0}});
    OptimizerConfig climbs = sgd;
    climbs.maximize = true;
    updates.push_back({"SGD, maximize", climbs, facts, before, {2.05, 0, 0}});
    sgd.momentum = 0.5;
    updates.push_back({"SGD, momentum", sgd, {0.5, 0.1, 2}, {2, 1, 0}, {1.9, 1, 0}});
    sgd.nesterov = true;  // the gradient, and half of the momentum 1
    updates.push_back({"SGD, Nesterov", sgd, {0.5, 0.1, 2}, {2, 1, 0}, {1.9, 1, 0}});
    return updates;
}

float next_to(double value, int places) {
    auto near = static_cast<float>(value);
    for (int i = 0; i < places; ++i) near = std::nextafter(near, 10.0F);
    return near;
}

ElementValues in_fp32(const ElementValues& values) {
    return {static_cast<float>(values.parameter), static_cast<float>(values.first),
            static_cast<float>(values.second), static_cast<float>(values.third)};
}

}  // namespace

TEST_CASE("an update by each optimizer's rule is right, rounded to fp32 and a place beside it") {
    for (const Update& update : first_updates()) {
        INFO(update.name);
        ElementValues after = in_fp32(update.after);
        CHECK(update_error(update.config, update.facts, update.before, after) <= 1);
        after.parameter = next_to(update.after.parameter, 1);
        CHECK(update_error(update.config, update.facts, update.before, after) <= 1);
    }
}

// An update moves the parameter by at least 0.05. 32 units in the parameter's last place are 8e-5
// of that.
TEST_CASE("an update that is off by more than rounding is found, in the value or in a state") {
    for (const Update& update : first_updates()) {
        INFO(update.name);
        const auto error = [&](const ElementValues& after) {
            return update_error(update.config, update.facts, update.before, after);
        };
        const ElementValues right = in_fp32(update.after);
        ElementValues wrong = right;
        wrong.parameter = next_to(right.parameter, 32);
        CHECK(error(wrong) > 1);
        wrong.parameter = update.before.parameter;
        CHECK(error(wrong) > 1);
        wrong.parameter = std::numeric_limits<double>::quiet_NaN();
        CHECK(error(wrong) > 1);
        wrong = right;
        if (update.after.first != 0) {
            wrong.first *= 1.001;
            CHECK(error(wrong) > 1);
        }
        wrong = right;
        if (update.after.second != 0) {
            wrong.second *= 1.001;
            CHECK(error(wrong) > 1);
        }
    }
}

TEST_CASE("an update with another gradient, rate or number is found") {
    for (const Update& update : first_updates()) {
        INFO(update.name);
        const ElementValues after = in_fp32(update.after);
        UpdateFacts other = update.facts;
        other.lr *= 1.01;
        CHECK(update_error(update.config, other, update.before, after) > 1);
        other = update.facts;
        other.gradient = -other.gradient;
        CHECK(update_error(update.config, other, update.before, after) > 1);
    }
}

}  // namespace dslaunch::job
