// Collectives of ranks that each have a device of their own. No other rank can read its memory:
// buckets and parameters go from device to device, on the communication queue's stream, and
// everything that the host must know at once goes over the collectives of the hosts. Each rank is
// alone on its "host" and shares no arena, so nobody needs the signals of a bucket's life, and
// the executor's events order the work of one rank. Sums are NCCL's: they have no promised order.
// traffic() counts what goes between devices; the hosts' collectives count theirs. Data path: ZeRO
// state -> [here] -> device backend, control. Threads: as Collectives says.
#pragma once

#include <memory>

#include "runtime/comm/collectives.h"
#include "runtime/comm/device_backend.h"

namespace dslaunch::runtime {

struct DeviceCollectivesParts {
    const Arena* arena = nullptr;      // on the device; must outlive the result
    Collectives* control = nullptr;    // of the same ranks; must outlive the result
    DeviceBackend* backend = nullptr;  // must outlive the result
    // StepPlanOptions::shard_group: shards are reduced and gathered within it. 0: all ranks.
    int shard_group = 0;
};

// Joins a group of all ranks if there are several, and with a shard group two more: this rank's
// own, and one with the ranks at its place in the other groups, where the sums of its shards meet.
// Blocks until all have come, at most TIME_LIMIT for each. Throws what DeviceBackend::join does.
// All ranks of CONTROL call it.
[[nodiscard]] std::unique_ptr<Collectives> make_device_collectives(
    const DeviceCollectivesParts& parts, Duration time_limit);

}  // namespace dslaunch::runtime
