// Loops of a team whose chunks are shared by its threads, with and without spinning.
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "kernels/thread_team.h"
#include "support/catch.h"

using namespace dslaunch::kernels;

TEST_CASE("every chunk is done once and before the loop is over") {
    for (const int threads : {1, 2, 5})
        for (const std::chrono::microseconds spin :
             {std::chrono::microseconds{0}, ThreadTeam::kTokenSpin}) {
            ThreadTeam team(threads, spin);
            for (const int64_t chunks : {0, 1, 2, 3, 17, 1000})
                for (int loop = 0; loop < 20; ++loop) {
                    std::vector<std::atomic<int>> done(static_cast<size_t>(chunks));
                    team.for_chunks(chunks, [&](int64_t chunk) { ++done[chunk]; });
                    for (const std::atomic<int>& one : done) REQUIRE(one == 1);
                }
        }
}

TEST_CASE("loops of parts and of chunks follow each other, whether helpers sleep or spin") {
    for (const std::chrono::microseconds spin :
         {std::chrono::microseconds{0}, std::chrono::microseconds{20}}) {
        ThreadTeam team(4, spin);
        std::atomic<int64_t> sum = 0;
        int64_t expected = 0;
        for (int64_t loop = 0; loop < 2000; ++loop) {
            team.for_chunks(5, [&](int64_t chunk) { sum += chunk; });
            team.for_parts(4 * ThreadTeam::kBlockNumel,
                           [&](int64_t /*begin*/, int64_t numel) { sum += numel; });
            expected += 10 + 4 * ThreadTeam::kBlockNumel;
            REQUIRE(sum == expected);
            // Helpers go from spinning to sleep in between.
            if (loop % 100 == 0) std::this_thread::sleep_for(std::chrono::microseconds{50});
        }
    }
}
