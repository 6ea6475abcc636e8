// Makes the attempts at a job, one after another: chooses each one's hosts, acts after a failure,
// and tells the user in between. One attempt, and the rules, are in launch/supervise/supervisor.h.
// One thread: the caller's.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "launch/jobs/job_record.h"
#include "launch/plan/job_spec.h"
#include "launch/supervise/job_output.h"
#include "launch/supervise/supervisor.h"

namespace dslaunch::launch {

struct AttemptOutcome {
    AttemptResult result;
    // Not empty: nothing was started because of these hosts, and `refusal` is the whole message.
    std::vector<std::string> bad_hosts;
    std::string refusal;
};

// The waits of the loop; a test has shorter ones.
struct RestartTimes {
    std::chrono::milliseconds steady_attempt = kSteadyAttempt;
    std::chrono::milliseconds gather_max = kGatherMax;
    std::chrono::milliseconds gather_pause{2'000};
    std::function<std::chrono::milliseconds(int failures_in_a_row)> delay = restart_delay;
};

// The places for the words of a job; all outlive its attempts.
struct JobSinks {
    JobRecord& record;
    StandardStreams& streams;
    JobFiles& files;
};

class JobLoop {
  public:
    // Makes one attempt with the spec, the output, its number and the hosts that were cut off in
    // earlier attempts. Throws Error when the job cannot go on at all.
    using Attempt =
        std::function<AttemptOutcome(const JobSpec&, JobOutput&, const AttemptNumber& number,
                                     const std::vector<CutOffHost>& cut_off)>;

    // A signal at SIGNAL_FD between two attempts ends the job. All references must outlive it.
    JobLoop(const JobSpec& spec, JobSinks sinks, Attempt attempt, int signal_fd,
            RestartTimes times = {});

    // Returns the exit code of the job. Throws Error{kHosts} when too few hosts answer, and what an
    // attempt throws.
    [[nodiscard]] int run();

  private:
    using Time = std::chrono::steady_clock::time_point;

    [[nodiscard]] JobSpec next_spec() const;
    [[nodiscard]] AttemptOutcome make_attempt(const JobSpec& spec, JobOutput& output);
    [[nodiscard]] bool leave_out_bad_hosts(const AttemptOutcome& outcome, JobOutput& output);
    [[nodiscard]] bool begin_restart(const AttemptResult& result, JobOutput& output);
    [[nodiscard]] std::string describe_restart() const;
    // Returns true when a signal came before TIME was over.
    [[nodiscard]] bool interrupted_within(std::chrono::milliseconds time) const;
    [[nodiscard]] int end(int exit_code, JobOutput& output);
    [[nodiscard]] int end_interrupted(JobOutput& output);

    const JobSpec& spec_;
    JobRecord& record_;
    StandardStreams& streams_;
    JobFiles& files_;
    Attempt attempt_;
    int signal_fd_;
    RestartTimes times_;
    std::vector<bool> bad_;            // by place in spec_.elastic.hosts, since the last failure
    std::vector<CutOffHost> cut_off_;  // in all attempts so far
    int restarts_ = 0;
    int starts_ = 0;  // attempts in which ranks may have started
    int failures_in_a_row_ = 0;
    bool changed_port_ = false;
    bool told_of_waiting_ = false;  // for hosts, since the last failure
    Time attempt_began_;
    Time gather_end_;
};

}  // namespace dslaunch::launch
