// One attempt at a job: agents on all nodes and their checks, the ranks to their end
// (rank_watch.h), and the end of everything. Also the rules after a failed attempt. One thread: the
// caller's.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "launch/agent/device_report.h"
#include "launch/agent/machine_facts.h"
#include "launch/fleet/fleet.h"
#include "launch/network/network.h"
#include "launch/plan/job_spec.h"
#include "launch/supervise/file_bringer.h"
#include "launch/supervise/job_output.h"
#include "launch/supervise/rank_watch.h"
#include "launch/transport/transport.h"

namespace dslaunch::launch {

// Finds the place where the ranks of a job meet, and each host's network to it: node 0 binds
// addresses, and the other hosts report which of them they reach. The rules are in
// launch/network/network.h. Messages go over a connected Fleet, before any rank is started.
class MeetingPlace {
  public:
    // All references must outlive this object.
    MeetingPlace(const JobSpec& spec, Fleet& fleet, JobOutput& output)
        : spec_(spec), fleet_(fleet), output_(output), nodes_(spec.nodes.size()) {}

    // Takes an agent's answer. Throws Error{kInternal} for a frame that is not an answer.
    void take(size_t host, const Frame& frame);
    // Looks for the place: one that the hosts reach by the addresses in FACTS if all report them,
    // else one that node 0 chooses. Throws Error{kHosts, kSetup} that names the hosts without a
    // place; Fleet::nodes() has their errors. Returns early when the end is asked for.
    void find(const std::vector<std::optional<MachineFacts>>& facts);

    // REQUIRES: find() has found it.
    [[nodiscard]] const PrepareReply& where() const { return where_; }
    // Returns NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME for a host's ranks; empty: not known.
    [[nodiscard]] const EnvironmentList& network_of(size_t host) const {
        return nodes_[host].network;
    }

  private:
    struct Node {
        std::optional<PrepareReply> prepared;
        std::optional<ListenReply> listening;
        std::optional<ProbeReply> probed;
        std::chrono::nanoseconds asked_clock{0};  // when it was asked to listen
        ClockOffset clock;
        EnvironmentList network;
    };
    using Candidates = std::vector<std::vector<NetworkCandidate>>;  // by host

    void let_node_0_choose();
    void choose_network_of(const std::vector<std::optional<MachineFacts>>& facts);
    [[nodiscard]] std::vector<NetworkHost> hosts_with(
        const std::vector<std::optional<MachineFacts>>& facts) const;
    void ask_to_listen(const Candidates& candidates, const std::string& key);
    void fail_if_no_place() const;
    void take_bound_places(std::vector<NetworkCandidate>& candidates) const;
    [[nodiscard]] std::vector<NetworkProbeResult> probe(const std::vector<NetworkProbePlan>& plan,
                                                        const std::string& key);
    [[nodiscard]] bool probe_portion(std::vector<ProbeRequest>& requests, const std::string& key);
    void meet_at(const NetworkChoice& choice);
    void blame_cut_off(const std::vector<NetworkProbeResult>& results);
    [[nodiscard]] bool all_answered(bool (*has_answered)(const Node&)) const;

    const JobSpec& spec_;
    Fleet& fleet_;
    JobOutput& output_;
    std::vector<Node> nodes_;
    PrepareReply where_;
};

// The number of an attempt at a job.
struct AttemptNumber {
    int restarts = 0;  // made before it (TORCHELASTIC_RESTART_COUNT)
    int starts = 0;    // of ranks before it: restarts, and that on another MASTER_PORT
};

// The part of an attempt before its ranks start: agents on all hosts, which must be this very
// dslaunch with the same files and devices, and a place where the ranks meet. Every bad host is
// named, and then no rank starts.
class Preparation {
  public:
    // All references must outlive this object.
    Preparation(const JobSpec& spec, Fleet& fleet, JobOutput& output)
        : spec_(spec),
          fleet_(fleet),
          output_(output),
          meeting_(spec, fleet, output),
          nodes_(spec.nodes.size()) {}

    // Does all of it, or returns early when the end is asked for. Throws Error when the job cannot
    // begin; the hosts at fault have an error in the fleet.
    void run();
    // Takes an agent's answer. Throws Error{kInternal} for a frame that is not an answer.
    void take(size_t host, const Frame& frame);
    // Returns the request that starts the ranks of a host. REQUIRES: run() has finished.
    [[nodiscard]] StartRequest start_request(size_t host, const AttemptNumber& number) const;

