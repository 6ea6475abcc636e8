#include "plan/choose/placement.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "plan/layout/state_chunks.h"

namespace dslaunch::plan {
namespace {

double seconds(Duration duration) {
    return std::chrono::duration<double>(duration).count();
}

template <typename Time>
double median(std::span<const StepTimes> steps, Time&& time) {
    std::vector<double> values;
    for (const StepTimes& step : steps) values.push_back(time(step));
    const auto middle = values.begin() + std::ssize(values) / 2;
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

// Returns the median of each time by itself; of an even number the upper one in the middle.
// REQUIRES: STEPS is not empty.
StepTimes median_of(std::span<const StepTimes> steps) {
    DSL_CHECK(!steps.empty(), "the median of no step");
    StepTimes result;
    result.step_s = median(steps, [](const StepTimes& step) { return step.step_s; });
    for (size_t lane = 0; lane < kLanes; ++lane) {
        result.busy_s[lane] =
            median(steps, [&](const StepTimes& step) { return step.busy_s[lane]; });
        result.on_path_s[lane] =
            median(steps, [&](const StepTimes& step) { return step.on_path_s[lane]; });
    }
    return result;
}

// Steps in the window: enough for a median, few enough to be recent.
constexpr int64_t kWindow = 16;
// The least share by which two measurements of a step differ though nothing has changed.
constexpr double kNoiseMin = 0.02;

// Returns the bytes of chunks that pass between memory and disk in a step when KEPT are kept.
double moving_bytes(const PlacementSpace& space, int64_t kept) {
    const int64_t turns = std::ssize(space.chunks) - kept;
    const int64_t passing = passing_turns(turns, space.swap_buffers, space.eviction);
    if (passing == 0) return 0;
    double bytes = 0;
    for (const Bytes chunk : space.chunks.subspan(static_cast<size_t>(kept)))
        bytes += static_cast<double>(chunk.value);
    return bytes * static_cast<double>(passing) / static_cast<double>(turns);
}

std::string share_text(const PlacementSpace& space) {
    return fmt::format("{} of {} chunks in memory", space.kept, space.chunks.size());
}

std::string wait_text(const PlacementFacts& facts) {
    if (facts.waited_write_s <= 0) return fmt::format("{:.3g} s for reads", facts.waited_read_s);
    if (facts.waited_read_s <= 0) return fmt::format("{:.3g} s for writes", facts.waited_write_s);
    return fmt::format("{:.3g} s for reads and {:.3g} for writes", facts.waited_read_s,
                       facts.waited_write_s);
}

std::string rate_text(const PlacementFacts& facts) {
    const double busy = std::max(facts.read_s, facts.write_s);
    if (busy <= 0) return "no rate known";
    return fmt::format("{:.3g} GB/s both ways",
                       static_cast<double>((facts.read + facts.written).value) / busy / 1e9);
}

PlacementChoice unchanged(const PlacementFacts& facts, const PlacementSpace& space,
                          const std::string& why) {
    return {space.kept, facts.step_s, fmt::format("unchanged, {}: {}", share_text(space), why)};
}

PlacementChoice give_back(const PlacementFacts& facts, const PlacementSpace& space) {
    int64_t kept = space.kept;
    Bytes free = facts.free;
    while (kept > 0 && free < kPlacementReserve) free += space.chunks[--kept];
    return {kept, facts.step_s,
            fmt::format("{} of {} chunks back to disk ({} in memory now): {} of memory are free, "
                        "{} are to be",
                        space.kept - kept, space.chunks.size(), kept, to_text(facts.free),
                        to_text(kPlacementReserve))};
}

}  // namespace

StepTimes step_times(const StepPlan& plan, std::span<const InstructionSpan> spans, double step_s) {
    DSL_CHECK(spans.size() == plan.instructions.size(), "{} spans of {} instructions", spans.size(),
              plan.instructions.size());
    StepTimes times;
    times.step_s = step_s;
    if (spans.empty()) return times;
    const auto end_of = [&](int i) { return spans[i].end; };
    const auto lane_of = [&](size_t i) { return static_cast<size_t>(plan.instructions[i].lane); };
    std::vector<int> before;  // by instruction, the one before it on its lane, or -1
    std::array<int, kLanes> last;
    last.fill(-1);
    int at = 0;
    for (size_t i = 0; i < spans.size(); ++i) {
        before.push_back(std::exchange(last[lane_of(i)], static_cast<int>(i)));
        times.busy_s[lane_of(i)] += seconds(spans[i].end - spans[i].begin);
        if (spans[i].end > end_of(at)) at = static_cast<int>(i);
    }
    while (at >= 0) {
        const auto i = static_cast<size_t>(at);
        int waited_for = before[i];
        for (const int wait : plan.instructions[i].waits)
            if (waited_for < 0 || end_of(wait) > end_of(waited_for)) waited_for = wait;
        const Duration from = waited_for < 0 ? Duration{0} : end_of(waited_for);
        times.on_path_s[lane_of(i)] += seconds(spans[i].end - from);
        at = waited_for;
    }
    return times;
}

PlacementFacts agreed_facts(std::span<const PlacementFacts> ranks) {
    DSL_CHECK(!ranks.empty(), "facts of no rank");
    PlacementFacts all = ranks.front();
    for (const PlacementFacts& rank : ranks) {
        for (double PlacementFacts::*time :
             {&PlacementFacts::step_s, &PlacementFacts::noise_s, &PlacementFacts::compute_s,
              &PlacementFacts::read_s, &PlacementFacts::write_s, &PlacementFacts::waited_read_s,
              &PlacementFacts::waited_write_s})
            all.*time = std::max(all.*time, rank.*time);
        all.communication_s = std::min(all.communication_s, rank.communication_s);
        all.read = std::max(all.read, rank.read);
        all.written = std::max(all.written, rank.written);
        all.free = std::min(all.free, rank.free);
    }
    return all;
}

PlacementChoice choose_placement(const PlacementFacts& facts, const PlacementSpace& space) {
    if (space.kept > 0 && facts.free.value < kPlacementReserve.value / 2)
        return give_back(facts, space);
    const double waited = facts.waited_read_s + facts.waited_write_s;
    const double moving = moving_bytes(space, space.kept);
    if (moving <= 0) return unchanged(facts, space, "the others stay where they are");
    if (waited < kPlacementGainMin * facts.step_s)
        return unchanged(
            facts, space,
            fmt::format("the disk is hidden, a step of {:.3g} s waited {:.3g} s for it",
                        facts.step_s, waited));
    if (!space.may_keep_more) return unchanged(facts, space, "more of them were no gain");
    const double disk = std::max(facts.read_s, facts.write_s);
    const double other = std::max(facts.compute_s, facts.communication_s);
    const double wanted = disk > other ? 1 - other / disk : 1;  // share of the disk's time to save
    Bytes room = facts.free - std::max(kPlacementReserve, Bytes{facts.free.value / 8});
    int64_t kept = space.kept;
    double less = 0;
    while (kept < std::ssize(space.chunks) && less < wanted && space.chunks[kept] <= room) {
        room -= space.chunks[kept++];
        less = 1 - moving_bytes(space, kept) / moving;
    }
    const double expected = facts.step_s - less * waited;
    const std::string waits = fmt::format("a step waited {}", wait_text(facts));
    if (less * waited < kPlacementGainMin * facts.step_s)
        return unchanged(facts, space,
                         fmt::format("{}, {} of memory are free, and what of it may be taken would "
                                     "gain {:.3g} s of {:.3g}",
                                     waits, to_text(facts.free), less * waited, facts.step_s));
    return {kept, expected,
            fmt::format("{} of {} chunks more in memory ({} now): {} ({}), {} were free; expected "
                        "{:.3g} s a step instead of {:.3g}",
                        kept - space.kept, space.chunks.size(), kept, waits, rate_text(facts),
                        to_text(facts.free), expected, facts.step_s)};
}

PlacementControl::PlacementControl(std::vector<Bytes> chunks, int64_t swap_buffers, int64_t kept,
                                   EvictionRule eviction)
    : chunks_(std::move(chunks)),
      swap_buffers_(swap_buffers),
      kept_(kept),
      kept_most_(kept),
      eviction_(eviction) {}

bool PlacementControl::add(const StepTimes& step) {
    if (settle_ > 0) {
        --settle_;
        return false;
    }
    if (std::ssize(window_) == kWindow) window_.erase(window_.begin());
    window_.push_back(step);
    return --left_ == 0;
}

PlacementFacts PlacementControl::measured() const {
    const StepTimes times = median_of(window_);
    PlacementFacts facts;
    facts.step_s = times.step_s;
    const auto [least, most] = std::ranges::minmax(window_, {}, &StepTimes::step_s);
    facts.noise_s = (most.step_s - least.step_s) / 2;
    facts.compute_s = times.busy(Lane::kCompute);
    facts.communication_s = times.busy(Lane::kCommunication);
    facts.read_s = times.busy(Lane::kRead);
    facts.write_s = times.busy(Lane::kWrite);
    facts.waited_read_s = times.on_path(Lane::kRead);
    facts.waited_write_s = times.on_path(Lane::kWrite);
    return facts;
}

bool PlacementControl::made_slower(const PlacementFacts& agreed) const {
    if (!unjudged_) return false;
    const double noise =
        std::max({unjudged_->noise_s_before, agreed.noise_s, kNoiseMin * unjudged_->step_s_before});
    // Computing takes longer because of other work on the machine, not because of the placement.
    const double slower =
        unjudged_->compute_s_before > 0 ? agreed.compute_s / unjudged_->compute_s_before : 1;
    return agreed.step_s > unjudged_->step_s_before * std::max(1.0, slower) + noise;
}

PlacementChoice PlacementControl::take_back(const PlacementFacts& agreed) {
    may_keep_more_ = false;
    const int64_t before = unjudged_->kept_before;
    return {before, unjudged_->step_s_before,
            fmt::format("{} of {} chunks back to disk ({} in memory now, and no more from here "
                        "on): a step takes {:.3g} s, expected {:.3g}, {:.3g} before",
                        kept_ - before, chunks_.size(), before, agreed.step_s,
                        unjudged_->expected_step_s, unjudged_->step_s_before)};
}

PlacementChoice PlacementControl::decide(const PlacementFacts& agreed) {
    if (!first_step_s_) first_step_s_ = agreed.step_s;
    last_step_s_ = agreed.step_s;
    window_.clear();
    const bool taken_back = made_slower(agreed);
    const PlacementChoice choice =
        taken_back
            ? take_back(agreed)
            : choose_placement(agreed, {chunks_, swap_buffers_, kept_, may_keep_more_, eviction_});
    unjudged_.reset();
    if (choice.value > kept_) {
        unjudged_ = Change{kept_, agreed.step_s, agreed.noise_s, agreed.compute_s, choice.cost};
        expected_step_s_ = choice.cost;
    } else if (choice.value < kept_) {
        expected_step_s_.reset();  // a change to free memory promises no time
    }
    const bool changed = choice.value != kept_;
    settle_ = changed ? kPlacementSettle : 0;
    interval_ = changed ? kPlacementMeasured : std::min(2 * interval_, kPlacementIntervalMax);
    left_ = interval_;
    kept_ = choice.value;
    kept_most_ = std::max(kept_most_, kept_);
    return choice;
}

std::string PlacementControl::summary() const {
    const double now = window_.empty() ? last_step_s_ : median_of(window_).step_s;
    std::string text = fmt::format("{} of {} chunks in memory at the end", kept_, chunks_.size());
    if (!first_step_s_) return text + "; too few steps to choose by";
    text += fmt::format("; a step takes {:.3g} s", now);
    if (expected_step_s_) text += fmt::format(", expected {:.3g}", *expected_step_s_);
    return text + fmt::format(", {:.3g} at the first choice", *first_step_s_);
}

}  // namespace dslaunch::plan
