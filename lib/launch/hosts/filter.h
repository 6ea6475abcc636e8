// --include, --exclude, --num_nodes, --num_gpus: hosts -> the slots that get a worker. Pure; no
// threads.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launch/hosts/hostfile.h"

namespace dslaunch::launch {

struct HostFilter {
    std::string include;           // NODE[:SLOT[,SLOT]][@NODE…]; empty: all
    std::string exclude;           // in the form of `include`; empty: none
    std::optional<int> num_nodes;  // the first N hosts
    std::optional<int> num_gpus;   // the first N slots of each host
};

struct HostSlots {
    Host host;
    // Slot numbers in ascending order, never empty. Of a host with gpus= a slot's number is the
    // GPU's number as written (node2 gpus=2,3 has the slots 2 and 3), else 0..slots-1.
    std::vector<int> slots;
};

// The chosen hosts in the order of HOSTS. Throws Error{kUsage}: options that exclude each other, an
// unknown host (with the nearest name) or slot, one named twice, more than there is, or nothing
// left.
[[nodiscard]] std::vector<HostSlots> apply_filter(const std::vector<Host>& hosts,
                                                  const HostFilter& filter);

// The slots that HOST has if INCLUDE (an --include) names one of its own: from 0 to the last one
// named. 0: it names none. So many has a host whose slots are nothing but numbers: one without GPUs
// of which nobody said how many workers it is to have. Throws as apply_filter on malformed text.
[[nodiscard]] int named_slots(const std::string& include, const std::string& host);

}  // namespace dslaunch::launch
