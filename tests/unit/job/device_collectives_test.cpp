// Collectives between devices outside a step, where no executor watches the device.
#include "runtime/comm/device_collectives.h"

#include <atomic>
#include <thread>

#include "base/error.h"
#include "support/catch.h"
#include "support/device/test_backend.h"
#include "support/world.h"

namespace dslaunch {

using namespace runtime;
using test::TestBackend;
using test::TestBackendWorld;

// Rank 1 joins its group and then takes part in nothing. The control between hosts works, so only
// the device's own limit can detect the hang.
TEST_CASE("transfers between devices that never end outside a step are a hang after the limit") {
    constexpr Duration kLimit = std::chrono::milliseconds(200);
    TestBackendWorld devices;
    testing::InProcessWorld world({{1, 1}, std::chrono::minutes(10)}, [](ArenaLayout&) {});
    std::atomic<bool> told{false};
    const auto errors = testing::outcomes(world, [&](testing::InProcessRank& self, int rank) {
        TestBackend backend(devices, 3, rank);
        ArenaLayout layout(1);
        const SliceId slice = layout.add_shared("weights", Bytes{64});
        const Arena arena = Arena::on_device(std::move(layout), backend);
        const auto collectives =
            make_device_collectives({&arena, self.collectives.get(), &backend, 0}, kLimit);
        if (rank == 1) {
            while (!told) std::this_thread::yield();
            return;
        }
        try {
            const std::vector<NodeRange> halves = {{{0, 32}, 0}, {{32, 32}, 1}};
            collectives->gather_ranges(arena.shared(slice), 1, halves);
            collectives->settle();
        } catch (const Error&) {
            told = true;
            devices.abort();  // the device's thread waits for rank 1
            throw;
        }
        told = true;
    });
    REQUIRE(errors[0]);
    CHECK(errors[0]->code() == ExitCode::kHang);
    CHECK_THAT(errors[0]->what(),
               Catch::Contains("outside a step") && Catch::Contains("--timeout"));
    CHECK_FALSE(errors[1]);
}

}  // namespace dslaunch
