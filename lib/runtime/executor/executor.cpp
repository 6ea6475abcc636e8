#include "runtime/executor/executor.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/check.h"
#include "base/error.h"
#include "base/machine/memory_shortage.h"
#include "base/text/torch_reason.h"

namespace dslaunch::runtime {

Executor::Executor(const plan::StepPlan& plan, InstructionRunner& runner, LaneStreams streams)
    : plan_(&plan), runner_(runner), streams_(streams) {
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
    make_events();
    start_lanes();
}

void Executor::make_events() {
    device_work_.clear();
    marking_ = nullptr;
    for (size_t i = 0; i < plan_->instructions.size(); ++i) {
        device::Stream* const stream = stream_of(i);
        if (stream == nullptr) continue;
        device_work_.resize(plan_->instructions.size());
        device_work_[i] = {stream->make_event(), stream->make_event()};
        if (marking_ == nullptr) marking_ = stream;
    }
    step_mark_ = uses_device() ? marking_->make_event() : nullptr;
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
        given_ = retired_ = {};
        step_begin_ = SystemClock().now();
        device_progress_ = device_now();
        if (uses_device()) marking_->record(*step_mark_);
        ++step_;
    }
    changed_.notify_all();
    compute_waited_ = {};
    run_lane(plan::Lane::kCompute);
    {
        std::unique_lock lock(mutex_);
        const SystemClock clock;
        const TimePoint begin = clock.now();
        // After a failure the other lanes may be stuck in something that poison cannot end, so they
        // are not waited for. poison() has come back by then, so that the caller may destroy the
        // runner.
        wait_until(lock, [this] { return error_ != nullptr ? poisoned_ : lanes_running_ == 0; });
        compute_waited_ += clock.now() - begin;
    }
    if (uses_device()) await_streams();
    if (error_ != nullptr) std::rethrow_exception(error_);
    if (uses_device()) note_device_times();
}

