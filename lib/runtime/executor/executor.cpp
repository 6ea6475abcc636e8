#include "runtime/executor/executor.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/check.h"
#include "base/error.h"
#include "base/machine/memory_shortage.h"
#include "base/text/torch_reason.h"

namespace dslaunch::runtime {

Executor::Executor(const plan::StepPlan& plan, InstructionRunner& runner, LaneStreams streams)
    : plan_(&plan), runner_(runner), device_(streams, progress_) {
    change_plan(plan);
}

void Executor::change_plan(const plan::StepPlan& plan) {
    const std::lock_guard lock(mutex_);
    plan_ = &plan;
    ends_.assign(plan.instructions.size(), {});
    times_.spans.assign(plan.instructions.size(), {});
    for (std::vector<size_t>& lane : lanes_) lane.clear();
    for (size_t i = 0; i < plan.instructions.size(); ++i) {
        lanes_[static_cast<size_t>(plan.instructions[i].lane)].push_back(i);
        for (const int wait : plan.instructions[i].waits) ends_[wait].is_awaited = true;
    }
    device_.follow(plan, lanes_);
    start_lanes();
}

// Starts threads for the lanes that have instructions but no thread yet.
void Executor::start_lanes() {
    for (size_t lane = 0; lane < lanes_.size(); ++lane) {
        const bool is_callers = static_cast<plan::Lane>(lane) == plan::Lane::kCompute;
        if (is_callers || threads_[lane].joinable() || lanes_[lane].empty()) continue;
        threads_[lane] = std::thread(
            [this, lane, step = step_] { lane_main(static_cast<plan::Lane>(lane), step); });
    }
}

Executor::~Executor() {
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_)
        if (thread.joinable()) thread.join();
}

void Executor::run_step() {
    {
        const std::lock_guard lock(mutex_);
        DSL_CHECK(failure_.error == nullptr, "a step was started after a failure");
        for (End& end : ends_) end.is_done = false;
        lanes_running_ = static_cast<int>(
            std::ranges::count_if(threads_, [](const auto& thread) { return thread.joinable(); }));
        times_.begin = SystemClock().now();
        device_.begin_step();
        ++step_;
    }
    changed_.notify_all();
    times_.compute_waited = {};
    run_lane(plan::Lane::kCompute);
    {
        std::unique_lock lock(mutex_);
        const SystemClock clock;
        const TimePoint begin = clock.now();
        // After a failure the other lanes may be stuck in a call that poison cannot end, so this
        // does not wait for them. It waits only until poison() has returned, so that the caller may
        // destroy the runner.
        wait_until(lock, [this] {
            return failure_.error != nullptr ? failure_.is_poisoned : lanes_running_ == 0;
        });
        times_.compute_waited += clock.now() - begin;
    }
    if (device_.any()) await_streams();
    if (failure_.error != nullptr) std::rethrow_exception(failure_.error);
    if (device_.any()) note_device_times();
}

// Waits until the device has finished the step.
void Executor::await_streams() {
    for (const std::vector<size_t>& lane : lanes_)
        if (!lane.empty() && device_.stream_of(lane.back()) != nullptr && failure_.error == nullptr)
            await_device(lane.back());
}

// Runs LANE's instructions, step by step, until the executor ends. STEP is the last step that had
// begun before this lane was started.
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
    for (const size_t index : lanes_[static_cast<size_t>(lane)]) {
        const plan::Instruction& instruction = plan_->instructions[index];
        try {
            if (device_.stream_of(index) == nullptr)
                progress_.set_current(lane, static_cast<int>(index));
            wait_for(instruction);
            if (device_.any()) order_after(instruction);
            {
                const std::lock_guard lock(mutex_);
                if (failure_.error != nullptr) return;
            }
            if (device_.stream_of(index) == nullptr) {
                run_timed(index);
            } else {
                run_on_device(index);
            }
        } catch (...) {
            fail_step_at(index, std::current_exception());
            return;
        }
        finish(index);
    }
    if (device_.stream_of(lane) == nullptr) progress_.set_current(lane, -1);
}

void Executor::run_timed(size_t index) {
    const plan::Instruction& instruction = plan_->instructions[index];
    const SystemClock clock;
    const TimePoint begin = clock.now();
    runner_.run(instruction);
    const TimePoint end = clock.now();
    times_.spans[index] = {begin - times_.begin, end - times_.begin};
    progress_.add_worked(instruction, end - begin);
}

// Queues an instruction on its lane's stream, between its two events.
void Executor::run_on_device(size_t index) {
    device_.run(index, [&] { runner_.run(plan_->instructions[index]); });
    const std::lock_guard lock(mutex_);
    device_.add(index);
}

