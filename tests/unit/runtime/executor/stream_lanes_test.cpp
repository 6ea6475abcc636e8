// Lanes that are streams of a device. The device is threads that work later, after random times, so
// that only the executor's waits keep the order.
#include <array>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <tuple>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "executor_plan.h"
#include "runtime/executor/executor.h"
#include "support/catch.h"
#include "support/device/thread_stream.h"
#include "support/hang.h"

namespace dslaunch {

using namespace plan;
using namespace runtime;
using test::ThreadStream;
using testing::index_of;

namespace {

// The lanes of the plan that are streams.
struct FakeDeviceLanes {
    ThreadStream* compute = nullptr;
    ThreadStream* communication = nullptr;

    [[nodiscard]] ThreadStream* of(Lane lane) const {
        if (lane == Lane::kCompute) return compute;
        return lane == Lane::kCommunication ? communication : nullptr;
    }
    [[nodiscard]] LaneStreams streams() const {
        LaneStreams streams;
        for (const Lane lane : {Lane::kCompute, Lane::kCommunication})
            streams.of_lane[static_cast<size_t>(lane)] = of(lane);
        return streams;
    }
};

// A clock that advances when work is supposed to take time. Any thread.
class WorkClock final : public Clock {
  public:
    [[nodiscard]] TimePoint now() const override { return TimePoint(Duration(ns_.load())); }
    void sleep_for(Duration duration) override { ns_ += duration.count(); }

  private:
    std::atomic<int64_t> ns_ = 0;
};

// Does instructions at once or on a stream. Notes whether an instruction began before another one,
// for which it waits, was done.
class StreamRunner final : public InstructionRunner {
  public:
    StreamRunner(const StepPlan& plan, FakeDeviceLanes lanes)
        : plan_(plan), lanes_(lanes), done_(plan.instructions.size()) {}
    StreamRunner(const StreamRunner&) = delete;
    StreamRunner& operator=(const StreamRunner&) = delete;
    // Waits for the streams: a failed step leaves work on them that uses this object.
    ~StreamRunner() override {
        for (ThreadStream* const stream : {lanes_.compute, lanes_.communication})
            if (stream != nullptr) stream->finish();
    }

    void run(const Instruction& instruction) override {
        ThreadStream* const stream = lanes_.of(instruction.lane);
        const auto index = static_cast<size_t>(&instruction - plan_.instructions.data());
        if (static_cast<int>(index) == read_at) read_behind_block();
        if (stream == nullptr) return work(index);
        stream->put([this, index] { work(index); });
    }

    void poison(const std::string& why) override {
        if (const std::lock_guard lock(mutex_); true) why_ = why;
        is_poisoned = true;
        if (poison_frees) free();
    }
    // Ends all blocked work on the streams.
    void free() {
        for (ThreadStream* const stream : {lanes_.compute, lanes_.communication})
            if (stream != nullptr) stream->abort();
        const std::lock_guard lock(mutex_);
        freed_ = true;
        changed_.notify_all();
    }

    void check_device() override {
        const std::lock_guard lock(mutex_);
        if (!blocked_) return;
        if (fault && (read_at < 0 || reading_)) fail(ExitCode::kPeerLost, "a peer is gone");
        if (clock != nullptr) clock->sleep_for(std::chrono::milliseconds(1));
    }

    void begin_step() {
        for (std::atomic<bool>& done : done_) done = false;
    }

    int block_at = -1;  // its work does not end before free()
    int hold_at = -1;   // its work ends after the work of hold_until, or after free()
    int hold_until = -1;
    // Its thread reads a result that comes after block_at, without a limit, as a branch on a tensor
    // does.
    int read_at = -1;
    int fails_at = -1;  // its work fails
    bool poison_frees = true;
    std::atomic<bool> is_poisoned = false;
    bool fault = false;  // the device reports an error once block_at and read_at are reached
    Op slow = Op::kSend;
    Duration slow_time = std::chrono::milliseconds(20);
    // The clock that slow work advances, and each look at a blocked device too; null: slow work
    // sleeps.
    Clock* clock = nullptr;
    std::atomic<bool> waits_kept = true;
    std::string why_;

