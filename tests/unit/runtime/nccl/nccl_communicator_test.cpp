// The communicator over a stand-in for libnccl that follows NCCL's rules (support/stand_in_nccl.h):
// results, ends, lost peers, and aborts while it is in use.
#include "runtime/nccl/nccl_communicator.h"

#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include "base/error.h"
#include "support/catch.h"
#include "support/stand_in_nccl.h"
#include "support/text_tools.h"

namespace dslaunch {

using namespace runtime;
using test::begin_stand_in_nccl;
using test::code_of;
using test::live_nccl_communicators;
using test::stand_in_nccl_faults;
using test::wait_for_nccl_stream;

namespace {

constexpr cudaStream_t kStream = nullptr;
constexpr Duration kLong = std::chrono::minutes(10);
constexpr Duration kShort = std::chrono::milliseconds(100);

// Runs BODY on each rank of a group. Each rank is a thread.
using Body = std::function<void(NcclCommunicator&, int rank)>;
void run_ranks(int world_size, Duration limit, const Body& body) {
    const std::string id = NcclCommunicator::make_unique_id();
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < world_size; ++rank)
        threads.emplace_back([&, rank] {
            NcclCommunicator communicator(kStream);
            communicator.join({id, rank, world_size, limit});
            body(communicator, rank);
        });
}

// Returns true once all aborts have ended. They end in a thread of their own.
bool all_ended() {
    const auto limit = std::chrono::steady_clock::now() + kLong;
    while (live_nccl_communicators() > 0 && std::chrono::steady_clock::now() < limit)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return live_nccl_communicators() == 0;
}

std::vector<float> counted_from(int first, size_t count) {
    std::vector<float> values(count);
    std::iota(values.begin(), values.end(), static_cast<float>(first));
    return values;
}

DeviceBuffer buffer_of(std::vector<float>& values) {
    return {values.data(), std::ssize(values), DType::kF32};
}

// Checks all collectives. Rank r brings r, r + 1, …: sums over W ranks are W * i + W * (W - 1) / 2.
void check_collectives(NcclCommunicator& communicator, int rank, int world_size) {
    constexpr size_t kCount = 5;
    const auto world = static_cast<size_t>(world_size);
    const auto sum_at = [&](size_t i) {
        return static_cast<float>(world * i) +
               static_cast<float>(world_size * (world_size - 1)) / 2;
    };
    std::vector<float> sum = counted_from(rank, kCount), mean = sum, first = sum;
    communicator.all_reduce(buffer_of(sum), DeviceReduction::kSum);
    communicator.all_reduce(buffer_of(mean), DeviceReduction::kMean);
    communicator.broadcast(buffer_of(first), world_size - 1);
    std::vector<float> own = counted_from(rank, kCount), gathered(kCount * world);
    communicator.exchange(DeviceExchange::kAllGather, buffer_of(own), buffer_of(gathered));
    std::vector<float> parts = counted_from(rank, kCount * world), scattered(kCount);
    communicator.exchange(DeviceExchange::kReduceScatter, buffer_of(parts), buffer_of(scattered));
    std::vector<float> dealt(kCount * world), passed(kCount);
    communicator.exchange(DeviceExchange::kAllToAll, buffer_of(parts), buffer_of(dealt));
    communicator.exchange(DeviceExchange::kSendReceive, buffer_of(own), buffer_of(passed));
    // The last one of an odd number has no partner.
    const int peer = rank % 2 == 0 ? rank + 1 : rank - 1;
    std::vector<float> swapped = counted_from(peer, kCount);
    if (peer < world_size) {
        swapped.assign(kCount, -1);
        communicator.exchange_with(peer, buffer_of(own), buffer_of(swapped));
    }
    if (!wait_for_nccl_stream()) throw std::runtime_error("a collective failed");
    bool good = swapped == counted_from(peer, kCount) &&
                first == counted_from(world_size - 1, kCount) &&
                passed == counted_from((rank + world_size - 1) % world_size, kCount);
    for (size_t i = 0; i < kCount; ++i) {
        good = good && sum[i] == sum_at(i);
        good = good && mean[i] == sum_at(i) / static_cast<float>(world_size);
        good = good && scattered[i] == sum_at(static_cast<size_t>(rank) * kCount + i);
        for (size_t r = 0; r < world; ++r) {
            good = good && gathered[r * kCount + i] == static_cast<float>(r + i);
            good = good && dealt[r * kCount + i] ==
                               static_cast<float>(r + static_cast<size_t>(rank) * kCount + i);
        }
    }
    if (!good) throw std::runtime_error("a collective has another result");
}

// Returns the ranges of the ranks, with SIZES by rank, one after the other, and at the end two
// elements of all ranks.
std::vector<NodeRange> ranges_of(const std::vector<int64_t>& sizes, bool for_all) {
    std::vector<NodeRange> ranges;
    int64_t begin = 0;
    for (size_t rank = 0; rank < sizes.size(); ++rank) {
        ranges.push_back({{begin, sizes[rank]}, static_cast<int>(rank)});
        begin += sizes[rank];
    }
    if (for_all) ranges.push_back({{begin, 2}, kEveryNode});
    return ranges;
}

// Returns true if the results are right. Rank r brings r, r + 1, …. After the reduction a rank has
// the sums in its range, and after the gather all ranks have them.
bool ranges_are_right(NcclCommunicator& communicator, int rank,
                      const std::vector<NodeRange>& ranges, int world_size) {
    const int64_t numel = ranges.back().range.end();
    std::vector<float> values = counted_from(rank, static_cast<size_t>(numel));
    communicator.reduce_ranges(buffer_of(values), DeviceReduction::kSum, ranges);
    if (!wait_for_nccl_stream()) return false;
    const auto sum_at = [&](int64_t i) {
        return static_cast<float>(world_size * i + world_size * (world_size - 1) / 2);
    };
    bool good = true;
    for (const NodeRange& range : ranges) {
        const bool mine = range.node == rank || range.node == kEveryNode;
        for (int64_t i = range.range.begin; i < range.range.end() && mine; ++i)
            good = good && values[i] == sum_at(i);
    }
    std::vector<NodeRange> in_bytes = ranges;
    for (NodeRange& range : in_bytes) range.range = {range.range.begin * 4, range.range.numel * 4};
    communicator.gather_ranges({values.data(), numel * 4, DType::kU8}, in_bytes);
    if (!wait_for_nccl_stream()) return false;
    for (int64_t i = 0; i < numel; ++i) good = good && values[i] == sum_at(i);
    return good;
}

}  // namespace

