// A decoder that the ranks of a job share: stages of whole layers, each split among tensor ranks.
// Rank 0 has the requests and decides each batch; it belongs to the last stage, so that logits come
// out where tokens are chosen. All other ranks compute as it says. Data path: engine -> [here] on
// rank 0 -> batch -> all ranks -> hidden rows from stage to stage -> logits on rank 0. One thread a
// rank.
#pragma once

#include <cstdint>
#include <vector>

#include "decoder/decode/decoder.h"
#include "decoder/ranks/group_sum.h"
#include "runtime/comm/collectives.h"
#include "runtime/comm/link.h"
#include "runtime/comm/ranks/topology.h"

namespace dslaunch::decoder {

// The way in which the ranks of a job share a decoder.
struct RankMesh {
    int tensor_ranks = 1;
    int stages = 1;

    // Returns the ranks of each stage; rank 0 is of the last one.
    [[nodiscard]] std::vector<std::vector<int>> ranks_of_stages() const;
};

// Returns the mesh of a job's hosts: TENSOR_RANKS as asked for, or, if 0, as many of a host's ranks
// as divide the heads of keys; the rest are stages. Throws Error{kUsage} that names what would fit.
[[nodiscard]] RankMesh choose_mesh(const storage::TransformerConfig& config,
                                   const std::vector<int>& node_sizes, int tensor_ranks);

struct GroupParts {
    Decoder& decoder;
    runtime::Collectives& all;  // of all ranks
    GroupSum* sum = nullptr;    // of this stage's ranks; null: there is one
    runtime::PipelinePlace place;
    std::vector<runtime::Link*> links;  // by stage; empty: there is one stage
};

class GroupRunner final : public StepRunner {
  public:
    // PARTS' objects must outlive this.
    explicit GroupRunner(GroupParts parts);

    [[nodiscard]] int64_t vocabulary() const override { return parts_.decoder.config().vocabulary; }
    [[nodiscard]] int64_t context() const override { return parts_.decoder.config().context; }
    [[nodiscard]] int64_t pages() const override { return parts_.decoder.options().pages; }
    [[nodiscard]] int64_t rows_max() const override { return parts_.decoder.options().rows_max; }
    [[nodiscard]] bool is_stuck() const override { return computing_; }
    // Throws Error{kPeerLost} when a rank is lost. REQUIRES: rank 0.
    [[nodiscard]] std::span<float> run(const Batch& batch) override;
    // Tells the other ranks that rank 0 is alive and has nothing to compute. REQUIRES: rank 0.
    void keep_waiting();
    // Tells the other ranks that there is nothing more to compute. REQUIRES: rank 0.
    void end();

    // Computes rank 0's batches until it ends. REQUIRES: another rank.
    void follow();

  private:
    void tell(int64_t length);
    void compute(const Batch& batch);
    [[nodiscard]] std::span<float> whole_logits(const Batch& batch);

    GroupParts parts_;
    std::vector<float> logits_;
    bool computing_ = false;  // the other ranks were told of a batch, which is not computed yet
};

}  // namespace dslaunch::decoder
