#include "runtime/executor/executor.h"

#include <fmt/core.h>

#include "base/check.h"
#include "base/error.h"
#include "base/machine/memory_shortage.h"
#include "base/text/torch_reason.h"

namespace dslaunch::runtime {

Executor::Executor(const plan::StepPlan& plan, InstructionRunner& runner)
    : plan_(&plan), runner_(runner) {
    for (std::atomic<int>& current : current_) current = -1;
    started_[static_cast<size_t>(plan::Lane::kCompute)] = true;
    change_plan(plan);
}

void Executor::change_plan(const plan::StepPlan& plan) {
    const std::lock_guard lock(mutex_);
    plan_ = &plan;
    done_.assign(plan.instructions.size(), 0);
    awaited_.assign(plan.instructions.size(), 0);
    spans_.assign(plan.instructions.size(), {});
    for (std::vector<size_t>& lane : lanes_) lane.clear();
    for (size_t i = 0; i < plan.instructions.size(); ++i) {
        lanes_[static_cast<size_t>(plan.instructions[i].lane)].push_back(i);
        for (const int wait : plan.instructions[i].waits) awaited_[wait] = 1;
    }
    start_lanes();
}

// Starts the lanes that have instructions and no thread yet.
void Executor::start_lanes() {
    for (size_t lane = 0; lane < lanes_.size(); ++lane) {
        if (started_[lane] || lanes_[lane].empty()) continue;
        started_[lane] = true;
        threads_.emplace_back(
            [this, lane, step = step_] { lane_main(static_cast<plan::Lane>(lane), step); });
    }
}

Executor::~Executor() {
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
}

void Executor::run_step() {
    {
        const std::lock_guard lock(mutex_);
        DSL_CHECK(error_ == nullptr, "a step is run after a failure");
        std::fill(done_.begin(), done_.end(), 0);
        lanes_running_ = static_cast<int>(threads_.size());
        step_begin_ = SystemClock().now();
        ++step_;
    }
    changed_.notify_all();
    compute_waited_ = {};
    run_lane(plan::Lane::kCompute);
    std::unique_lock lock(mutex_);
    const SystemClock clock;
    const TimePoint begin = clock.now();
    // After a failure the other lanes may be stuck in something that poison cannot end, so they are
    // not waited for. poison() has come back by then, so that the caller may destroy the runner.
    changed_.wait(lock, [this] { return error_ != nullptr ? poisoned_ : lanes_running_ == 0; });
    compute_waited_ += clock.now() - begin;
    if (error_ != nullptr) std::rethrow_exception(error_);
}

// STEP is the last step begun before this lane was.
void Executor::lane_main(plan::Lane lane, uint64_t step) {
    for (;;) {
        {
            std::unique_lock lock(mutex_);
            changed_.wait(lock, [&] { return stopping_ || step_ > step; });
            if (stopping_) return;
            step = step_;
        }
        run_lane(lane);
        {
            const std::lock_guard lock(mutex_);
            --lanes_running_;
        }
        changed_.notify_all();
    }
}

void Executor::run_lane(plan::Lane lane) {
    std::atomic<int>& current = current_[static_cast<size_t>(lane)];
    for (const size_t index : lanes_[static_cast<size_t>(lane)]) {
        const plan::Instruction& instruction = plan_->instructions[index];
        try {
            current.store(static_cast<int>(index), std::memory_order_relaxed);
            wait_for(instruction);
            {
                const std::lock_guard lock(mutex_);
                if (error_ != nullptr) return;
            }
            run_timed(index);
        } catch (...) {
            fail_step(index, std::current_exception());
            return;
        }
        finish(index);
    }
    current.store(-1, std::memory_order_relaxed);
}

void Executor::run_timed(size_t index) {
    const plan::Instruction& instruction = plan_->instructions[index];
    const SystemClock clock;
    const TimePoint begin = clock.now();
    runner_.run(instruction);
    const TimePoint end = clock.now();
    spans_[index] = {begin - step_begin_, end - step_begin_};
    // Instructions that never wait for another rank are the segment runner's.
    const bool alone = instruction.segment >= 0 ? instruction.lane == plan::Lane::kCompute
                                                : instruction.op == plan::Op::kLoad;
    if (!alone) return;
    const auto ns = std::chrono::nanoseconds(end - begin).count();
    worked_ns_[static_cast<size_t>(instruction.lane)].fetch_add(ns, std::memory_order_relaxed);
}

void Executor::wait_for(const plan::Instruction& instruction) {
    if (instruction.waits.empty()) return;
    const auto ready = [&] {
        if (error_ != nullptr) return true;
        for (const int wait : instruction.waits)
            if (done_[wait] == 0) return false;
        return true;
    };
    std::unique_lock lock(mutex_);
    if (ready()) return;
    const SystemClock clock;
    const TimePoint begin = clock.now();
    changed_.wait(lock, ready);
    if (instruction.lane == plan::Lane::kCompute) compute_waited_ += clock.now() - begin;
}

void Executor::finish(size_t index) {
    instructions_done_.fetch_add(1, std::memory_order_relaxed);
    if (awaited_[index] == 0) return;
    {
        const std::lock_guard lock(mutex_);
        done_[index] = 1;
    }
    changed_.notify_all();
}

void Executor::fail_step(size_t index, std::exception_ptr error) {
    const plan::Instruction& instruction = plan_->instructions[index];
    std::string where = fmt::format("{} (instruction {}", plan::op_name(instruction.op), index);
    if (instruction.segment >= 0)
        where += fmt::format(", segment {}", runner_.segment_of_model(instruction.segment));
    if (instruction.bucket >= 0) where += fmt::format(", bucket {}", instruction.bucket);
    where += ")";
    std::string why;
    try {
        std::rethrow_exception(error);
    } catch (const Error& known) {
        why = fmt::format("{}: {}", where, known.what());
        error = std::make_exception_ptr(Error(known.code(), why));
    } catch (const std::exception& other) {
        const bool shortage = is_memory_shortage(other);
        const std::string reason = torch_reason(other);
        why = fmt::format("{}: {}", where, shortage ? memory_shortage_text(reason) : reason);
        error = std::make_exception_ptr(
            Error(shortage ? ExitCode::kSetup : ExitCode::kRankFailed, why));
    }
    bool first = false;
    {
        const std::lock_guard lock(mutex_);
        first = error_ == nullptr;
        if (first) error_ = error;
    }
    if (first) {
        runner_.poison(why);
        const std::lock_guard lock(mutex_);
        poisoned_ = true;
    }
    changed_.notify_all();
}

}  // namespace dslaunch::runtime
