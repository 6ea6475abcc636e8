// 1-bit Adam and 0/1 Adam: the values that hosts exchange instead of gradients, and the update that
// is made from their averages. 1-bit LAMB exchanges its values here too, but its update uses the
// averages elsewhere (tensor_path.h). Sources: Tang et al. 2021, Lu et al. 2022; decisions:
// docs/decisions/016-hosts-are-the-workers.md.
#pragma once

#include "base/machine/zeroed_floats.h"
#include "zero/update/update_path.h"

namespace dslaunch::kernels {
struct LocalMoves;
}

namespace dslaunch::zero {

// Updates from averages of values that hosts exchange in 1 bit each; see the top of this file.
class AveragedPath final : public UpdatePath {
  public:
    AveragedPath(RankParts& parts, const runtime::Arena& arena);

    // Returns the exchange, which the path for whole tensors uses too.
    [[nodiscard]] CompressedExchange& averages() { return exchange_; }

    void begin_step(const runtime::StepSettings& next) override;
    // Carries out an Exchange of a bucket.
    void run(const plan::Instruction& instruction) override;
    void update(const plan::Instruction& chunk, const ChunkView& view, bool writes) override;
    void end_bucket() override { exchange_.end(); }
    void meet() override;
    [[nodiscard]] std::vector<std::string> state_names() const override;
    void add_pieces(int chunk, int first, std::vector<runtime::SavedPiece>& pieces) override;
    void add_memory(runtime::MemoryAccount& account) const override;

  private:
    void settle_rates();
    void remember_meeting();
    void allow_changes(int bucket);
    [[nodiscard]] int error_unit(int bucket) const;
    template <typename Fill>
    void exchange_bucket(int bucket, Fill&& fill);
    void fill_values(int bucket, const ChunkPart& part, const Range& range, const ChunkView& view,
                     std::span<float> values);
    [[nodiscard]] kernels::LocalMoves moves_of(int bucket, const ChunkPart& part,
                                               const kernels::FlatRange& arrays,
                                               const Range& range);
    void give_moves(int bucket, const ChunkPart& part, const Range& range, const ChunkView& view,
                    std::span<float> values);
    void take_moves(int bucket, const ChunkPart& part, const Range& range, const ChunkView& view,
                    std::span<const float> averaged, double rates);
    void meet_in(int bucket);

    CompressedExchange exchange_;
    // The last parameters that all hosts had in common, by trained bucket and piece; empty
    // until the hosts take their first step without an exchange.
    std::vector<std::vector<ZeroedFloats>> meeting_;
    double rates_since_ = 0;  // sum of the learning rates since meeting_ was stored
    // The exchange of the last step. settle_rates() sets it to kExact when it has counted the step.
    plan::Exchange last_exchange_ = plan::Exchange::kExact;
};

}  // namespace dslaunch::zero
