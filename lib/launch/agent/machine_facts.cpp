#include "launch/agent/machine_facts.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gnu/libc-version.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/fd.h"
#include "base/machine/disk_room.h"
#include "base/text.h"
#include "base/text/json.h"
#include "launch/machine/elf_needs.h"
#include "launch/network/interfaces.h"
#include "launch/process/process_tree.h"
#include "launch/process/spawn.h"
#include "launch/process/timing.h"

namespace dslaunch::launch {
namespace {

namespace fs = std::filesystem;
using std::chrono::nanoseconds;

// Only so many bytes of /proc/cpuinfo are read: enough for the first processor. On a large machine,
// the kernel needs a millisecond to describe all processors.
constexpr size_t kCpuInfoBytes = 8192;

std::string beginning_of(const std::string& path) {
    const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    std::string text(kCpuInfoBytes, '\0');
    if (!file.valid()) return {};
    const ssize_t n = read_full(file.get(), std::as_writable_bytes(std::span(text)));
    text.resize(n > 0 ? static_cast<size_t>(n) : 0);
    return text;
}

// The names of ARM server processors, by implementer and part number. Source: lscpu.
struct ArmProcessor {
    std::string_view implementer, part, name;
};
constexpr ArmProcessor kArmProcessors[] = {{"0x41", "0xd08", "ARM Cortex-A72"},
                                           {"0x41", "0xd0c", "ARM Neoverse-N1"},
                                           {"0x41", "0xd40", "ARM Neoverse-V1"},
                                           {"0x41", "0xd49", "ARM Neoverse-N2"},
                                           {"0x41", "0xd4f", "ARM Neoverse-V2"},
                                           {"0x41", "0xd84", "ARM Neoverse-V3"},
                                           {"0x41", "0xd8e", "ARM Neoverse-N3"},
                                           {"0x46", "0x001", "Fujitsu A64FX"},
                                           {"0x48", "0xd01", "HiSilicon TaiShan-v110"},
                                           {"0xc0", "0xac3", "Ampere-1"},
                                           {"0xc0", "0xac4", "Ampere-1a"}};

IsaLevel level_of_flags(const std::string& flags_line) {
    const std::vector<std::string> words = split(flags_line, ' ');
    const std::set<std::string> flags(words.begin(), words.end());
    const auto has = [&](std::initializer_list<const char*> names) {
        return std::all_of(names.begin(), names.end(),
                           [&](const char* name) { return flags.contains(name); });
    };
    if (!has({"sse2"})) return 0;
    if (!has({"cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3"})) return 1;
    if (!has({"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"})) return 2;
    return has({"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}) ? 4 : 3;
}

// Returns the x86-64 level that the compiler was allowed to use.
constexpr IsaLevel level_of_build() {
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__)
    return 4;
#elif defined(__AVX2__) && defined(__FMA__)
    return 3;
#elif defined(__SSE4_2__)
    return 2;
#elif defined(__x86_64__)
    return 1;
#else
    return 0;
#endif
}

// Reads "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue …" -> "550.54.15".
std::string driver_version_in(const std::string& text) {
    const std::string line = text.substr(0, text.find('\n'));
    for (const std::string& word : split(line, ' ')) {
        const bool numbers = !word.empty() && word.find('.') != std::string::npos &&
                             word.find_first_not_of("0123456789.") == std::string::npos;
        if (numbers) return word;
    }
    return {};
}

std::vector<std::string> gpu_names_in(const std::string& folder) {
    std::map<std::string, std::string> names;
    std::error_code error;
    fs::directory_iterator entry(folder, error);
    for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
        names[entry->path().filename().string()] =
            value_in(text_or_empty(entry->path() / "information"), "Model");
    }
    std::vector<std::string> list;
    for (const auto& [address, name] : names) list.push_back(name);
    return list;
}

int64_t first_number(const std::string& text) {
    const std::vector<std::string> words = split(text, ' ');
    return parse_int(words.front()).value_or(0);
}

std::string namespace_of(const std::string& root, const char* kind) {
    std::error_code error;  // what cannot be read stays empty
    return fs::read_symlink(root + "/proc/self/ns/" + kind, error).string();
}

std::string machine_id(const std::string& root) {
    const std::string boot(trim(text_or_empty(root + "/proc/sys/kernel/random/boot_id")));
    return boot.empty() ? std::string() : boot + " " + namespace_of(root, "net");
}

// Returns the GPU driver version that most machines have.
std::string usual_driver(const std::vector<MachineFacts>& machines) {
    std::map<std::string, size_t> counts;
    for (const MachineFacts& machine : machines) ++counts[machine.driver_version];
    const MachineFacts* best = &machines.front();
    for (const MachineFacts& machine : machines) {
        if (counts[machine.driver_version] > counts[best->driver_version]) best = &machine;
    }
    return best->driver_version;
}

// Reads "MemAvailable:   123 kB" -> bytes; -1 when there is no such line.
int64_t memory_bytes(const std::string& text, std::string_view name) {
    const std::string value = value_in(text, name);
    const auto kibibytes = parse_int(value.substr(0, value.find(' ')));
    return kibibytes ? *kibibytes * 1024 : -1;
}

}  // namespace

std::string processor_model(const std::string& cpuinfo) {
    const std::string name = value_in(cpuinfo, "model name");
    const std::string implementer = value_in(cpuinfo, "CPU implementer");
    const std::string part = value_in(cpuinfo, "CPU part");
    if (!name.empty() || implementer.empty()) return name;
    for (const ArmProcessor& known : kArmProcessors)
        if (known.implementer == implementer && known.part == part) return std::string(known.name);
    return fmt::format("ARM, implementer {}, part {}", implementer, part);
}

MachineFacts look_at_machine(const std::string& root) {
    MachineFacts facts;
    facts.machine_id = machine_id(root);
    facts.process_namespace = namespace_of(root, "pid");
    const std::string cpu = beginning_of(root + "/proc/cpuinfo");
    facts.cpu_model = processor_model(cpu);
    facts.isa_level = level_of_flags(value_in(cpu, "flags"));
    facts.glibc = ::gnu_get_libc_version();
    facts.driver_version = driver_version_in(text_or_empty(root + "/proc/driver/nvidia/version"));
    facts.gpu_names = gpu_names_in(root + "/proc/driver/nvidia/gpus");
    facts.page_bytes = ::sysconf(_SC_PAGESIZE);
    const std::string memory = text_or_empty(root + "/proc/meminfo");
    facts.huge_pages_bytes = first_number(value_in(memory, "HugePages_Total")) *
                             first_number(value_in(memory, "Hugepagesize")) * 1024;
    facts.memlock_bytes_max = soft_limit(RLIMIT_MEMLOCK);
    facts.open_files_max = soft_limit(RLIMIT_NOFILE);
    facts.shared_memory_bytes = disk_space(root + "/dev/shm").value_or(DiskSpace{}).whole.value;
    facts.addresses = list_interfaces();
    return facts;
}

std::string machine_json(const MachineFacts& facts) {
    JsonWriter json;
    json.begin_object().field("cpu_model", facts.cpu_model);
    json.field("x86_64_level", facts.isa_level).field("glibc", facts.glibc);
    json.field("driver_version", facts.driver_version).key("gpu_names").begin_array();
    for (const std::string& name : facts.gpu_names) json.value(name);
    json.end_array().field("page_bytes", facts.page_bytes);
    json.field("huge_pages_bytes", facts.huge_pages_bytes);
    json.field("memlock_bytes_max", facts.memlock_bytes_max);
    json.field("open_files_max", facts.open_files_max);
    json.field("shared_memory_bytes", facts.shared_memory_bytes).key("addresses").begin_array();
    for (const InterfaceAddress& entry : facts.addresses) {
        json.begin_object().field("interface", entry.interface).field("address", entry.address);
        json.field("up", entry.up).field("speed_mbit", entry.speed_mbit).end_object();
    }
    json.end_array().end_object();
    return json.text();
}

WorkerNeeds needs_of_worker(const std::string& worker, bool cuda) {
    return {level_of_build(), read_elf_needs(worker).glibc, cuda};
}

std::vector<std::string> check_machines(const std::vector<MachineFacts>& machines,
                                        const WorkerNeeds& needs) {
    std::vector<std::string> problems(machines.size());
    if (machines.empty()) return problems;
    const std::string driver = usual_driver(machines);
    for (size_t i = 0; i < machines.size(); ++i) {
        const MachineFacts& machine = machines[i];
        std::vector<std::string> words;
        if (machine.isa_level != 0 && machine.isa_level < needs.isa_level) {
            words.push_back(
                fmt::format("its processor ({}) supports x86-64 level {}, but dsworker was built "
                            "for level {}; build dsworker without -march, for the oldest host",
                            printable(machine.cpu_model), machine.isa_level, needs.isa_level));
        }
        if (!machine.glibc.empty() && !needs.glibc.empty() &&
            ::strverscmp(machine.glibc.c_str(), needs.glibc.c_str()) < 0) {
            words.push_back(fmt::format(
                "its C library is {}, but dsworker needs {}; build dsworker on the oldest host",
                printable(machine.glibc), needs.glibc));
        }
        if (needs.cuda && machine.driver_version != driver) {
            words.push_back(
                fmt::format("{}, but most hosts have {}; install the same driver on all hosts",
                            machine.driver_version.empty()
                                ? "no NVIDIA driver is loaded"
                                : "its NVIDIA driver is " + printable(machine.driver_version),
                            driver.empty() ? "none" : printable(driver)));
        }
        problems[i] = join(words, "; ");
    }
    return problems;
}

NodeReport report_node(const ReportRequest& request) {
    NodeReport report;
    const std::string memory = text_or_empty("/proc/meminfo");
    report.memory_bytes = memory_bytes(memory, "MemTotal");
    report.memory_free_bytes = memory_bytes(memory, "MemAvailable");
    if (const auto disk = disk_space(request.directory)) {
        report.disk_free_bytes = disk->free.value;
    } else {
        report.disk_error = errno_text(errno);
    }
    if (const auto shared = disk_space("/dev/shm"))
        report.shared_memory_bytes = shared->whole.value;
    report.locked_memory_max = soft_limit(RLIMIT_MEMLOCK);
    report.open_files_max = soft_limit(RLIMIT_NOFILE);
    report.clock_ns = wall_clock().count();
    return report;
}

ClockOffset clock_offset(nanoseconds asked, nanoseconds answered, nanoseconds theirs) {
    const nanoseconds half = (answered - asked) / 2;
    return {theirs - (asked + half), half + nanoseconds(1)};
}

std::string describe_clock(const ClockOffset& clock) {
    const nanoseconds distance = std::max(clock.offset, -clock.offset);
    if (clock.bound < nanoseconds(0) || distance - clock.bound <= kClockOffsetMax) return {};
    const auto seconds = [](nanoseconds time) {
        return std::chrono::duration<double>(time).count();
    };
    return fmt::format(
        "its clock is {:.1f} s {} this machine's clock (within {:.1f} s), so times in logs and "
        "files do not match, and certificates may be refused; synchronize it, for example with "
        "chrony or ntp",
        seconds(distance), clock.offset.count() > 0 ? "ahead of" : "behind", seconds(clock.bound));
}

}  // namespace dslaunch::launch
