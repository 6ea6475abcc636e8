#include "launch/agent/machine_facts.h"

#include "base/error.h"
#include "launch/machine/elf_needs.h"
#include "support/catch.h"
#include "support/fake_root.h"

using namespace dslaunch;
using namespace dslaunch::launch;
using namespace dslaunch::test;

namespace {

MachineFacts machine(IsaLevel level, const std::string& glibc, const std::string& driver) {
    MachineFacts facts;
    facts.cpu_model = "Some Processor";
    facts.isa_level = level;
    facts.glibc = glibc;
    facts.driver_version = driver;
    return facts;
}

constexpr int64_t kSecond = 1'000'000'000;

}  // namespace

TEST_CASE("facts are read from /proc of the machine") {
    const FakeRoot root;
    root.write("/proc/cpuinfo",
               "processor\t: 0\nmodel name\t: AMD EPYC 7B13\n"
               "flags\t\t: sse2 cx16 lahf_lm popcnt sse4_1 sse4_2 ssse3 avx avx2 bmi1 bmi2 f16c "
               "fma abm movbe\n");
    root.write("/proc/driver/nvidia/version",
               "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC "
               "2024\nGCC version:  gcc version 11.4.0\n");
    root.write("/proc/driver/nvidia/gpus/0000:41:00.0/information", "Model: \t\t NVIDIA H200\n");
    root.write("/proc/driver/nvidia/gpus/0000:01:00.0/information", "Model: \t\t NVIDIA H100\n");
    root.write("/proc/meminfo",
               "MemTotal: 1 kB\nHugePages_Total:    512\nHugepagesize:  2048 kB\n");
    root.write("/proc/sys/kernel/random/boot_id", "0123-4567\n");
    const std::filesystem::path namespaces = root.path() + "/proc/self/ns";
    std::filesystem::create_directories(namespaces);
    std::filesystem::create_symlink("net:[1]", namespaces / "net");
    std::filesystem::create_symlink("pid:[2]", namespaces / "pid");
    const MachineFacts facts = look_at_machine(root.path());
    CHECK(facts.cpu_model == "AMD EPYC 7B13");
    CHECK(facts.isa_level == 3);
    CHECK(facts.driver_version == "550.54.15");
    CHECK(facts.gpu_names == std::vector<std::string>{"NVIDIA H100", "NVIDIA H200"});
    CHECK(facts.huge_pages_bytes == int64_t{1} << 30);
    CHECK(facts.machine_id == "0123-4567 net:[1]");
    CHECK(facts.process_namespace == "pid:[2]");
    CHECK(facts.shared_memory_bytes == 0);
    CHECK(decode<MachineFacts>(encode(facts)) == facts);
    const std::string bytes = encode(facts);
    CHECK_THROWS_AS(decode<MachineFacts>(bytes.substr(0, bytes.size() - 1)), Error);
    CHECK_THROWS_AS(decode<MachineFacts>(bytes + "x"), Error);
}

TEST_CASE("an ARM processor has the name that its numbers stand for") {
    const std::string grace =
        "processor\t: 0\nBogoMIPS\t: 2000.00\nFeatures\t: fp asimd asimddp sve2 bf16\n"
        "CPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x0\nCPU part\t: 0xd4f\n";
    CHECK(processor_model(grace) == "ARM Neoverse-V2");
    CHECK(processor_model("CPU implementer\t: 0x7f\nCPU part\t: 0xd4f\n") ==
          "ARM, implementer 0x7f, part 0xd4f");
    CHECK(processor_model("processor\t: 0\nmodel name\t: AMD EPYC 7B13\n") == "AMD EPYC 7B13");
    CHECK(processor_model("processor\t: 0\n").empty());
    const FakeRoot root;
    root.write("/proc/cpuinfo", grace);
    CHECK(look_at_machine(root.path()).cpu_model == "ARM Neoverse-V2");
    CHECK(look_at_machine(root.path()).isa_level == 0);  // x86-64 has levels, ARM has none
}

