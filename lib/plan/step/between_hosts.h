// What a step plan is told of the way between hosts: how much may be gathered at once, and in how
// few bits values travel. Value types.
#pragma once

#include <cstdint>

#include "base/kinds/wire_packing.h"

namespace dslaunch::plan {

// The limits of stage 3's gathers, in elements, which gather_schedule.h keeps.
struct GatherLimits {
    int64_t live_numel_max = 1'000'000'000;   // elements gathered at once
    int64_t prefetch_numel_max = 50'000'000;  // elements gathered ahead of their use; 0: only when
                                              // needed
    int64_t reuse_distance_numel_max = 0;     // most elements of other parameters read in between
                                              // by a kept bucket
};

// How values travel between hosts (ZeRO++, arXiv:2306.10209). Nothing of it changes what is on one
// host, nor what GPUs send.
struct HostWire {
    WirePacking parameters = WirePacking::kNone;  // trained ones, as they are gathered at stage 3
    WirePacking frozen = WirePacking::kNone;
    // In 16 bits at all stages, but for slices that say otherwise (FlatLayout). REQUIRES, in 8 and
    // 4 bits: stages 1 to 3, shards over hosts.
    WirePacking gradients = WirePacking::kNone;
    // Sums of a host are divided by it before they travel in 16 bits, and multiplied after.
    double predivide = 1;
    bool error_feedback = false;  // ranks keep what rounding leaves of their gradients
    // Each host keeps what it has gathered until the step's last use: a second copy of the
    // parameters, which no later forward or backward gathers between hosts.
    bool host_copy = false;

    bool operator==(const HostWire&) const = default;
};

}  // namespace dslaunch::plan
