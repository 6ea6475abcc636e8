// Optimizer states over a range of the flat buffers, and the step that updates them: Adam, AdamW,
// SGD, Adagrad, Lion in fp32. Parameters that got no gradient in a step are left alone, as PyTorch
// does, so each keeps its own step count.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/zeroed_floats.h"
#include "config/run_config.h"
#include "kernels/flat_optimizer.h"
#include "kernels/thread_team.h"

namespace dslaunch {

class FlatOptimizerState {
  public:
    // The states of NUMEL elements as they are before the first step, faulted in. THREADS share an
    // update, the caller's among them.
    FlatOptimizerState(const OptimizerConfig& config, int64_t numel, int threads = 1);

    // fp32 values per parameter that CONFIG needs: Adam 2, Adagrad and Lion 1, SGD with momentum 1,
    // without 0.
    [[nodiscard]] static int64_t states_per_parameter(const OptimizerConfig& config);

    struct Piece {
        int64_t offset_numel = 0;  // in the flat states
        FlatRange range;           // from 0 on, its arrays already at that offset; without states
    };
    // Updates one piece with the learning rate LR as the slice's STEP-th update (from 1). By one
    // thread at a time.
    void update(const Piece& piece, double lr, int64_t step);

    [[nodiscard]] int64_t bytes() const {
        return static_cast<int64_t>(first().size_bytes() + second().size_bytes());
    }
    [[nodiscard]] std::span<const float> first() const { return first_.values(); }
    [[nodiscard]] std::span<const float> second() const { return second_.values(); }

  private:
    void update_part(const FlatRange& range, double lr, int64_t step) const;

    OptimizerConfig config_;
    ZeroedFloats first_;   // Adam's, Lion's and SGD's momentum, Adagrad's sum of squares
    ZeroedFloats second_;  // Adam's variance
    std::unique_ptr<ThreadTeam> team_;
};

}  // namespace dslaunch
