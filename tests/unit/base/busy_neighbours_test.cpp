// The line about programs that use the processors of a job.
#include "base/machine/busy_neighbours.h"

#include "support/catch.h"
#include "support/text_tools.h"

using namespace dslaunch;

namespace {

// Returns the line after ten seconds. In them, all programs used BUSY seconds and this process used
// OWN seconds; it waited for a processor for DELAYED seconds.
std::string told(double busy, double own, double delayed, const ProcessorShare& share) {
    const ProcessorUse before{100, 50, 20, 3};
    return neighbours_text(before, {110, 50 + busy, 20 + own, 3 + delayed}, share);
}

}  // namespace

TEST_CASE("a busy neighbour is named with what it uses, and fewer threads are advised") {
    const ProcessorShare share{.processors = 2, .processes = 1, .threads = 2};
    CHECK(test::mentions(told(20, 10, 6, share), "other programs use 1.0 of the 2 proc"));
    CHECK(test::mentions(told(20, 10, 6, share), "OMP_NUM_THREADS=1"));
    const ProcessorShare large{.processors = 16, .processes = 2, .threads = 8};
    CHECK(test::mentions(told(160, 50, 6, large), "OMP_NUM_THREADS=5"));
    const ProcessorShare named{.processors = 2, .threads = 2, .setting = "--threads "};
    CHECK(test::mentions(told(20, 10, 6, named), "the job may be faster with --threads 1"));
    const ProcessorShare one{.processors = 1, .processes = 1, .threads = 1};
    CHECK_FALSE(test::mentions(told(10, 5, 5, one), "OMP_NUM_THREADS"));
}

TEST_CASE("nothing is said of neighbours that take no time from this process") {
    const ProcessorShare share{.processors = 2, .processes = 1, .threads = 2};
    CHECK(told(20, 20, 6, share).empty());    // its own threads wait for each other
    CHECK(told(21, 20, 6, share).empty());    // the system's own work
    CHECK(told(20, 10, 0.1, share).empty());  // the neighbour ran on another processor
    const ProcessorShare two{.processors = 2, .processes = 2, .threads = 1};
    CHECK(told(20, 8.8, 6, two).empty());  // the other rank may use a little more than this one
    CHECK_FALSE(told(20, 5, 6, two).empty());
}

TEST_CASE("the counters of this process grow") {
    const ProcessorUse before = read_processor_use();
    volatile double sum = 0;
    while (read_processor_use().own < before.own + 0.05)
        for (int i = 0; i < 100'000; ++i) sum = sum + 1;
    const ProcessorUse after = read_processor_use();
    CHECK(after.busy > before.busy);
    CHECK(after.wall > before.wall);
    CHECK(after.delayed >= before.delayed);
}