    // Returns a name for the machine of a host's processes: its boot, network and namespace of
    // processes, else its name.
    [[nodiscard]] std::string machine_of(size_t host) const;

  private:
    struct Node {
        std::optional<std::vector<FileFacts>> files;
        std::optional<MachineFacts> facts;  // from other machines only
    };

    void connect();
    void compare_programs();
    void choose_devices();
    void check_machine_facts();
    void check_files();
    [[nodiscard]] std::vector<FileFacts> look_at_own_files();
    [[nodiscard]] std::vector<std::optional<MachineFacts>> facts() const;
    [[nodiscard]] bool is_local() const { return spec_.transport == TransportKind::kLocal; }

    const JobSpec& spec_;
    Fleet& fleet_;
    JobOutput& output_;
    MeetingPlace meeting_;
    std::vector<Node> nodes_;
    bool drop_devices_ = false;  // no host has a GPU, and none was asked for
};

// The rules after a failed attempt at a job: whether to restart, after which wait, and on which
// hosts. Pure functions; job_loop.cpp acts on them.

// An attempt that lived this long is not a failure "in a row": the next one begins at once.
inline constexpr std::chrono::seconds kSteadyAttempt{60};
// A host that has not answered an elastic restart by then is left out until the next one.
inline constexpr std::chrono::seconds kAnswerMax{15};
// The time for which hosts are tried again and again when too few answer after a failure.
inline constexpr std::chrono::seconds kGatherMax{60};

// Returns the wait before a restart: nothing after a steady attempt, else 1 s, doubled with each
// quick failure in a row up to 30 s. FAILURES_IN_A_ROW: quick ones, from 1; 0: a steady attempt.
[[nodiscard]] std::chrono::milliseconds restart_delay(int failures_in_a_row);

// An attempt that has ended, or is about to.
struct EndedAttempt {
    TargetKind target_kind = TargetKind::kModel;
    int exit_code = 0;
    bool may_restart = false;  // a rank failed or a host was lost, and nobody asked for the end
    int restarts = 0;          // made before this attempt
    int restarts_max = 0;
};

enum class RestartVerdict {
    kEnd,          // the attempt ended well or was asked to end, or all restarts have been made
    kSameMistake,  // usage, config and input errors of a training job, which the same start would
                   // only meet again. Exit codes of other programs have no meaning here.
    kRestart,
};
[[nodiscard]] RestartVerdict decide_restart(const EndedAttempt& attempt);

// Returns the hosts of an attempt, by place in the hostfile: the first range.max that are not bad,
// or nothing when fewer than range.min are left. REQUIRES: 1 <= range.min <= range.max.
[[nodiscard]] std::optional<std::vector<size_t>> choose_hosts(const std::vector<bool>& is_bad,
                                                              const NodeRange& range);

class Supervisor final : private FleetListener {
  public:
    // SIGNAL_FD: a signalfd with the signals that end a job. All references must outlive this
    // object.
    Supervisor(const JobSpec& spec, Transport& transport, JobOutput& output, int signal_fd);

    // Runs one attempt. No rank starts before every agent has ended what earlier attempts left, and
    // the leases of CUT_OFF, their lost hosts, are over or an agent has come from the same machine.
    // Throws Error when the job cannot begin: no rank of this attempt runs then.
    [[nodiscard]] AttemptResult run(const AttemptNumber& number,
                                    const std::vector<CutOffHost>& cut_off = {});
    // Returns true if somebody has asked for the end.
    [[nodiscard]] bool interrupted() const { return fleet_.interrupted(); }
    // Returns, after run() has thrown, the names of the hosts at fault; empty: another reason.
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
    // COME_AGAIN: wants agents that came by themselves for another attempt.
    void stop(bool come_again);
    [[nodiscard]] bool restart_may_follow(int restarts) const;

    const JobSpec& spec_;
    JobOutput& output_;
    int signal_fd_;
    Fleet fleet_;
    Preparation preparation_;
    RankWatch ranks_;
    std::optional<FileBringer> bringer_;  // once files are brought
    // Each host's answer about earlier attempts; empty: nobody was asked.
    std::vector<std::optional<StopJobReply>> left_before_;
    std::string leftovers_;  // processes that could not be ended, one line a node
    std::vector<std::string> bad_hosts_;
};

}  // namespace dslaunch::launch
