#include "launcher/tune/tune_search.h"

#include <algorithm>

#include "base/error.h"
#include "base/screen.h"
#include "base/text.h"

namespace dslaunch::launcher {
namespace {

using Clock = std::chrono::steady_clock;
constexpr double kFirstTrialS = 3;  // expected time of a trial until the first has ended

double seconds_until(Clock::time_point time) {
    return std::chrono::duration<double>(time - Clock::now()).count();
}

// One search; run() is called once.
class Search {
  public:
    Search(const Forecasts& forecasts, const RunOptions& options, const SearchWishes& wishes)
        : forecasts_(forecasts), options_(options), wishes_(wishes) {}

    SearchResult run();

  private:
    // Returns false if the search is to end.
    bool try_candidate(int candidate, SearchResult& result);
    [[nodiscard]] double trial_s() const;
    [[nodiscard]] StepRules steps_for(const plan::TrialOrder& order) const;
    [[nodiscard]] bool fails_always(const SearchResult& result) const;
    void note(const plan::TrialOrder& order, int candidate, const std::string& outcome) const;

    const Forecasts& forecasts_;
    RunOptions options_;
    const SearchWishes& wishes_;
    double ended_s_ = 0;  // all ended trials together
    int ended_ = 0;
};

double Search::trial_s() const {
    return ended_ == 0 ? kFirstTrialS : ended_s_ / ended_;
}

StepRules Search::steps_for(const plan::TrialOrder& order) const {
    StepRules steps = wishes_.steps;
    if (const auto best = order.best(); best && !steps.last) steps.best_s = *order.step_s(*best);
    return steps;
}

void Search::note(const plan::TrialOrder& order, int candidate, const std::string& outcome) const {
    if (wishes_.quiet) return;
    const plan::TrialCandidate& of = order.candidates()[static_cast<size_t>(candidate)];
    print_message(fmt::format("dslaunch: tune: {}{}: {}", plan::settings_text(of.settings),
                              candidate == 0 ? " (the given config)" : "", outcome));
}

bool Search::try_candidate(int candidate, SearchResult& result) {
    plan::TrialOrder& order = result.order;
    const TuneCandidate& of = forecasts_.candidates[static_cast<size_t>(candidate)];
    std::vector<std::string> overrides = wishes_.always;
    overrides.insert(overrides.end(), of.set.begin(), of.set.end());
    const TrialResult trial =
        run_one_trial(options_, overrides, {steps_for(order), wishes_.deadline, wishes_.signal_fd});
    if (trial.end == TrialEnd::kInterrupted) {
        result.interrupted = true;
        return false;
    }
    auto tried = std::ranges::find(result.tried, candidate, &TriedConfig::candidate);
    if (tried == result.tried.end()) {
        result.tried.push_back({candidate, 0, {}, 0});
        tried = result.tried.end() - 1;
    }
    tried->peak_bytes = std::max(tried->peak_bytes, trial.peak_bytes);
    if (trial.end == TrialEnd::kMeasured) {
        order.add_measured(candidate, trial.step_s);
        ended_s_ += trial.took_s;
        ++ended_;
        // The first trial has compared the files of all hosts, so later trials skip this check.
        options_.check_hosts = false;
        options_.push = false;
        note(order, candidate, fmt::format("{:.4g} ms a step", 1e3 * trial.step_s));
        return true;
    }
    order.add_failed(candidate);
    tried->exit_code = trial.end == TrialEnd::kTimeOver ? 0 : trial.exit_code;
    tried->failure = trial.end == TrialEnd::kTimeOver
                         ? "the time for the search ended before this trial was measured"
                         : trial.why;
    note(order, candidate, "failed: " + tried->failure);
    return trial.end != TrialEnd::kTimeOver && !fails_always(result);
}

// Returns true if no trial has worked, and the newest trial and an earlier trial failed with the
// same message about the model or the data. Then every config would fail.
bool Search::fails_always(const SearchResult& result) const {
    const TriedConfig& newest = result.tried.back();
    const auto is_same = [&](const TriedConfig& one) { return one.failure == newest.failure; };
    return ended_ == 0 && newest.exit_code == static_cast<int>(ExitCode::kInput) &&
           std::ranges::count_if(result.tried, is_same) > 1;
}

SearchResult Search::run() {
    std::vector<plan::TrialCandidate> candidates;
    for (const TuneCandidate& one : forecasts_.candidates) candidates.push_back(one.trial);
    const auto began = Clock::now();
    SearchResult result{{std::move(candidates), wishes_.rules}, {}};
    while (const auto next = result.order.next(seconds_until(wishes_.deadline), trial_s()))
        if (!try_candidate(*next, result)) break;
    result.took_s = std::chrono::duration<double>(Clock::now() - began).count();
    return result;
}

}  // namespace

plan::TrialRules rules_of(const config::AutotuningConfig& tuning, std::optional<int> trials,
                          const std::string& tuner) {
    plan::TrialRules rules;
    std::string method = tuning.tuner_type.value_or("model_based");
    if (!tuner.empty()) method = tuner;
    if (method.starts_with("grid")) rules.method = plan::TrialMethod::kGrid;
    if (method.starts_with("random")) rules.method = plan::TrialMethod::kRandom;
    const auto limited = [](int64_t value) {
        return static_cast<int>(std::min<int64_t>(value, 1 << 20));
    };
    if (tuning.trials_max) rules.candidates_max = limited(*tuning.trials_max);
    if (tuning.without_gain_max) rules.without_gain_max = limited(*tuning.without_gain_max);
    if (trials) rules.candidates_max = *trials;
    return rules;
}

StepRules steps_of(const config::AutotuningConfig& tuning) {
    StepRules steps;
    if (tuning.start_profile_step) steps.first = std::max<int64_t>(1, *tuning.start_profile_step);
    if (tuning.end_profile_step) steps.last = std::max(steps.first, *tuning.end_profile_step);
    return steps;
}

SearchResult search_configs(const Forecasts& forecasts, const RunOptions& options,
                            const SearchWishes& wishes) {
    return Search(forecasts, options, wishes).run();
}

}  // namespace dslaunch::launcher
