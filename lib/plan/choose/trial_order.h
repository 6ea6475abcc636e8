// Decides which settings of a job are tried next, when the search ends, and which settings are the
// best. Data path: forecasts -> [here] <-> measured trials -> table, config. Pure: the caller runs
// the trials and knows the time. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "plan/choose/tuning_space.h"

namespace dslaunch::plan {

// Settings that may be tried.
struct TrialCandidate {
    TunedSettings settings;
    double forecast_s = 0;  // time of a step as the model predicts it; 0: not known
    bool fits = true;       // false: the forecast of memory exceeds the limit
};

// The order in which candidates are tried.
enum class TrialMethod {
    kModel,   // the shortest expected step first; the search ends when no gain is expected
    kGrid,    // all candidates, in the order of the list
    kRandom,  // all candidates, in a random order
};

// The rules of a search.
struct TrialRules {
    TrialMethod method = TrialMethod::kModel;
    int candidates_max = 50;   // candidates that are tried
    int without_gain_max = 5;  // kModel: trials in a row without a new best
    // kModel: a candidate is tried only if its expected step is at most this many times the best
    // measured step.
    double expected_max = 1.25;
    // The finalists are the best candidates: at most `finalists` of them, with steps that are at
    // most `1 + near` times as long as the best step. They are measured again in turns until each
    // has `rounds` measurements.
    double near = 0.10;
    int finalists = 3;
    int rounds = 3;
    uint64_t seed = 1234;  // kRandom
};

// The reason why a candidate was not tried.
enum class WhyUntried { kTried, kDoesNotFit, kExpectedSlower, kNoGain, kTrialsMax, kNoTime };

// Returns WHY as a clause: "it is expected to be slower".
[[nodiscard]] std::string_view why_text(WhyUntried why);

// A search: its candidates, their measurements, and the choice of the next candidate.
class TrialOrder {
  public:
    // The first candidate is the given config, which is tried first. REQUIRES: at least one
    // candidate.
    TrialOrder(std::vector<TrialCandidate> candidates, const TrialRules& rules);

    // Returns the candidate to measure next, perhaps again; nullopt if the search has ended.
    // LEFT_S: the time that is left; TRIAL_S: the time of one trial. Time for measuring the
    // finalists again is set aside before a new candidate is tried.
    [[nodiscard]] std::optional<int> next(double left_s, double trial_s);
    // Record the result of a trial: STEP_S, the time of a step, or a failure.
    void add_measured(int candidate, double step_s);
    void add_failed(int candidate);

    // Returns the candidate with the shortest median step; nullopt if nothing was measured.
    [[nodiscard]] std::optional<int> best() const;
    // Returns the median of a candidate's measurements; nullopt if it has none.
    [[nodiscard]] std::optional<double> step_s(int candidate) const;
    // Returns the expected time of a step; 0: not known. It is the forecast, corrected by the
    // forecast error of a similar candidate that was measured. This is the candidate that differs
    // in the fewest settings; among several such candidates, the first.
    [[nodiscard]] double expected_s(int candidate) const;
    // Return the number of times that CANDIDATE was measured, and whether it failed.
    [[nodiscard]] int rounds_of(int candidate) const;
    [[nodiscard]] bool has_failed(int candidate) const { return tries_[candidate].failed; }
    // Returns why CANDIDATE was not tried. Valid after next() has returned nullopt, or after the
    // caller has ended the search.
    [[nodiscard]] WhyUntried why_untried(int candidate) const;
    [[nodiscard]] const std::vector<TrialCandidate>& candidates() const { return candidates_; }

  private:
    struct Tries {
        std::vector<double> steps_s;
        bool failed = false;
        int place = 0;  // in the order of the trials, from 1; 0: not tried
    };
    [[nodiscard]] bool is_tried(int candidate) const { return tries_[candidate].place > 0; }
    [[nodiscard]] std::optional<int> next_new();
    [[nodiscard]] std::optional<int> next_finalist() const;
    void note_place(int candidate);

    std::vector<TrialCandidate> candidates_;
    TrialRules rules_;
    std::vector<int> order_;    // candidates in the order of kGrid or kRandom
    std::vector<Tries> tries_;  // by candidate
    int tried_ = 0;
    int without_gain_ = 0;
    WhyUntried end_ = WhyUntried::kNoTime;  // why no new candidate is tried any more
};

}  // namespace dslaunch::plan
