// The contract of a way to update: from a bucket's gradients to its parameters and states. A plan
// has one or two ways, which share the elements of a chunk among them: elementwise with whole
// tensors, averaged with whole tensors, or lagging. Data path: ZeRO state -> [here] -> optimizers,
// the device's queue. Threads: the communication lane, but for UpdateRest; between steps any one
// thread.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "runtime/state/saved_piece.h"
#include "runtime/state/state_account.h"
#include "zero/states/tensor_states.h"
#include "zero/update/rank_parts.h"

namespace dslaunch::zero {

class UpdatePath {
  public:
    // PARTS must outlive the path.
    explicit UpdatePath(RankParts& parts) : parts_(parts) {}
    UpdatePath(const UpdatePath&) = delete;
    UpdatePath& operator=(const UpdatePath&) = delete;
    virtual ~UpdatePath() = default;

    // Begins the step NEXT, before the parts know it: their step is still the last one.
    virtual void begin_step(const runtime::StepSettings& /*next*/) {}
    // Takes a chunk's SUMS, the reduced gradients of the step, if the plan keeps them.
    virtual void take_sums(int /*chunk*/, const float* /*sums*/) {}
    // Says whether the step's gradients are FINITE, if the plan computes their norm.
    virtual void know_norm(bool /*finite*/) {}
    // Carries out an instruction between backward and Update: Exchange, Select, UpdateRest.
    virtual void run(const plan::Instruction& instruction) {
        DSL_CHECK(false, "{} is not for this way to update", plan::op_name(instruction.op));
    }

    // The four that follow update one bucket after the other in a step. begin_bucket() comes after
    // GradientSums::open(), in a step that is skipped too; the others are left out then.
    virtual void begin_bucket(int /*bucket*/) {}
    // Updates the elements of an Update's chunk in the parts that this rank WRITES, or in the
    // others, which come first. VIEW is the chunk's.
    virtual void update(const plan::Instruction& chunk, const ChunkView& view, bool writes) = 0;
    // Follows both calls of update().
    virtual void end_chunk(int /*chunk*/, const ChunkView& /*view*/) {}
    virtual void end_bucket() {}

    // Brings hosts together that have stepped on their own (SteppingState::meet).
    virtual void meet() {}

    // Returns the names of the states that the path keeps beside the moments, for checkpoints.
    [[nodiscard]] virtual std::vector<std::string> state_names() const { return {}; }
    // True if these have a value for each element of a chunk, in its order. saved_values() returns
    // a chunk's values of the K-th one, [numel of the chunk] fp32, valid until forget_saved().
    [[nodiscard]] virtual bool saves_chunks() const { return false; }
    [[nodiscard]] virtual const float* saved_values(int chunk, size_t k) {
        DSL_CHECK(false, "state {} of chunk {}", k, chunk);
    }
    virtual void forget_saved(int /*chunk*/) {}
    // Adds this rank's pieces of them if they have not. The first is state FIRST. CHUNK is the
    // first one of its bucket; -1 asks for the pieces of no chunk.
    virtual void add_pieces(int /*chunk*/, int /*first*/,
                            std::vector<runtime::SavedPiece>& /*pieces*/) {}
    // Adds the bytes that the path keeps.
    virtual void add_memory(runtime::MemoryAccount& /*account*/) const {}

  protected:
    // Calls use(part, run, range) for every RANGE that a part of a chunk and a run share, in the
    // parts that this rank WRITES or in the others.
    template <typename Use>
    void for_each_run(int chunk, bool writes, Use&& use) const {
        const int b = parts_.states.chunk(chunk).bucket;
        for (const ChunkPart& part : parts_.states.parts(chunk)) {
            if (parts_.writes(b, part) != writes) continue;
            for (const Run& run : parts_.runs)
                if (const Range both = intersect(run.range, part.range); both.numel > 0)
                    use(part, run, both);
        }
    }
    // An update of RANGE of a bucket, before it or DONE.
    struct ShownUpdate {
        const kernels::FlatRange& update;
        Range range;
        float mean_scale;  // without the clip factor
        const Run& run;
        bool done;
        TensorStates::Values factors = {};  // Adafactor's
    };
    // Tells the witness of an update.
    void show(const plan::Instruction& instruction, const ShownUpdate& shown) const;

    RankParts& parts_;
};

}  // namespace dslaunch::zero
