// The verified operations of `dslaunch health`: every operation at every size, and every pair of
// GPUs, warmed up and timed. Each received element is compared with its expected value, a formula
// of rank, index and iteration. Data path: health collectives -> [here] -> health record. One
// thread, which blocks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "health/health_record.h"
#include "runtime/comm/board.h"
#include "runtime/comm/device_backend.h"

namespace dslaunch::runtime {

// A rank's place in a sweep, its sizes and its limits.
struct SweepOptions {
    int rank = 0;
    int world_size = 1;
    std::string host;  // this rank's host, for messages
    std::vector<int64_t> sizes_bytes = {4 << 10, 64 << 10, 4 << 20};
    int64_t iterations_max = 20;
    Duration row_time = std::chrono::milliseconds(400);  // time limit for all iterations of a size
    Duration limit = std::chrono::seconds(15);           // limit of one operation
    TimePoint deadline = TimePoint::max();  // later operations are skipped and reported
};

// The functions by which a sweep talks to other ranks and to its caller.
struct SweepSeams {
    HealthCollectives& collectives;
    Board& board;
    std::function<void(const health::HealthRecord&)> report;
    std::function<void(const std::string& where, Duration limit)> enter;
};

// Puts rank 0's PROPOSAL on the board under KEY and returns it on all ranks, so that all do the
// same. Throws Error{kHang} if rank 0 does not reach WHAT within the limit of an operation.
[[nodiscard]] int64_t agree_with_first(const SweepOptions& options, Board& board,
                                       const std::string& key, const char* what, int64_t proposal);

// Runs all operations. Reports timings. If a rank receives wrong elements in an operation, reports
// a fault with the first of them: its index, its value and the expected value. Rank 0 decides for
// all ranks how often each size is run. Throws the collectives' errors, naming operation and size.
void sweep_operations(const SweepOptions& options, const SweepSeams& seams);

// Tries every pair of GPUs. In a round each GPU has one partner, and the two send to each other at
// the same time. The lower rank of a pair reports its rate, and each rank reports its wrong
// elements as a fault. If there is no time for more rounds, rank 0 ends the sweep on all ranks and
// reports this. Throws the collectives' errors, naming the ranks. REQUIRES: SEAMS.collectives is
// PAIRS.
void sweep_gpu_pairs(const SweepOptions& options, PairedCollectives& pairs, const SweepSeams& seams,
                     int64_t bytes = int64_t{64} << 20);

// Makes the collectives that a GPU's backend carries out: the plugin's backend uses NCCL, and a
// test's fake backend copies in memory. COMMUNICATOR is a communicator of BACKEND with all ranks.
// Both must outlive the result. An operation that takes longer than TIME_LIMIT throws Error{kHang}.
[[nodiscard]] std::unique_ptr<PairedCollectives> make_device_health_collectives(
    DeviceBackend& backend, DeviceCommunicator& communicator, Duration time_limit);

// The numbers of elements that a rank sends and receives. The functions below are pure, and all
// their values are exact in fp32.
struct SweepShape {
    int64_t send_numel = 0;
    int64_t receive_numel = 0;
    int64_t bytes = 0;  // bytes as nccl-tests counts them
};
// Returns the numbers of elements that a rank sends and receives in OP, for a message of BYTES.
[[nodiscard]] SweepShape sweep_shape(health::HealthOp op, int64_t bytes, int world_size);
// The rank and the iteration for which a value is computed.
struct SweepPlace {
    int rank = 0;
    int world_size = 1;
    int64_t iteration = 0;
    int64_t part_numel = 0;  // elements of one rank's part of the data
};
// Return element INDEX of the data that a rank sends, and of the data that it must receive.
[[nodiscard]] float sent_value(health::HealthOp op, const SweepPlace& place, int64_t index);
[[nodiscard]] float expected_value(health::HealthOp op, const SweepPlace& place, int64_t index);

}  // namespace dslaunch::runtime
