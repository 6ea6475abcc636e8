// The part of an attempt before its ranks start: agents on all hosts, their checks, and a place
// where the ranks meet. One thread: the caller's.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "launch/agent/machine_facts.h"
#include "launch/fleet/fleet.h"
#include "launch/output/job_output.h"
#include "launch/plan/job_spec.h"
#include "launch/supervise/meeting_place.h"

namespace dslaunch::launch {

// The number of an attempt at a job.
struct AttemptNumber {
    int restarts = 0;  // restarts before this attempt (TORCHELASTIC_RESTART_COUNT)
    int starts = 0;    // earlier starts of ranks: restarts, and a start on another MASTER_PORT
};

// Starts agents on all hosts, checks that they are this same build of dslaunch with the same files
// and devices, and finds the place where the ranks meet. If hosts are bad, all of them are named
// and no rank starts.
class Preparation {
  public:
    // All references must outlive this object.
    Preparation(const JobSpec& spec, Fleet& fleet, JobOutput& output)
        : spec_(spec),
          fleet_(fleet),
          output_(output),
          meeting_(spec, fleet, output),
          nodes_(spec.nodes.size()) {}

    // Starts and checks the agents and finds the meeting place. Returns early if somebody asks the
    // job to end. Throws Error if the job cannot begin; Fleet::Node::error then contains the reason
    // for each host at fault.
    void run();
    // Takes an agent's answer. Throws Error{kInternal} for a frame that is not an answer.
    void take(size_t host, const Frame& frame);
    // Returns the request that starts the ranks of a host. REQUIRES: run() has finished.
    [[nodiscard]] StartRequest start_request(size_t host, const AttemptNumber& number) const;

    // Returns a key for the machine on which a host's processes run: the ids of its boot, network
    // namespace and process namespace or, if they are unknown, its name.
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
    bool drops_devices_ = false;  // no host has a GPU, and the user did not ask for GPUs
};

}  // namespace dslaunch::launch
