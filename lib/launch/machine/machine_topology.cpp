#include "launch/machine/machine_topology.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "base/error.h"
#include "base/fd.h"
#include "base/text.h"
#include "launch/machine/control_group.h"

namespace dslaunch::launch {
namespace {

namespace fs = std::filesystem;

constexpr size_t kFileBytesMax = 1U << 20;
constexpr int64_t kProcessorMax = 65'535;
constexpr int kCachesMax = 16;

// The line that is the file PATH, without its newline; empty when it cannot be read.
std::string line_of(const std::string& path) {
    try {
        return std::string(trim(read_file(path, kFileBytesMax)));
    } catch (const Error&) {
        return {};
    }
}

int number_of(const std::string& path, int otherwise) {
    const auto number = parse_int(line_of(path));
    return number && *number >= 0 && *number <= kProcessorMax ? static_cast<int>(*number)
                                                              : otherwise;
}

int first_of_list(const std::string& path, int otherwise) {
    const auto list = parse_processor_list(line_of(path));
    return list ? list->front() : otherwise;
}

// The cache of the highest level, by which processors that share it are known.
int last_cache_of(const std::string& processor_folder, int otherwise) {
    int best_level = 0;
    int found = otherwise;
    for (int index = 0; index < kCachesMax; ++index) {
        const std::string cache = fmt::format("{}/cache/index{}", processor_folder, index);
        const int level = number_of(cache + "/level", 0);
        if (level == 0) break;
        if (level < best_level) continue;
        best_level = level;
        found = first_of_list(cache + "/shared_cpu_list", otherwise);
    }
    return found;
}

// NODE of each processor.
std::map<int, int> read_nodes(const std::string& root) {
    constexpr std::string_view kPrefix = "node";
    std::map<int, int> nodes;
    std::error_code error;
    fs::directory_iterator entry(root + "/sys/devices/system/node", error);
    for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
        const std::string name = entry->path().filename().string();
        if (!name.starts_with(kPrefix)) continue;
        const auto node = parse_int(name.substr(kPrefix.size()));
        const auto list = parse_processor_list(line_of(entry->path().string() + "/cpulist"));
        if (!node || !list) continue;
        for (const int number : *list) nodes[number] = static_cast<int>(*node);
    }
    return nodes;
}

// The GPUs that have a device file here, in the order of their PCI addresses, which is CUDA's for
// GPUs of one kind.
std::vector<int> read_gpu_nodes(const std::string& root) {
    std::vector<std::string> addresses;
    std::error_code error;
    fs::directory_iterator entry(root + "/proc/driver/nvidia/gpus", error);
    for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
        std::string minor;
        for (const std::string& line :
             split(line_of(entry->path().string() + "/information"), '\n')) {
            if (line.starts_with("Device Minor:")) minor = trim(line.substr(line.find(':') + 1));
        }
        if (fs::exists(root + "/dev/nvidia" + minor)) {
            addresses.push_back(entry->path().filename().string());
        }
    }
    std::sort(addresses.begin(), addresses.end());
    std::vector<int> nodes;
    for (const std::string& address : addresses) {
        nodes.push_back(
            number_of(fmt::format("{}/sys/bus/pci/devices/{}/numa_node", root, address), -1));
    }
    return nodes;
}

}  // namespace

MachineTopology read_machine_topology(const std::string& root, const std::vector<int>& allowed) {
    MachineTopology topology;
    const std::map<int, int> nodes = read_nodes(root);
    for (const int number : allowed) {
        const std::string folder = fmt::format("{}/sys/devices/system/cpu/cpu{}", root, number);
        Processor processor;
        processor.number = number;
        processor.core = first_of_list(folder + "/topology/thread_siblings_list", number);
        processor.package = number_of(folder + "/topology/physical_package_id", 0);
        const auto node = nodes.find(number);
        processor.node = node == nodes.end() ? 0 : node->second;
        processor.cache = last_cache_of(folder, processor.package);
        topology.processors.push_back(processor);
    }
    topology.gpu_nodes = read_gpu_nodes(root);
    topology.cores_max = processors_granted(root);
    return topology;
}

std::vector<int> allowed_processors() {
    std::vector<int> numbers;
    // The kernel refuses a set that is smaller than its own.
    for (int capacity = CPU_SETSIZE; capacity <= kProcessorMax + 1; capacity *= 2) {
        cpu_set_t* const set = CPU_ALLOC(capacity);
        const size_t bytes = CPU_ALLOC_SIZE(capacity);
        CPU_ZERO_S(bytes, set);
        const bool fits = ::sched_getaffinity(0, bytes, set) == 0;
        for (int number = 0; fits && number < capacity; ++number) {
            if (CPU_ISSET_S(number, bytes, set)) numbers.push_back(number);
        }
        CPU_FREE(set);
        if (fits) break;
    }
    return numbers;
}

std::optional<std::vector<int>> parse_processor_list(std::string_view text) {
    std::vector<bool> is_listed(kProcessorMax + 1);  // however often the text says so
    for (const std::string& piece : split(text, ',')) {
        const std::vector<std::string> ends = split(piece, '-');
        const auto first = parse_int(ends.front());
        const auto last = parse_int(ends.back());
        if (ends.size() > 2 || !first || !last || *first < 0 || *last < *first ||
            *last > kProcessorMax) {
            return std::nullopt;
        }
        std::fill(is_listed.begin() + *first, is_listed.begin() + *last + 1, true);
    }
    std::vector<int> numbers;
    for (int number = 0; number <= kProcessorMax; ++number) {
        if (is_listed[number]) numbers.push_back(number);
    }
    return numbers;
}

std::string processor_list_text(const std::vector<int>& sorted_numbers) {
    std::string text;
    for (size_t i = 0; i < sorted_numbers.size();) {
        size_t end = i + 1;
        while (end < sorted_numbers.size() && sorted_numbers[end] == sorted_numbers[end - 1] + 1) {
            ++end;
        }
        text += fmt::format("{}{}", text.empty() ? "" : ",", sorted_numbers[i]);
        if (end - i > 1) text += fmt::format("-{}", sorted_numbers[end - 1]);
        i = end;
    }
    return text;
}

}  // namespace dslaunch::launch
