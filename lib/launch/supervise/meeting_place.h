// The place where the ranks of a job meet, and the network by which each host takes part: node 0
// binds addresses, and the other hosts tell at which they reach it. The rules are in
// launch/network/network.h. Messages go over a connected Fleet, before any rank is started.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "launch/agent/machine_facts.h"
#include "launch/fleet/fleet.h"
#include "launch/network/network.h"
#include "launch/network/network_messages.h"
#include "launch/plan/job_spec.h"
#include "launch/protocol/clock_offset.h"
#include "launch/supervise/job_output.h"

namespace dslaunch::launch {

class MeetingPlace {
  public:
    // All references must outlive this object.
    MeetingPlace(const JobSpec& spec, Fleet& fleet, JobOutput& output)
        : spec_(spec), fleet_(fleet), output_(output), nodes_(spec.nodes.size()) {}

    // Takes what an agent answers. Throws Error{kInternal} for a frame that is no answer.
    void take(size_t host, const Frame& frame);
    // Looks for the place: one that the hosts reach by the addresses in FACTS, where all tell them,
    // else one that node 0 chooses. Throws Error{kHosts, kSetup} naming the hosts for which there
    // is none; Fleet::nodes() has their errors. Returns early when the end is asked for.
    void find(const std::vector<std::optional<MachineFacts>>& facts);

    // REQUIRES: find() has found it.
    [[nodiscard]] const PrepareReply& where() const { return where_; }
    // NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME for the ranks of a host; empty: not known.
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

}  // namespace dslaunch::launch
