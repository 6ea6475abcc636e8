// Collectives of ranks that each have a device of their own. No other rank can read a device's
// memory, so buckets and parameters are sent from device to device, on the communication queue's
// stream. Data that the CPU needs at once is sent over the collectives of the hosts. Each rank
// counts as alone on its "host" and shares no arena. Therefore buckets need no signals: the
// executor's events order the rank's work. NCCL computes the sums, in no specified order. traffic()
// counts the bytes between devices; the hosts' collectives count their own. Data path: ZeRO state
// -> [here] -> device backend, control. Threads: the rules of Collectives apply.
#pragma once

#include <memory>

#include "runtime/comm/collectives.h"
#include "runtime/comm/device_backend.h"

namespace dslaunch::runtime {

// The objects that collectives of devices are made of.
struct DeviceCollectivesParts {
    const Arena* arena = nullptr;      // on the device; must outlive the result
    Collectives* control = nullptr;    // the same ranks' host collectives; must outlive the result
    DeviceBackend* backend = nullptr;  // must outlive the result
    // StepPlanOptions::shard_group: shards are reduced and gathered within a group of this size. If
    // it is 0, all ranks are one group.
    int shard_group = 0;
};

// Joins a group of all ranks if there are several ranks. With a shard group, joins two more groups:
// this rank's shard group, and the ranks that have the same place in the other shard groups. The
// last group sums this rank's shards over all shard groups. Blocks until all ranks have joined, for
// at most TIME_LIMIT per group. Throws the errors of DeviceBackend::join. All ranks of
// PARTS.control must call this function.
[[nodiscard]] std::unique_ptr<Collectives> make_device_collectives(
    const DeviceCollectivesParts& parts, Duration time_limit);

}  // namespace dslaunch::runtime
