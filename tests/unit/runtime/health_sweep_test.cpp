// The verified operations over GPUs that are memory of the host. A right backend gives no fault; a
// wrong one is named by rank, operation, index and value. Sizes and closed forms are computed by
// hand.
#include "runtime/health/health_sweep.h"

#include <fmt/format.h>

#include <functional>
#include <mutex>
#include <set>
#include <thread>

#include "base/error.h"
#include "support/catch.h"
#include "support/device/test_backend.h"
#include "support/map_board.h"

using namespace dslaunch;
using namespace dslaunch::health;
using namespace dslaunch::runtime;
using namespace dslaunch::test;

namespace {

// Changes one element of the data that rank 1 receives from OP.
class Liar final : public HealthCollectives {
  public:
    Liar(HealthCollectives& honest, HealthOp op) : honest_(honest), op_(op) {}
    void load(std::span<const float> send, int64_t receive_numel) override {
        honest_.load(send, receive_numel);
    }
    void run(HealthOp op) override {
        if (op != HealthOp::kBarrier) last_ = op;
        honest_.run(op);
    }
    void fetch(std::span<float> receive) override {
        honest_.fetch(receive);
        if (last_ == op_) receive[3] += 1;
    }

  private:
    HealthCollectives& honest_;
    HealthOp op_;
    HealthOp last_ = HealthOp::kBarrier;
};

// The data that RUN gets on the thread of each rank.
struct SweepRank {
    SweepOptions options;
    PairedCollectives& collectives;
    Board& board;
    std::function<void(const HealthRecord&)> report;
};

// Returns the records of all ranks, each of which has a backend of its own.
std::vector<HealthRecord> records_of(int world_size, const std::function<void(SweepRank&)>& run) {
    TestBackendWorld world;
    const std::string id = world.make_id();
    MapBoard board;
    std::mutex mutex;
    std::vector<HealthRecord> records;
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < world_size; ++rank) {
        ranks.emplace_back([&, rank] {
            TestBackend device(world, static_cast<uint64_t>(rank), rank);
            DeviceCommunicator& all = device.join({id, rank, world_size, std::chrono::seconds(60)});
            const auto collectives =
                make_device_health_collectives(device, all, std::chrono::minutes(10));
            SweepRank self{{}, *collectives, board, [&](const HealthRecord& record) {
                               const std::lock_guard lock(mutex);
                               records.push_back(record);
                           }};
            self.options.rank = rank;
            self.options.world_size = world_size;
            self.options.host = fmt::format("n{}", rank);
            run(self);
        });
    }
    for (std::thread& rank : ranks) rank.join();
    return records;
}

void enter_nothing(const std::string& /*where*/, Duration /*limit*/) {}

std::vector<HealthRecord> sweep_world(int world_size, std::optional<HealthOp> lie) {
    return records_of(world_size, [&](SweepRank& self) {
        Liar liar(self.collectives, lie.value_or(HealthOp::kBarrier));
        self.options.sizes_bytes = {64, 4096};
        self.options.iterations_max = 3;
        HealthCollectives& used = lie && self.options.rank == 1
                                      ? static_cast<HealthCollectives&>(liar)
                                      : self.collectives;
        sweep_operations(self.options, {used, self.board, self.report, enter_nothing});
    });
}

std::vector<HealthRecord> sweep_pairs(int world_size, TimePoint deadline = TimePoint::max()) {
    return records_of(world_size, [&](SweepRank& self) {
        self.options.deadline = deadline;
        sweep_gpu_pairs(self.options, self.collectives,
                        {self.collectives, self.board, self.report, enter_nothing}, 4096);
    });
}

template <typename Kind>
std::vector<Kind> only(const std::vector<HealthRecord>& records) {
    std::vector<Kind> found;
    for (const HealthRecord& record : records)
        if (const auto* one = std::get_if<Kind>(&record)) found.push_back(*one);
    return found;
}

}  // namespace

TEST_CASE("a right backend gives every rank a time for every operation and size, and no fault") {
    for (const int world_size : {1, 2, 3}) {
        const auto records = sweep_world(world_size, std::nullopt);
        CHECK(only<HealthFault>(records).empty());
        // Six operations of two sizes, and the barrier. A single rank has nobody to send to.
        const int rows = world_size == 1 ? 11 : 13;
        CHECK(only<HealthTiming>(records).size() == static_cast<size_t>(rows * world_size));
    }
}

