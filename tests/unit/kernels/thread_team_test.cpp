#include "kernels/thread_team.h"

#include <algorithm>
#include <atomic>
#include <set>
#include <thread>
#include <vector>

#include "support/catch.h"

using namespace dslaunch;
using namespace dslaunch::kernels;

namespace {

constexpr int64_t kBlock = ThreadTeam::kBlockNumel;

struct Part {
    int64_t begin, numel;
    std::thread::id thread;
};

// Returns the parts of one loop, ordered by their beginnings.
std::vector<Part> parts_of(ThreadTeam& team, int64_t numel) {
    std::mutex mutex;
    std::vector<Part> parts;
    team.for_parts(numel, [&](int64_t begin, int64_t part_numel) {
        const std::lock_guard lock(mutex);
        parts.push_back({begin, part_numel, std::this_thread::get_id()});
    });
    std::ranges::sort(parts, {}, &Part::begin);
    return parts;
}

}  // namespace

TEST_CASE("a team's parts tile the whole, of whole blocks, each by a thread of its own") {
    for (const int threads : {1, 2, 3, 5, 8}) {
        ThreadTeam team(threads);
        for (const int64_t numel : {int64_t{0}, int64_t{1}, kBlock, kBlock + 1, 2 * kBlock,
                                    7 * kBlock + 3, 40 * kBlock}) {
            INFO(threads << " threads, " << numel << " elements");
            const std::vector<Part> parts = parts_of(team, numel);
            const int64_t blocks = (numel + kBlock - 1) / kBlock;
            REQUIRE(std::ssize(parts) == std::clamp<int64_t>(blocks, 1, threads));
            int64_t next = 0;
            std::set<std::thread::id> seen;
            for (const Part& part : parts) {
                REQUIRE(part.begin == next);
                REQUIRE(part.begin % kBlock == 0);
                next += part.numel;
                seen.insert(part.thread);
            }
            REQUIRE(next == numel);
            REQUIRE(seen.size() == parts.size());
            REQUIRE(seen.contains(std::this_thread::get_id()));
        }
    }
}

TEST_CASE("a team's loop is over when all its parts are, ten thousand times") {
    ThreadTeam team(4);
    std::vector<int64_t> sums(4 * kBlock, 0);
    std::atomic<int64_t> calls = 0;
    for (int64_t loop = 1; loop <= 10'000; ++loop) {
        team.for_parts(std::ssize(sums), [&](int64_t begin, int64_t /*numel*/) {
            sums[begin] += loop;  // not atomic: no other part adds here
            ++calls;
        });
        REQUIRE(calls == 4 * loop);
    }
    for (int64_t part = 0; part < 4; ++part) REQUIRE(sums[part * kBlock] == 10'000 * 10'001 / 2);
}
