// The states of whole tensors that are not moments: the row and column factors that Adafactor has
// instead of a second moment, and the values that 1-bit LAMB keeps beside LAMB's states. They stay
// in the host's memory with the rank that updates the tensor. Data path: ZeRO state -> [here] ->
// tensor optimizer, checkpoints. One thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/machine/zeroed_floats.h"
#include "config/run/optimizer_config.h"
#include "graph/archive/model.h"
#include "runtime/save/saved_state.h"
#include "runtime/state/saved_piece.h"
#include "zero/states/shard_map.h"

namespace dslaunch::zero {

inline constexpr size_t kTensorStatesMax = 3;

// Returns their names in the order of saving. Adafactor: "exp_avg_sq_row", "exp_avg_sq_col" of
// tensors of two and more dimensions, "exp_avg_sq" of others. 1-bit LAMB: storage's kFreshVariance,
// of the tensor's shape, and kLambCoefficient, [3] (LambNumbers). Others: none.
[[nodiscard]] std::vector<std::string> tensor_state_names(const config::OptimizerConfig& config);

// Returns how many fp32 values of each a tensor of SHAPE has; 0: it does not have that state.
[[nodiscard]] std::vector<int64_t> tensor_state_numel(const config::OptimizerConfig& config,
                                                      std::span<const int64_t> shape);

// Places in kLambCoefficient: the weighted sum of a tensor's ratios so far, the sum of the weights,
// and the factor of the update before, 0 while gradients are exchanged in full.
enum LambNumbers : uint8_t { kRatioSum, kRatioWeights, kLastFactor, kLambNumbers };

class TensorStates {
  public:
    // The states of a tensor, in the order of tensor_state_names(); the ones that it lacks are
    // empty.
    using Values = std::array<std::span<float>, kTensorStatesMax>;

    // All values are 0. All ranks that keep an optimizer's states of a tensor keep these. MODEL and
    // MAP must outlive this.
    TensorStates(const config::OptimizerConfig& config, const graph::Model& model,
                 const ShardMap& map);

    // REQUIRES: this rank keeps states of the trained slice SLICE.
    [[nodiscard]] Values of(int slice);
    // Takes SAVED's values, if it has them.
    void load(runtime::SavedState& saved);
    // Adds this rank's pieces of a bucket, which are UNIT's. FIRST is the state of the first name.
    void add_pieces(int bucket, int first, int unit, std::vector<runtime::SavedPiece>& pieces);

    [[nodiscard]] Bytes bytes() const { return Bytes{std::ssize(values_.values()) * 4}; }

  private:
    [[nodiscard]] std::span<const int64_t> shape_of(int slice) const;
    // Calls use(slice) for the slices of a bucket that this rank keeps, or WRITES.
    template <typename Use>
    void for_each_slice(int bucket, bool writes, Use&& use) const;

    config::OptimizerConfig config_;
    const graph::Model& model_;
    const ShardMap& map_;
    ZeroedFloats values_;
    std::vector<int64_t> begins_;  // by trained slice, in VALUES_; -1: it is kept elsewhere
};

}  // namespace dslaunch::zero
