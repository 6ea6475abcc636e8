// Checks each step of a job against one rank that computes the whole model alone: loss, every
// gradient, clipping, every update, buffers. Every rank checks the values and updates of its own
// ZeRO shard, while rank 0 also computes the reference. Data path: trainer, ZeRO -> [here] -> the
// first difference, by name. Threads: the communication lane calls UpdateWitness's functions, the
// compute lane calls all other functions.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "job/setup/job_setup.h"
#include "job/setup/rank_comms.h"
#include "job/verify/whole_reference.h"
#include "runtime/state/parameter_state.h"
#include "runtime/state/update_witness.h"
#include "runtime/train/between_steps.h"

namespace dslaunch::job {

// The objects that a verifier works with but does not own, and its files.
struct VerifierParts {
    const JobSetup* setup = nullptr;
    const RankComms* comms = nullptr;
    runtime::SteppingState* state = nullptr;
    runtime::BetweenSteps* inner = nullptr;  // the job's own work between steps
    std::string model_path;
    std::string scratch;  // see WholeReference; empty: none
};

// The verifier of one rank. It takes the place of the job's own BetweenSteps and passes each call
// on to it.
class JobVerifier final : public runtime::BetweenSteps, public runtime::UpdateWitness {
  public:
    // All objects that PARTS points to must outlive this object. Rank 0 throws what WholeReference
    // throws; the other ranks then fail because their peer has failed. REQUIRES: the job computes
    // on the host.
    explicit JobVerifier(VerifierParts parts);

    [[nodiscard]] const plan::StepPlan* before_step(int64_t update) override {
        return parts_.inner->before_step(update);
    }
    // Checks the step. Throws Error{kDiverged} on every rank, with the step, parameter, element,
    // rank and instruction of the first difference that rounding does not explain.
    void end_step(int64_t step, double loss, bool skipped) override;
    [[nodiscard]] const plan::StepPlan* after_step(const runtime::StepRun& run) override {
        return parts_.inner->after_step(run);
    }
    void trace_step(const runtime::StepRun& run) override { parts_.inner->trace_step(run); }

    void before_update(const runtime::SeenUpdate& update) override;
    void after_update(const runtime::SeenUpdate& update) override;

    // Returns a text, for rank 0's output, about what was checked. Throws Error{kDiverged} if all
    // steps were skipped.
    [[nodiscard]] std::string report() const;

  private:
    // The values of an update of one range of elements, recorded by the rank that made the update.
    struct Piece {
        int parameter = -1;
        int bucket = -1, chunk = -1;
        Range elements;  // elements of this rank's share of the parameter
        float factor = 1;
        double lr = 0, loss_scale = 1;
        int64_t update = 1;
        std::vector<float> gradients, begin, end;  // `begin` and `end`: the parameter's values
        std::vector<float> first, second, third;
        std::array<std::vector<float>, 3> factors;
        double update_error = 0;  // the largest error, as update_error() defines it
        int64_t worst = 0;        // the element with this error
        int64_t misrounded = -1;  // an element whose 16-bit copy is not its rounded value, or -1
    };
    // A difference that was found, or none.
    struct Finding {
        static constexpr const char* kWhat = "a finding";
        int64_t order = std::numeric_limits<int64_t>::max();  // the lowest is reported
        std::string text;
        void note(int64_t order, const std::string& text);
    };
    // Sums over a parameter's elements on this rank. They are used to compare the optimizer's
    // states before an update with the states after the previous update.
    struct StateSums {
        uint64_t elements = 0;  // depends on which elements are included; 0: none
        uint64_t first = 0, second = 0, third = 0;
        void add(const runtime::SeenUpdate& update);
    };
    // Sums over all steps.
    struct Counts {
        int64_t steps = 0, skipped = 0;
        bool moves = false;              // true: an update had a learning rate above 0
        double elements = 0, equal = 0;  // gradient elements of all ranks, and how many are equal
        double worst = 0;                // the largest difference, in multiples of the allowed
                                         // difference
        std::string where;
    };

    [[nodiscard]] bool first() const;
    [[nodiscard]] runtime::Collectives& job() const { return parts_.comms->job(); }
    [[nodiscard]] const graph::Model& whole() const { return parts_.setup->whole_model(); }
    [[nodiscard]] double loss_scale() const;
    void check_loss(const ReferenceStep& reference, double loss, Finding& finding) const;
    void check_parameter(int parameter, const ReferenceStep& reference, Finding& finding);
    void check_gradient(const Piece& piece, std::span<const float> expected, double bound,
                        Finding& finding);
    void check_begin(const Piece& piece, std::span<const float> expected, Finding& finding) const;
    void check_factor(const ReferenceStep& reference, Finding& finding) const;
    void check_update(const Piece& piece, Finding& finding) const;
    void check_states(int parameter, Finding& finding);
    void check_buffers(Finding& finding) const;
    void look_at_copy(std::span<const uint16_t> half, Piece& piece) const;
    void take_over(int parameter, bool has_gradient, Finding& finding);
    [[nodiscard]] std::string makers_of(const Piece& piece) const;
    [[nodiscard]] int64_t backward_of(int parameter) const;
    template <typename Use>
    void in_whole(const Piece& piece, Use&& use) const;
    void agree(const Finding& loss, const Finding& mine);
    [[nodiscard]] std::string idle_updates_text() const;

    VerifierParts parts_;
    std::optional<WholeReference> reference_;  // on rank 0
    int64_t step_ = 0;
    std::vector<Piece> pieces_;  // of the current step
    // The sums of each model parameter before and after this step's updates, and after the previous
    // step's updates.
    std::vector<StateSums> begin_, end_, last_;
    double sizes_ = 0;
    Counts counts_;
};

}  // namespace dslaunch::job