TEST_CASE("ranges come to their owners and back, of any lengths, and also those of all ranks") {
    const std::vector<std::vector<int64_t>> shapes = {{5},       {4, 4},    {3, 0},
                                                      {0, 7, 2}, {6, 6, 6}, {1, 2, 3, 4, 5}};
    for (const std::vector<int64_t>& sizes : shapes)
        for (const bool for_all : {false, true}) {
            const int world_size = static_cast<int>(sizes.size());
            INFO(world_size << " ranks, " << sizes.front() << " of the first, for all " << for_all);
            begin_stand_in_nccl({.seed = 4});
            std::atomic<int> well = 0;
            run_ranks(world_size, kLong, [&](NcclCommunicator& communicator, int rank) {
                well += ranges_are_right(communicator, rank, ranges_of(sizes, for_all), world_size)
                            ? 1
                            : 0;
                communicator.leave();
            });
            CHECK(well == world_size);
            CHECK(stand_in_nccl_faults() == std::vector<std::string>{});
        }
}

TEST_CASE("collectives of a group are right, whatever time each call takes, and end well") {
    for (const int world_size : {1, 2, 3, 5, 8})
        for (const uint64_t seed : {1, 2, 3}) {
            INFO(world_size << " ranks, seed " << seed);
            begin_stand_in_nccl({.seed = seed});
            std::atomic<int> well = 0;
            run_ranks(world_size, kLong, [&](NcclCommunicator& communicator, int rank) {
                const ExitCode code = code_of([&] {
                    for (int turn = 0; turn < 3; ++turn)
                        check_collectives(communicator, rank, world_size);
                    communicator.check();
                    communicator.leave();
                });
                well += code == ExitCode::kOk ? 1 : 0;
            });
            CHECK(well == world_size);
            CHECK(live_nccl_communicators() == 0);
            CHECK(stand_in_nccl_faults() == std::vector<std::string>{});
        }
}

