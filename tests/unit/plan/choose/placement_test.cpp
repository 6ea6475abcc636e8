// Placement of chunks by measured times: the path of a step in closed form, the choice, and when it
// is made.
#include "plan/choose/placement_control.h"

#include <numeric>

#include "support/catch.h"

namespace dslaunch {

using namespace plan;

namespace {

Instruction instruction(Lane lane, std::vector<int> waits = {}) {
    Instruction made;
    made.lane = lane;
    made.waits = std::move(waits);
    return made;
}

InstructionSpan span(int begin_ms, int end_ms) {
    return {std::chrono::milliseconds(begin_ms), std::chrono::milliseconds(end_ms)};
}

// 20 chunks of 10 MiB, two of them in buffers. A step takes 2 s, and reads for 1.6 s of it.
const std::vector<Bytes> kChunks(20, mib(10));

PlacementFacts disk_bound() {
    PlacementFacts facts;
    facts.step_s = 2;
    facts.compute_s = 0.4;
    facts.communication_s = 0.8;
    facts.read_s = 1.6;
    facts.write_s = 1.0;
    facts.waited_read_s = 1.5;
    facts.read = Bytes{3'000'000'000};
    facts.written = Bytes{1'800'000'000};
    facts.free = gib(10);
    return facts;
}

StepTimes step_of(const PlacementFacts& facts) {
    StepTimes times;
    times.step_s = facts.step_s;
    times.busy_s = {facts.compute_s, facts.communication_s, facts.read_s, facts.write_s};
    times.on_path_s = {0, 0, facts.waited_read_s, facts.waited_write_s};
    return times;
}

// Returns the number of steps until a choice is due.
int steps_to_choice(PlacementControl& control, const PlacementFacts& facts) {
    int steps = 1;
    while (!control.add(step_of(facts))) ++steps;
    return steps;
}

}  // namespace

TEST_CASE("a step's time is its path's, lane by lane") {
    StepPlan plan;
    plan.instructions = {
        instruction(Lane::kRead),                   // 0 to 30
        instruction(Lane::kCompute),                // 0 to 20
        instruction(Lane::kCompute, {0}),           // 31 to 50, waits for the read
        instruction(Lane::kCommunication, {1, 2}),  // 50 to 60
        instruction(Lane::kRead, {1}),              // 30 to 100: after the first read
        instruction(Lane::kCommunication, {4}),     // 105 to 110
        instruction(Lane::kWrite, {3}),             // 60 to 90: nobody waits for it
    };
    const std::vector<InstructionSpan> spans = {span(0, 30),  span(0, 20),   span(31, 50),
                                                span(50, 60), span(30, 100), span(105, 110),
                                                span(60, 90)};
    const StepTimes times = step_times(plan, spans, 0.125);
    CHECK(times.step_s == 0.125);
    CHECK(times.busy(Lane::kCompute) == Approx(0.039));
    CHECK(times.busy(Lane::kCommunication) == Approx(0.015));
    CHECK(times.busy(Lane::kRead) == Approx(0.100));
    CHECK(times.busy(Lane::kWrite) == Approx(0.030));
    CHECK(times.on_path(Lane::kRead) == Approx(0.100));
    CHECK(times.on_path(Lane::kCommunication) == Approx(0.010));
    CHECK(times.on_path(Lane::kCompute) == 0);
    CHECK(times.on_path(Lane::kWrite) == 0);
    CHECK(step_times({}, {}, 1.0).busy(Lane::kRead) == 0);
}

TEST_CASE("the path of a step adds up to its last instruction's end") {
    StepPlan plan;
    std::vector<InstructionSpan> spans;
    std::array<int, kLanes> free_at{};
    for (int i = 0; i < 200; ++i) {
        const auto lane = static_cast<size_t>(i * 7 % kLanes);
        std::vector<int> waits;
        int begin = free_at[lane];
        for (const int wait : {i - 3, i - 11}) {
            if (wait < 0 || plan.instructions[wait].lane == Lane(lane)) continue;
            waits.push_back(wait);
            const auto end = spans[wait].end;
            begin = std::max(begin, static_cast<int>(end / std::chrono::milliseconds(1)));
        }
        plan.instructions.push_back(instruction(Lane(lane), waits));
        free_at[lane] = begin + 1 + i * 13 % 9;
        spans.push_back(span(begin, free_at[lane]));
    }
    const StepTimes times = step_times(plan, spans, 0);
    const double path = std::accumulate(times.on_path_s.begin(), times.on_path_s.end(), 0.0);
    CHECK(path == Approx(*std::ranges::max_element(free_at) / 1e3));
}

TEST_CASE("chunks are kept until the disk takes as long as the busiest other lane") {
    // Reading falls from 1.6 s to 0.8 s with half of the chunks, 10 of 20. Half of the waiting goes
    // too.
    const PlacementChoice choice = choose_placement(disk_bound(), {kChunks, 2, 0});
    CHECK(choice.value == 10);
    CHECK(choice.cost == Approx(2 - 1.5 / 2));
    CHECK(choice.why ==
          "moved 10 of 20 chunks from disk into memory (now 10 chunks are in memory): each step "
          "waited 1.5 s for reads (3 GB/s both ways), and 10.00 GiB of memory were free; expected "
          "1.25 s per step instead of 2 s");
    // If 10 chunks are kept, the same times belong to the 10 others: half of these move to memory.
    CHECK(choose_placement(disk_bound(), {kChunks, 2, 10}).value == 15);
}

TEST_CASE("what waits though the disk is not the busiest lane cannot be hidden: all that fit") {
    PlacementFacts facts = disk_bound();
    facts.communication_s = 1.7;
    // Nothing moves any more once 18 are kept, since two are in buffers.
    const PlacementChoice all = choose_placement(facts, {kChunks, 2, 0});
    CHECK(all.value == 18);
    CHECK(all.cost == Approx(0.5));
    // 164 MiB, less 64 for others.
    facts.free = mib(164);
    CHECK(choose_placement(facts, {kChunks, 2, 0}).value == 10);
    // An eighth of 1600 MiB stays free.
    facts.free = mib(1600);
    CHECK(choose_placement(facts, {std::vector<Bytes>(20, mib(100)), 2, 0}).value == 14);
}

TEST_CASE("a step that hides the disk, or would gain too little, is left as it is") {
    PlacementFacts hidden = disk_bound();
    hidden.waited_read_s = 0.099;
    CHECK(choose_placement(hidden, {kChunks, 2, 3}).value == 3);
    hidden.waited_read_s = 0.101;
    hidden.communication_s = 1.7;
    CHECK(choose_placement(hidden, {kChunks, 2, 0}).value == 18);
    // Memory has room for one chunk of 20, which would save 1.5 / 20 s of a step of 2 s: too
    // little.
    PlacementFacts full = disk_bound();
    full.free = mib(75);
    CHECK(choose_placement(full, {kChunks, 2, 0}).value == 0);
    CHECK(choose_placement(disk_bound(), {kChunks, 20, 0}).value == 0);
    CHECK(choose_placement(disk_bound(), {kChunks, 2, 5, /*may_keep_more=*/false}).value == 5);
}

TEST_CASE("with little memory left chunks go back to disk, few enough") {
    PlacementFacts facts = disk_bound();
    facts.free = mib(31);
    // 33 MiB are missing: four chunks.
    CHECK(choose_placement(facts, {kChunks, 2, 10}).value == 6);
    CHECK(choose_placement(facts, {kChunks, 2, 3}).value == 0);
    CHECK(choose_placement(facts, {kChunks, 2, 0}).value == 0);
    // If the free memory is between half of the reserve and all of it, nothing moves in either
    // direction.
    for (const int64_t left : {32, 48, 73}) {
        facts.free = mib(left);
        CHECK(choose_placement(facts, {kChunks, 2, 10}).value == 10);
    }
}

TEST_CASE("all ranks choose by the slowest times and the least memory") {
    PlacementFacts a = disk_bound();
    PlacementFacts b = disk_bound();
    a.read_s = 3;
    b.communication_s = 0.2;
    b.free = mib(7);
    b.step_s = 5;
    const PlacementFacts both = agreed_facts(std::vector{a, b});
    CHECK(both.read_s == 3);
    CHECK(both.communication_s == 0.2);
    CHECK(both.free == mib(7));
    CHECK(both.step_s == 5);
    const PlacementFacts reversed = agreed_facts(std::vector{b, a});
    CHECK(choose_placement(both, {kChunks, 2, 4}).why ==
          choose_placement(reversed, {kChunks, 2, 4}).why);
}

TEST_CASE("placement is chosen after a few steps, and ever more rarely while nothing changes") {
    PlacementFacts facts = disk_bound();
    facts.waited_read_s = 0;
    PlacementControl control(kChunks, 2, 0, EvictionRule::kFifo);
    int64_t expected = kPlacementSettle + kPlacementMeasured;
    for (int i = 0; i < 10; ++i) {
        CHECK(steps_to_choice(control, facts) == expected);
        CHECK(control.decide(control.measured()).value == 0);
        expected = std::min(kPlacementMeasured << (i + 1), kPlacementIntervalMax);
    }
}

TEST_CASE("a change is measured again soon, and goes on where it helped") {
    PlacementControl control(kChunks, 2, 0, EvictionRule::kFifo);
    PlacementFacts facts = disk_bound();
    CHECK(steps_to_choice(control, facts) == kPlacementSettle + kPlacementMeasured);
    facts = control.measured();
    facts.free = gib(10);
    CHECK(control.decide(facts).value == 10);
    facts.step_s = 1.3;
    facts.waited_read_s = 0;
    CHECK(steps_to_choice(control, facts) == kPlacementSettle + kPlacementMeasured);
    CHECK(control.decide(facts).value == 10);
    CHECK(control.summary() ==
          "10 of 20 chunks in memory at the end; a step takes 1.3 s; the expected time was 1.25 s; "
          "before the first change, a step took 2 s");
}

TEST_CASE("steps that other work on the machine slows, computing too, are no verdict") {
    for (const double times : {1.0, 2.0}) {
        PlacementControl control(kChunks, 2, 0, EvictionRule::kFifo);
        PlacementFacts facts = disk_bound();
        REQUIRE(control.decide(facts).value == 10);
        facts.step_s = 3.9;
        facts.compute_s *= times;
        CHECK((control.decide(facts).value == 0) == (times == 1.0));
    }
}

TEST_CASE("a change that made steps slower than their noise is taken back, and is the last") {
    for (const double noise : {0.0, 0.3}) {
        PlacementControl control(kChunks, 2, 4, EvictionRule::kFifo);
        PlacementFacts facts = disk_bound();
        facts.noise_s = noise;
        REQUIRE(control.decide(facts).value == 12);
        facts.step_s = 2.2;
        const PlacementChoice second = control.decide(facts);
        if (noise > 0) {
            CHECK(second.value > 12);  // 0.2 s is within the noise and decides nothing
            continue;
        }
        CHECK(second.value == 4);
        CHECK(control.kept_most() == 12);
        facts.step_s = 2;
        CHECK(control.decide(facts).value == 4);
        // Nevertheless, memory that is short is given back.
        facts.free = mib(1);
        CHECK(control.decide(facts).value == 0);
    }
}

}  // namespace dslaunch
