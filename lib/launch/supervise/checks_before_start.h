// The part of an attempt before its ranks start: agents on all hosts, which must be this very
// dslaunch with the same files and devices, and a place where the ranks meet. Every bad host is
// named, and none starts a rank then.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launch/agent/machine_facts.h"
#include "launch/fleet/fleet.h"
#include "launch/plan/job_spec.h"
#include "launch/supervise/job_output.h"
#include "launch/supervise/meeting_place.h"

namespace dslaunch::launch {

// Which attempt of a job it is.
struct AttemptNumber {
    int restarts = 0;  // made before it (TORCHELASTIC_RESTART_COUNT)
    int starts = 0;    // of ranks before it: restarts, and that on another MASTER_PORT
};

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
    // begin; the hosts that are why have an error in the fleet.
    void run();
    // Takes what an agent answers. Throws Error{kInternal} for a frame that is no answer.
    void take(size_t host, const Frame& frame);
    // The request that starts the ranks of a host. REQUIRES: run() has come to its end.
    [[nodiscard]] StartRequest start_request(size_t host, const AttemptNumber& number) const;

    // Returns what tells the processes of a host from those of all others: boot, network and
    // namespace of processes of its machine, else its name.
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

}  // namespace dslaunch::launch
