#include "plan/step/device_plan.h"

#include <utility>

#include "base/check.h"
#include "plan/step/plan_check.h"

namespace dslaunch::plan {

namespace {

// The place of an instruction in the device's plan, in which those that need a reduced bucket are
// put off.
enum class Place { kStays, kPutOff, kLeftOut };

Place place_of(Op op) {
    switch (op) {
        case Op::kAccumulate:
        case Op::kNorm:
        case Op::kUpdate:
            return Place::kPutOff;
        case Op::kAwait:
            return Place::kLeftOut;
        default:
            return Place::kStays;
    }
}

class DevicePlan {
  public:
    explicit DevicePlan(StepPlan plan) : before_(std::move(plan)) {
        after_.rank = before_.rank;
        after_.buffers = std::move(before_.buffers);
        after_.chunks = std::move(before_.chunks);
        for (PlanBuffer& buffer : after_.buffers) buffer.tier = Tier::kMemory;
    }

    StepPlan make() {
        for (Instruction& instruction : before_.instructions) take(std::move(instruction));
        for (Instruction& instruction : put_off_)
            after_.instructions.push_back(std::move(instruction));
        derive_waits(after_);
        const std::vector<std::string> problems = check_plan(after_);
        DSL_CHECK(problems.empty(), "the device's step plan is not sound: {}", problems.front());
        return std::move(after_);
    }

  private:
    void take(Instruction instruction) {
        const Place place = place_of(instruction.op);
        if (place != Place::kStays) {
            // The last compute instruction frees the buffers that this one would have freed.
            pass_on(std::exchange(instruction.frees, {}));
            if (place == Place::kLeftOut) return;
            instruction.lane = Lane::kCompute;
            instruction.bytes = {};  // no bytes go to another rank's memory
            put_off_.push_back(std::move(instruction));
            return;
        }
        if (instruction.op == Op::kClaim) add_up(instruction.bucket);
        if (instruction.lane == Lane::kCompute) last_compute_ = after_.instructions.size();
        after_.instructions.push_back(std::move(instruction));
    }

    void pass_on(const std::vector<int>& frees) {
        if (frees.empty()) return;
        std::vector<int>& others = after_.instructions[last_compute_].frees;
        others.insert(others.end(), frees.begin(), frees.end());
    }

    // Places the Accumulate that was put off, for the next backward overwrites the sums of BUCKET.
    void add_up(int bucket) {
        for (auto it = put_off_.begin(); it != put_off_.end();) {
            if (it->op != Op::kAccumulate || it->bucket != bucket) {
                ++it;
                continue;
            }
            last_compute_ = after_.instructions.size();
            after_.instructions.push_back(std::move(*it));
            it = put_off_.erase(it);
        }
    }

    StepPlan before_;
    StepPlan after_;
    std::vector<Instruction> put_off_;  // in program order
    size_t last_compute_ = 0;           // the last instruction of the compute lane so far
};

}  // namespace

StepPlan make_device_plan(StepPlan plan) {
    return DevicePlan(std::move(plan)).make();
}

}  // namespace dslaunch::plan
