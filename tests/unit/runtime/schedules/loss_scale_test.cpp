// The scaler, compared with traces of DeepSpeed's scaler (loss_scale_reference.json, written by
// loss_scale_reference.py).
#include "runtime/schedules/loss_scale.h"

#include <fmt/core.h>

#include <map>
#include <string>

#include "base/error.h"
#include "config/resolve/resolve.h"
#include "support/catch.h"

using namespace dslaunch;
using namespace dslaunch::config;
using namespace dslaunch::runtime;

namespace {

LossScaleConfig scale_config(const Value& fp16_section) {
    TrainConfig config = empty_config();
    REQUIRE(set_path(config.root, "fp16", fp16_section));
    const Resolved resolved = resolve(config);
    REQUIRE(resolved.problems.empty());
    return resolved.config.precision.loss_scale;
}

// Follows one trace: every step's scale must agree, and the state must stop where DeepSpeed raises.
void check_trace(const LossScaleConfig& config, const std::string& overflows, const Value& trace) {
    std::map<int64_t, double> changes;
    for (const Value& change : trace.find("changes")->items)
        changes[change.items[0].integer] = change.items[1].as_double();
    const Value* raised = trace.find("raised");
    LossScaler scaler(config);
    double expected = config.initial;
    for (int64_t step = 0; step < int64_t(overflows.size()); ++step) {
        const bool overflow = overflows[size_t(step)] == '1';
        CAPTURE(step, overflow);
        if (raised->is(Value::Kind::kInt) && raised->integer == step) {
            const LossScaleState before = scaler.state();
            CHECK_THROWS_AS(scaler.update(overflow), Error);
            CHECK(scaler.state() == before);
            break;
        }
        // A new scaler with this state continues as the old one does.
        LossScaler resumed(config, scaler.state());
        const bool changed = scaler.update(overflow);
        CHECK(resumed.update(overflow) == changed);
        CHECK(resumed.state() == scaler.state());
        CHECK(changed == changes.contains(step));
        if (changed) expected = changes.at(step);
        REQUIRE(scaler.scale() == expected);
    }
    CHECK(scaler.state().hysteresis_left == trace.find("hysteresis_left")->integer);
}

}  // namespace

TEST_CASE("the loss scale moves as DeepSpeed's for every choice of its parameters") {
    const TrainConfig reference =
        load_config(std::string(test::source_dir()) +
                    "/tests/unit/runtime/schedules/loss_scale_reference.json");
    REQUIRE(reference.problems.empty());
    const Value* overflows = find_path(reference.root, "overflows");
    const Value* cases = find_path(reference.root, "cases");
    REQUIRE(cases->items.size() == 72);
    int64_t raised = 0;
    for (const Value& one : cases->items) {
        const Value* section = one.find("fp16");
        CAPTURE(to_json(*section));
        const LossScaleConfig config = scale_config(*section);
        const Value* traces = one.find("traces");
        REQUIRE(traces->items.size() == overflows->items.size());
        for (size_t i = 0; i < traces->items.size(); ++i) {
            CAPTURE(overflows->items[i].text);
            check_trace(config, overflows->items[i].text, traces->items[i]);
            raised += traces->items[i].find("raised")->is(Value::Kind::kInt);
        }
    }
    CHECK(raised > 50);
}

TEST_CASE("a fixed loss scale stays, whatever overflows") {
    LossScaler scaler({.dynamic = false, .initial = 128});
    for (int step = 0; step < 3000; ++step) CHECK_FALSE(scaler.update(step % 3 == 0));
    CHECK(scaler.scale() == 128);
    CHECK(scaler.state().steps == 3000);
}

TEST_CASE("an overflow at the smallest loss scale ends the run and says what to do") {
    LossScaler scaler({.dynamic = true, .initial = 2, .minimum = 1, .hysteresis = 1});
    CHECK_FALSE(scaler.update(false));
    CHECK(scaler.update(true));
    try {
        scaler.update(true);
        FAIL("no error");
    } catch (const Error& error) {
        CHECK(error.code() == ExitCode::kDiverged);
        CHECK(std::string(error.what()) ==
              "step 3: the gradients are not finite and the loss scale is at its minimum, 1 "
              "(fp16.min_loss_scale): training has diverged; lower optimizer.params.lr, clip "
              "gradients (gradient_clipping), or train in bf16 (bf16.enabled), which needs no "
              "scale");
    }
}
