// What a rank keeps of updates that lag: which units are important, the gradients of the rest that
// wait, states of important units of chunks on disk, parameters of late updates until they land.
// Data path: gradient sums -> [here] -> ZeRO state. Threads: the lane of late updates between a
// step's begin and its norm, then the communication lane; between steps any one thread. Source:
// Lan et al. 2025 (ZenFlow), arXiv:2505.12242; decisions: docs/decisions/018-updates-that-lag.md.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/zeroed_floats.h"
#include "graph/archive/model.h"
#include "plan/layout/flat_layout.h"
#include "plan/step/step_plan.h"
#include "runtime/save/saved_state.h"
#include "zero/states/shard_map.h"
#include "zero/states/state_store.h"

namespace dslaunch::zero {

// Neighbouring elements of a slice, in one part of a chunk, that are important or not.
struct LagSpan {
    Range range;           // within the bucket
    int64_t in_chunk = 0;  // where they begin in the chunk
    int part = 0;          // of the chunk
    int slice = 0;
    bool important = false;
    int64_t kept_at = -1;  // where they begin in the states that are kept; -1: the chunk has them
};

class LaggingRest {
  public:
    // Vectors, and what has no other units in its block, are important. All references must outlive
    // this.
    LaggingRest(const graph::Model& model, const plan::FlatLayout& layout,
                const plan::StepPlanOptions& options, const ShardMap& map, StateStore& states);

    // Takes the waiting gradients and the choice of SAVED, if it has any. Then brings the states of
    // important units. Called once, before the first step. Throws Error{kDisk}.
    void begin(runtime::SavedState* saved);

    // Adds the squares of a bucket's elements RANGE to those of their units. REQUIRES: a unit's
    // elements come in order.
    void add_squares(int bucket, const Range& range, const float* gradients);
    void drop_squares();
    // Chooses the units with the largest sums of squares, of equals the first. The squares start
    // anew. A chunk follows the choice from its next take_choice() on.
    void choose();

    [[nodiscard]] const std::vector<LagSpan>& spans(int c) const { return chunks_[c].spans; }
    // The waiting gradients of a chunk, from its first element on.
    [[nodiscard]] float* waiting(int c) { return chunks_[c].waiting.values().data(); }
    // The kept states of an important span, in the place of the chunk's.
    [[nodiscard]] ChunkView kept(int c, const LagSpan& span);
    // The chunk's spans become those of the last choice: states go back to VIEW, which has them
    // all, and others are kept in their place. REQUIRES: no gradient waits.
    void take_choice(int c, const ChunkView& view);
    // Writes the kept states of a chunk to VIEW.
    void overlay(int c, const ChunkView& view) const;

    // A late update of a chunk writes here what parameters become, from the chunk's first element
    // on, and hold() keeps its spans until landed().
    [[nodiscard]] std::byte* later(int c) {
        return std::as_writable_bytes(chunks_[c].later.values()).data();
    }
    void hold(int c);
    // None: nothing lands.
    [[nodiscard]] const std::vector<LagSpan>& landing(int c) const;
    void landed(int c);

    // The number of steps whose gradients wait, and whether it is for an update that the next step
    // does late.
    [[nodiscard]] int64_t waits() const { return waits_; }
    [[nodiscard]] bool due() const { return due_; }
    void set_waits(int64_t steps, bool due) {
        waits_ = steps;
        due_ = due;
    }

    // Names of the states that are saved: the waiting gradients with the number of steps whose they
    // are, -0 where a unit is important; and the new choice, while these wait under the one before.
    [[nodiscard]] std::vector<std::string> state_names() const;
    // The values of the K-th of these for a chunk, [numel of the chunk]. They stay until the chunk
    // is updated.
    [[nodiscard]] const float* saved_values(int c, size_t k);
    // Says that a chunk's values may change.
    void forget_saved(int c) { chunks_[c].choice = ZeroedFloats(); }

    [[nodiscard]] Bytes waiting_bytes() const;  // with what later() gives
    [[nodiscard]] Bytes kept_bytes() const;

  private:
    struct Chunk {
        std::vector<LagSpan> spans;
        int64_t choice_number = -1;  // that they follow
        ZeroedFloats waiting;
        ZeroedFloats later;
        // Of important units, one span behind the other: moments, and the master copy.
        std::array<ZeroedFloats, 2> moments;
        ZeroedFloats master;
        std::vector<LagSpan> held;  // of a late update under the choice before
        bool holds = false;
        bool holds_spans = false;  // true: `held` is empty because they are `spans`
        ZeroedFloats choice;       // the choice in numbers, while it is saved
    };
    // The units of a slice. Those of other ranks are never looked at.
    struct Units {
        std::vector<char> important;
        std::vector<double> squares;
        bool all = false;  // important, whatever the squares are
    };
    [[nodiscard]] std::vector<LagSpan> make_spans(int c) const;
    [[nodiscard]] bool is_kept_here(int c) const;
    void load(runtime::SavedState& saved);
    template <typename Use>
    void for_each_slice(int bucket, const Range& range, Use&& use) const;

    const plan::FlatLayout& layout_;
    plan::LagPlan lag_;
    const ShardMap& map_;
    StateStore& states_;
    bool master_;
    std::vector<Units> units_;  // by trained slice
    int64_t choice_number_ = 0;
    std::vector<Chunk> chunks_;
    int64_t waits_ = 0;
    bool due_ = false;
};

}  // namespace dslaunch::zero