  private:
    void read_behind_block() {
        {
            std::unique_lock lock(mutex_);
            changed_.wait(lock, [this] { return blocked_ || freed_; });
            reading_ = true;
        }
        lanes_.communication->finish();
    }
    void work(size_t index) {
        for (const int wait : plan_.instructions[index].waits)
            if (!done_[static_cast<size_t>(wait)]) waits_kept = false;
        if (static_cast<int>(index) == fails_at) fail(ExitCode::kRankFailed, "a kernel failed");
        if (plan_.instructions[index].op == slow) {
            SystemClock system_clock;
            (clock == nullptr ? system_clock : *clock).sleep_for(slow_time);
        }
        std::unique_lock lock(mutex_);
        if (static_cast<int>(index) == block_at) {
            blocked_ = true;
            changed_.notify_all();
            changed_.wait(lock, [this] { return freed_; });
            return;
        }
        if (static_cast<int>(index) == hold_at)
            changed_.wait(lock, [this] { return freed_ || done_[hold_until]; });
        done_[index] = true;
        changed_.notify_all();
    }

    const StepPlan& plan_;
    FakeDeviceLanes lanes_;
    std::vector<std::atomic<bool>> done_;
    std::mutex mutex_;
    std::condition_variable changed_;
    bool freed_ = false;
    bool blocked_ = false;
    bool reading_ = false;
};

StepPlan small_plan(int64_t accumulation) {
    return testing::executor_plan({.accumulation = accumulation, .bucket_numel_max = 100});
}

// A runner whose two lanes are streams.
struct BothStreams {
    BothStreams(const StepPlan& plan, uint64_t seed)
        : compute(seed), communication(seed + 1), runner(plan, lanes) {}

