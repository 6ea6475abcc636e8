// The seam between saving and ZeRO: the part of a rank's state that goes into checkpoints and final
// weights. Implemented in lib/zero. The checkpointer and the final weights use it outside of a
// step, in the same way on every rank.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <span>
#include <string>
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

    // Returns by index the model's parameters with tensors that do not hold the values to save:
    // training keeps them in 16 bit or in shards. By default none.
    [[nodiscard]] virtual std::vector<int> parameters_elsewhere() const { return {}; }
    // Brings parameters_elsewhere() together, one after the other in any order. USE, if not empty,
    // gets their values: [numel] fp32, in the order of the tensor's memory, valid until USE
    // returns. Every rank calls it after the last step, also without a USE. No step may follow.
    using UseWeights = std::function<void(int parameter, std::span<const float> values)>;
    virtual void bring_weights(const UseWeights& use) { static_cast<void>(use); }
    // Returns this rank's pieces of trained parameters. The pieces of all ranks tile each parameter
    // and each of its states. They come in the order of updates, the pieces of a unit one after the
    // other. VALUES stay in place until the plan changes. Called outside of a step.
    [[nodiscard]] virtual std::vector<SavedPiece> saved_pieces() = 0;
    // Returns the names of states that parameters have beside the optimizer's, the same on all
    // ranks. They are numbered after the optimizer's. By default none.
    [[nodiscard]] virtual std::vector<std::string> further_states() const { return {}; }
    // Returns the elements of each state of a trained PARAMETER, a function of its shape alone
    // (storage::CheckpointTensor::state_numel). By default all have that shape.
    [[nodiscard]] virtual std::vector<int64_t> state_numel(const at::Tensor& parameter) const {
        static_cast<void>(parameter);
        return {};
    }
    // Returns true if the host reads the values of pieces in place; else copy_values() brings them.
    // Any thread calls it while the guard keeps the values.
    [[nodiscard]] virtual bool values_on_host() const { return true; }
    virtual void copy_values(std::span<std::byte> into, const std::byte* values) {
        std::memcpy(into.data(), values, into.size());
    }
    // Gives USE the pieces of a unit that is on disk, with values valid until USE returns. Called
    // outside of a step. Blocks. Throws Error{kDisk}.
    using UsePieces = std::function<void(std::span<const SavedPiece> pieces)>;
    virtual void bring_saved(int unit, const UsePieces& use) {
        DSL_CHECK(false, "unit {} is not on disk", unit);
        static_cast<void>(use);
    }
    // Sets the guard that is asked before each change of a unit; null: none. GUARD must outlive the
    // state.
    virtual void set_guard(UpdateGuard* guard) { static_cast<void>(guard); }
    // Returns the optimizer updates that a parameter of the model has had, nullopt if it is not
    // trained.
    [[nodiscard]] virtual std::optional<int64_t> updates_of(int parameter) const = 0;
    // Returns the values to save of a parameter that is not trained: its tensor, or a replacement
    // if the tensor is in shards or rounded.
    [[nodiscard]] virtual at::Tensor untrained_values(int parameter) const = 0;
};

}  // namespace dslaunch::runtime