TEST_CASE("every pair of GPUs is measured once, and what arrives is right") {
    for (const int world_size : {1, 2, 3, 5, 8}) {
        const auto records = sweep_pairs(world_size);
        INFO(world_size);
        CHECK(only<HealthFault>(records).empty());
        std::set<std::pair<int64_t, int64_t>> seen;
        for (const GpuPairSample& pair : only<GpuPairSample>(records)) {
            CHECK(pair.first < pair.second);
            CHECK(pair.bytes_per_second > 0);
            CHECK(seen.emplace(pair.first, pair.second).second);
        }
        CHECK(seen.size() == static_cast<size_t>(world_size * (world_size - 1) / 2));
    }
    const auto late = sweep_pairs(3, TimePoint());
    CHECK(only<GpuPairSample>(late).empty());
    REQUIRE(only<HealthNote>(late).size() == 1);
    CHECK(only<HealthNote>(late)[0].text ==
          "3 of 3 rounds of GPU pairs were skipped because there was not enough time");
}

TEST_CASE("a wrong element is named by rank, host, operation and index") {
    for (const HealthOp op : kHealthOps) {
        if (op == HealthOp::kBarrier) continue;
        const auto faults = only<HealthFault>(sweep_world(2, op));
        INFO(health_op_name(op));
        REQUIRE(faults.size() == 2);  // one per size
        for (const HealthFault& fault : faults) {
            CHECK(fault.rank == 1);
            CHECK_THAT(fault.text, Catch::Contains("rank 1 on host n1"));
            CHECK_THAT(fault.text, Catch::Contains(health_op_name(op)));
            CHECK_THAT(fault.text, Catch::Contains("element 3 is"));
        }
    }
}

TEST_CASE("sizes are nccl-tests': of the larger of what goes in and what comes out") {
    // 4096 bytes are 1024 elements. Each of 3 ranks has 341 of them, 1023 in all.
    CHECK(sweep_shape(HealthOp::kAllReduce, 4096, 3).bytes == 4096);
    CHECK(sweep_shape(HealthOp::kAllGather, 4096, 3).send_numel == 341);
    CHECK(sweep_shape(HealthOp::kAllGather, 4096, 3).receive_numel == 1023);
    CHECK(sweep_shape(HealthOp::kAllGather, 4096, 3).bytes == 4092);
    CHECK(sweep_shape(HealthOp::kReduceScatter, 4096, 3).receive_numel == 341);
    CHECK(sweep_shape(HealthOp::kReduceScatter, 4096, 3).bytes == 4092);
    CHECK(sweep_shape(HealthOp::kAllToAll, 4, 3).send_numel == 3);
}

TEST_CASE("what is expected is the sum, or the piece, of what is sent, and exact in fp32") {
    for (const int world_size : {1, 2, 3, 13, 14, 29}) {
        for (const int64_t index : {0, 5, 250, 251, 1000}) {
            for (const int64_t iteration : {0, 1, 18}) {
                double sum = 0;
                for (int rank = 0; rank < world_size; ++rank)
                    sum +=
                        sent_value(HealthOp::kAllReduce, {rank, world_size, iteration, 0}, index);
                CHECK(expected_value(HealthOp::kAllReduce, {0, world_size, iteration, 0}, index) ==
                      sum);
                CHECK(sum < 1 << 24);
            }
        }
    }
    // Rank 1 of 3 with parts of 10 elements: element 25 comes from rank 2.
    CHECK(expected_value(HealthOp::kAllGather, {1, 3, 4, 10}, 25) ==
          sent_value(HealthOp::kAllGather, {2, 3, 4, 10}, 5));
    CHECK(expected_value(HealthOp::kAllToAll, {1, 3, 4, 10}, 25) ==
          sent_value(HealthOp::kAllToAll, {2, 3, 4, 10}, 15));
    CHECK(expected_value(HealthOp::kSendReceive, {0, 3, 4, 0}, 7) ==
          sent_value(HealthOp::kSendReceive, {2, 3, 4, 0}, 7));
}
