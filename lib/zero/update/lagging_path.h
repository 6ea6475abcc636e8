// Updates that lag: important units are updated in every step, the rest later by the mean of the
// gradients that wait. The path keeps the choice of units, the waiting gradients, the states of
// important units whose chunks are on disk, and the parameters of late updates until they land.
// Threads: the lane of late updates between a step's begin and its norm, then the communication
// lane; between steps any one thread. Source: Lan et al. 2025 (ZenFlow), arXiv:2505.12242;
// decisions: docs/decisions/018-updates-that-lag.md.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/machine/zeroed_floats.h"
#include "zero/update/update_path.h"

namespace dslaunch::zero {

class LaggingPath final : public UpdatePath {
  public:
    // Vectors, and units that are alone in their block, are important. Takes the waiting gradients
    // and the choice of the saved state, if it has any. Throws Error{kDisk}.
    explicit LaggingPath(RankParts& parts);

    void take_sums(int chunk, const float* sums) override;
    // Counts the gradients that wait.
    void know_norm(bool finite) override;
    // Carries out Select and UpdateRest.
    void run(const plan::Instruction& instruction) override;
    void begin_bucket(int bucket) override;
    void update(const plan::Instruction& chunk, const ChunkView& view, bool writes) override;
    void end_chunk(int chunk, const ChunkView& view) override;

    // Returns the names of the waiting gradients, with the number of their steps and -0 if a unit
    // is important, and of the new choice while gradients wait under the one before.
    [[nodiscard]] std::vector<std::string> state_names() const override;
    [[nodiscard]] bool saves_chunks() const override { return true; }
    [[nodiscard]] const float* saved_values(int chunk, size_t k) override;
    void forget_saved(int chunk) override { chunks_[chunk].choice = ZeroedFloats(); }
    void add_memory(runtime::MemoryAccount& account) const override;

  private:
    // Neighbouring elements of a slice, in one part of a chunk, that are important or not.
    struct Span {
        Range range;           // within the bucket
        int64_t in_chunk = 0;  // where they begin in the chunk
        int part = 0;          // of the chunk
        int slice = 0;
        bool important = false;
        int64_t kept_at = -1;  // where they begin in the states that are kept; -1: the chunk has
                               // them
    };
    struct Chunk {
        std::vector<Span> spans;
        int64_t choice_number = -1;  // that they follow
        ZeroedFloats waiting;        // gradients, [numel of the chunk]
        ZeroedFloats later;          // parameters after a late update, until they land
        // Moments and master copy of important units, one span after the other.
        std::array<ZeroedFloats, 2> moments;
        ZeroedFloats master;
        std::vector<Span> held;  // of a late update under the choice before
        bool holds = false;
        bool holds_spans = false;  // true: `held` is empty because they are `spans`
        ZeroedFloats choice;       // the choice in numbers, while it is saved
    };
    // The units of a slice. Other ranks' units are never looked at.
    struct Units {
        std::vector<char> important;
        std::vector<double> squares;
        bool all = false;  // important, whatever the squares are
    };
    // These functions make the choice of units.
    void select();
    void add_squares(int bucket, const Range& range, const float* gradients);
    void add_squares_in_order();
    void choose();
    [[nodiscard]] std::vector<Span> make_spans(int c) const;
    void take_choice(int c, const ChunkView& view);
    void overlay(int c, const ChunkView& view) const;
    template <typename Use>
    void for_each_chunk(Use&& use) const;
    void load(runtime::SavedState& saved);

    // These functions make the updates.
    void update_rest_late(const plan::Instruction& instruction);
    void land(int bucket);
    void add_update(int c, const Span& span, const ChunkView& view);
    void take_gradients(int c, const Span& span, const ChunkView& view, const float* gradients,
                        float scale);
    [[nodiscard]] const ChunkPart& part_of(int c, const Span& span) const {
        return parts_.states.parts(c)[static_cast<size_t>(span.part)];
    }
    [[nodiscard]] ChunkView kept(int c, const Span& span);
    [[nodiscard]] kernels::FlatRange arrays_of(int c, const Span& span, const ChunkView& view);
    [[nodiscard]] kernels::AdamStep step_of(const Span& span, int64_t steps) const;
    [[nodiscard]] float* waiting(int c) { return chunks_[c].waiting.values().data(); }
    [[nodiscard]] std::byte* later(int c) {
        return std::as_writable_bytes(chunks_[c].later.values()).data();
    }

    std::vector<Units> units_;  // by trained slice
    int64_t choice_number_ = 1;
    std::vector<Chunk> chunks_;
    int64_t waits_ = 0;                         // steps whose gradients wait
    bool due_ = false;                          // true if the next step updates the rest late
    int64_t waited_ = 0;                        // steps whose gradients wait, without this step
    std::vector<char> used_;                    // by slice of the bucket that is being updated
    std::vector<kernels::AdamUpdate> updates_;  // of the chunk that is being updated
    std::vector<const float*> sources_;         // their gradients
};

}  // namespace dslaunch::zero
