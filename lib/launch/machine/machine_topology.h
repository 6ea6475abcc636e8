// The processors of this machine and how they hang together, as the kernel tells in /sys and /proc.
// Data path: node facts -> topology -> placement. No threads. Reading costs about 20 us for
// each processor; nothing is read unless ranks are to be bound.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch::launch {

// One logical processor.
struct Processor {
    int number = 0;
    int core = 0;     // the lowest number of the same core
    int package = 0;  // socket
    int node = 0;     // NUMA
    int cache = 0;    // the lowest number that shares the last-level cache

    bool operator==(const Processor&) const = default;
};

struct MachineTopology {
    std::vector<Processor> processors;  // by number; only those that this process may use
    std::vector<int> gpu_nodes;  // NUMA node of each GPU, in the order of their PCI addresses; -1:
                                 // not known
    int cores_max = 0;           // limit of the control group; 0: none
};

// ROOT: "" for this machine; a test gives the folder that holds its own sys/, proc/ and dev/. What
// the kernel does not tell counts as one core a processor and one of everything else.
[[nodiscard]] MachineTopology read_machine_topology(const std::string& root,
                                                    const std::vector<int>& allowed);

// The processors that this process may run on, by number.
[[nodiscard]] std::vector<int> allowed_processors();

// "0-3,8" -> 0 1 2 3 8, sorted, each once. Nothing when it is not written so, is empty, or holds a
// number over 65,535.
[[nodiscard]] std::optional<std::vector<int>> parse_processor_list(std::string_view text);
// The text of such a list: 0 1 2 3 8 -> "0-3,8".
[[nodiscard]] std::string processor_list_text(const std::vector<int>& sorted_numbers);

}  // namespace dslaunch::launch
