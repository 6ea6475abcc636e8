#include "plan/pipeline/pipeline_schedule.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "pipeline_shapes.h"
#include "schedule_check.h"
#include "support/catch.h"

namespace dslaunch {

using namespace plan;

namespace {

// Returns a text like "F0 F1 B0". Chunk 1 is in small letters; I and W are the halves of a
// backward.
std::string text_of(const std::vector<PipelineWork>& works) {
    std::string text;
    for (const PipelineWork& work : works) {
        const size_t kind = static_cast<size_t>(work.kind);
        text += fmt::format("{}{}{}", text.empty() ? "" : " ",
                            (work.chunk == 0 ? "FBIW" : "fbiw")[kind], work.micro_batch);
    }
    return text;
}

std::string first_problem(const PipelineSchedule& schedule) {
    const std::vector<std::string> problems = check_schedule(schedule);
    return problems.empty() ? "" : problems.front();
}

}  // namespace

TEST_CASE("every schedule of every shape can be run and keeps to its bound of activations") {
    int shapes_count = 0;
    for_each_pipeline([&](ScheduleKind kind, const PipelineShape& shape) {
        ++shapes_count;
        const PipelineSchedule schedule = make_schedule(kind, shape);
        INFO(schedule_name(kind) << " stages " << shape.stages << " chunks " << shape.chunks
                                 << " micro batches " << shape.micro_batches);
        REQUIRE(first_problem(schedule).empty());
        for (const std::vector<PipelineWork>& works : schedule.stages)
            REQUIRE(std::ssize(works) ==
                    shape.chunks * shape.micro_batches * (splits_backward(kind) ? 3 : 2));
    });
    // gpipe, 1f1b and zb-h1 have one chunk, zb-v two, interleaved any.
    CHECK(shapes_count == 8 * 17 * (3 + 1 + 4));
}

TEST_CASE("the orders are those of the papers' pictures") {
    const PipelineShape one{4, 1, 8};
    CHECK(text_of(make_schedule(ScheduleKind::k1F1B, one).stages[2]) ==
          "F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 F6 B5 F7 B6 B7");
    // Qi et al. 2023, figure 2, first and last device.
    const PipelineSchedule h1 = make_schedule(ScheduleKind::kZeroBubbleH1, one);
    CHECK(text_of(h1.stages[0]) ==
          "F0 F1 F2 F3 I0 W0 F4 I1 W1 F5 I2 W2 F6 I3 W3 F7 I4 W4 I5 W5 I6 W6 I7 W7");
    CHECK(text_of(h1.stages[3]) ==
          "F0 I0 F1 I1 F2 I2 F3 I3 W0 F4 I4 W1 F5 I5 W2 F6 I6 W3 F7 I7 W4 W5 W6 W7");
    // Narayanan et al. 2021, figure 4: device 1 of 4 with two chunks.
    CHECK(text_of(make_schedule(ScheduleKind::kInterleaved, {4, 2, 4}).stages[0]) ==
          "F0 F1 F2 F3 f0 f1 f2 f3 b0 b1 b2 b3 B0 B1 B2 B3");
    CHECK(text_of(make_schedule(ScheduleKind::kZeroBubbleV, {2, 2, 4}).stages[1]) ==
          "F0 f0 F1 f1 i0 w0 F2 I0 W0 f2 i1 w1 F3 I1 W1 f3 i2 w2 I2 i3 I3 W2 w3 W3");
}

TEST_CASE("one chunk interleaved is 1F1B") {
    for (int stages = 1; stages <= 5; ++stages)
        for (int micro_batches = 1; micro_batches <= 9; ++micro_batches)
            CHECK(make_schedule(ScheduleKind::kInterleaved, {stages, 1, micro_batches}).stages ==
                  make_schedule(ScheduleKind::k1F1B, {stages, 1, micro_batches}).stages);
}

TEST_CASE("parts go round the stages, in a V down and up, and every part has one place") {
    for_each_pipeline([](ScheduleKind kind, const PipelineShape& shape) {
        if (shape.micro_batches > 1) return;
        for (int part = 0; part < shape.parts(); ++part) {
            const PartPlace place = place_of_part(kind, shape, part);
            REQUIRE(part_of(kind, shape, place) == part);
            REQUIRE(place.chunk == part / shape.stages);
        }
    });
    CHECK(place_of_part(ScheduleKind::kInterleaved, {4, 2, 1}, 5) == PartPlace{1, 1});
    CHECK(place_of_part(ScheduleKind::kZeroBubbleV, {4, 2, 1}, 4) == PartPlace{3, 1});
    CHECK(place_of_part(ScheduleKind::kZeroBubbleV, {4, 2, 1}, 7) == PartPlace{0, 1});
}

TEST_CASE("names of schedules are read as they are written, shapes are refused in words") {
    for (const ScheduleKind kind : kScheduleKinds)
        CHECK(schedule_named(schedule_name(kind)) == kind);
    CHECK(schedule_named("dualpipe") == std::nullopt);
    CHECK(why_no_schedule(ScheduleKind::kZeroBubbleV, {4, 1, 8}) ==
          "zb-v needs 2 chunks per stage, not 1");
    CHECK(why_no_schedule(ScheduleKind::k1F1B, {4, 2, 8}) == "1f1b needs 1 chunk per stage, not 2");
    CHECK(why_no_schedule(ScheduleKind::kInterleaved, {4, 2, 0}) ==
          "a pipeline cannot have 4 stages, 2 chunks and 0 micro batches");
}

TEST_CASE("the checker names what is wrong with a schedule") {
    const PipelineSchedule good = make_schedule(ScheduleKind::k1F1B, {3, 1, 5});
    REQUIRE(first_problem(good).empty());

    PipelineSchedule bad = good;
    bad.stages[1].pop_back();
    CHECK(first_problem(bad) == "stage 1 leaves 1 pairs of chunk and micro batch unfinished");

    bad = good;
    bad.stages[1].push_back({WorkKind::kBackward, 0, 4});
    CHECK(first_problem(bad) ==
          "stage 1 cannot run the backward of chunk 0, micro batch 4 at its position in the "
          "schedule");

    bad = good;
    bad.stages[2][0] = {WorkKind::kForward, 0, 5};
    CHECK(first_problem(bad) ==
          "stage 2 contains the forward of chunk 0, micro batch 5, which does not exist in this "
          "pipeline");

    // The last stage's first two works are swapped, so a backward comes before its forward.
    bad = good;
    std::swap(bad.stages[2][0], bad.stages[2][1]);
    CHECK(first_problem(bad) ==
          "stage 2 cannot run the backward of chunk 0, micro batch 0 at its position in the "
          "schedule");

    // One more forward before the first backward is right, but the stage then holds more.
    bad = good;
    std::swap(bad.stages[1][2], bad.stages[1][3]);
    CHECK(first_problem(bad) ==
          "stage 1 keeps the activations of 3 forwards at once, but at most 2 are allowed");

    bad = make_schedule(ScheduleKind::kGPipe, {2, 1, 3});
    std::swap(bad.stages[0][3], bad.stages[0][4]);
    CHECK(first_problem(bad) ==
          "stage 0 adds the gradients of the backward of chunk 0, micro batch 1 out of order");

    bad = good;
    bad.stages.pop_back();
    CHECK(first_problem(bad) == "the schedule has 2 stages instead of 3");
    bad = good;
    bad.shape.chunks = 2;
    CHECK(first_problem(bad) == "1f1b needs 1 chunk per stage, not 2");
}

TEST_CASE("the checker sees stages that wait for each other for ever") {
    // The first stage wants the gradient of micro batch 0 before it gives the forward of 1; the
    // last one wants the forward of 1 before it gives that gradient. Each is right by itself.
    PipelineSchedule bad{ScheduleKind::kGPipe, {2, 1, 2}, {}};
    bad.stages = {{{WorkKind::kForward, 0, 0},
                   {WorkKind::kBackward, 0, 0},
                   {WorkKind::kForward, 0, 1},
                   {WorkKind::kBackward, 0, 1}},
                  {{WorkKind::kForward, 0, 0},
                   {WorkKind::kForward, 0, 1},
                   {WorkKind::kBackward, 0, 0},
                   {WorkKind::kBackward, 0, 1}}};
    CHECK(check_schedule(bad) ==
          std::vector<std::string>{
              "stage 0 waits forever before the backward of chunk 0, micro batch 0",
              "stage 1 waits forever before the forward of chunk 0, micro batch 1"});
}

}  // namespace dslaunch
