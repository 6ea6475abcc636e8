// Optimizer states over a range of the flat buffers, and the step that updates them: Adam, AdamW,
// SGD in fp32. Parameters that got no gradient in a step are left alone, as PyTorch does, so each
// keeps its own step count.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "base/zeroed_floats.h"
#include "config/run_config.h"
#include "kernels/flat_optimizer.h"

namespace dslaunch {

class FlatOptimizerState {
  public:
    // Zeroed states for NUMEL elements, faulted in.
    FlatOptimizerState(const OptimizerConfig& config, int64_t numel);

    // fp32 values per parameter that CONFIG needs: Adam 2, SGD with momentum 1, without 0.
    [[nodiscard]] static int64_t states_per_parameter(const OptimizerConfig& config);

    struct Piece {
        int64_t offset_numel = 0;  // in the flat states
        FlatRange range;           // pointers already at that offset
    };
    // Updates one piece with the learning rate LR as the slice's STEP-th update (from 1).
    // Thread-safe for disjoint pieces.
    void update(const Piece& piece, double lr, int64_t step);

    // The same over states that the caller keeps, each from the range's first element on,
    // null where there is none.
    static void update_range(const OptimizerConfig& config, const FlatRange& range,
                             const std::array<float*, 2>& states, double lr, int64_t step);

    [[nodiscard]] int64_t bytes() const {
        return static_cast<int64_t>(first().size_bytes() + second().size_bytes());
    }
    [[nodiscard]] std::span<const float> first() const { return first_.values(); }
    [[nodiscard]] std::span<const float> second() const { return second_.values(); }

  private:
    OptimizerConfig config_;
    ZeroedFloats first_;   // Adam's momentum, SGD's momentum buffer
    ZeroedFloats second_;  // Adam's variance
};

}  // namespace dslaunch
