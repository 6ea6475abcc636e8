// The operations that `dslaunch health` tries, over whatever carries them: Gloo between CPUs, NCCL
// between GPUs, memory in tests. All ranks call the same in the same order. One thread.
#pragma once

#include <cstdint>
#include <span>

#include "health/health_record.h"

namespace dslaunch::runtime {

// SHAPE: with n ranks and c elements sent: broadcast (of rank 0's), send_receive (to the next rank
// round the ring), all_reduce (sum) receive c, all_gather n*c, reduce_scatter c/n, all_to_all c.
class HealthCollectives {
  public:
    virtual ~HealthCollectives() = default;

    // Takes what the next run sends, and makes room for what it receives.
    virtual void load(std::span<const float> send, int64_t receive_numel) = 0;
    // Blocks until this rank's part is done: what is timed. Throws Error{kHang} after the limit
    // given at the start, {kPeerLost}.
    virtual void run(health::HealthOp op) = 0;
    // What the last run received. REQUIRES: as many elements as load was told.
    virtual void fetch(std::span<float> receive) = 0;
};

}  // namespace dslaunch::runtime