TEST_CASE("this machine tells of itself") {
    const MachineFacts facts = look_at_machine("");
    CHECK_FALSE(facts.machine_id.empty());
    CHECK(facts.process_namespace.starts_with("pid:["));
    CHECK(facts.glibc.starts_with("2."));
    CHECK(facts.page_bytes >= 4096);
    CHECK(facts.open_files_max != 0);
    bool has_loopback = false;
    for (const InterfaceAddress& entry : facts.addresses) has_loopback |= entry.loopback;
    CHECK(has_loopback);
}

TEST_CASE("differences that break a job are told of the hosts that have them") {
    const WorkerNeeds needs{3, "2.34", true};
    const MachineFacts good = machine(4, "2.36", "550.1");
    struct Row {
        MachineFacts odd;
        const char* words;  // empty: no problem
    };
    MachineFacts other_cpu = good;
    other_cpu.cpu_model = "Another";
    other_cpu.page_bytes = 65'536;
    other_cpu.gpu_names = {"X"};
    const Row rows[] = {
        {machine(3, "2.34", "550.1"), ""},
        {other_cpu, ""},
        {machine(0, "2.36", "550.1"), ""},  // another architecture has no levels
        {machine(2, "2.36", "550.1"),
         "(Some Processor) supports x86-64 level 2, but dsworker was built for level 3"},
        {machine(4, "2.9", "550.1"), "its C library is 2.9, but dsworker needs 2.34"},
        {machine(4, "2.36", "535.7"), "its NVIDIA driver is 535.7, but most hosts have 550.1"},
        {machine(4, "2.36", ""), "no NVIDIA driver is loaded, but most hosts have 550.1"},
    };
    for (const Row& row : rows) {
        INFO(row.words);
        const auto problems = check_machines({good, row.odd, good}, needs);
        REQUIRE(problems.size() == 3);
        CHECK(problems[0].empty());
        CHECK(problems[2].empty());
        CHECK(problems[1].empty() == (row.words[0] == '\0'));
        CHECK_THAT(problems[1], Catch::Contains(row.words));
    }
    // The driver does not matter for ranks on CPUs.
    CHECK(check_machines({good, machine(4, "2.36", "535.7")}, {3, "2.34", false})[1].empty());
    CHECK(check_machines({}, needs).empty());
}

TEST_CASE("a clock is wrong only when the time of the question cannot explain it") {
    struct Row {
        double offset_s, round_s;
        const char* words;  // empty: the clock may be right
    };
    const Row rows[] = {
        {0.0, 0.001, ""},
        {1.9, 0.001, ""},
        {-1.9, 0.001, ""},
        {2.5, 0.001, "2.5 s ahead of this machine's"},
        {-400.0, 0.002, "400.0 s behind this machine's"},
        {2.5, 2.0, ""},  // the answer may have been under way for two seconds
        {3.5, 2.0, "3.5 s ahead of this machine's clock (within 1.0 s)"},
    };
    for (const Row& row : rows) {
        INFO(row.offset_s << " in " << row.round_s);
        using std::chrono::nanoseconds;
        const nanoseconds asked(int64_t{1'000'000} * kSecond);
        const nanoseconds round(static_cast<int64_t>(row.round_s * kSecond));
        const nanoseconds offset(static_cast<int64_t>(row.offset_s * kSecond));
        const std::string words =
            describe_clock(clock_offset(asked, asked + round, asked + round / 2 + offset));
        CHECK(words.empty() == (row.words[0] == '\0'));
        CHECK_THAT(words, Catch::Contains(row.words));
    }
}

TEST_CASE("a program's needs are read from its headers") {
    const ElfNeeds needs = read_elf_needs("/proc/self/exe");
    CHECK(needs.glibc.starts_with("2."));
    bool has_c_library = false;
    for (const std::string& library : needs.libraries)
        has_c_library |= library.starts_with("libc.so");
    CHECK(has_c_library);
    const FakeRoot root;
    root.write("/short",
               "\x7f"
               "ELF");
    root.write("/text", std::string(5000, 'x'));
    for (const char* name : {"/short", "/text", "/missing"}) {
        CHECK_THROWS_AS(read_elf_needs(root.path() + name), Error);
    }
}
