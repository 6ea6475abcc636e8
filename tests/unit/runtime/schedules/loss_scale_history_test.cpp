// The scaler, compared with its rules written for the whole history of overflows. Each step looks
// at all steps before it, and only the scale is kept. 600 steps with overflows at chosen and at
// random steps, for every choice of the parameters.
#include <algorithm>
#include <cmath>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "runtime/schedules/loss_scale.h"
#include "support/catch.h"

using namespace dslaunch;
using namespace dslaunch::config;
using namespace dslaunch::runtime;

namespace {

constexpr int64_t kSteps = 600;

using History = std::vector<bool>;  // true: the step's gradients overflowed

// Returns the number of clean steps right before STEP.
int64_t clean_before(const History& history, int64_t step) {
    int64_t clean = 0;
    while (clean < step && !history[size_t(step - 1 - clean)]) ++clean;
    return clean;
}

bool doubles(const LossScaleConfig& config, const History& history, int64_t step) {
    if (history[size_t(step)]) return false;
    const int64_t clean = clean_before(history, step) + (config.grows_in_window ? 1 : 0);
    return clean > 0 && clean % config.window == 0;
}

// Returns the number of overflows up to STEP, including STEP, since the hysteresis was full.
int64_t overflows_of_hysteresis(const LossScaleConfig& config, const History& history,
                                int64_t step) {
    int64_t overflows = 0;
    for (int64_t s = step; s >= 0; --s) {
        if (history[size_t(s)]) {
            ++overflows;
        } else if (config.consecutive_hysteresis || doubles(config, history, s)) {
            break;
        }
    }
    return overflows;
}

// Returns the scale after STEP if it was SCALE before; nullopt if the run ends there.
std::optional<double> scale_after(const LossScaleConfig& config, const History& history,
                                  int64_t step, double scale) {
    if (doubles(config, history, step)) return scale * 2;
    if (!history[size_t(step)] ||
        overflows_of_hysteresis(config, history, step) < config.hysteresis)
        return scale;
    if (scale == config.minimum) return std::nullopt;
    return std::max(scale / 2, config.minimum);
}

std::vector<History> histories() {
    std::vector<History> all;
    const auto add = [&](auto overflows) {
        History history;
        for (int64_t step = 0; step < kSteps; ++step) history.push_back(overflows(step));
        all.push_back(std::move(history));
    };
    add([](int64_t) { return false; });
    add([](int64_t) { return true; });
    for (const int64_t every : {2, 3, 8, 9, 10, 101})
        add([&](int64_t step) { return step % every == every - 1; });
    add([](int64_t step) { return step < 12 || (step >= 300 && step < 307); });
    add([](int64_t step) { return step == 0 || step == 2 || step == 5 || step == 250; });
    std::mt19937 draw(7);
    for (const double part : {0.003, 0.02, 0.1, 0.3, 0.7})
        for (int i = 0; i < 3; ++i)
            add([&](int64_t) { return std::uniform_real_distribution<>(0, 1)(draw) < part; });
    return all;
}

std::vector<LossScaleConfig> configs() {
    std::vector<LossScaleConfig> all;
    for (const double initial : {16.0, 65536.0, std::ldexp(1.0, 32)})
        for (const int64_t window : {1, 2, 8, 100})
            for (const int64_t hysteresis : {1, 2, 3, 7})
                for (const bool consecutive : {false, true})
                    for (const double minimum : {1.0, 8.0, 3.0})
                        all.push_back({.dynamic = true,
                                       .initial = initial,
                                       .minimum = minimum,
                                       .window = window,
                                       .hysteresis = hysteresis,
                                       .consecutive_hysteresis = consecutive});
    for (const int64_t window : {1, 2, 8, 100})
        all.push_back({.dynamic = true,
                       .initial = 65536,
                       .minimum = 0x1p-24,
                       .window = window,
                       .hysteresis = 1,
                       .grows_in_window = true});
    return all;
}

}  // namespace

TEST_CASE("after every step the loss scale is what the history of overflows makes it") {
    int64_t ended = 0, steps = 0, changes = 0;
    for (const LossScaleConfig& config : configs())
        for (const History& history : histories()) {
            LossScaler scaler(config);
            double scale = config.initial;
            for (int64_t step = 0; step < kSteps; ++step) {
                const std::optional<double> after = scale_after(config, history, step, scale);
                if (!after) {
                    CHECK_THROWS_AS(scaler.update(history[size_t(step)]), Error);
                    ++ended;
                    break;
                }
                const bool changed = scaler.update(history[size_t(step)]);
                if (scaler.scale() != *after || changed != (*after != scale))
                    FAIL("step " << step << " of a run with window " << config.window
                                 << ", hysteresis " << config.hysteresis << ", consecutive "
                                 << config.consecutive_hysteresis << ", minimum " << config.minimum
                                 << ": " << scaler.scale() << " and not " << *after);
                changes += changed;
                scale = *after;
                ++steps;
            }
        }
    CHECK(ended > 1000);
    CHECK(steps > 1'000'000);
    CHECK(changes > 100'000);
}

// torch.amp.GradScaler, written once more: the scale, and a count of clean steps that growth and
// overflow set to 0 (torch/amp/grad_scaler.py, _amp_update_scale_).
TEST_CASE("the loss scale of torch_autocast moves as torch.amp.GradScaler's") {
    for (const int64_t window : {1, 3, 50, 2000})
        for (const History& history : histories()) {
            LossScaler scaler({.dynamic = true,
                               .initial = 65536,
                               .minimum = 0x1p-900,
                               .window = window,
                               .hysteresis = 1,
                               .grows_in_window = true});
            double scale = 65536;
            int64_t growth_tracker = 0;
            for (const bool overflow : history) {
                if (overflow) {
                    scale *= 0.5;
                    growth_tracker = 0;
                } else if (++growth_tracker == window) {
                    scale *= 2;
                    growth_tracker = 0;
                }
                (void)scaler.update(overflow);
                REQUIRE(scaler.scale() == scale);
            }
        }
}
