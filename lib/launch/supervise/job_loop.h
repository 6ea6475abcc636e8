// Makes the attempts at a job, one after another: chooses the hosts of each attempt, acts after a
// failure, and informs the user in between. A single attempt, and the rules, are in
// launch/supervise/supervisor.h and restart_rules.h. One thread: the caller's.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "launch/jobs/job_record.h"
#include "launch/output/job_output.h"
#include "launch/plan/job_spec.h"
#include "launch/supervise/preparation.h"
#include "launch/supervise/rank_watch.h"
#include "launch/supervise/restart_rules.h"

namespace dslaunch::launch {

// The result of an attempt, or the reason why it did not begin.
struct AttemptOutcome {
    AttemptResult result;
    // The hosts that prevented the attempt, so that no rank was started; `refusal` is then the
    // complete message. Empty if the attempt began.
    std::vector<std::string> bad_hosts;
    std::string refusal;
};

// The waiting times of the loop; tests use shorter times.
struct RestartTimes {
    std::chrono::milliseconds steady_attempt = kSteadyAttempt;
    std::chrono::milliseconds gather_max = kGatherMax;
    std::chrono::milliseconds gather_pause{2'000};
    std::function<std::chrono::milliseconds(int failures_in_a_row)> delay = restart_delay;
};

// The destinations of a job's output and messages; all outlive the job's attempts.
struct JobSinks {
    JobRecord& record;
    StandardStreams& streams;
    JobFiles& files;
};

// The life of a job: one attempt after another, until it has succeeded or may not go on.
class JobLoop {
  public:
    // A function that makes one attempt. CUT_OFF contains the hosts that were cut off in earlier
    // attempts. The function throws Error if the job cannot go on at all.
    using Attempt =
        std::function<AttemptOutcome(const JobSpec&, JobOutput&, const AttemptNumber& number,
                                     const std::vector<CutOffHost>& cut_off)>;

    // A signal at SIGNAL_FD between two attempts ends the job. All references must outlive this
    // object.
    JobLoop(const JobSpec& spec, JobSinks sinks, Attempt attempt, int signal_fd,
            RestartTimes times = {});

    // Returns the exit code of the job. Throws Error{kHosts} if too few hosts answer, and any error
    // that an attempt throws.
    [[nodiscard]] int run();

  private:
    using Time = std::chrono::steady_clock::time_point;

    [[nodiscard]] JobSpec next_spec() const;
    [[nodiscard]] AttemptOutcome make_attempt(const JobSpec& spec, JobOutput& output);
    [[nodiscard]] bool leave_out_bad_hosts(const AttemptOutcome& outcome, JobOutput& output);
    [[nodiscard]] bool begin_restart(const AttemptResult& result, JobOutput& output);
    [[nodiscard]] std::string describe_restart() const;
    // Returns true if a signal came before TIME was over.
    [[nodiscard]] bool interrupted_within(std::chrono::milliseconds time) const;
    [[nodiscard]] int end(int exit_code, JobOutput& output);
    [[nodiscard]] int end_interrupted(JobOutput& output);

    const JobSpec& spec_;
    JobSinks sinks_;
    Attempt attempt_;
    int signal_fd_;
    RestartTimes times_;
    std::vector<bool> bad_;            // by index in spec_.elastic.hosts, since the last failure
    std::vector<CutOffHost> cut_off_;  // in all attempts so far
    int restarts_ = 0;
    int starts_ = 0;  // attempts in which ranks may have started
    int failures_in_a_row_ = 0;
    bool has_changed_port_ = false;
    bool has_told_of_waiting_ = false;  // true once the user knows that this job waits for hosts
    Time attempt_began_;
    Time gather_end_;
};

}  // namespace dslaunch::launch
