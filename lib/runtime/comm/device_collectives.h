// Collectives of ranks that each have a device of their own, whose memory no other rank can read:
// buckets and parameters go from device to device, on the communication queue's stream, and
// everything that the host must know at once goes over the collectives of the hosts. Each rank is
// alone on its "host": nobody shares an arena, so the signals of the life of a bucket have nobody
// to tell, and the executor's events order the work of one rank. Sums are NCCL's: they have no
// promised order. traffic() counts what goes between devices; the hosts' collectives count theirs.
// Data path: ZeRO state -> [here] -> device backend, control. Threads: those of
// Collectives.
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

// Joins a group of all ranks if there are several, and with a shard group two more: this rank's,
// and that of the ranks which have its place in the others, where the sums of its shards meet.
// Blocks until all have come, at most TIME_LIMIT for each. Throws what DeviceBackend::join does.
// All ranks of CONTROL call it.
[[nodiscard]] std::unique_ptr<Collectives> make_device_collectives(
    const DeviceCollectivesParts& parts, Duration time_limit);

}  // namespace dslaunch::runtime
