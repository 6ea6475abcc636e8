// Watches the ranks of one attempt from start to end: their messages, the cause of the attempt's
// end, and the conclusions. One thread: the caller's.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launch/fleet/fleet.h"
#include "launch/plan/job_spec.h"
#include "launch/supervise/job_output.h"
#include "launch/supervise/rank_record.h"

namespace dslaunch::launch {

// A host whose connection was lost: its agent ends the ranks there when its lease is over.
struct CutOffHost {
    std::string name;
    std::string machine;  // Preparation::machine_of()
    std::chrono::steady_clock::time_point lease_over_at;
};

struct AttemptResult {
    int exit_code = 0;
    bool may_restart = false;  // a rank failed or a host was lost, and nobody asked for the end
    // Rank 0 (not a dsworker) says soon after the start that an address is in use, and the port was
    // our choice.
    bool port_was_taken = false;
    bool left_processes = false;  // some could not be ended; the report names them
    std::string report;           // report of the failure for stderr; empty: none
    std::string advice;           // what to do if no restart follows; empty: nothing
    std::vector<CutOffHost> cut_off;
};

// Returns a warning about RANKS on PROCESSORS of HOST; empty: there are enough processors.
[[nodiscard]] std::string crowd_text(int64_t ranks, int64_t processors, const std::string& host);

class RankWatch {
  public:
    // All references must outlive this object.
    RankWatch(const JobSpec& spec, Fleet& fleet, JobOutput& output);

    // Sends each host its request and waits until every rank has started or has ended, one failed,
    // or for spec.connect_max.
    void start(const std::vector<StartRequest>& requests);
    // Returns true if workers may exist.
    [[nodiscard]] bool begun() const { return started_at_.has_value(); }
    // Waits for the end of all ranks, or for what ends them: a failure, a lost host, a second wish
    // to end, a first wish whose grace is over, output that nobody reads.
    void watch();
    // Returns the result by Fleet::interrupted(), the ends of the ranks and the lost hosts so far.
    [[nodiscard]] AttemptResult conclude() const;

    // Takes a frame of HOST about a rank; false: it is not about one. Throws Error{kInternal} for
    // nonsense, as a message about another host's rank.
    [[nodiscard]] bool take(size_t host, const Frame& frame);
    // Ends all ranks after TIME at the latest.
    void stop_within(std::chrono::milliseconds time);
    void hear_of_peers();
    // Blames HOST, which will be or is lost for the reason CAUSE, not its ranks.
    void blame_host(size_t host, const std::string& cause);
    // Takes note that HOST's agent is gone, as FleetListener::host_ended says.
    void end_host(size_t host, bool lost);
    // Does as FleetListener::end_wished says, once begun: the first wish gives the ranks time to
    // save and end, another one gives no time.
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
    [[nodiscard]] std::string advise(const RankRecord& culprit) const;
    [[nodiscard]] std::string describe_interrupted() const;
    [[nodiscard]] bool saves() const;
    [[nodiscard]] bool has_checkpoint() const;
    [[nodiscard]] AttemptResult conclude_interrupted() const;
    [[nodiscard]] bool port_was_taken() const;

    const JobSpec& spec_;
    Fleet& fleet_;
    JobOutput& output_;
    std::vector<RankRecord> ranks_;
    std::vector<size_t> host_of_rank_;
    StragglerWatch stragglers_;
    int64_t machine_ranks_ = 1;  // that share the machine of the first host
    int ends_ = 0;
    std::optional<Time> started_at_;
    std::optional<Time> stop_at_;        // something failed: all are ended then
    std::optional<Time> peer_lost_at_;   // since then the hosts are asked whether they live
    std::optional<Time> save_deadline_;  // set: the ranks were asked to end by themselves
    bool end_now_ = false;
    bool output_lost_ = false;  // nobody reads what the ranks write
    // Set: a rank was killed, perhaps as the first process of its whole Slurm step. Then its agent
    // is gone by this time.
    std::optional<Time> agents_end_by_;
    std::string lost_host_;  // the first host that went away, with its cause
};

}  // namespace dslaunch::launch
