// The seam between the trainer and ZeRO: who holds parameters, gradients and optimizer states, and
// carries out the instructions of the plan that concern them. Implemented in lib/zero.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/check.h"
#include "base/clock.h"
#include "graph/archive/model.h"
#include "plan/step/step_plan.h"
#include "runtime/memory/lending_allocator.h"
#include "runtime/state/saved_piece.h"

namespace dslaunch::runtime {

struct StepSettings {
    int64_t step = 1;  // counts from 1
    double lr = 0;
    double loss_scale = 1;  // the gradients are of the loss times this
    bool logged = false;    // the log tells of this step: what is costly to know may be measured
};

// Gradients that were not finite, as all ranks agree.
struct Overflow {
    int parameter = -1;  // the first of the model's, -1: the sum of finite ones overflowed
    int rank = -1;       // the first that had it, -1: none alone
};

// Bytes that a rank holds, by kind; shared memory counts for what the ZeRO stage gives the rank.
struct MemoryAccount {
    Bytes parameters;
    Bytes gradients;
    Bytes master;
    Bytes moments;
    Bytes staging;
    Bytes swap_buffers;  // memory through which offloaded chunks pass
};

// What has gone to and from the disk tier since the start.
struct DiskTraffic {
    Bytes read;
    Bytes written;
    Duration checksum_time{0};  // of both lanes together
};

class ParameterState {
  public:
    virtual ~ParameterState() = default;

    // Before any instruction of the step.
    virtual void begin_step(const StepSettings& settings) = 0;
    // An instruction that is not the segment runner's. Called by the instruction's lane.
    virtual void run(const plan::Instruction& instruction) = 0;
    // Gives the memory of gradients in a backward; nullptr: autograd's own will do. Compute lane.
    [[nodiscard]] virtual MemoryLender* gradient_memory() { return nullptr; }
    // A backward of MICRO_STEP begins, and, of SEGMENT in it, is done. Compute lane.
    virtual void begin_backward(int micro_step) { static_cast<void>(micro_step); }
    virtual void end_segment(int segment) = 0;
    // This rank's gradients of a tied bucket, complete: what is written there is what kPost gives
    // the others. REQUIRES: kTie of it. Compute lane.
    [[nodiscard]] virtual std::span<float> tied_gradients(int bucket) {
        DSL_CHECK(false, "bucket {} is tied, in a state that has no stages", bucket);
    }
    // All instructions of the step have run. Where they only started work, what went wrong in it is
    // thrown here at the latest. Compute lane.
    virtual void finish_step() {}
    // Global L2 norm of the last step's mean gradient before clipping, where it was computed.
    [[nodiscard]] virtual std::optional<double> gradient_norm() const = 0;
    // Whether the last step was skipped because its gradients were not finite.
    [[nodiscard]] virtual std::optional<Overflow> overflow() const { return std::nullopt; }
    // Between steps, by every rank: PLAN, which differs in the placement of chunks alone, is what
    // the next steps run; it must outlive the state. What has another place in it moves. Blocks.
    virtual void change_plan(const plan::StepPlan& plan) {
        DSL_CHECK(false, "a state whose placement is fixed is given another plan of rank {}",
                  plan.rank);
    }
    // Waits until the last step's updates are done on every rank.
    virtual void settle() = 0;

    // Outside of a step, by every rank: whoever says KEEP may read these parameters of the model,
    // by index, through their tensors until let_go(). One hold at a time. By default they are
    // always there.
    virtual void hold(std::span<const int> parameters, bool keep) {
        static_cast<void>(parameters);
        static_cast<void>(keep);
    }
    virtual void let_go() {}
    // Whether parameters are whole only while they are held.
    [[nodiscard]] virtual bool is_sharded() const { return false; }
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
    [[nodiscard]] virtual std::vector<SavedPiece> saved_pieces() {
        DSL_CHECK(false, "a state that cannot be saved");
    }
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
    [[nodiscard]] virtual std::optional<int64_t> updates_of(int parameter) const {
        static_cast<void>(parameter);
        return std::nullopt;
    }

    // The values of a parameter of the model that is not trained, as they are to be saved: its
    // tensor, or what takes its place where that is in shards or rounded.
    [[nodiscard]] virtual at::Tensor untrained_values(int parameter) const = 0;

    [[nodiscard]] virtual MemoryAccount memory() const = 0;
    // What the log should tell of the whole run at its end, a clause each. Outside of a step.
    [[nodiscard]] virtual std::vector<std::string> account() const { return {}; }
};

}  // namespace dslaunch::runtime
