// Faults on a device while a rank trains there: a lost peer, too little memory, a kernel that
// fails.
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <set>
#include <thread>

#include "device_world.h"
#include "optimizers.h"
#include "support/catch.h"

namespace dslaunch {

using namespace config;
using namespace graph;
using namespace runtime;
namespace {

using test::TestBackend;
using test::TestBackendWorld;
using testing::DeviceWorldOptions;
using testing::failure_of;
using testing::kAdamW;
using testing::small_model_on;
using testing::TrainingCase;

// The devices must be registered before the first backward of the process.
const bool kRegistered = (test::register_test_devices(), true);

struct LostRanks {
    bool aborts;              // true: their backends' aborts work
    std::atomic<int>& told;   // ranks whose backends were told to abort
    std::atomic<int>& ended;  // ranks whose step has come back
};

// Returns the error of each rank if the first sums do not come.
std::vector<std::string> errors_of_lost_ranks(const TrainingCase& job, TestBackendWorld& devices,
                                              const LostRanks& lost) {
    testing::InProcessWorld world({job.node_sizes, std::chrono::seconds(60)}, [](ArenaLayout&) {});
    std::vector<std::string> errors(static_cast<size_t>(job.world_size()));
    const auto outcomes = testing::outcomes(world, [&](testing::InProcessRank& self, int rank) {
        test::TestDevice device(rank, static_cast<uint64_t>(rank) + 100);
        TestBackend backend(devices, static_cast<uint64_t>(rank), rank, &device.compute());
        backend.aborts = lost.aborts;
        backend.on_abort = [&lost] { ++lost.told; };
        backend.check_error = Error(ExitCode::kPeerLost, "a peer is gone");
        try {
            static_cast<void>(testing::train_device_rank(testing::on_device(job, device.device()),
                                                         /*usage_varies=*/false, backend,
                                                         device.device(), *self.collectives));
        } catch (const Error& error) {
            ++lost.ended;
            errors[static_cast<size_t>(rank)] = error.what();
        }
    });
    for (const auto& outcome : outcomes) CHECK_FALSE(outcome.has_value());
    return errors;
}

}  // namespace

// The sums never come, and the next parameters are gathered after them. The model's branch reads a
// value that waits for these, in LibTorch, without a limit. The negative control: an abort that
// does nothing leaves the ranks there. In the end, the test releases them.
TEST_CASE("a peer that is lost ends a step by the abort alone, with what the backend says") {
    for (const bool aborts : {true, false}) {
        INFO("abort works: " << aborts);
        TrainingCase job{"lost", {2}, kAdamW, 2};
        job.stage = 3;
        job.micro_step = true;
        job.gather.prefetch_numel_max = 0;
        // The branch always goes one way, so that no rank waits for the other's host in a step.
        job.make_model = small_model_on([](int64_t) { return testing::small_batch(0); });
        TestBackendWorld devices;
        std::vector<std::string> errors(2);
        std::atomic<int> told = 0, ended = 0;
        std::thread ranks([&] {
            errors = errors_of_lost_ranks(job, devices, {aborts, told, ended});
        });
        if (!aborts) {
            while (told < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
            std::this_thread::sleep_for(std::chrono::milliseconds(200));
            CHECK(ended == 0);
            devices.abort();
        }
        ranks.join();
        for (const std::string& error : errors)
            CHECK_THAT(error, Catch::Contains("a peer is gone"));
    }
}

// The allocations of the second step, one after the other. Forward, backward and update make some
// of them.
TEST_CASE("memory that runs out in a step names the instruction that has too little") {
    std::set<std::string> named;
    for (const int64_t count : {0, 1, 2, 3, 5, 8, 12, 17, 23, 30, 40, 50}) {
        TrainingCase job{"out of memory", {1}, kAdamW};
        job.make_model = small_model_on([count](int64_t micro_batch) {
            if (micro_batch == 1) test::DeviceMemory::instance().fail_allocation(0, count);
            return testing::small_batch(micro_batch);
        });
        const std::string text = failure_of(job, {}, ExitCode::kSetup);
        test::DeviceMemory::instance().fail_allocation(0, -1);
        INFO(count << " allocations before: " << text);
        CHECK_THAT(text, Catch::Contains("(instruction "));
        CHECK_THAT(text, Catch::Contains("memory ran out (the test device is out of memory"));
        named.insert(text.substr(0, text.find(' ')));
    }
    CHECK(named.contains("Forward"));
    CHECK(named.contains("Backward"));
}

TEST_CASE("a device lends what it has, and names what it has no memory for") {
    TestBackendWorld world;
    const test::TestDevice device(0, 5);
    TestBackend backend(world, 6);
    backend.set_memory(kib(64));
    device::Memory first = backend.allocate(kib(40), "parameters");
    const auto more = [&] { return backend.allocate(kib(40), "gradients"); };
    try {
        (void)more();
        FAIL("80 KiB of 64 were lent");
    } catch (const Error& error) {
        CHECK(error.code() == ExitCode::kSetup);
        CHECK_THAT(error.what(), Catch::Contains("no 40.0 KiB for gradients"));
    }
    const auto options = at::TensorOptions().device(device.device());
    CHECK_THROWS_AS(at::empty({10 << 10}, options), c10::OutOfMemoryError);
    first = {};
    CHECK(more().bytes().size() == 40 << 10);
    CHECK(at::empty({10 << 10}, options).defined());
}

TEST_CASE("a kernel that fails ends the run as a failed rank, named by its instruction") {
    for (const bool communicates : {false, true})
        for (const int64_t count : {0, 5, 20}) {
            TrainingCase job{"kernel", {2}, kAdamW};
            job.stage = 2;
            job.micro_step = true;
            job.bucket_numel_max = 200;
            std::array<TestBackend*, 2> backends{};
            DeviceWorldOptions options;
            options.prepare = [&](TestBackend& device) { backends[device.index()] = &device; };
            job.make_model = small_model_on([&](int64_t micro_batch) {
                if (micro_batch == 2) backends[0]->stream_of(communicates).fail_work(count);
                return testing::small_batch(micro_batch);
            });
            const std::string text = failure_of(job, options, ExitCode::kRankFailed);
            INFO(text);
            CHECK_THAT(text,
                       Catch::Contains("(instruction ") && Catch::Contains("a kernel failed"));
        }
}

}  // namespace dslaunch
