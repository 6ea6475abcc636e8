// A decoder that the ranks of a job share: stages of whole layers, each split among tensor ranks.
// Rank 0 has the requests and decides each batch. It belongs to the last stage, because logits are
// needed where tokens are chosen. All other ranks compute the batches that it sends. Data path:
// engine -> [here] on rank 0 -> batch -> all ranks -> hidden rows from stage to stage -> logits on
// rank 0. One thread on each rank.
#pragma once

#include <cstdint>
#include <vector>

#include "decoder/decode/decoder.h"
#include "decoder/ranks/group_sum.h"
#include "runtime/comm/collectives.h"
#include "runtime/comm/link.h"
#include "runtime/comm/ranks/topology.h"

namespace dslaunch::decoder {

// The division of a job's ranks into stages and tensor ranks.
struct RankMesh {
    int tensor_ranks = 1;
    int stages = 1;

    // Returns the ranks of each stage; rank 0 belongs to the last one.
    [[nodiscard]] std::vector<std::vector<int>> ranks_of_stages() const;
};

// Returns the mesh for a job's hosts. TENSOR_RANKS is the number that the user gave; if it is 0, it
// becomes the largest number that divides the ranks of each host and the key heads. The ranks are
// then divided into stages. Throws Error{kUsage} that says which numbers would fit.
[[nodiscard]] RankMesh choose_mesh(const storage::TransformerConfig& config,
                                   const std::vector<int>& node_sizes, int tensor_ranks);

// The objects through which this rank works with the others; it does not own them.
struct GroupParts {
    Decoder& decoder;
    runtime::Collectives& all;  // the collectives of all ranks
    GroupSum* sum = nullptr;    // sums over this stage's ranks; null if it has one rank
    runtime::PipelinePlace place;
    std::vector<runtime::Link*> links;  // one for each stage; empty if there is one stage
};

// One rank of the group.
class GroupRunner final : public BatchRunner {
  public:
    // The objects in PARTS must outlive this object.
    explicit GroupRunner(GroupParts parts);

    [[nodiscard]] int64_t vocabulary() const override { return parts_.decoder.config().vocabulary; }
    [[nodiscard]] int64_t context() const override { return parts_.decoder.config().context; }
    [[nodiscard]] int64_t pages() const override { return parts_.decoder.options().pages; }
    [[nodiscard]] int64_t rows_max() const override { return parts_.decoder.options().rows_max; }
    [[nodiscard]] bool is_stuck() const override { return is_computing_; }
    // Throws Error{kPeerLost} if a rank is lost. REQUIRES: rank 0.
    [[nodiscard]] std::span<float> run(const Batch& batch) override;
    // Tells the other ranks that rank 0 is running and has nothing to compute. REQUIRES: rank 0.
    void keep_waiting();
    // Tells the other ranks that no more batches follow. REQUIRES: rank 0.
    void end();

    // Computes rank 0's batches until it calls end(). REQUIRES: a rank other than 0.
    void follow();

  private:
    void tell(int64_t length);
    void compute(const Batch& batch);
    [[nodiscard]] std::span<float> whole_logits(const Batch& batch);

    GroupParts parts_;
    std::vector<float> logits_;
    bool is_computing_ = false;  // the other ranks have a batch that is not computed yet
};

}  // namespace dslaunch::decoder
