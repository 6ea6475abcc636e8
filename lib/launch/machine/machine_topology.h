// The processors of this machine and their topology, from /sys and /proc, and the limits of its
// control groups. Data path: node facts -> topology -> placement. No threads. Reading costs about
// 20 us for each processor; nothing is read unless ranks must be bound.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch::launch {

// Returns the number of processors whose time the control group of this process allows, rounded up.
// The number is the smallest limit of the group and of the groups above it. Returns 0 if there is
// no limit. ROOT: "" for this machine, else a test's folder that contains proc/ and sys/.
[[nodiscard]] int group_processors(const std::string& root);

// Returns the number of processes of the control group that were killed because its memory was used
// up; -1 if the kernel does not report it.
[[nodiscard]] int64_t group_oom_kills(const std::string& root);

// Returns the number after NAME in a file of "name number" lines; -1 if there is no such line.
[[nodiscard]] int64_t read_counter(const std::string& path, const std::string& name);

// The number of processes that the kernel's out-of-memory killer has ended, on this machine and in
// our control group; -1 if it is not reported.
struct OomCount {
    int64_t machine = -1;
    int64_t group = -1;
};
// Counts the processes killed for lack of memory. ROOT: "" for this machine, else a test's folder
// that contains proc/ and sys/.
[[nodiscard]] OomCount count_oom_kills(const std::string& root = "");
// Returns the kills between the two counts, in words; empty when there was no kill.
[[nodiscard]] std::string describe_oom(const OomCount& before, const OomCount& now);

// One logical processor.
struct Processor {
    int number = 0;
    int core = 0;     // the lowest processor number in the same core
    int package = 0;  // socket
    int node = 0;     // NUMA
    int cache = 0;    // the lowest processor number that shares the last-level cache

    bool operator==(const Processor&) const = default;
};

// The processors and GPUs of a machine, and where they are.
struct MachineTopology {
    std::vector<Processor> processors;  // by number; only processors that this process may use
    std::vector<int> gpu_nodes;  // NUMA node of each GPU, in the order of their PCI addresses; -1:
                                 // not known
    int cores_max = 0;           // limit of the control group; 0: none
};

// Reads the topology. Where a fact is unknown, it assumes that each processor is a core, that the
// machine has one package and one NUMA node, and that each package has one cache. ROOT: "" for this
// machine; a test gives a folder with its own sys/, proc/ and dev/.
[[nodiscard]] MachineTopology read_machine_topology(const std::string& root,
                                                    const std::vector<int>& allowed);

// Returns the processors that this process may run on, by number.
[[nodiscard]] std::vector<int> allowed_processors();
// Returns how many processors this process may run on. If the kernel does not say it, returns the
// number of processors that are online; at least 1.
[[nodiscard]] int processors_allowed();
// Returns the number of processors whose full time this process gets; at least 1. In a container,
// the number may be smaller than processors_allowed(), because the control group can have a quota.
// More threads than the returned number would be paused in turns and wait for each other.
[[nodiscard]] int processors_granted();

// Returns 0 1 2 3 8 for "0-3,8", sorted, each once. Returns nothing if TEXT has another form, is
// empty, or contains a number above 65,535.
[[nodiscard]] std::optional<std::vector<int>> parse_processor_list(std::string_view text);
// Returns the text for a list of processors: 0 1 2 3 8 -> "0-3,8".
[[nodiscard]] std::string processor_list_text(const std::vector<int>& sorted_numbers);

}  // namespace dslaunch::launch
