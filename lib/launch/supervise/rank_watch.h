// Watches the ranks of one attempt from start to end: their messages, the cause of the attempt's
// end, and the conclusions. One thread: the caller's.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launch/fleet/fleet.h"
#include "launch/output/job_output.h"
#include "launch/plan/job_spec.h"
#include "launch/supervise/end_plan.h"
#include "launch/supervise/rank_record.h"
#include "launch/supervise/resume_advice.h"
#include "launch/supervise/straggler_watch.h"

namespace dslaunch::launch {

// A host whose connection was lost. Its agent ends the ranks there after it has heard nothing from
// the launcher for some time (the lease).
struct CutOffHost {
    std::string name;
    std::string machine;  // Preparation::machine_of()
    std::chrono::steady_clock::time_point lease_over_at;
};

// The result of an attempt. If somebody asked the job to end early, no rank may have been started.
struct AttemptResult {
    int exit_code = 0;
    bool may_restart = false;  // a rank failed or a host was lost, and nobody asked for the end
    // True if dslaunch had chosen the port, and rank 0 (not a dsworker) reported soon after the
    // start that an address is in use.
    bool port_was_taken = false;
    bool left_processes = false;  // some processes did not end; the report names them
    std::string report;           // report of the failure for stderr; empty: none
    std::string advice;           // advice to the user if no restart follows; empty: none
    std::vector<CutOffHost> cut_off;
};

// Returns a warning about RANKS ranks on PROCESSORS processors of HOST; empty if there are enough
// processors.
[[nodiscard]] std::string crowd_text(int64_t ranks, int64_t processors, const std::string& host);

// The ranks of one attempt.
class RankWatch {
  public:
    // All references must outlive this object.
    RankWatch(const JobSpec& spec, Fleet& fleet, JobOutput& output);

    // Sends each host its request and waits until every rank has started or ended, until a rank has
    // failed, or until spec.connect_max is over.
    void start(const std::vector<StartRequest>& requests);
    // Returns true if workers may exist.
    [[nodiscard]] bool begun() const { return started_at_.has_value(); }
    // Waits for the end of all ranks, or for an event that ends them: a failure, a lost host, a
    // second request to end, the end of the grace time after the first request, or output that
    // nobody reads.
    void watch();
    // Returns the result, which depends on Fleet::interrupted(), the ends of the ranks and the
    // hosts lost so far.
    [[nodiscard]] AttemptResult conclude() const;

    // Takes a frame of HOST about a rank. Returns false if the frame is not about a rank. Throws
    // Error{kInternal} for nonsense, such as a message about another host's rank.
    [[nodiscard]] bool take(size_t host, const Frame& frame);
    // Ends all ranks after TIME at the latest.
    void stop_within(std::chrono::milliseconds time);
    // Ends all ranks soon if a rank lost its peer and every host has answered since.
    void hear_of_peers();
    // Records that HOST is lost, or will soon be lost, because of CAUSE. HOST is then blamed for
    // the attempt's end instead of its ranks.
    void blame_host(size_t host, const std::string& cause);
    // Takes note that HOST's agent is gone. LOST is true if this end was planned neither by the
    // launcher nor by the agent.
    void end_host(size_t host, bool lost);
    // Handles a request to end; returns true if pump() must stop waiting. The first request gives
    // the ranks time to save and end; the next request ends them at once. REQUIRES: begun().
    [[nodiscard]] bool end_wished(const std::string& cause);

  private:
    using Time = std::chrono::steady_clock::time_point;

    [[nodiscard]] RankRecord& record(int64_t rank);
    [[nodiscard]] RankRecord& record(size_t host, int64_t rank);
    [[nodiscard]] bool all_ended() const;
    [[nodiscard]] bool pump(const std::function<bool()>& done, Time deadline);
    void handle_start(size_t host, const WorkerStarted& started);
    void handle_control(size_t host, const WorkerControl& control);
    void handle_exit(size_t host, const WorkerExited& exited);
    void handle_lost_output();
    void warn_of_crowd() const;
    void tell_threads(const WorkerStarted& started) const;
    void tell_binding(const WorkerStarted& started) const;
    [[nodiscard]] std::string describe(size_t culprit) const;
    [[nodiscard]] AttemptResult conclude_interrupted() const;
    [[nodiscard]] bool port_was_taken() const;

    const JobSpec& spec_;
    Fleet& fleet_;
    JobOutput& output_;
    ResumeAdvice advice_;
    std::vector<RankRecord> ranks_;
    StragglerWatch stragglers_;
    int64_t machine_ranks_ = 1;  // ranks on the machine of the first host
    int ends_ = 0;
    std::optional<Time> started_at_;
    EndPlan plan_;
    std::optional<Time> peer_lost_at_;  // since this time the hosts are pinged
    bool is_output_lost_ = false;       // nobody reads what the ranks write
    // Set after a rank of a Slurm job was killed by SIGKILL. If slurmd is killing the whole job
    // step, the rank's agent ends before this time.
    std::optional<Time> agents_end_by_;
    std::string lost_host_;  // the first host that went away, with its cause
};

}  // namespace dslaunch::launch
