// One attempt at a job: agents on all nodes, checks, workers, the wait for their end, and the end
// of everything. One thread: the caller's.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "launch/agent/machine_facts.h"
#include "launch/network/network.h"
#include "launch/plan/job_spec.h"
#include "launch/protocol/clock_offset.h"
#include "launch/protocol/frame.h"
#include "launch/protocol/messages.h"
#include "launch/supervise/job_output.h"
#include "launch/supervise/rank_record.h"
#include "launch/supervise/straggler.h"
#include "launch/transport/transport.h"

namespace dslaunch::launch {

struct AttemptResult {
    int exit_code = 0;
    bool may_restart = false;  // a rank failed or a host was lost, and nobody asked for the end
    // Rank 0, which is no dsworker, says soon after the start that an address is in use, and the
    // port was our choice.
    bool port_was_taken = false;
    bool left_processes = false;  // some could not be ended; the report names them
    std::string report;           // what went wrong, for stderr; empty when nothing did
};

class Supervisor {
  public:
    // SIGNAL_FD: a signalfd with the signals that end a job. All references must outlive this
    // object.
    Supervisor(const JobSpec& spec, Transport& transport, JobOutput& output, int signal_fd);

    // Throws Error when the job cannot begin: nothing of it is running then.
    [[nodiscard]] AttemptResult run(int restart_count);
    // Whether somebody asked for the end.
    [[nodiscard]] bool interrupted() const { return interrupts_ > 0; }
    // After run() has thrown: the hosts for which it did, by name; empty: for another reason.
    [[nodiscard]] const std::vector<std::string>& bad_hosts() const { return bad_hosts_; }

  private:
    using Time = std::chrono::steady_clock::time_point;
    struct Node {
        FrameDecoder frames{true};
        bool ended = false;  // its agent and everything it had are gone
        bool greeted = false;
        bool gone = false;                     // it said so
        std::string error;                     // why it is bad
        std::optional<uint32_t> problem_code;  // an ExitCode, when its agent said why
        std::vector<std::string> diagnostics;
        AgentHello hello;
        std::optional<CheckReply> checked;
        std::optional<PrepareReply> prepared;
        std::optional<MachineFacts> facts;  // from other machines only
        std::optional<ListenReply> listening;
        std::optional<ProbeReply> probed;
        std::chrono::nanoseconds asked_clock{0};  // when it was asked to listen
        ClockOffset clock;
        EnvironmentList network;  // NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME as found
        Time last_byte;
    };

    void connect();
    void compare_versions();
    void check_files();
    void choose_devices();
    void check_machine_facts();
    void prepare();
    // In supervisor_network.cpp: the same over several hosts.
    [[nodiscard]] bool hosts_tell_addresses() const;
    void choose_meeting_place();
    [[nodiscard]] std::vector<NetworkHost> network_hosts() const;
    void ask_to_listen(const std::vector<std::vector<NetworkCandidate>>& candidates,
                       const std::string& key);
    void name_cut_off(const std::vector<NetworkProbeResult>& results);
    [[nodiscard]] std::vector<NetworkProbeResult> probe(const std::vector<NetworkProbePlan>& plan,
                                                        const std::string& key);
    [[nodiscard]] bool probe_portion(std::vector<ProbeRequest>& requests, const std::string& key);
    void meet_at(const NetworkChoice& choice);
    void handle_network_frame(Node& node, const Frame& frame);
    void start_workers(int restart_count);
    void watch_workers();
    // COME_AGAIN: agents that came by themselves are wanted for another attempt.
    void stop_all(bool come_again);
    [[nodiscard]] bool restart_may_follow(int restart_count) const;
    [[nodiscard]] AttemptResult conclude() const;
    [[nodiscard]] bool port_was_taken() const;

    // Handles events until DONE() or until DEADLINE; false at the deadline.
    bool pump(const std::function<bool()>& done, Time deadline);
    void handle_event(const TransportEvent& event);
    void handle_frame(size_t node, const Frame& frame);
    void handle_control(const WorkerControl& control);
    void tell_threads(const WorkerStarted& started) const;
    void tell_binding(const WorkerStarted& started) const;
    void handle_exit(const WorkerExited& exited);
    void handle_node_end(const TransportEvent& event);
    void handle_signals();
    void handle_lost_output();
    void ask_to_end(const std::string& cause);
    void keep_in_touch();
    void lose_node(size_t node, const std::string& cause);
    void name_lost_node(size_t node, const std::string& cause);
    void end_ranks_of(size_t node, const std::string& cause);
    void send(size_t node, FrameKind kind, std::string payload = {});
    void send_all(FrameKind kind, const std::string& payload = {});
    // CODE: of the Error that it throws.
    void fail_if_bad_nodes(const std::string& what, ExitCode code = ExitCode::kHosts);
    [[nodiscard]] RankRecord& record(int64_t rank);
    [[nodiscard]] bool all_nodes(const std::function<bool(const Node&)>& predicate) const;
    [[nodiscard]] bool all_ranks_ended() const;
    [[nodiscard]] StartRequest start_request(size_t node, int restart_count) const;

    const JobSpec& spec_;
    Transport& transport_;
    JobOutput& output_;
    int signal_fd_;
    std::vector<Node> nodes_;
    std::vector<RankRecord> ranks_;
    StragglerWatch stragglers_;
    PrepareReply rendezvous_;
    bool drop_devices_ = false;
    bool starting_ = false;               // workers may exist
    bool stopping_ = false;               // kStop was sent
    int interrupts_ = 0;                  // wishes to end so far
    std::optional<Time> agent_asked_at_;  // the first came from an agent
    bool end_now_ = false;  // a second signal, or the first one before the workers were started
    bool save_asked_ = false;
    int ends_ = 0;
    Time started_at_;
    Time save_deadline_;
    bool output_lost_ = false;     // nobody reads what the ranks write
    std::optional<Time> stop_at_;  // something failed: all are ended then
    // A rank was killed and may be but the first process of its whole Slurm step: its agent would
    // be gone until then.
    std::optional<Time> agents_end_by_;
    Time next_ping_;
    Time next_look_;         // at the agents, while nobody reads what we write
    std::string leftovers_;  // processes that could not be ended, one line a node
    std::vector<std::string> bad_hosts_;
    std::string lost_node_;  // the first node that went away, with its cause
};

}  // namespace dslaunch::launch
