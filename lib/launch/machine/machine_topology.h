// The processors of this machine and how they hang together, as the kernel tells in /sys and /proc,
// and what its control groups grant.
// Data path: node facts -> topology -> placement. No threads. Reading costs about 20 us for
// each processor; nothing is read unless ranks are to be bound.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch::launch {

// The processors' worth of time that the group or one above it grants, rounded up; 0: no limit.
// ROOT: "" for this machine, else the folder of a test that holds proc/ and sys/.
[[nodiscard]] int processors_granted(const std::string& root);

// The number of processes of the group that were ended because its memory was used up; -1 where it
// does not say.
[[nodiscard]] int64_t group_oom_kills(const std::string& root);

// The number behind NAME in a file of "name number" lines; -1 when there is none.
[[nodiscard]] int64_t read_counter(const std::string& path, const std::string& name);

// The number of processes that the kernel's out-of-memory killer has ended, on this machine and in
// our control group; -1 where it does not say.
struct OomCount {
    int64_t machine = -1;
    int64_t group = -1;
};
// ROOT: "" for this machine, else the folder of a test that holds proc/ and sys/.
[[nodiscard]] OomCount count_oom_kills(const std::string& root = "");
// The kills that were added between the two, in words; empty when there is none.
[[nodiscard]] std::string describe_oom(const OomCount& before, const OomCount& now);

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
