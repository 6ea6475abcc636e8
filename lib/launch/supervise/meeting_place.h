// The place where the ranks of a job meet, and the network on which each host reaches it. One
// thread: the caller's.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "launch/agent/machine_facts.h"
#include "launch/fleet/fleet.h"
#include "launch/network/network.h"
#include "launch/output/job_output.h"
#include "launch/plan/job_spec.h"

namespace dslaunch::launch {

// Finds the place where the ranks of a job meet, and the network on which each host reaches it:
// node 0 binds addresses, and the other hosts report which of them they reach. The rules are in
// launch/network/network.h. Messages are sent over a connected Fleet, before any rank is started.
class MeetingPlace {
  public:
    // All references must outlive this object.
    MeetingPlace(const JobSpec& spec, Fleet& fleet, JobOutput& output)
        : spec_(spec), fleet_(fleet), output_(output), nodes_(spec.nodes.size()) {}

    // Takes an agent's answer. Throws Error{kInternal} for a frame that is not an answer.
    void take(size_t host, const Frame& frame);
    // Finds the meeting place. If all hosts report their addresses in FACTS, the place is an
    // address of node 0 that the hosts reach; else node 0 chooses the place. Throws Error{kHosts,
    // kSetup}, naming the hosts that have no place to meet; Fleet::nodes() contains their errors.
    // Returns early if somebody asks for the end.
    void find(const std::vector<std::optional<MachineFacts>>& facts);

    // Returns the meeting place. REQUIRES: find() has found it.
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
        std::chrono::nanoseconds asked_clock{0};  // when the host was asked to listen
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
