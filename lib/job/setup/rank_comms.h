// The communication channels of a rank of a job: to all ranks, to the ranks that train the same
// parameters, to the ranks that work on the same micro batches, and to the other stages. Data path:
// worker environment, job setup -> [here] -> state, trainer. Threads: one opens it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "graph/tensor/tensor_rank.h"
#include "job/setup/job_setup.h"
#include "launch/plan/worker_environment.h"
#include "runtime/comm_gloo/job_comm.h"
#include "runtime/comm_gloo/stage_links.h"
#include "runtime/compute/stage_link.h"
#include "runtime/compute/tensor_collectives.h"

namespace dslaunch::job {

// Returns how many bytes of ARENA are used. Does not count the unused space between the control
// block and the slices.
[[nodiscard]] Bytes touched_bytes(const runtime::ArenaLayout& arena);

// Owns the channels of one rank. REQUIRES, for all calls except open() and poison(): open() has
// been called.
class RankComms {
  public:
    // Called by all ranks of the job. SETUP must outlive this object. OWN is the arena of the ranks
    // that train the same parameters. Throws what open_job_comm and open_group_comm throw, and
    // Error{kDiverged} if ranks with different plans do not agree on everything else.
    void open(const launch::WorkerEnvironment& environment, const JobSetup& setup,
              runtime::ArenaLayout own, Duration time_limit);

    // Returns the collectives of all ranks.
    [[nodiscard]] runtime::Collectives& job() const { return *(job_ ? job_ : own_)->collectives; }
    // Returns the channel to all ranks.
    [[nodiscard]] runtime::JobComm& of_job() { return job_ ? *job_ : *own_; }
    // Returns true if only some of the job's ranks train the same parameters.
    [[nodiscard]] bool is_divided() const { return job_.has_value(); }
    // Returns the channel to the ranks that train the same parameters.
    [[nodiscard]] runtime::JobComm& own() { return *own_; }
    // Returns the link to the other stages; null without a pipeline.
    [[nodiscard]] const runtime::StageLink* stages() const { return stages_ ? &*stages_ : nullptr; }
    // Returns the link to stages on other hosts; null if there are no such stages.
    [[nodiscard]] const runtime::Link* far() const { return links_.far.get(); }
    // Returns the group of ranks that work on the same micro batches; null if each rank works
    // alone.
    [[nodiscard]] graph::TensorGroup* tensor() { return tensor_.get(); }
    // Returns this rank's shares of the parameters; null if the parameters are whole.
    [[nodiscard]] const graph::TensorRank* shares() const { return shares_ ? &*shares_ : nullptr; }

    // Returns the collectives of groups of ranks; the collectives of job() are not among them.
    [[nodiscard]] std::vector<runtime::Collectives*> groups() const;

    // Ends the waits of other ranks for this rank, with the reason WHY. Can be called on any
    // thread, even while nothing is open.
    void poison(const std::string& why) const;

    // Returns the size of all arenas on a host with RANKS ranks. Does not count the arena of the
    // ranks that train the same parameters. SETUP is the setup of one rank on the host.
    [[nodiscard]] static Bytes shared_bytes(const JobSetup& setup, int ranks);

  private:
    std::optional<runtime::JobComm> job_;  // present if own_ does not connect all ranks
    std::optional<runtime::JobComm> group_;
    runtime::StageLinks links_;
    std::optional<runtime::StageLink> stages_;
    std::optional<runtime::JobComm> own_;
    std::unique_ptr<graph::TensorGroup> tensor_;
    std::optional<graph::TensorRank> shares_;
};

}  // namespace dslaunch::job
