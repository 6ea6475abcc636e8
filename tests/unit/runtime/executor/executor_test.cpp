#include "runtime/executor/executor.h"

#include <map>
#include <set>
#include <thread>

#include "base/error.h"
#include "executor_plan.h"
#include "support/catch.h"

namespace dslaunch {

using namespace plan;
using namespace runtime;
using testing::index_of;

namespace {

// Records the order in which instructions start and end, and fails or blocks on demand.
class FakeRunner final : public InstructionRunner {
  public:
    explicit FakeRunner(const StepPlan& plan) : plan_(&plan) {}

    void change_plan(const StepPlan& plan) { plan_ = &plan; }

    void run(const Instruction& instruction) override {
        const auto index = static_cast<int>(&instruction - plan_->instructions.data());
        {
            const std::lock_guard lock(mutex_);
            for (const int wait : instruction.waits)
                waits_kept_ = waits_kept_ && ended_.at(static_cast<size_t>(wait));
            order_.push_back(index);
            threads_of_lane_[instruction.lane].insert(std::this_thread::get_id());
        }
        if (index == fail_at) fail(ExitCode::kDiverged, "boom");
        if (index == block_at) {
            std::unique_lock lock(mutex_);
            changed_.wait(lock, [this] { return poisoned_; });
            fail(ExitCode::kPeerLost, "poisoned");
        }
        const std::lock_guard lock(mutex_);
        ended_.at(static_cast<size_t>(index)) = true;
    }

    void poison(const std::string& why) override {
        const std::lock_guard lock(mutex_);
        poisoned_ = true;
        why_ = why;
        changed_.notify_all();
    }

    [[nodiscard]] int segment_of_model(int segment) const override { return 40 + segment; }

    void begin_step() {
        ended_.assign(plan_->instructions.size(), false);
        order_.clear();
    }

    int fail_at = -1;
    int block_at = -1;
    bool waits_kept_ = true;
    std::string why_;
    std::vector<int> order_;
    std::map<Lane, std::set<std::thread::id>> threads_of_lane_;

  private:
    const StepPlan* plan_;
    std::mutex mutex_;
    std::condition_variable changed_;
    bool poisoned_ = false;
    std::vector<bool> ended_;
};

StepPlan real_plan(int64_t accumulation) {
    return testing::executor_plan(
        {.segments = 6, .accumulation = accumulation, .clip = accumulation == 2});
}

}  // namespace

TEST_CASE("every instruction runs once a step, after what it waits for") {
    for (const int64_t accumulation : {1, 2, 4}) {
        const StepPlan plan = real_plan(accumulation);
        FakeRunner runner(plan);
        Executor executor(plan, runner);
        for (int step = 0; step < 50; ++step) {
            runner.begin_step();
            executor.run_step();
            CHECK(runner.order_.size() == plan.instructions.size());
        }
        CHECK(runner.waits_kept_);
        CHECK(executor.instructions_done() == 50 * plan.instructions.size());
        CHECK(executor.current(Lane::kCompute) == -1);
    }
}

TEST_CASE(
    "steps of another plan run by the lanes that there are, and those that it needs besides") {
    std::vector<StepPlan> plans = {real_plan(1), real_plan(4), real_plan(2)};
    for (Instruction& instruction : plans[0].instructions) instruction.lane = Lane::kCompute;
    FakeRunner runner(plans[0]);
    Executor executor(plans[0], runner);
    uint64_t done = 0;
    for (const size_t p : {0, 1, 2, 0, 1}) {
        runner.change_plan(plans[p]);
        executor.change_plan(plans[p]);
        for (int step = 0; step < 20; ++step) {
            runner.begin_step();
            executor.run_step();
            CHECK(runner.order_.size() == plans[p].instructions.size());
            CHECK(executor.spans().size() == plans[p].instructions.size());
        }
        done += 20 * plans[p].instructions.size();
    }
    CHECK(runner.waits_kept_);
    CHECK(executor.instructions_done() == done);
    // A lane always has the same thread: a disk must be used by the thread that began to use it.
    CHECK(runner.threads_of_lane_.size() == 2);
    for (const auto& [lane, threads] : runner.threads_of_lane_) CHECK(threads.size() == 1);
}

TEST_CASE("an error in either lane ends the step, names the instruction and poisons what blocks") {
    for (const Op op : {Op::kForward, Op::kReduce, Op::kUpdate}) {
        const StepPlan plan = real_plan(2);
        FakeRunner runner(plan);
        runner.fail_at = index_of(plan, op);
        runner.begin_step();
        Executor executor(plan, runner);
        try {
            executor.run_step();
            FAIL("the step ended well");
        } catch (const Error& error) {
            CHECK(error.code() == ExitCode::kDiverged);
            CHECK_THAT(error.what(),
                       Catch::Matchers::StartsWith(std::string(op_name(op)) + " (instruction"));
            CHECK(runner.why_ == error.what());
            // The message numbers segments as the runner does.
            if (op == Op::kForward) CHECK_THAT(error.what(), Catch::Contains(", segment 40)"));
        }
    }
}

TEST_CASE(
    "a lane that blocks is freed by the failure of the other, whose error is the one reported") {
    const StepPlan plan = real_plan(1);
    FakeRunner runner(plan);
    runner.block_at = index_of(plan, Op::kReduce);
    runner.fail_at = static_cast<int>(plan.instructions.size()) - 1;
    while (plan.instructions[runner.fail_at].lane != Lane::kCompute) --runner.fail_at;
    runner.begin_step();
    Executor executor(plan, runner);
    try {
        executor.run_step();
        FAIL("the step ended well");
    } catch (const Error& error) {
        CHECK(error.code() == ExitCode::kDiverged);
    }
}

}  // namespace dslaunch
