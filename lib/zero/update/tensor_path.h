// The update of whole tensors, each by its owner: LAMB, Muon, Adafactor and 1-bit LAMB, with the
// states that such tensors have in addition to moments.
#pragma once

#include "zero/states/tensor_optimizer.h"
#include "zero/update/update_path.h"

namespace dslaunch::zero {

// Updates whole tensors; see the top of this file.
class TensorPath final : public UpdatePath {
  public:
    // EXCHANGE averages compressed values over the hosts. It may be null, and must outlive the
    // path.
    TensorPath(RankParts& parts, CompressedExchange* exchange);

    void update(const plan::Instruction& chunk, const ChunkView& view, bool writes) override;
    [[nodiscard]] std::vector<std::string> state_names() const override;
    void add_pieces(int chunk, int first, std::vector<runtime::SavedPiece>& pieces) override;
    void add_memory(runtime::MemoryAccount& account) const override;

  private:
    void update_tensor(const plan::Instruction& chunk, const ChunkPart& part, const Run& run,
                       const ChunkView& view);

    CompressedExchange* exchange_;
    TensorOptimizer optimizer_;
    TensorStates states_;
};

}  // namespace dslaunch::zero