// Waits until the device has done all of the step.
void Executor::await_streams() {
    for (const std::vector<size_t>& lane : lanes_)
        if (!lane.empty() && stream_of(lane.back()) != nullptr && error_ == nullptr)
            await_device(lane.back());
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
            if (stream_of(index) == nullptr)
                current.store(static_cast<int>(index), std::memory_order_relaxed);
            wait_for(instruction);
            if (uses_device()) order_after(instruction);
            {
                const std::lock_guard lock(mutex_);
                if (error_ != nullptr) return;
            }
            if (stream_of(index) == nullptr) {
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
    if (streams_.of(lane) == nullptr) current.store(-1, std::memory_order_relaxed);
}

void Executor::run_timed(size_t index) {
    const plan::Instruction& instruction = plan_->instructions[index];
    const SystemClock clock;
    const TimePoint begin = clock.now();
    runner_.run(instruction);
    const TimePoint end = clock.now();
    spans_[index] = {begin - step_begin_, end - step_begin_};
    add_worked(instruction, end - begin);
}

// Puts an instruction on its lane's stream, between its two events.
void Executor::run_on_device(size_t index) {
    const plan::Instruction& instruction = plan_->instructions[index];
    device::Stream& stream = *stream_of(index);
    stream.record(*device_work_[index].begin);
    runner_.run(instruction);
    stream.record(*device_work_[index].end);
    const std::lock_guard lock(mutex_);
    if (given_ == retired_) device_progress_ = device_now();
    ++given_[static_cast<size_t>(instruction.lane)];
    retire();
}

void Executor::add_worked(const plan::Instruction& instruction, Duration time) {
    // Instructions that never wait for another rank are the segment runner's.
    const bool alone = instruction.segment >= 0 ? instruction.lane == plan::Lane::kCompute
                                                : instruction.op == plan::Op::kLoad;
    if (!alone) return;
    const auto ns = std::chrono::nanoseconds(time).count();
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
    wait_until(lock, ready);
    if (instruction.lane == plan::Lane::kCompute) compute_waited_ += clock.now() - begin;
}

// Makes INSTRUCTION, whose waits have been run or put on their streams, come after the work of the
// latter.
void Executor::order_after(const plan::Instruction& instruction) {
    device::Stream* const own = streams_.of(instruction.lane);
    for (const int wait : instruction.waits) {
        device::Stream* const other = stream_of(static_cast<size_t>(wait));
        if (other == nullptr || other == own) continue;
        if (own != nullptr) {
            own->wait(*device_work_[wait].end);
        } else {
            await_device(static_cast<size_t>(wait));
        }
    }
}

// Waits on the host until the device has done an instruction.
void Executor::await_device(size_t index) {
    device::Pauses pauses;
    for (;; pauses.pause()) {
        std::unique_lock lock(mutex_);
        look_at_device(lock);
        if (error_ != nullptr) return;
        try {
            if (device_work_[index].end->is_reached()) return;
        } catch (...) {
            lock.unlock();
            fail_step_at(index, std::current_exception());
            return;
        }
    }
}

// Waits for other lanes. One of them may wait for the device on the host, as Norm does, so that the
// device is looked at meanwhile.
template <typename Ready>
void Executor::wait_until(std::unique_lock<std::mutex>& lock, const Ready& ready) {
    if (!uses_device()) return changed_.wait(lock, ready);
    constexpr auto kLookInterval = std::chrono::milliseconds(10);
    while (!changed_.wait_for(lock, kLookInterval, ready)) look_at_device(lock);
}

// Notes what the device has done. An error of the device, or too long a standstill, ends the step
// and is reported for the instruction that the device is at. LOCK is let go meanwhile.
void Executor::look_at_device(std::unique_lock<std::mutex>& lock) {
    if (error_ != nullptr) return;
    size_t at = device_instruction();
    try {
        // The time is read before the device, so that an interruption of this thread between the
        // two is no standstill of the device.
        const TimePoint now = device_now();
        retire();
        at = device_instruction();
        if (given_ != retired_ && now - device_progress_ > streams_.limit)
            fail(ExitCode::kHang,
                 "the device has not done it within {:.1f} s: a rank that it waits for may be "
                 "gone, or the device hangs",
                 to_milliseconds(streams_.limit) / 1000);
        lock.unlock();
        runner_.check_device();
    } catch (...) {
        if (lock.owns_lock()) {
            at = device_instruction();
            lock.unlock();
        }
        fail_step_at(at, std::current_exception());
    }
    lock.lock();
}

// Notes what the device has done since the last call. REQUIRES: mutex_ is held.
void Executor::retire() {
    for (size_t lane = 0; lane < lanes_.size(); ++lane) retire_lane(lane);
}

void Executor::retire_lane(size_t lane) {
    if (streams_.of_lane[lane] == nullptr) return;
    const std::vector<size_t>& instructions = lanes_[lane];
    while (retired_[lane] < given_[lane] &&
           device_work_[instructions[retired_[lane]]].end->is_reached()) {
        ++retired_[lane];
        instructions_done_.fetch_add(1, std::memory_order_relaxed);
        device_progress_ = device_now();
    }
    const bool all = retired_[lane] == instructions.size();
    current_[lane].store(all ? -1 : static_cast<int>(instructions[retired_[lane]]),
                         std::memory_order_relaxed);
}

// Returns the error of the device, null if it has not failed, and notes what it has done before.
// REQUIRES: mutex_ is held.
std::exception_ptr Executor::device_error() {
    std::exception_ptr error;
    for (size_t lane = 0; lane < lanes_.size(); ++lane) {
        if (streams_.of_lane[lane] == nullptr) continue;
        try {
            retire_lane(lane);
            streams_.of_lane[lane]->check();
        } catch (...) {
            if (error == nullptr) error = std::current_exception();
        }
    }
    return error;
}

// Ends the step with ERROR. Any call, also a model's code that reads a tensor, may report that the
// device failed at earlier work: then the device's error and its instruction count instead.
void Executor::fail_step_at(size_t index, std::exception_ptr error) {
    if (uses_device()) {
        const std::lock_guard lock(mutex_);
        if (const std::exception_ptr cause = device_error()) {
            error = cause;
            if (given_ != retired_) index = device_instruction();
        }
    }
    fail_step(index, error);
}

// Returns the first instruction in the plan's order that was put on a stream and is not done: all
// later ones may wait for it. REQUIRES: mutex_ is held.
size_t Executor::device_instruction() const {
    size_t first = plan_->instructions.size() - 1;
    for (size_t lane = 0; lane < lanes_.size(); ++lane)
        if (retired_[lane] < given_[lane]) first = std::min(first, lanes_[lane][retired_[lane]]);
    return first;
}

TimePoint Executor::device_now() const {
    return streams_.clock == nullptr ? SystemClock().now() : streams_.clock->now();
}

// Reads when the device did the step's instructions. What the compute stream did not work, it
// waited.
void Executor::note_device_times() {
    const std::lock_guard lock(mutex_);
    retire();  // all of the step is done
    Duration computed{};
    Duration last_end{};
    for (size_t i = 0; i < device_work_.size(); ++i) {
        if (device_work_[i].end == nullptr) continue;
        const plan::Instruction& instruction = plan_->instructions[i];
        spans_[i] = {device_work_[i].begin->since(*step_mark_),
                     device_work_[i].end->since(*step_mark_)};
        const Duration time = spans_[i].end - spans_[i].begin;
        add_worked(instruction, time);
        last_end = std::max(last_end, spans_[i].end);
        if (instruction.lane == plan::Lane::kCompute) computed += time;
    }
    if (streams_.of(plan::Lane::kCompute) != nullptr) compute_waited_ = last_end - computed;
}

void Executor::finish(size_t index) {
    if (stream_of(index) == nullptr) instructions_done_.fetch_add(1, std::memory_order_relaxed);
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
