// The states of whole tensors besides moments: the row and column factors that Adafactor has
// instead of a second moment, and the values that 1-bit LAMB has in addition to LAMB's states. They
// are in the host's memory, on the rank that updates the tensor. Data path: ZeRO state -> [here] ->
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

// Returns the names of whole tensors' states, in the order of saving. Adafactor has
// "exp_avg_sq_row" and "exp_avg_sq_col" for tensors of two or more dimensions, and "exp_avg_sq" for
// other tensors. 1-bit LAMB has kFreshVariance, which has the tensor's shape, and kLambCoefficient,
// which has 3 elements (LambNumbers). Other optimizers have no such states.
[[nodiscard]] std::vector<std::string> tensor_state_names(const config::OptimizerConfig& config);

// Returns the numbers of fp32 values in the states of a tensor of SHAPE, in the order of
// tensor_state_names(). A state that the tensor lacks has 0 values.
[[nodiscard]] std::vector<int64_t> tensor_state_numel(const config::OptimizerConfig& config,
                                                      std::span<const int64_t> shape);

// Indices in kLambCoefficient: the weighted sum of a tensor's ratios so far, the sum of their
// weights, and the factor of the previous update, which is 0 while gradients are exchanged in full.
enum LambNumbers : uint8_t { kRatioSum, kRatioWeights, kLastFactor, kLambNumbers };

// Keeps states of whole tensors; see the top of this file.
class TensorStates {
  public:
    // The states of a tensor, in the order of tensor_state_names(); states that it does not have
    // are empty.
    using Values = std::array<std::span<float>, kTensorStatesMax>;

    // All values start at 0. All ranks that keep optimizer states of a tensor keep these states
    // too. MODEL and MAP must outlive this object.
    TensorStates(const config::OptimizerConfig& config, const graph::Model& model,
                 const ShardMap& map);

    // Returns the states of the trained slice SLICE. REQUIRES: this rank keeps them.
    [[nodiscard]] Values of(int slice);
    // Reads the values from SAVED, if it has them.
    void load(runtime::SavedState& saved);
    // Adds this rank's pieces of a bucket, as pieces of unit UNIT. FIRST is the number of the first
    // state.
    void add_pieces(int bucket, int first, int unit, std::vector<runtime::SavedPiece>& pieces);

    // Returns the bytes of all these values on this rank.
    [[nodiscard]] Bytes bytes() const { return Bytes{std::ssize(values_.values()) * 4}; }

  private:
    [[nodiscard]] std::span<const int64_t> shape_of(int slice) const;
    // Calls use(slice) for the slices of a bucket whose states this rank keeps. If WRITES, it
    // leaves out the slices whose parameters this rank does not write.
    template <typename Use>
    void for_each_slice(int bucket, bool writes, Use&& use) const;

    config::OptimizerConfig config_;
    const graph::Model& model_;
    const ShardMap& map_;
    ZeroedFloats values_;
    std::vector<int64_t> begins_;  // offset in values_; -1 if another rank keeps the slice
};

}  // namespace dslaunch::zero
