#include "launch/agent/machine_facts.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gnu/libc-version.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <set>

#include "base/fd.h"
#include "base/text.h"
#include "base/text/json.h"
#include "launch/machine/elf_needs.h"
#include "launch/network/interfaces.h"
#include "launch/process/resource_limit.h"
#include "launch/process/text_or_empty.h"
#include "launch/protocol/field_visitor.h"

namespace dslaunch::launch {

template <typename Visitor, Is<InterfaceAddress> M>
void fields(Visitor& visit, M& m) {
    visit(m.interface), visit(m.address), visit(m.speed_mbit);
    visit(m.up), visit(m.loopback), visit(m.for_guests);
}
template <typename Visitor, Is<MachineFacts> M>
void fields(Visitor& visit, M& m) {
    visit(m.machine_id), visit(m.process_namespace), visit(m.cpu_model), visit(m.isa_level);
    visit(m.glibc);
    visit(m.driver_version), visit(m.gpu_names), visit(m.page_bytes), visit(m.huge_pages_bytes);
    visit(m.memlock_bytes_max), visit(m.open_files_max), visit(m.shared_memory_bytes);
    visit(m.addresses);
}

namespace {

namespace fs = std::filesystem;

constexpr size_t kFactBytesMax = 1U << 20;
// The first processor's lines; the kernel needs a millisecond for those of a large machine.
constexpr size_t kCpuInfoBytes = 8192;

std::string facts_text(const std::string& path) {
    return text_or_empty(path, kFactBytesMax);
}

std::string beginning_of(const std::string& path) {
    const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    std::string text(kCpuInfoBytes, '\0');
    if (!file.valid()) return {};
    const ssize_t n = read_full(file.get(), std::as_writable_bytes(std::span(text)));
    text.resize(n > 0 ? static_cast<size_t>(n) : 0);
    return text;
}

// The value of the first "NAME : value" line.
std::string value_of(const std::string& text, std::string_view name) {
    for (const std::string& line : split(text, '\n')) {
        const size_t colon = line.find(':');
        if (colon == std::string::npos || trim(line.substr(0, colon)) != name) continue;
        return std::string(trim(line.substr(colon + 1)));
    }
    return {};
}

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

// The level that the compiler was allowed to use.
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

// "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue …" -> "550.54.15".
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
            value_of(facts_text(entry->path().string() + "/information"), "Model");
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
    const std::string boot(trim(facts_text(root + "/proc/sys/kernel/random/boot_id")));
    return boot.empty() ? std::string() : boot + " " + namespace_of(root, "net");
}

// "2.36" as numbers, comparable.
std::vector<int64_t> version_numbers(const std::string& version) {
    std::vector<int64_t> numbers;
    for (const std::string& piece : split(version, '.')) {
        numbers.push_back(parse_int(piece).value_or(0));
    }
    return numbers;
}

// The driver that most machines have.
std::string usual_driver(const std::vector<MachineFacts>& machines) {
    std::map<std::string, size_t> counts;
    for (const MachineFacts& machine : machines) ++counts[machine.driver_version];
    const MachineFacts* best = &machines.front();
    for (const MachineFacts& machine : machines) {
        if (counts[machine.driver_version] > counts[best->driver_version]) best = &machine;
    }
    return best->driver_version;
}

}  // namespace

MachineFacts look_at_machine(const std::string& root) {
    MachineFacts facts;
    facts.machine_id = machine_id(root);
    facts.process_namespace = namespace_of(root, "pid");
    const std::string cpu = beginning_of(root + "/proc/cpuinfo");
    facts.cpu_model = value_of(cpu, "model name");
    facts.isa_level = level_of_flags(value_of(cpu, "flags"));
    facts.glibc = ::gnu_get_libc_version();
    facts.driver_version = driver_version_in(facts_text(root + "/proc/driver/nvidia/version"));
    facts.gpu_names = gpu_names_in(root + "/proc/driver/nvidia/gpus");
    facts.page_bytes = ::sysconf(_SC_PAGESIZE);
    const std::string memory = facts_text(root + "/proc/meminfo");
    facts.huge_pages_bytes = first_number(value_of(memory, "HugePages_Total")) *
                             first_number(value_of(memory, "Hugepagesize")) * 1024;
    facts.memlock_bytes_max = soft_limit(RLIMIT_MEMLOCK);
    facts.open_files_max = soft_limit(RLIMIT_NOFILE);
    struct statvfs shared {};
    if (::statvfs((root + "/dev/shm").c_str(), &shared) == 0) {
        facts.shared_memory_bytes = static_cast<int64_t>(shared.f_blocks * shared.f_frsize);
    }
    facts.addresses = list_interfaces();
    return facts;
}

std::string encode(const MachineFacts& facts) {
    return write_fields(facts);
}

MachineFacts decode_machine_facts(std::string_view bytes) {
    return read_fields<MachineFacts>(bytes, "the facts about a machine");
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
                fmt::format("its processor ({}) has x86-64 level {}, dsworker was built for level "
                            "{}; build it without -march for the oldest of the hosts",
                            printable(machine.cpu_model), machine.isa_level, needs.isa_level));
        }
        if (!machine.glibc.empty() && !needs.glibc.empty() &&
            version_numbers(machine.glibc) < version_numbers(needs.glibc)) {
            words.push_back(fmt::format(
                "its C library is {}, dsworker needs {}; build on the oldest of the hosts",
                printable(machine.glibc), needs.glibc));
        }
        if (needs.cuda && machine.driver_version != driver) {
            words.push_back(
                fmt::format("{}, most hosts have {}; install the same everywhere",
                            machine.driver_version.empty()
                                ? "no NVIDIA driver is loaded"
                                : "its NVIDIA driver is " + printable(machine.driver_version),
                            driver.empty() ? "none" : printable(driver)));
        }
        problems[i] = join(words, "; ");
    }
    return problems;
}

}  // namespace dslaunch::launch
