// The exchange of a rank's values with its users: pieces of checkpoints, final weights, and the
// values that forward gives parameters. SavableState and WritableState (runtime/state) explain each
// function. Data path: rank parts, update paths <-> [here] <-> checkpointer, final weights,
// trainer. All functions are called outside of a step, by one thread, except copy_values().
#pragma once

#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "runtime/state/parameter_state.h"
#include "zero/update/update_path.h"

namespace dslaunch::zero {

// Exchanges values; see the top of this file.
class StateValues : public runtime::ParameterState {
  public:
    [[nodiscard]] std::vector<int> parameters_elsewhere() const override;
    void bring_weights(const UseWeights& use) override;
    [[nodiscard]] std::vector<runtime::SavedPiece> saved_pieces() override;
    void bring_saved(int chunk, const UsePieces& use) override;
    [[nodiscard]] std::vector<std::string> further_states() const override;
    [[nodiscard]] std::vector<int64_t> state_numel(const at::Tensor& parameter) const override;
    [[nodiscard]] bool values_on_host() const override { return parts_.device().is_host(); }
    void copy_values(std::span<std::byte> into, const std::byte* values) override;
    void set_guard(runtime::UpdateGuard* guard) override { parts_.set_guard(guard); }
    [[nodiscard]] std::optional<int64_t> updates_of(int parameter) const override;
    [[nodiscard]] at::Tensor untrained_values(int parameter) const override;
    // REQUIRES: the parameters WRITTEN are in memory, and no tensor group splits them.
    void rewrite(std::span<const int> read, std::span<const int> written,
                 const NewValues& use) override;
    void visit_copied(const UseCopied& use) override;

  protected:
    // ARGUMENTS are passed to RankParts.
    template <typename... Arguments>
    explicit StateValues(Arguments&&... arguments)
        : parts_(std::forward<Arguments>(arguments)...) {}

    RankParts parts_;
    // All paths, in the order in which their states are numbered; the first path has no states.
    std::vector<UpdatePath*> paths_;

  private:
    // A path, with the number of its first state and the count of its states.
    struct Numbered {
        UpdatePath* path = nullptr;
        int first = 0;
        size_t states = 0;
    };
    [[nodiscard]] std::vector<Numbered> numbered_paths() const;
    void hand_over(int bucket, std::span<const float> values, const UseWeights& use) const;
    void bring_fp32(const UseWeights& use);
    void bring_masters(const UseWeights& use, const std::set<int>* buckets = nullptr);
    void widen(int bucket, const ChunkPart& part, float* into) const;
    void add_pieces(int chunk, const ChunkView* view, std::vector<runtime::SavedPiece>& pieces);
    [[nodiscard]] std::vector<runtime::SavedPiece> in_whole(
        std::vector<runtime::SavedPiece> pieces) const;
    [[nodiscard]] std::vector<at::Tensor> whole_values(std::span<const int> parameters);
    void store_values(int parameter, const at::Tensor& values);
    void store_elements(int bucket, const Range& range, const float* values);
    void visit_weights(const UseCopied& use);
    void visit_chunk(int chunk, const UseCopied& use);
    void give_copied(runtime::CopiedValues values, const void* memory, int64_t bytes,
                     const UseCopied& use);

    std::mutex copies_mutex_;  // guards the device's queue of copies
};

}  // namespace dslaunch::zero
