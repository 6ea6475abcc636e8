// The rate at which the ranks of one host reduce a bucket in shared memory, beside memcpy by as
// many threads, and the cost of a post and its await. Prints one line per world size; rates count
// the bytes that a rank reads and writes.
#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "support/world.h"

using namespace dslaunch;
using namespace dslaunch::runtime;

namespace {

constexpr int64_t kNumel = 16 << 20;
constexpr int kRounds = 10;

void in_threads(int ranks, const std::function<void(int rank)>& body) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank) threads.emplace_back([&, rank] { body(rank); });
    for (std::thread& thread : threads) thread.join();
}

struct Times {
    double reduce_s = 0;    // time of the best round
    double memcpy_s = 0;    // the same for one bucket, its parts copied by all ranks at once
    double handover_s = 0;  // a post seen by another rank, and its answer, halved
};

Times measure(int ranks) {
    BucketId bucket;
    SignalId ping;
    testing::InProcessWorld world({.node_sizes = {ranks}}, [&](ArenaLayout& layout) {
        bucket = layout.add_bucket("bucket", kNumel);
        ping = layout.add_signal("ping");
    });
    Times best{1e9, 1e9, 0};
    std::vector<float> copy(static_cast<size_t>(kNumel));
    in_threads(ranks, [&](int rank) {
        testing::InProcessRank self = world.enter(rank);
        Collectives& all = *self.collectives;
        const SystemClock clock;
        std::ranges::fill(all.bucket(bucket), static_cast<float>(rank));
        const Range mine = part_range(kNumel, {rank, ranks});
        for (Generation g = 1; g <= kRounds; ++g) {
            all.barrier();
            TimePoint start = clock.now();
            all.post(bucket, g);
            all.reduce(bucket, g, 0.5F);
            (void)all.await_reduced(bucket, g);
            all.barrier();
            if (rank == 0)
                best.reduce_s =
                    std::min(best.reduce_s, to_milliseconds(clock.now() - start) / 1000);
            start = clock.now();
            std::memcpy(copy.data() + mine.begin, all.bucket(bucket).data() + mine.begin,
                        static_cast<size_t>(mine.numel) * sizeof(float));
            all.barrier();
            if (rank == 0 && g > 1)
                best.memcpy_s =
                    std::min(best.memcpy_s, to_milliseconds(clock.now() - start) / 1000);
        }
        constexpr uint32_t kPings = 2000;
        const TimePoint start = clock.now();
        for (uint32_t g = 1; g <= kPings && ranks > 1 && rank < 2; ++g) {
            if (rank == 0) self.group->post(ping, g);
            self.group->await(ping, 1 - rank, g);
            if (rank == 1) self.group->post(ping, g);
        }
        if (rank == 0) best.handover_s = to_milliseconds(clock.now() - start) / 1000 / kPings / 2;
    });
    return best;
}

}  // namespace

int main() {
    const double bucket_gib = static_cast<double>(kNumel) * 4 / (1 << 30);
    fmt::print("bucket of {} MiB, {} processors\n", kNumel * 4 >> 20,
               std::thread::hardware_concurrency());
    // More ranks than processors would measure the scheduler.
    for (int ranks = 1; ranks <= static_cast<int>(std::thread::hardware_concurrency());
         ranks *= 2) {
        const Times times = measure(ranks);
        // All ranks together read `ranks` buckets and write one; a copy reads one and writes one.
        fmt::print(
            "ranks {}: reduce {:.2f} ms {:.2f} GiB/s   memcpy {:.2f} ms {:.2f} GiB/s   hand-over "
            "{:.2f} us\n",
            ranks, times.reduce_s * 1e3, (ranks + 1) * bucket_gib / times.reduce_s,
            times.memcpy_s * 1e3, 2 * bucket_gib / times.memcpy_s, times.handover_s * 1e6);
    }
}