    ThreadStream compute;
    ThreadStream communication;
    FakeDeviceLanes lanes{&compute, &communication};
    StreamRunner runner;
};

// Returns the first compute instruction for which the communication stream waits, and the
// instruction that waits.
std::pair<int, int> first_wait(const StepPlan& plan) {
    for (size_t i = 0; i < plan.instructions.size(); ++i)
        for (const int wait : plan.instructions[i].waits)
            if (plan.instructions[i].lane == Lane::kCommunication &&
                plan.instructions[static_cast<size_t>(wait)].lane == Lane::kCompute)
                return {wait, static_cast<int>(i)};
    FAIL("no communication waits for compute");
    return {};
}

Error failure_of(Executor& executor) {
    try {
        executor.run_step();
    } catch (const Error& error) {
        return error;
    }
    FAIL("the step ended well");
    return {ExitCode::kInternal, ""};
}

}  // namespace

TEST_CASE("work on streams comes after what it waits for, whichever lanes are streams") {
    for (const int64_t accumulation : {1, 3}) {
        const StepPlan plan = small_plan(accumulation);
        for (const bool computes : {false, true})
            for (const bool communicates : {false, true}) {
                ThreadStream first(1);
                ThreadStream second(2);
                const FakeDeviceLanes lanes{computes ? &first : nullptr,
                                            communicates ? &second : nullptr};
                const auto is_stream = [&](Lane lane) {
                    return lane == Lane::kCompute         ? computes
                           : lane == Lane::kCommunication ? communicates
                                                          : false;
                };
                StreamRunner runner(plan, lanes);
                Executor executor(plan, runner, lanes.streams());
                for (int step = 0; step < 10; ++step) {
                    runner.begin_step();
                    executor.run_step();
                    for (size_t i = 0; i < plan.instructions.size(); ++i)
                        for (const int wait : plan.instructions[i].waits) {
                            const auto before = static_cast<size_t>(wait);
                            // A stream's times are times of its own clock. A busy host would note
                            // them late on the host's clock.
                            const Lane lane = plan.instructions[i].lane;
                            if (is_stream(lane) != is_stream(plan.instructions[before].lane))
                                continue;
                            CHECK(executor.spans()[i].begin >= executor.spans()[before].end);
                        }
                }
                CHECK(runner.waits_kept);
                CHECK(executor.instructions_done() == 10 * plan.instructions.size());
                CHECK(executor.current(Lane::kCompute) == -1);
                CHECK(executor.current(Lane::kCommunication) == -1);
            }
    }
}

// The negative control: work for which another stream should wait lasts until that stream has
// worked. If the wait were kept nevertheless, the device would hang.
TEST_CASE("a wait of a stream that is left out is seen") {
    const StepPlan plan = small_plan(1);
    BothStreams both(plan, 3);
    both.communication.leave_out = 0;
    StreamRunner& runner = both.runner;
    std::tie(runner.hold_at, runner.hold_until) = first_wait(plan);
    LaneStreams streams = both.lanes.streams();
    streams.limit = std::chrono::milliseconds(test::kHangMs);
    runner.begin_step();
    Executor executor(plan, runner, streams);
    executor.run_step();
    CHECK(both.communication.waits > 0);
    CHECK_FALSE(runner.waits_kept);
}

TEST_CASE("the times of a stream are those of its work") {
    const StepPlan plan = small_plan(1);
    BothStreams both(plan, 5);
    StreamRunner& runner = both.runner;
    runner.slow = Op::kReduce;
    Executor executor(plan, runner, both.lanes.streams());
    runner.begin_step();
    executor.run_step();
    constexpr auto kSlow = std::chrono::milliseconds(20);
    Duration reduced{};
    for (size_t i = 0; i < plan.instructions.size(); ++i) {
        const InstructionSpan& span = executor.spans()[i];
        CHECK(span.end >= span.begin);
        if (plan.instructions[i].op != Op::kReduce) continue;
        CHECK(span.end - span.begin >= kSlow);
        reduced += span.end - span.begin;
    }
    CHECK(reduced >= 4 * kSlow);
    runner.slow = Op::kForward;
    runner.begin_step();
    executor.run_step();
    // Four forwards; heartbeats show the time of the compute lane's own work.
    CHECK(executor.worked(Lane::kCompute) >= 4 * kSlow);
}

TEST_CASE("an error of the device ends a step that is blocked in it, named by the instruction") {
    for (const Op op : {Op::kReduce, Op::kBackward}) {
        const StepPlan plan = small_plan(1);
        BothStreams both(plan, 7);
        StreamRunner& runner = both.runner;
        runner.block_at = index_of(plan, op);
        runner.fault = true;
        runner.begin_step();
        Executor executor(plan, runner, both.lanes.streams());
        const Error error = failure_of(executor);
        CHECK(error.code() == ExitCode::kPeerLost);
        CHECK_THAT(error.what(), Catch::Matchers::StartsWith(fmt::format(
                                     "{} (instruction {}", op_name(op), runner.block_at)));
        CHECK_THAT(error.what(), Catch::Contains("a peer is gone"));
        CHECK(runner.why_ == error.what());
        CHECK(executor.current(plan.instructions[runner.block_at].lane) == runner.block_at);
    }
}

// The host looks at the device now and then. The earlier instructions are done by then, but not
// noted.
TEST_CASE("a kernel that fails ends the step and is that of its own instruction") {
    const StepPlan plan = small_plan(1);
    for (size_t i = 0; i < plan.instructions.size(); ++i) {
        if (plan.instructions[i].op != Op::kForward) continue;
        BothStreams both(plan, 15);
        both.runner.fails_at = static_cast<int>(i);
        both.runner.begin_step();
        Executor executor(plan, both.runner, both.lanes.streams());
        const Error error = failure_of(executor);
        CHECK(error.code() == ExitCode::kRankFailed);
        CHECK_THAT(error.what(),
                   Catch::Matchers::StartsWith(fmt::format("Forward (instruction {},", i)));
        CHECK_THAT(error.what(), Catch::Contains("a kernel failed"));
    }
}

TEST_CASE("a device that stands still for the limit is a hang, whatever it had to do before") {
    const StepPlan plan = small_plan(1);
    WorkClock clock;
    BothStreams both(plan, 9);
    StreamRunner& runner = both.runner;
    LaneStreams streams = both.lanes.streams();
    streams.limit = std::chrono::seconds(2);
    streams.clock = runner.clock = &clock;
    // Four forwards take longer than the limit, but no single one does.
    runner.slow = Op::kForward;
    runner.slow_time = streams.limit - std::chrono::milliseconds(1);
    Executor executor(plan, runner, streams);
    runner.begin_step();
    executor.run_step();
    CHECK(clock.now() - TimePoint{} == 4 * runner.slow_time);
    runner.block_at = index_of(plan, Op::kReduce);
    runner.begin_step();
    const Error error = failure_of(executor);
    CHECK(error.code() == ExitCode::kHang);
    CHECK_THAT(error.what(), Catch::Matchers::StartsWith("Reduce (instruction"));
    CHECK_THAT(error.what(), Catch::Contains("within 2.0 s"));
}

// The negative control of poison: the compute lane reads a tensor that comes after a collective.
// The collective does not end, and has no limit of its own. A poison that reaches the device ends
// it; another poison does not.
TEST_CASE("only a poison that reaches the device ends a read behind a collective that hangs") {
    for (const bool frees : {true, false}) {
        INFO("poison frees: " << frees);
        const StepPlan plan = small_plan(1);
        ThreadStream communication(13);
        const FakeDeviceLanes lanes{nullptr, &communication};
        StreamRunner runner(plan, lanes);
        runner.block_at = index_of(plan, Op::kReduce);
        for (size_t i = 0; i < plan.instructions.size(); ++i)
            if (plan.instructions[i].op == Op::kBackward) runner.read_at = static_cast<int>(i);
        runner.fault = true;
        runner.poison_frees = frees;
        runner.begin_step();
        Executor executor(plan, runner, lanes.streams());
        std::atomic<bool> has_ended = false;
        ExitCode code = ExitCode::kOk;
        std::thread step([&] {
            try {
                executor.run_step();
            } catch (const Error& error) {
                code = error.code();
            }
            has_ended = true;
        });
        if (!frees) {
            while (!runner.is_poisoned) std::this_thread::sleep_for(std::chrono::milliseconds(1));
            std::this_thread::sleep_for(std::chrono::milliseconds(100));
            CHECK_FALSE(has_ended);
            runner.free();
        }
        step.join();
        CHECK(code == ExitCode::kPeerLost);
    }
}

TEST_CASE("a failure of a lane of the host poisons the work that blocks on a stream") {
    const StepPlan plan = small_plan(1);
    ThreadStream communication(11);
    const FakeDeviceLanes lanes{nullptr, &communication};

    class Failing final : public InstructionRunner {
      public:
        Failing(StreamRunner& others, Op op) : others_(others), op_(op) {}
        void run(const Instruction& instruction) override {
            if (instruction.op == op_) fail(ExitCode::kDiverged, "boom");
            others_.run(instruction);
        }
        void poison(const std::string& why) override { others_.poison(why); }

      private:
        StreamRunner& others_;
        Op op_;
    };
    StreamRunner runner(plan, lanes);
    runner.block_at = index_of(plan, Op::kReduce);
    runner.begin_step();
    Failing failing(runner, Op::kPost);
    Executor executor(plan, failing, lanes.streams());
    CHECK(failure_of(executor).code() == ExitCode::kDiverged);
}

}  // namespace dslaunch
