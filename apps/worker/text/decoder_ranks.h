// The ranks of a job that share a decoder: their mesh, and the channels between them. Data path:
// worker environment -> [here] -> decoder/ranks/group_runner.h. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "base/clock.h"
#include "decoder/ranks/group_runner.h"
#include "launch/plan/worker_environment.h"
#include "runtime/comm_gloo/job_comm.h"

namespace dslaunch::worker {

class DecoderRanks {
  public:
    // Throws Error{kUsage} as decoder::choose_mesh().
    DecoderRanks(launch::WorkerEnvironment environment, const storage::TransformerConfig& config,
                 int tensor_ranks);

    [[nodiscard]] bool is_alone() const { return environment_.world_size == 1; }
    [[nodiscard]] bool is_first() const { return environment_.rank == 0; }
    [[nodiscard]] const decoder::RankMesh& mesh() const { return mesh_; }
    [[nodiscard]] decoder::DecoderPart part(const storage::TransformerConfig& config) const;

    // Connects to all ranks. ROWS_NUMEL: the most numbers that ranks add up at once. Throws what
    // open_job_comm() does. REQUIRES: not alone.
    void open(int64_t rows_numel, Duration time_limit);
    // VALUE of rank 0. REQUIRES: open().
    [[nodiscard]] int64_t of_first(int64_t value);
    // REQUIRES: open(). Null: no other rank shares this one's layers.
    [[nodiscard]] decoder::GroupSum* sum() { return sum_ ? &*sum_ : nullptr; }
    [[nodiscard]] decoder::GroupParts parts(decoder::Decoder& decoder);
    // Frees the ranks that wait for this one.
    void poison(const std::string& why) const;

  private:
    launch::WorkerEnvironment environment_;
    decoder::RankMesh mesh_;
    runtime::PipelinePlace place_;
    std::optional<runtime::JobComm> all_;
    std::optional<runtime::JobComm> stage_;
    runtime::StageLinks links_;
    std::optional<decoder::GroupSum> sum_;
};

}  // namespace dslaunch::worker
