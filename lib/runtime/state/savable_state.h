// The seam between saving and ZeRO: what of a rank's state goes into checkpoints and final weights.
// Implemented in lib/zero; used by the checkpointer and the final weights outside of a step, by
// every rank alike.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/check.h"
#include "runtime/state/saved_piece.h"

namespace at {
class Tensor;
}  // namespace at

namespace dslaunch::runtime {

class SavableState {
  public:
    virtual ~SavableState() = default;

    // Parameters of the model, by index, whose tensors do not hold what is to be saved: those that
    // training keeps in 16 bit or in shards. By default none.
    [[nodiscard]] virtual std::vector<int> parameters_elsewhere() const { return {}; }
    // After the last step, by every rank: brings parameters_elsewhere() together, one after the
    // other in any order, and gives USE, where it is not empty, their values: [numel] fp32, in the
    // order of the tensor's memory, there until USE returns. Whoever has no use takes part all the
    // same. No step may follow.
    using UseWeights = std::function<void(int parameter, std::span<const float> values)>;
    virtual void bring_weights(const UseWeights& use) { static_cast<void>(use); }
    // Outside of a step: what this rank writes of trained parameters, so that the pieces of all
    // ranks tile each of them and each of its states. In the order of updates, the pieces of a unit
    // one after the other; VALUES stay where they are until the plan changes.
    [[nodiscard]] virtual std::vector<SavedPiece> saved_pieces() = 0;
    // Outside of a step: the pieces of a unit that is on disk, with values that are there until USE
    // returns. Blocks. Throws Error{kDisk}.
    using UsePieces = std::function<void(std::span<const SavedPiece> pieces)>;
    virtual void bring_saved(int unit, const UsePieces& use) {
        DSL_CHECK(false, "unit {} is not on disk", unit);
        static_cast<void>(use);
    }
    // GUARD, which must outlive the state, is asked before each change of a unit; null: no more.
    virtual void set_guard(UpdateGuard* guard) { static_cast<void>(guard); }
    // Optimizer updates that a trained parameter of the model has had; nullopt: it is not trained.
    [[nodiscard]] virtual std::optional<int64_t> updates_of(int parameter) const = 0;
    // The values of a parameter of the model that is not trained, as they are to be saved: its
    // tensor, or what takes its place where that is in shards or rounded.
    [[nodiscard]] virtual at::Tensor untrained_values(int parameter) const = 0;
};

}  // namespace dslaunch::runtime
