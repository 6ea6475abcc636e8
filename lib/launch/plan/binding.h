// The user's wish for the processors that ranks run on: a plain value from the command line to the
// agents. Which rank gets which processor is decided on each host (launch/plan/rank_processors.h).
#pragma once

#include <cstdint>
#include <string>

namespace dslaunch::launch {

enum class BindMode : uint8_t {
    kAuto,         // threads are divided among the ranks; a dsworker pins itself when that uses up
                   // all processors of the host
    kNone,         // nobody is bound
    kCore,         // each rank has its own share of the cores, in order
    kNuma,         // all processors of a NUMA node: that of the rank's GPU, else ranks are spread
    kSocket,       // all processors of a package, chosen like kNuma's node
    kExclusive,    // each rank has its own share of the cores of its NUMA node
    kCoreComplex,  // each rank has one group of cores with a last-level cache of their own, in its
                   // NUMA node
};

struct BindingRequest {
    BindMode mode = BindMode::kAuto;
    std::string core_list;  // "0-3,8": only these processors of each host; empty: all

    bool operator==(const BindingRequest&) const = default;
};

// "core", "core-complex", …: as --bind and messages write it.
[[nodiscard]] const char* bind_mode_name(BindMode mode);

}  // namespace dslaunch::launch
