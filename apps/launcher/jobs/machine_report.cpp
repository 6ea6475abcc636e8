// The facts about this machine for a bug report: system, processor, memory, GPUs, libraries,
// limits, cgroup, programs, variables.
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>

#include "base/error.h"
#include "base/machine/disk_room.h"
#include "base/text.h"
#include "launch/agent/machine_facts.h"
#include "launch/files/file_facts.h"
#include "launch/hosts/hostfile.h"
#include "launch/machine/gpu_use.h"
#include "launch/plan/environment_file.h"
#include "launch/process/process_tree.h"
#include "launch/process/spawn.h"
#include "launcher/jobs/report.h"
#include "launcher/run/build_job.h"

namespace dslaunch::launcher {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kProgramMax{5'000};

std::string output_of(const std::vector<std::string>& command) {
    return launch::program_output(command, kProgramMax);
}

std::string first_line(const std::string& text, const std::string& otherwise = "") {
    for (const std::string& line : split(text, '\n')) {
        if (!trim(line).empty()) return std::string(trim(line));
    }
    return otherwise;
}

// Returns the value from the first line of TEXT that begins with KEY and SEPARATOR.
std::string field(const std::string& text, const std::string& key, char separator) {
    for (const std::string& line : split(text, '\n')) {
        const size_t at = line.find(separator);
        if (at != std::string::npos && trim(std::string_view(line).substr(0, at)) == key)
            return std::string(trim(std::string_view(line).substr(at + 1)));
    }
    return "unknown";
}

std::string space_text(const std::string& path) {
    const std::optional<DiskSpace> disk = disk_space(path);
    if (!disk) return errno_text(errno);
    const auto in_gib = [](Bytes bytes) {
        return static_cast<double>(bytes.value) / static_cast<double>(1U << 30);
    };
    return fmt::format("{:.1f} GiB free of {:.1f} GiB", in_gib(disk->free), in_gib(disk->whole));
}

ReportSection system_section() {
    struct utsname system {};
    ::uname(&system);
    const std::string cpu = launch::text_or_empty("/proc/cpuinfo");
    const std::string memory = launch::text_or_empty("/proc/meminfo");
    const std::string model = launch::processor_model(cpu);
    const std::string flags =  // their name on x86 and on ARM
        fmt::format(" {} {} ", field(cpu, "flags", ':'), field(cpu, "Features", ':'));
    std::string isa;
    for (const char* name : {"avx2", "fma", "f16c", "avx512f", "avx512_bf16", "amx_bf16", "asimd",
                             "asimdhp", "asimddp", "bf16", "i8mm", "sve", "sve2"}) {
        if (flags.find(fmt::format(" {} ", name)) != std::string::npos)
            isa += fmt::format("{}{}", isa.empty() ? "" : " ", name);
    }
    std::string os = field(launch::text_or_empty("/etc/os-release"), "PRETTY_NAME", '=');
    std::erase(os, '"');
    ReportSection section{"system", {}, ""};
    section.facts = {
        {"system", os},
        {"kernel", fmt::format("{} {}", system.release, system.machine)},
        {"C library", first_line(output_of({"ldd", "--version"}))},
        {"processor", model.empty() ? "unknown" : model},
        {"instructions", isa},
        {"processors",
         fmt::format("{} online, {} available to this process", ::sysconf(_SC_NPROCESSORS_ONLN),
                     field(launch::text_or_empty("/proc/self/status"), "Cpus_allowed_list", ':'))},
        {"load", first_line(launch::text_or_empty("/proc/loadavg"), "unknown")},
        {"memory", fmt::format("{}, {} available", field(memory, "MemTotal", ':'),
                               field(memory, "MemAvailable", ':'))},
        {"swap", field(memory, "SwapTotal", ':')},
        {"huge pages", fmt::format("{} of {}", field(memory, "HugePages_Total", ':'),
                                   field(memory, "Hugepagesize", ':'))},
        {"page size", std::to_string(::sysconf(_SC_PAGESIZE))},
        {"/dev/shm", space_text("/dev/shm")},
        {"this folder", space_text(".")},
    };
    return section;
}

ReportSection gpu_section() {
    ReportSection section{"GPUs", {{"devices", std::to_string(launch::count_gpus())}}, ""};
    section.facts.emplace_back(
        "driver",
        first_line(launch::text_or_empty("/proc/driver/nvidia/version"), "no NVIDIA driver"));
    if (launch::count_gpus() > 0) {
        section.text =
            output_of({"nvidia-smi", "--query-gpu=index,name,memory.total,driver_version",
                       "--format=csv,noheader"});
    }
    return section;
}

ReportSection program_section() {
    const Machine machine = Machine::this_one();
    ReportSection section{"programs", {{"dslaunch", DSL_VERSION}}, ""};
    section.facts.emplace_back("dslaunch SHA-256", launch::own_binary_hash());
    struct Program {
        const char* name;
        std::vector<std::string> command;
    };
    const Program programs[] = {
        {"ssh", {"ssh", "-V"}},
        {"pdsh", {"pdsh", "-V"}},
        {"srun", {"srun", "--version"}},
        {"mpirun", {"mpirun", "--version"}},
        {"python3", {"python3", "--version"}},
    };
    for (const Program& program : programs) {
        const std::string line = first_line(output_of(program.command));
        section.facts.emplace_back(program.name, line.empty() ? "missing" : line);
    }
    const std::string worker = machine.binary_directory + "/dsworker";
    if (::access(worker.c_str(), X_OK) != 0) {
        section.facts.emplace_back("dsworker", "missing, so models cannot be trained");
        return section;
    }
    section.facts.emplace_back("dsworker", "in the same folder as dslaunch; its libraries:");
    for (const std::string& line : split(output_of({"ldd", worker}), '\n')) {
        const std::string_view name = trim(std::string_view(line).substr(0, line.find("=>")));
        const bool absent = line.find("not found") != std::string::npos;
        if (!name.empty() && !name.starts_with('/'))
            section.text +=
                fmt::format("{}{}\n", name.substr(0, name.find(' ')), absent ? " NOT FOUND" : "");
    }
    return section;
}

ReportSection limit_section() {
    ReportSection section{"limits", {}, ""};
    const std::pair<const char*, int> limits[] = {
        {"open files", RLIMIT_NOFILE}, {"locked memory", RLIMIT_MEMLOCK},
        {"processes", RLIMIT_NPROC},   {"core size", RLIMIT_CORE},
        {"stack", RLIMIT_STACK},       {"address space", RLIMIT_AS}};
    const auto text = [](rlim_t value) {
        return value == RLIM_INFINITY ? std::string("unlimited") : std::to_string(value);
    };
    for (const auto& [name, number] : limits) {
        struct rlimit limit {};
        ::getrlimit(static_cast<__rlimit_resource>(number), &limit);
        section.facts.emplace_back(name, fmt::format("{}, can be raised to {}",
                                                     text(limit.rlim_cur), text(limit.rlim_max)));
    }
    const std::string own = first_line(launch::text_or_empty("/proc/self/cgroup"), "none");
    section.facts.emplace_back("cgroup", own);
    const std::string folder =
        fmt::format("/sys/fs/cgroup{}", own.substr(std::min(own.size(), own.rfind(':') + 1)));
    for (const char* file : {"memory.max", "memory.current", "cpu.max", "pids.max"}) {
        const std::string value =
            first_line(launch::text_or_empty(fmt::format("{}/{}", folder, file)));
        if (!value.empty()) section.facts.emplace_back(fmt::format("cgroup {}", file), value);
    }
    const std::string v1 =
        first_line(launch::text_or_empty("/sys/fs/cgroup/memory/memory.limit_in_bytes"));
    // For "no limit" the kernel gives the largest number that is a whole number of pages.
    const bool is_limited = parse_int(v1).value_or(0) < (int64_t{1} << 62);
    if (!v1.empty()) section.facts.emplace_back("cgroup v1 memory", is_limited ? v1 : "unlimited");
    return section;
}

ReportSection variable_section() {
    ReportSection section{"variables that are set for jobs or that choose a transport", {}, ""};
    for (const auto& [name, value] : launch::own_environment()) {
        const bool chooses = name.starts_with("SLURM_") || name.starts_with("OMPI_") ||
                             name.starts_with("PDSH_") || name.starts_with("CUDA_") ||
                             name.starts_with("DSL");
        if (chooses || launch::has_forwarded_prefix(name)) section.facts.emplace_back(name, value);
    }
    std::sort(section.facts.begin(), section.facts.end());
    return section;
}

}  // namespace

std::vector<ReportSection> machine_report() {
    return {system_section(), gpu_section(), program_section(), limit_section(),
            variable_section()};
}

ReportSection hostfile_report(const std::string& path, NameMask& mask) {
    const std::vector<launch::Host> hosts = launch::read_hostfile(path);
    std::map<int, int> by_slots;
    int users = 0, ports = 0, addresses = 0, gpus = 0;
    for (const launch::Host& host : hosts) {
        mask.add(host.name, "host");
        mask.add(host.user, "user");
        mask.add(host.address, "address");
        ++by_slots[host.slots];
        users += host.user.empty() ? 0 : 1;
        ports += host.port == 0 ? 0 : 1;
        addresses += host.address.empty() ? 0 : 1;
        gpus += host.gpus.empty() ? 0 : 1;
    }
    ReportSection section{"hostfile", {{"hosts", std::to_string(hosts.size())}}, ""};
    for (const auto& [slots, count] : by_slots)
        section.facts.emplace_back("with " + counted(slots, "slot"), std::to_string(count));
    section.facts.emplace_back("with gpus=", std::to_string(gpus));
    section.facts.emplace_back("with user@", std::to_string(users));
    section.facts.emplace_back("with port=", std::to_string(ports));
    section.facts.emplace_back("with addr=", std::to_string(addresses));
    return section;
}

}  // namespace dslaunch::launcher
