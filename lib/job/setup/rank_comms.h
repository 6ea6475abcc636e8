// All that a rank of a job communicates through: with all ranks, with those that train the same
// parameters, with those that work on its micro batches, and with the other stages. Where it
// stands: worker environment, job setup -> [here] -> state, trainer. Threads: opened by one.
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

// Of an arena what is ever touched: the control block does not fill the room before the slices.
[[nodiscard]] Bytes touched_bytes(const runtime::ArenaLayout& arena);

class RankComms {
  public:
    // By all ranks of the job. SETUP must outlive this. OWN: of the ranks that train the same
    // parameters. Throws what open_job_comm and open_group_comm do, and Error{kDiverged} where
    // ranks whose plans differ do not agree on the rest.
    void open(const launch::WorkerEnvironment& environment, const JobSetup& setup,
              runtime::ArenaLayout own, Duration time_limit);

    // Of all ranks.
    [[nodiscard]] runtime::Collectives& job() const { return *(job_ ? job_ : own_)->collectives; }
    // Whether the ranks that train the same parameters are not all.
    [[nodiscard]] bool is_divided() const { return job_.has_value(); }
    [[nodiscard]] runtime::JobComm& own() { return *own_; }
    [[nodiscard]] const runtime::StageLink* stages() const { return stages_ ? &*stages_ : nullptr; }
    // Whose traffic goes to stages on other hosts; null: none does.
    [[nodiscard]] const runtime::Link* far() const { return links_.far.get(); }
    // Of the ranks that work on the same micro batches; null: each works alone.
    [[nodiscard]] graph::TensorGroup* tensor() { return tensor_ ? &*tensor_ : nullptr; }
    // Which shares of the parameters this rank has; null: they are whole.
    [[nodiscard]] const graph::TensorRank* shares() const { return shares_ ? &*shares_ : nullptr; }

    // Other than that of all ranks.
    [[nodiscard]] std::vector<runtime::Collectives*> groups() const;

    // Frees ranks that wait for this one. Any thread, also while nothing is open.
    void poison(const std::string& why) const;

    // What a host's arenas hold beside those of the ranks that train the same parameters, for
    // SETUP's rank and as many like it as RANKS says.
    [[nodiscard]] static Bytes shared_bytes(const JobSetup& setup, int ranks);

  private:
    std::optional<runtime::JobComm> job_;  // where own_ is not of all ranks
    std::optional<runtime::JobComm> group_;
    runtime::StageLinks links_;
    std::optional<runtime::StageLink> stages_;
    std::optional<runtime::JobComm> own_;
    std::optional<runtime::CollectivesTensorGroup> tensor_;
    std::optional<graph::TensorRank> shares_;
};

}  // namespace dslaunch::job
