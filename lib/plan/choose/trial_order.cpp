#include "plan/choose/trial_order.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "base/check.h"
#include "base/median.h"

namespace dslaunch::plan {

std::string_view why_text(WhyUntried why) {
    switch (why) {
        case WhyUntried::kTried:
            return "it was tried";
        case WhyUntried::kDoesNotFit:
            return "it does not fit into memory";
        case WhyUntried::kExpectedSlower:
            return "it is expected to be slower";
        case WhyUntried::kNoGain:
            return "the last trials were not faster, and this config is not expected to be faster";
        case WhyUntried::kTrialsMax:
            return "the number of trials is reached";
        case WhyUntried::kNoTime:
            return "the time was over";
    }
    return "";
}

TrialOrder::TrialOrder(std::vector<TrialCandidate> candidates, const TrialRules& rules)
    : candidates_(std::move(candidates)), rules_(rules), tries_(candidates_.size()) {
    DSL_CHECK(!candidates_.empty(), "nothing to try");
    order_.resize(candidates_.size());
    std::iota(order_.begin(), order_.end(), 0);
    if (rules_.method == TrialMethod::kRandom) {
        // The given config stays first. Different libraries implement std::shuffle differently;
        // this loop gives the same order everywhere.
        std::mt19937_64 random(rules_.seed);
        for (size_t i = order_.size() - 1; i > 1; --i)
            std::swap(order_[i], order_[1 + random() % i]);
    }
}

std::optional<double> TrialOrder::step_s(int candidate) const {
    const std::vector<double>& steps = tries_[candidate].steps_s;
    if (steps.empty()) return std::nullopt;
    return median_of(steps, Middle::kMean);
}

std::optional<int> TrialOrder::best() const {
    std::optional<int> best;
    for (int c = 0; c < std::ssize(candidates_); ++c)
        if (const auto step = step_s(c);
            step && !has_failed(c) && (!best || *step < *step_s(*best)))
            best = c;
    return best;
}

int TrialOrder::rounds_of(int candidate) const {
    return static_cast<int>(tries_[candidate].steps_s.size());
}

double TrialOrder::expected_s(int candidate) const {
    const TrialCandidate& of = candidates_[candidate];
    int nearest = -1, least = 0;
    for (int c = 0; c < std::ssize(candidates_); ++c) {
        if (tries_[c].steps_s.empty() || candidates_[c].forecast_s <= 0) continue;
        const int apart = differences(candidates_[c].settings, of.settings);
        const bool is_nearer = nearest < 0 || apart < least ||
                               (apart == least && tries_[c].place < tries_[nearest].place);
        if (!is_nearer) continue;
        nearest = c;
        least = apart;
    }
    if (nearest < 0) return of.forecast_s;
    return of.forecast_s * *step_s(nearest) / candidates_[nearest].forecast_s;
}

void TrialOrder::note_place(int candidate) {
    if (!is_tried(candidate)) tries_[candidate].place = ++tried_;
}

void TrialOrder::add_measured(int candidate, double step_s) {
    const bool is_new = !is_tried(candidate);
    const std::optional<int> before = best();
    note_place(candidate);
    tries_[candidate].steps_s.push_back(step_s);
    if (!is_new) return;
    without_gain_ = !before || step_s < *this->step_s(*before) ? 0 : without_gain_ + 1;
}

void TrialOrder::add_failed(int candidate) {
    note_place(candidate);
    tries_[candidate].failed = true;
}

// Returns the next candidate among the untried ones. If no untried candidate should be measured,
// returns nullopt and sets END_ to the reason.
std::optional<int> TrialOrder::next_new() {
    if (!is_tried(0)) return 0;
    if (tried_ >= rules_.candidates_max) {
        end_ = WhyUntried::kTrialsMax;
        return std::nullopt;
    }
    std::optional<int> next;
    for (const int c : order_) {
        if (is_tried(c) || !candidates_[c].fits) continue;
        if (rules_.method != TrialMethod::kModel) return c;
        if (!next || expected_s(c) < expected_s(*next)) next = c;
    }
    if (!next) return std::nullopt;
    const std::optional<int> leader = best();
    if (leader && expected_s(*next) > rules_.expected_max * *step_s(*leader)) {
        end_ = WhyUntried::kExpectedSlower;
        return std::nullopt;
    }
    if (leader && without_gain_ >= rules_.without_gain_max) {
        end_ = WhyUntried::kNoGain;
        return std::nullopt;
    }
    return next;
}

// Returns the finalist with the fewest measurements; nullopt if all finalists have enough
// measurements, or if there is only one finalist.
std::optional<int> TrialOrder::next_finalist() const {
    std::vector<int> finalists;
    for (int c = 0; c < std::ssize(candidates_); ++c)
        if (step_s(c) && !has_failed(c)) finalists.push_back(c);
    std::ranges::stable_sort(finalists, {}, [&](int c) { return *step_s(c); });
    if (finalists.empty()) return std::nullopt;
    const double limit = *step_s(finalists.front()) * (1 + rules_.near);
    std::erase_if(finalists, [&](int c) { return *step_s(c) > limit; });
    if (std::ssize(finalists) > rules_.finalists)
        finalists.resize(static_cast<size_t>(rules_.finalists));
    if (finalists.size() < 2) return std::nullopt;
    const int least = *std::ranges::min_element(finalists, {}, [&](int c) { return rounds_of(c); });
    if (rounds_of(least) >= rules_.rounds) return std::nullopt;
    return least;
}

std::optional<int> TrialOrder::next(double left_s, double trial_s) {
    if (tried_ > 0 && left_s < trial_s) return std::nullopt;
    const int again = std::min(rules_.finalists, tried_ + 1) * (rules_.rounds - 1);
    if (tried_ == 0 || left_s >= trial_s * (1 + again)) {
        if (const auto fresh = next_new()) return fresh;
    }
    if (const auto again_one = next_finalist()) return again_one;
    return next_new();
}

WhyUntried TrialOrder::why_untried(int candidate) const {
    if (is_tried(candidate)) return WhyUntried::kTried;
    if (!candidates_[candidate].fits) return WhyUntried::kDoesNotFit;
    const std::optional<int> leader = best();
    const bool is_slower = rules_.method == TrialMethod::kModel && leader &&
                           expected_s(candidate) > rules_.expected_max * *step_s(*leader);
    return is_slower ? WhyUntried::kExpectedSlower : end_;
}

}  // namespace dslaunch::plan
