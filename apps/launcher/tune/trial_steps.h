// Decides which steps of a trial of `dslaunch tune` are measured, and when the measured steps are
// enough. Data path: lines of metrics -> [here] -> trial. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace dslaunch::launcher {

// The rules for the steps of a trial.
struct StepRules {
    int64_t first = 2;                 // the first measured step; earlier ones warm up
    std::optional<int64_t> last = {};  // the last measured step; not set: the next three members
                                       // decide
    int64_t least = 3;                 // the least number of measured steps
    int64_t most = 50;                 // the largest number of measured steps
    double span_s = 1.0;               // between `least` and `most`: measuring ends as soon as the
                                       // measured steps took this time
    double best_s = 0;  // the median step of the best trial so far; a trial that is twice as slow
                        // ends after two steps; 0: no trial yet
};

// Collects the times of a trial's steps.
class TrialSteps {
  public:
    explicit TrialSteps(const StepRules& rules) : rules_(rules) {}

    // Takes LINE, a line of metrics. A line that is not about a step is left out.
    void add(std::string_view line);
    // Returns true if no further step is needed.
    [[nodiscard]] bool is_done() const;
    // Returns the median of the measured steps, or of all steps if the job has ended before the
    // first measured step; nullopt if there was no step.
    [[nodiscard]] std::optional<double> step_s() const;
    // Returns the largest resident set of a rank so far; 0: not known.
    [[nodiscard]] int64_t peak_bytes() const { return peak_bytes_; }

  private:
    StepRules rules_;
    std::vector<double> early_s_, measured_s_;
    int64_t newest_ = 0;
    int64_t peak_bytes_ = 0;
};

}  // namespace dslaunch::launcher
