// Updates that lag: important units are updated in every step. The gradients of the other units
// wait, and their mean updates these units later. The path keeps the choice of units, the waiting
// gradients, and the states of important units whose chunks are on disk. A late update computes new
// parameters; the path keeps them until they replace the old parameters. Threads: from the
// beginning of a step to its norm, the lane of late updates; then the communication lane; between
// steps, any one thread. Source: Lan et al. 2025 (ZenFlow), arXiv:2505.12242; decisions:
// docs/decisions/018-updates-that-lag.md.
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

// Updates some units late; see the top of this file.
class LaggingPath final : public UpdatePath {
  public:
    // Vectors are always important, and so are units that are alone in their block. Reads the
    // waiting gradients and the choice from the saved state, if it has them. Throws Error{kDisk}.
    explicit LaggingPath(RankParts& parts);

    void take_sums(int chunk, const float* sums) override;
    // Counts the steps whose gradients wait.
    void know_norm(bool finite) override;
    // Carries out Select and UpdateRest.
    void run(const plan::Instruction& instruction) override;
    void begin_bucket(int bucket) override;
    void update(const plan::Instruction& chunk, const ChunkView& view, bool writes) override;
    void end_chunk(int chunk, const ChunkView& view) override;

    // Returns the name of the waiting gradients. The name includes the number of steps whose
    // gradients were added up. If the choice of units has changed since the first of these steps,
    // also returns the name of the new choice. In the gradients, -0 marks the elements of important
    // units.
    [[nodiscard]] std::vector<std::string> state_names() const override;
    [[nodiscard]] bool saves_chunks() const override { return true; }
    [[nodiscard]] const float* saved_values(int chunk, size_t k) override;
    void forget_saved(int chunk) override { chunks_[chunk].choice = ZeroedFloats(); }
    void add_memory(runtime::MemoryAccount& account) const override;

  private:
    // Neighbouring elements of a slice, in one part of a chunk. Either all of them are important,
    // or all are unimportant.
    struct Span {
        Range range;           // within the bucket
        int64_t in_chunk = 0;  // the span's begin in the chunk
        int part = 0;          // index in the chunk
        int slice = 0;
        bool important = false;
        int64_t kept_at = -1;  // its begin in the kept states; -1 if the chunk has its states
    };
    struct Chunk {
        std::vector<Span> spans;
        int64_t choice_number = -1;  // the choice that the spans follow
        ZeroedFloats waiting;        // gradients, [numel of the chunk]
        ZeroedFloats later;          // parameters after a late update, until they land
        // The moments and master copy of important spans, one span after the other.
        std::array<ZeroedFloats, 2> moments;
        ZeroedFloats master;
        std::vector<Span> held;  // spans of a late update, by the previous choice
        bool holds = false;
        bool holds_spans = false;  // true if `spans` are used instead of `held`
        ZeroedFloats choice;       // the choice as numbers, while it is saved
    };
    // The units of a slice. No update uses the entries of units that other ranks update.
    struct Units {
        std::vector<char> important;
        std::vector<double> squares;
        bool all = false;  // true if all units are important, whatever their squares
    };
    // The functions that choose the units.
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

    // The functions that update.
    void update_rest_late(const plan::Instruction& instruction);
    void land(int bucket);
    void add_update(int c, const Span& span, const ChunkView& view);
    void take_gradients(int c, const Span& span, const ChunkView& view, const float* gradients,
                        float scale);
    [[nodiscard]] const ChunkPart& part_of(int c, const Span& span) const {
        return parts_.states().parts(c)[static_cast<size_t>(span.part)];
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
    int64_t waited_ = 0;                        // waits_ before this step
    std::vector<char> used_;                    // by slice of the bucket that is being updated
    std::vector<kernels::AdamUpdate> updates_;  // of the chunk that is being updated
    std::vector<const float*> sources_;         // the gradients of updates_
};

}  // namespace dslaunch::zero
