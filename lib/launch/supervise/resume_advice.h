// The advice on how to continue a training that has ended early. Reads from the disk only whether a
// checkpoint exists.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launch/plan/job_spec.h"
#include "launch/supervise/rank_record.h"

namespace dslaunch::launch {

// The advice for one job. NEWEST_STEP: JobOutput::newest_step().
class ResumeAdvice {
  public:
    // SPEC must outlive this object.
    explicit ResumeAdvice(const JobSpec& spec) : spec_(spec) {}

    // Returns true if the job is a training whose results are kept.
    [[nodiscard]] bool saves() const;
    // Returns true if a checkpoint is below the launcher's own --output.
    [[nodiscard]] bool has_checkpoint() const;
    // Returns true if the launcher's own --output folder no longer exists.
    [[nodiscard]] bool has_lost_output() const;
    // Returns the advice after the failure of CULPRIT, with a final newline; empty if there is
    // nothing to continue, or if the same command would fail again.
    [[nodiscard]] std::string after_failure(const RankRecord& culprit, int64_t newest_step) const;
    // Describes the result of an interrupted job and how to continue it, with a final newline.
    // ENDED_AT_ONCE: a second request to end came before the ranks had ended.
    [[nodiscard]] std::string describe_interrupted(const std::vector<RankRecord>& ranks,
                                                   int64_t newest_step, bool ended_at_once) const;

  private:
    [[nodiscard]] std::string unsaved_text(const std::vector<RankRecord>& ranks,
                                           bool ended_at_once) const;

    const JobSpec& spec_;
};

}  // namespace dslaunch::launch
