// The operations that `dslaunch health` tries, over any carrier: Gloo between CPUs, NCCL between
// GPUs, memory in tests. All ranks make the same calls in the same order. One thread.
#pragma once

#include <cstdint>
#include <span>

#include "health/health_record.h"

namespace dslaunch::runtime {

// With n ranks and c elements sent, broadcast (of rank 0's), send_receive (to the next rank of the
// ring) and all_reduce (sum) receive c, all_gather n*c, reduce_scatter c/n, all_to_all c.
class HealthCollectives {
  public:
    virtual ~HealthCollectives() = default;

    // Takes the values that the next run sends, and makes room for those it receives.
    virtual void load(std::span<const float> send, int64_t receive_numel) = 0;
    // Blocks until this rank's part is done, which is the part that is timed. Throws Error{kHang}
    // after the limit given at the start, and {kPeerLost}.
    virtual void run(health::HealthOp op) = 0;
    // Copies the values that the last run received. REQUIRES: as many elements as load was told.
    virtual void fetch(std::span<float> receive) = 0;
};

// The same where each rank can exchange with any one other, while others do so among themselves.
class PairedCollectives : public HealthCollectives {
  public:
    // Sends what was loaded to PEER and receives as much from it, which fetch() gives. Blocks and
    // throws as run does.
    virtual void exchange_with(int peer) = 0;
};

}  // namespace dslaunch::runtime
