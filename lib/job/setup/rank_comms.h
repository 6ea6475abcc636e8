// The channels of a rank of a job: to all ranks, to the ranks that train the same parameters, to
// the ranks that work on its micro batches, and to the other stages. Data path: worker environment,
// job setup -> [here] -> state, trainer. Threads: one opens it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "graph/tensor/tensor_rank.h"
#include "job/setup/job_setup.h"
#include "launch/plan/worker_environment.h"
#include "runtime/comm_gloo/job_comm.h"
#include "runtime/compute/stage_link.h"
#include "runtime/compute/tensor_collectives.h"

namespace dslaunch::job {

// Returns the bytes of ARENA that are ever touched: the control block does not fill the room before
// the slices.
[[nodiscard]] Bytes touched_bytes(const runtime::ArenaLayout& arena);

class RankComms {
  public:
    // Called by all ranks of the job. SETUP must outlive this. OWN is the arena of the ranks that
    // train the same parameters. Throws what open_job_comm and open_group_comm do, and
    // Error{kDiverged} if ranks whose plans differ do not agree on the rest.
    void open(const launch::WorkerEnvironment& environment, const JobSetup& setup,
              runtime::ArenaLayout own, Duration time_limit);

    // Returns the collectives of all ranks.
    [[nodiscard]] runtime::Collectives& job() const { return *(job_ ? job_ : own_)->collectives; }
    [[nodiscard]] runtime::JobComm& of_job() { return job_ ? *job_ : *own_; }
    // Returns true if the ranks that train the same parameters are not all ranks.
    [[nodiscard]] bool is_divided() const { return job_.has_value(); }
    [[nodiscard]] runtime::JobComm& own() { return *own_; }
    [[nodiscard]] const runtime::StageLink* stages() const { return stages_ ? &*stages_ : nullptr; }
    // Returns the link to stages on other hosts; null: there are none.
    [[nodiscard]] const runtime::Link* far() const { return links_.far.get(); }
    // Returns the group of ranks that work on the same micro batches; null: each works alone.
    [[nodiscard]] graph::TensorGroup* tensor() { return tensor_.get(); }
    // Returns this rank's shares of the parameters; null: they are whole.
    [[nodiscard]] const graph::TensorRank* shares() const { return shares_ ? &*shares_ : nullptr; }

    // Returns the collectives of groups of ranks, without job()'s.
    [[nodiscard]] std::vector<runtime::Collectives*> groups() const;

    // Frees ranks that wait for this one. Any thread, also while nothing is open.
    void poison(const std::string& why) const;

    // Returns the bytes of a host's arenas, without the arena of the ranks that train the same
    // parameters, for RANKS ranks like SETUP's.
    [[nodiscard]] static Bytes shared_bytes(const JobSetup& setup, int ranks);

  private:
    std::optional<runtime::JobComm> job_;  // present if own_ is not of all ranks
    std::optional<runtime::JobComm> group_;
    runtime::StageLinks links_;
    std::optional<runtime::StageLink> stages_;
    std::optional<runtime::JobComm> own_;
    std::unique_ptr<graph::TensorGroup> tensor_;
    std::optional<graph::TensorRank> shares_;
};

}  // namespace dslaunch::job
