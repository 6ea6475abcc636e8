// The verified operations of `dslaunch health`: every operation at every size, warmed up, timed,
// and each received element compared with a closed form of its rank, its index and the iteration.
// health collectives -> [here] -> health record. One thread, which blocks.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "health/health_record.h"
#include "runtime/comm/board.h"
#include "runtime/comm/health_collectives.h"

namespace dslaunch::runtime {

struct SweepOptions {
    int rank = 0;
    int world_size = 1;
    std::string host;  // of this rank, for messages
    std::vector<int64_t> sizes_bytes = {4 << 10, 64 << 10, 4 << 20};
    int64_t iterations_max = 20;
    Duration row_time = std::chrono::milliseconds(400);  // that the iterations of a size may take
    Duration limit = std::chrono::seconds(15);           // of one operation
    TimePoint deadline = TimePoint::max();  // what would not be done by then is left out, and told
};

struct SweepSeams {
    HealthCollectives& collectives;
    Board& board;
    std::function<void(const health::HealthRecord&)> report;
    std::function<void(const std::string& where, Duration limit)> enter;
};

// Reports timings, and each rank's wrong elements as faults: the first of an operation with its
// index, what it is and what it should be. Rank 0 says for all how often each size is run. Throws
// what the collectives throw, naming operation and size.
void sweep_operations(const SweepOptions& options, const SweepSeams& seams);

// What is sent and what must come: pure, exact in fp32.
struct SweepShape {
    int64_t send_numel = 0;
    int64_t receive_numel = 0;
    int64_t bytes = 0;  // as nccl-tests counts
};
[[nodiscard]] SweepShape sweep_shape(health::HealthOp op, int64_t bytes, int world_size);
struct SweepPlace {
    int rank = 0;
    int world_size = 1;
    int64_t iteration = 0;
    int64_t part_numel = 0;  // of what is cut into one part a rank
};
[[nodiscard]] float sent_value(health::HealthOp op, const SweepPlace& place, int64_t index);
[[nodiscard]] float expected_value(health::HealthOp op, const SweepPlace& place, int64_t index);

}  // namespace dslaunch::runtime