TEST_CASE("a healthy end waits for the work that is under way, and the next group can be joined") {
    begin_stand_in_nccl({.progress_us_max = 3'000});
    const std::string ids[] = {NcclCommunicator::make_unique_id(),
                               NcclCommunicator::make_unique_id()};
    std::atomic<int> well = 0;
    {
        std::vector<std::jthread> threads;
        for (int rank = 0; rank < 2; ++rank)
            threads.emplace_back([&, rank] {
                NcclCommunicator communicator(kStream);
                for (const std::string& id : ids) {
                    communicator.join({id, rank, 2, kLong});
                    std::vector<std::vector<float>> values(4, counted_from(rank, 3));
                    for (std::vector<float>& one : values)
                        communicator.all_reduce(buffer_of(one), DeviceReduction::kSum);
                    communicator.leave();
                    for (const std::vector<float>& one : values)
                        well += one == std::vector<float>{1, 3, 5} ? 1 : 0;
                    communicator.leave();  // there is no communicator any more
                }
            });
    }
    CHECK(well == 2 * 2 * 4);
    CHECK(live_nccl_communicators() == 0);
    CHECK(stand_in_nccl_faults() == std::vector<std::string>{});
}

TEST_CASE("an abort frees who waits for a collective that hangs, and nothing uses what has ended") {
    for (uint64_t seed = 1; seed <= 20; ++seed) {
        begin_stand_in_nccl({.seed = seed, .hanging_collective = static_cast<int64_t>(seed % 4)});
        std::atomic<int> freed = 0;
        run_ranks(2, kLong, [&](NcclCommunicator& communicator, int rank) {
            // Another thread may hear of a dead rank at any moment, so it watches meanwhile.
            std::jthread watch([&] {
                const auto wait = std::chrono::microseconds(200 * seed * (rank + 1));
                const auto end = std::chrono::steady_clock::now() + wait;
                while (std::chrono::steady_clock::now() < end)
                    if (code_of([&] { communicator.check(); }) != ExitCode::kOk) break;
                communicator.abort();
            });
            std::vector<float> values = counted_from(rank, 3);
            const ExitCode code = code_of([&] {
                for (;;) {
                    communicator.all_reduce(buffer_of(values), DeviceReduction::kSum);
                    if (!wait_for_nccl_stream()) communicator.check();
                }
            });
            // Memory must outlive the work on it, which an abort ends in its own time.
            freed += code == ExitCode::kPeerLost && all_ended() ? 1 : 0;
        });
        INFO("seed " << seed);
        CHECK(freed == 2);
        CHECK(all_ended());
        CHECK(stand_in_nccl_faults() == std::vector<std::string>{});
    }
}

TEST_CASE("an error that NCCL meets between calls is told by check, as a lost peer") {
    begin_stand_in_nccl({.failing_collective = 1});
    std::atomic<int> told = 0;
    run_ranks(2, kLong, [&](NcclCommunicator& communicator, int rank) {
        std::vector<float> values = counted_from(rank, 3);
        communicator.all_reduce(buffer_of(values), DeviceReduction::kSum);
        const bool good = wait_for_nccl_stream();
        const ExitCode code = code_of([&] {
            communicator.all_reduce(buffer_of(values), DeviceReduction::kSum);
            if (!wait_for_nccl_stream()) communicator.check();
        });
        told += good && code == ExitCode::kPeerLost ? 1 : 0;
    });
    CHECK(told == 2);
    CHECK(all_ended());
    CHECK(stand_in_nccl_faults() == std::vector<std::string>{});
}

TEST_CASE("a peer that does not come is a hang, when the limit is over and not before") {
    begin_stand_in_nccl({});
    NcclCommunicator communicator(kStream);
    const std::string id = NcclCommunicator::make_unique_id();
    const auto begin = std::chrono::steady_clock::now();
    CHECK(code_of([&] { communicator.join({id, 0, 2, kShort}); }) == ExitCode::kHang);
    CHECK(std::chrono::steady_clock::now() - begin >= kShort);
    communicator.abort();
    CHECK(all_ended());
    // Another world can be joined then.
    communicator.join({NcclCommunicator::make_unique_id(), 0, 1, kLong});
    communicator.leave();
    CHECK(live_nccl_communicators() == 0);
    CHECK(stand_in_nccl_faults() == std::vector<std::string>{});
}

TEST_CASE("an end that a peer's work holds up is a hang, and the communicator is gone") {
    begin_stand_in_nccl({.hanging_collective = 0});
    std::atomic<int> hung = 0;
    run_ranks(2, kShort, [&](NcclCommunicator& communicator, int rank) {
        std::vector<float> values = counted_from(rank, 3);
        communicator.all_reduce(buffer_of(values), DeviceReduction::kSum);
        hung += code_of([&] { communicator.leave(); }) == ExitCode::kHang ? 1 : 0;
        hung += code_of([&] { communicator.check(); }) == ExitCode::kPeerLost ? 1 : 0;
        hung += all_ended() ? 1 : 0;
    });
    CHECK(hung == 6);
    CHECK(stand_in_nccl_faults() == std::vector<std::string>{});
}

TEST_CASE("a send that NCCL refuses leaves no group open") {
    begin_stand_in_nccl({.refused_rank = 0});
    NcclCommunicator communicator(kStream);
    communicator.join({NcclCommunicator::make_unique_id(), 0, 1, kLong});
    std::vector<float> sent = counted_from(0, 3), received(3);
    for (const DeviceExchange kind : {DeviceExchange::kAllToAll, DeviceExchange::kSendReceive})
        CHECK(code_of([&] { communicator.exchange(kind, buffer_of(sent), buffer_of(received)); }) ==
              ExitCode::kPeerLost);
    CHECK(code_of([&] { communicator.exchange_with(0, buffer_of(sent), buffer_of(received)); }) ==
          ExitCode::kPeerLost);
    communicator.all_reduce(buffer_of(sent), DeviceReduction::kSum);
    CHECK(wait_for_nccl_stream());
    communicator.leave();
    CHECK(stand_in_nccl_faults() == std::vector<std::string>{});
}

// The negative control of the groups' ends, for each kind of group that the communicator opens.
TEST_CASE("a group's end that is left out is noted") {
    std::vector<float> sent = counted_from(0, 5), received(5);
    const std::vector<NodeRange> ranges = ranges_of({3}, /*for_all=*/true);
    const std::pair<const char*, std::function<void(NcclCommunicator&)>> groups[] = {
        {"all to all",
         [&](NcclCommunicator& of) {
             of.exchange(DeviceExchange::kAllToAll, buffer_of(sent), buffer_of(received));
         }},
        {"ring",
         [&](NcclCommunicator& of) {
             of.exchange(DeviceExchange::kSendReceive, buffer_of(sent), buffer_of(received));
         }},
        {"pair",
         [&](NcclCommunicator& of) { of.exchange_with(0, buffer_of(sent), buffer_of(received)); }},
        {"reduction",
         [&](NcclCommunicator& of) {
             of.reduce_ranges(buffer_of(sent), DeviceReduction::kSum, ranges);
         }},
        {"gather", [&](NcclCommunicator& of) { of.gather_ranges(buffer_of(sent), ranges); }},
    };
    for (const auto& [name, group] : groups)
        for (const bool lost : {false, true}) {
            INFO(name << ", its end is lost: " << lost);
            begin_stand_in_nccl({.loses_group_end = lost});
            run_ranks(1, kLong, [&](NcclCommunicator& communicator, int) {
                group(communicator);
                communicator.leave();
            });
            const std::vector<std::string> noted =
                lost ? std::vector<std::string>{"ncclCommFinalize in a group that is left open"}
                     : std::vector<std::string>{};
            CHECK(stand_in_nccl_faults() == noted);
        }
}

TEST_CASE("the stand-in notes what NCCL forbids") {
    begin_stand_in_nccl({.progress_us_max = 50'000});
    ncclUniqueId id;
    REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclComm_t comm = nullptr;
    REQUIRE(ncclCommInitRankConfig(&comm, 1, id, 0, &config) == ncclInProgress);
    std::vector<float> values = counted_from(0, 3);
    const auto reduce = [&] {
        return ncclAllReduce(values.data(), values.data(), values.size(), ncclFloat32, ncclSum,
                             comm, kStream);
    };
    const auto settle = [&] {
        ncclResult_t state = ncclInProgress;
        while (state == ncclInProgress) REQUIRE(ncclCommGetAsyncError(comm, &state) == ncclSuccess);
        return state;
    };
    const auto has_noted = [](const std::string& fault) {
        const std::vector<std::string> faults = stand_in_nccl_faults();
        INFO(fault);
        CHECK(std::ranges::find(faults, fault) != faults.end());
    };
    REQUIRE(reduce() == ncclInProgress);
    has_noted("ncclAllReduce while a call is in progress");
    REQUIRE(settle() == ncclSuccess);
    REQUIRE(ncclGroupStart() == ncclSuccess);
    has_noted("a group is left open");
    REQUIRE(ncclGroupEnd() == ncclSuccess);
    CHECK(ncclGroupEnd() == ncclInvalidUsage);
    has_noted("ncclGroupEnd without a group");
    REQUIRE(wait_for_nccl_stream());
    REQUIRE(ncclCommDestroy(comm) == ncclSuccess);
    has_noted("ncclCommDestroy without ncclCommFinalize");
    CHECK(reduce() == ncclInvalidArgument);
    has_noted("ncclAllReduce after the communicator's end");

    // Two ranks that call different collectives.
    begin_stand_in_nccl({});
    std::atomic<int> failed = 0;
    run_ranks(2, kLong, [&](NcclCommunicator& communicator, int rank) {
        std::vector<float> own = counted_from(rank, rank == 0 ? 3 : 4);
        const ExitCode code = code_of([&] {
            communicator.all_reduce(buffer_of(own), DeviceReduction::kSum);
            if (!wait_for_nccl_stream()) communicator.check();
        });
        communicator.abort();
        failed += code == ExitCode::kPeerLost && all_ended() ? 1 : 0;
    });
    CHECK(failed == 2);
    CHECK(!stand_in_nccl_faults().empty());
    CHECK(all_ended());
}

}  // namespace dslaunch
