// One attempt at a job: the agents on all nodes and their checks (preparation.h), the ranks until
// they end (rank_watch.h), and the end of everything. One thread: the caller's.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "launch/agent/leftover_processes.h"
#include "launch/fleet/fleet.h"
#include "launch/output/job_output.h"
#include "launch/plan/job_spec.h"
#include "launch/supervise/file_bringer.h"
#include "launch/supervise/preparation.h"
#include "launch/supervise/rank_watch.h"
#include "launch/transport/transport.h"

namespace dslaunch::launch {

// Makes one attempt: prepares it, runs its ranks and stops its agents.
class Supervisor final : private FleetListener {
  public:
    // SIGNAL_FD: a signalfd with the signals that end a job. All references must outlive this
    // object.
    Supervisor(const JobSpec& spec, Transport& transport, JobOutput& output, int signal_fd);

    // Runs one attempt. No rank starts before every agent has ended the processes that earlier
    // attempts left. CUT_OFF: hosts that were lost in earlier attempts. For each of these hosts,
    // ranks start only after the lost agent's lease is over, or after a new agent has connected
    // from the same machine. Throws Error if the job cannot begin; then no rank of this attempt
    // runs.
    [[nodiscard]] AttemptResult run(const AttemptNumber& number,
                                    const std::vector<CutOffHost>& cut_off = {});
    // Returns true if somebody has asked for the end.
    [[nodiscard]] bool interrupted() const { return fleet_.interrupted(); }
    // Returns the names of the hosts that made run() throw; empty if it threw for a different
    // reason.
    [[nodiscard]] const std::vector<std::string>& bad_hosts() const { return bad_hosts_; }

  private:
    void take_frame(size_t host, const Frame& frame) override;
    void take_diagnostic(size_t host, const std::string& line) override;
    void take_problem(size_t host, const std::string& message) override;
    void host_ended(size_t host, bool lost) override;
    [[nodiscard]] bool end_wished(const std::string& cause) override;
    [[nodiscard]] std::optional<std::chrono::milliseconds> pause(
        std::chrono::milliseconds left) override;

    void wait_for_leases(const std::vector<CutOffHost>& cut_off);
    void end_earlier_attempts(const AttemptNumber& number);
    void judge_leftovers(size_t host);
    [[nodiscard]] std::vector<CutOffHost> cut_off_hosts() const;
    void start_and_watch(const AttemptNumber& number);
    void note_bad_hosts();
    [[nodiscard]] ExitCode bring_weights();
    void tell_brought(const HostAddress& from, const std::vector<std::string>& paths,
                      const Brought& brought);
    // COME_AGAIN: asks the agents that connected by themselves to connect again for another
    // attempt.
    void stop(bool come_again);
    [[nodiscard]] bool restart_may_follow(int restarts) const;

    const JobSpec& spec_;
    JobOutput& output_;
    int signal_fd_;
    Fleet fleet_;
    Preparation preparation_;
    RankWatch ranks_;
    std::optional<FileBringer> bringer_;  // set once files are being brought
    // Each host's answer about earlier attempts; empty if no host was asked.
    std::vector<std::optional<StopJobReply>> left_before_;
    std::string leftovers_;  // processes that could not be ended, one line for each node
    std::vector<std::string> bad_hosts_;
};

}  // namespace dslaunch::launch