void Executor::wait_for(const plan::Instruction& instruction) {
    if (instruction.waits.empty()) return;
    const auto ready = [&] {
        if (failure_.error != nullptr) return true;
        for (const int wait : instruction.waits)
            if (!ends_[wait].is_done) return false;
        return true;
    };
    std::unique_lock lock(mutex_);
    if (ready()) return;
    const SystemClock clock;
    const TimePoint begin = clock.now();
    wait_until(lock, ready);
    if (instruction.lane == plan::Lane::kCompute) times_.compute_waited += clock.now() - begin;
}

// Orders INSTRUCTION after the work of the instructions that it waits for. These have been run, or
// queued on their streams.
void Executor::order_after(const plan::Instruction& instruction) {
    device::Stream* const own = device_.stream_of(instruction.lane);
    for (const int wait : instruction.waits) {
        device::Stream* const other = device_.stream_of(static_cast<size_t>(wait));
        if (other == nullptr || other == own) continue;
        if (own != nullptr) {
            device_.order_after(*own, static_cast<size_t>(wait));
        } else {
            await_device(static_cast<size_t>(wait));
        }
    }
}

// Waits on the host until the device has finished an instruction.
void Executor::await_device(size_t index) {
    device::Pauses pauses;
    for (;; pauses.pause()) {
        std::unique_lock lock(mutex_);
        look_at_device(lock);
        if (failure_.error != nullptr) return;
        try {
            if (device_.is_done(index)) return;
        } catch (...) {
            lock.unlock();
            fail_step_at(index, std::current_exception());
            return;
        }
    }
}

// Waits for other lanes. Another lane may meanwhile wait on the host for the device, as Norm does,
// so this also checks the device.
template <typename Ready>
void Executor::wait_until(std::unique_lock<std::mutex>& lock, const Ready& ready) {
    if (!device_.any()) return changed_.wait(lock, ready);
    constexpr auto kLookInterval = std::chrono::milliseconds(10);
    while (!changed_.wait_for(lock, kLookInterval, ready)) look_at_device(lock);
}

// Records the device's progress. An error of the device, or too long a time without progress, ends
// the step and is reported for the instruction that the device is executing. LOCK is released
// meanwhile.
void Executor::look_at_device(std::unique_lock<std::mutex>& lock) {
    if (failure_.error != nullptr) return;
    size_t at = 0;
    try {
        device_.look();
        at = device_.first_unfinished();
        lock.unlock();
        runner_.check_device();
    } catch (...) {
        if (lock.owns_lock()) {
            at = device_.first_unfinished();
            lock.unlock();
        }
        fail_step_at(at, std::current_exception());
    }
    lock.lock();
}

// Ends the step with ERROR. Any call may report that earlier work failed on the device, even the
// model's code when it reads a tensor. In that case the device's error and instruction are reported
// instead.
void Executor::fail_step_at(size_t index, std::exception_ptr error) {
    if (device_.any()) {
        const std::lock_guard lock(mutex_);
        if (const std::exception_ptr cause = device_.error()) {
            error = cause;
            if (device_.is_busy()) index = device_.first_unfinished();
        }
    }
    fail_step(index, error);
}

// Reads the times at which the device executed the step's instructions. Until the last instruction
// ends, the compute stream counts as waiting whenever it runs no instruction.
void Executor::note_device_times() {
    const std::lock_guard lock(mutex_);
    device_.retire();  // the whole step is done
    Duration computed{};
    Duration last_end{};
    for (size_t i = 0; i < plan_->instructions.size(); ++i) {
        const std::optional<plan::InstructionSpan> span = device_.span_of(i);
        if (!span) continue;
        const plan::Instruction& instruction = plan_->instructions[i];
        times_.spans[i] = *span;
        progress_.add_worked(instruction, span->end - span->begin);
        last_end = std::max(last_end, span->end);
        if (instruction.lane == plan::Lane::kCompute) computed += span->end - span->begin;
    }
    if (device_.stream_of(plan::Lane::kCompute) != nullptr)
        times_.compute_waited = last_end - computed;
}

void Executor::finish(size_t index) {
    if (device_.stream_of(index) == nullptr) progress_.add_done();
    if (!ends_[index].is_awaited) return;
    {
        const std::lock_guard lock(mutex_);
        ends_[index].is_done = true;
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
        first = failure_.error == nullptr;
        if (first) failure_.error = error;
    }
    if (first) {
        runner_.poison(why);
        const std::lock_guard lock(mutex_);
        failure_.is_poisoned = true;
    }
    changed_.notify_all();
}

}  // namespace dslaunch::runtime
