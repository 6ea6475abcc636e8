// The interface of update paths. A path computes a bucket's new parameters and states from its
// gradients. A plan uses one or two paths, which divide the elements of a chunk between them. The
// lagging path works alone. The elementwise path or the averaged path works alone or with the path
// for whole tensors. Data path: ZeRO state -> [here] -> optimizers, the device's queue. Threads:
// the communication lane, except for UpdateRest; between steps any one thread.
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

// One way to update; see the top of this file.
class UpdatePath {
  public:
    // PARTS must outlive the path.
    explicit UpdatePath(RankParts& parts) : parts_(parts) {}
    UpdatePath(const UpdatePath&) = delete;
    UpdatePath& operator=(const UpdatePath&) = delete;
    virtual ~UpdatePath() = default;

    // Prepares the step NEXT. The parts' current step is still the last step.
    virtual void begin_step(const runtime::StepSettings& /*next*/) {}
    // Reads SUMS, the reduced gradients of CHUNK in this step, if the plan keeps them.
    virtual void take_sums(int /*chunk*/, const float* /*sums*/) {}
    // Reports whether the step's gradients are FINITE, if the plan computes their norm.
    virtual void know_norm(bool /*finite*/) {}
    // Carries out an instruction between backward and Update: Exchange, Select or UpdateRest.
    virtual void run(const plan::Instruction& instruction) {
        DSL_CHECK(false, "this update path cannot run the instruction {}",
                  plan::op_name(instruction.op));
    }

    // The next four functions update the buckets of a step, one after the other. begin_bucket() is
    // called after GradientSums::open(), even if the step is skipped; the others are not called in
    // a skipped step.
    virtual void begin_bucket(int /*bucket*/) {}
    // Updates elements of the chunk in the instruction CHUNK: if WRITES is true, the parts that
    // this rank writes, otherwise all other parts. Called first with false, then with true. VIEW is
    // the chunk's view.
    virtual void update(const plan::Instruction& chunk, const ChunkView& view, bool writes) = 0;
    // Called after both calls of update().
    virtual void end_chunk(int /*chunk*/, const ChunkView& /*view*/) {}
    virtual void end_bucket() {}

    // Averages the changes that hosts have made in steps without an exchange (SteppingState::meet).
    // Then all hosts have equal values again.
    virtual void meet() {}

    // Returns the names of the states that the path keeps in addition to moments, for checkpoints.
    [[nodiscard]] virtual std::vector<std::string> state_names() const { return {}; }
    // saves_chunks() returns true if each of these states has a value for each element of a chunk,
    // in the chunk's order. saved_values() returns the values of state K for a chunk, [numel of the
    // chunk] fp32, valid until forget_saved().
    [[nodiscard]] virtual bool saves_chunks() const { return false; }
    [[nodiscard]] virtual const float* saved_values(int chunk, size_t k) {
        DSL_CHECK(false, "this update path does not save state {} of chunk {}", k, chunk);
    }
    // Ends the use of the values that saved_values() returned.
    virtual void forget_saved(int /*chunk*/) {}
    // Adds this rank's pieces of states that do not have a value for each element. FIRST is the
    // number of the first state. If CHUNK is the first chunk of a bucket, adds the bucket's pieces.
    // If CHUNK is -1, adds the pieces that belong to no chunk.
    virtual void add_pieces(int /*chunk*/, int /*first*/,
                            std::vector<runtime::SavedPiece>& /*pieces*/) {}
    // Adds the bytes of the memory that the path keeps.
    virtual void add_memory(runtime::MemoryAccount& /*account*/) const {}

  protected:
    // Calls use(part, run, range) for every RANGE that is in a part of a chunk and also in a run.
    // If WRITES, it takes the parts that this rank writes, otherwise the other parts.
    template <typename Use>
    void for_each_run(int chunk, bool writes, Use&& use) const {
        const int b = parts_.states().chunk(chunk).bucket;
        for (const ChunkPart& part : parts_.states().parts(chunk)) {
            if (parts_.writes(b, part) != writes) continue;
            for (const Run& run : parts_.runs().now())
                if (const Range both = intersect(run.range, part.range); both.numel > 0)
                    use(part, run, both);
        }
    }
    // An update of RANGE of a bucket. The witness sees each update twice: before it (`done` is
    // false) and after it (`done` is true).
    struct ShownUpdate {
        const kernels::FlatRange& update;
        Range range;
        float mean_scale;  // scale of the mean, without the clip factor
        const Run& run;
        bool done;
        TensorStates::Values factors = {};  // Adafactor's
    };
    // Shows an update to the witness.
    void show(const plan::Instruction& instruction, const ShownUpdate& shown) const;

    RankParts& parts_;
};

}  // namespace dslaunch::zero
