// The interface between saving and ZeRO: the part of a rank's state that goes into checkpoints and
// final weights. Implemented in lib/zero. The checkpointer and the final weights use it outside of
// a step, with the same calls on every rank.
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

// A state whose weights and optimizer states can be saved.
class SavableState {
  public:
    virtual ~SavableState() = default;

    // Returns the indices of parameters whose final values are not in the model's tensors, because
    // training keeps them in 16 bits or in shards. The default is none.
    [[nodiscard]] virtual std::vector<int> parameters_elsewhere() const { return {}; }
    // Gathers the values of parameters_elsewhere(), one parameter at a time, in any order. Passes
    // each to USE unless USE is empty: [numel] fp32, in the tensor's memory order, valid until USE
    // returns. Every rank must call bring_weights() after the last step, even with an empty USE. No
    // step may follow.
    using UseWeights = std::function<void(int parameter, std::span<const float> values)>;
    virtual void bring_weights(const UseWeights& use) { static_cast<void>(use); }
    // Returns this rank's pieces of trained parameters. The pieces of all ranks together tile each
    // parameter and each of its states. This rank's pieces are in the order of updates, the pieces
    // of a unit one after the other. Their `values` stay in place until the plan changes. Called
    // outside of a step.
    [[nodiscard]] virtual std::vector<SavedPiece> saved_pieces() = 0;
    // Returns the names of states that the ZeRO state keeps in addition to the optimizer's states.
    // All ranks return the same names. The indices of these states continue the indices of the
    // optimizer's states. The default is none.
    [[nodiscard]] virtual std::vector<std::string> further_states() const { return {}; }
    // Returns the number of elements of each state of a trained PARAMETER. The numbers depend only
    // on the parameter's shape (storage::CheckpointTensor::state_numel). By default all states have
    // the parameter's shape.
    [[nodiscard]] virtual std::vector<int64_t> state_numel(const at::Tensor& parameter) const {
        static_cast<void>(parameter);
        return {};
    }
    // Returns true if the host can read the values of pieces in place. If it returns false, the
    // values must be copied with copy_values(). Any thread may call copy_values() while the
    // UpdateGuard prevents changes of the values.
    [[nodiscard]] virtual bool values_on_host() const { return true; }
    virtual void copy_values(std::span<std::byte> into, const std::byte* values) {
        std::memcpy(into.data(), values, into.size());
    }
    // Calls USE with the pieces of UNIT, which is on disk. The values are valid until USE returns.
    // Called outside of a step. Blocks. Throws Error{kDisk}.
    using UsePieces = std::function<void(std::span<const SavedPiece> pieces)>;
    virtual void bring_saved(int unit, const UsePieces& use) {
        DSL_CHECK(false, "unit {} is not stored on disk", unit);
        static_cast<void>(use);
    }
    // Sets the guard that is called before each change of a unit, or no guard if GUARD is null.
    // GUARD must outlive the state.
    virtual void set_guard(UpdateGuard* guard) { static_cast<void>(guard); }
    // Returns the number of updates that a parameter of the model has had; nullopt if it is not
    // trained.
    [[nodiscard]] virtual std::optional<int64_t> updates_of(int parameter) const = 0;
    // Returns the values to save of an untrained parameter: its tensor, or another tensor if its
    // own is sharded or rounded.
    [[nodiscard]] virtual at::Tensor untrained_values(int parameter) const = 0;
};

}  // namespace dslaunch::runtime
