// P34: if hosts differ in version, library, driver or processor, the report says so for each host
// before any rank starts. For each case, host n2 gets a second sshd in a mount namespace of its
// own, in which one thing differs. Negative control, done by hand: if decode<AgentHello>() reads a
// hello of another protocol like its own, the report for that case makes no sense.
#include <fmt/core.h>

#include <filesystem>

#include "base/text.h"
#include "cluster/promise.h"
#include "launch/agent/machine_facts.h"
#include "launch/machine/elf_needs.h"
#include "launch/protocol/frame.h"
#include "launch/protocol/messages.h"
#include "support/device/gpu_nodes.h"
#include "support/rig_hosts.h"

namespace dslaunch::test {

using namespace launch;
namespace {

const std::string kWorker = std::string(test::binary_dir()) + "/dsworker";
const std::string kOldGlibc = std::string(test::binary_dir()) + "/old_glibc.so";

struct Case {
    std::string what;
    std::string changes;  // shell commands before n2's sshd; {0}: a folder for their files
    std::string command;  // program that runs instead of the agent; empty: the agent
    std::string words;    // words about n2 in the message
};

class MismatchHosts {
  public:
    MismatchHosts() : rig_(2, "P34: hosts that differ") {
        if (!rig_.usable()) return;
        std::ofstream(config()) << R"({"train_micro_batch_size_per_gpu": 4, "dslaunch": {"steps": )"
                                << R"(1, "data": {"context": 32, "train": ")"
                                << test::fixture_path("data/kjv.u16.bin") << R"("}}})";
    }
    [[nodiscard]] bool usable() const { return rig_.usable(); }
    [[nodiscard]] std::string config() const { return folder_.path() + "/config.json"; }
    // Starts an sshd on host NUMBER at PORT after CHANGES. Every connection runs COMMAND.
    void serve(int number, int port, const std::string& changes, const std::string& command) const {
        std::ifstream file(rig_.folder() + "/host.pub");
        std::string type, key;
        file >> type >> key;
        std::ofstream(rig_.folder() + "/known_hosts", std::ios::app)
            << fmt::format("[n{}]:{} {} {}\n", number, port, type, key);
        const std::string place = fmt::format("{}/{}", folder_.path(), port);
        std::filesystem::create_directory(place);
        std::string script = changes;
        for (size_t at = 0; (at = script.find("{0}", at)) != std::string::npos;)
            script.replace(at, 3, place);
        if (!script.empty()) script += " && ";
        script += fmt::format(
            "exec /usr/sbin/sshd -f /dev/null -p {0} -o PidFile=none -o HostKey={1}/host -o "
            "AuthorizedKeysFile={1}/authorized_keys -o StrictModes=no -o UsePAM=no -o "
            "SetEnv=HOME={1}/home",
            port, rig_.folder());
        Words words = {"sh", "-c", script + (command.empty() ? "" : " -o \"ForceCommand=$1\""),
                       "host", command};
        INFO(script);
        REQUIRE(rig_.run(number, words) == 0);
        rig_.wait_for_port(number, port);
    }
    // Returns the command of one training step on both hosts. HOSTS: the hosts with their ports.
    [[nodiscard]] Words train(const std::string& hosts, const std::string& device) const {
        std::ofstream(folder_.path() + "/hostfile") << hosts;
        return rig_.on(
            0, {kDslaunch, "--hostfile", folder_.path() + "/hostfile", "--ssh-config",
                rig_.config("good"), "--device", device, test::fixture_path("models/gpt.pt"),
                "--config", config(), "--no-output"});
    }
    [[nodiscard]] const TemporaryFolder& folder() const { return folder_; }

  private:
    TemporaryFolder folder_;
    RigHosts rig_;
};

// Returns the library of LibTorch named NAME that dsworker loads here; empty if there is none.
std::string torch_library(const std::string& name) {
    for (const SharedLibrary& library : list_libraries(kWorker))
        if (library.path.ends_with("/" + name)) return library.path;
    return {};
}

std::string mismatch_replaced(const std::string& file) {
    return fmt::format("cp {0} {{0}}/other && echo >>{{0}}/other && mount --bind {{0}}/other {0}",
                       file);
}

// Writes the hello of an agent with the next protocol, which has more fields than this version
// knows.
void write_next_hello(const std::string& path) {
    AgentHello hello;
    hello.protocol_version = kAgentProtocolVersion + 1;
    hello.version = "9.9.9";
    std::ofstream(path, std::ios::binary)
        << kAgentGreeting << encode(Frame{FrameKind::kAgentHello, encode(hello) + "new fields"});
}

std::vector<Case> cases(const MismatchHosts& hosts) {
    const std::string torch = torch_library("libc10.so");
    const std::string hello = hosts.folder().path() + "/hello";
    write_next_hello(hello);
    std::vector<Case> list = {
        {"another dslaunch", mismatch_replaced(kDslaunch), "", "its dslaunch"},
        {"another protocol", "true", "cat " + hello + "; sleep 5",
         fmt::format("its dslaunch 9.9.9 uses protocol {}", kAgentProtocolVersion + 1)},
        {"another dsworker", mismatch_replaced(kWorker), "", kWorker},
        {"another model", mismatch_replaced(test::fixture_path("models/gpt.pt")), "", "gpt.pt"},
        {"other data", mismatch_replaced(test::fixture_path("data/kjv.u16.bin")), "",
         "kjv.u16.bin"},
        {"another config", mismatch_replaced(hosts.config()), "", "config.json"},
        {"an older C library", "true",
         "exec env LD_PRELOAD=" + kOldGlibc + " sh -c \"$SSH_ORIGINAL_COMMAND\"",
         "its C library is 2.17, but dsworker needs"}};
    if (torch.empty()) {
        report_skipped("P34: hosts whose LibTorch differs", "dsworker loads no libc10.so here");
    } else {
        const std::string folder = std::filesystem::path(torch).parent_path();
        list.push_back({"LibTorch missing", "mount -t tmpfs none " + folder, "", "libc10.so"});
        list.push_back({"another LibTorch", mismatch_replaced(torch), "", torch});
    }
    if (needs_of_worker(kWorker, false).isa_level >= 2) {
        list.push_back({"an older processor",
                        "printf 'flags : sse2\\n' >{0}/cpu && mount --bind {0}/cpu /proc/cpuinfo",
                        "", "supports x86-64 level 1"});
    } else {
        report_skipped("P34: a host whose processor is too old",
                       "dsworker is built for every x86-64 processor");
    }
    return list;
}

// Returns true if the report contains WORDS about n2, and does not name the other host.
bool names_n2(const std::string& report, const std::string& words) {
    const size_t at = report.find("\n  n2: ");
    if (at == std::string::npos || mentions(report, "\n  n1: ")) return false;
    return report.find(words, at) != std::string::npos;
}

}  // namespace

TEST_CASE("P34: what differs between hosts is told of the host that differs, before the start") {
    if (!std::filesystem::exists(kWorker))
        return report_skipped("P34: hosts that differ", "dsworker is not built");
    const MismatchHosts hosts;
    if (!hosts.usable()) return;
    int found = 0, tried = 0;
    Figures figures;
    for (const Case& each : cases(hosts)) {
        const int port = 3000 + tried++;
        hosts.serve(2, port, each.changes, each.command);
        const TemporaryFolder folder;
        const auto began = Steady::now();
        JobProcess job(folder,
                       hosts.train(fmt::format("n1 slots=1\nn2 slots=1 port={}\n", port), "cpu"));
        const int code = job.wait();
        figures.add(milliseconds_since(began));
        INFO(each.what << "\n" << job.err());
        CHECK(code == 67);
        CHECK(job.out().empty());
        const bool right = names_n2(job.err(), each.words);
        CHECK(right);
        found += right ? 1 : 0;
    }
    figures.print(fmt::format("P34 hosts that differ: {} of {} found", found, tried));
    // Without a change, the same hosts train.
    hosts.serve(2, 2999, "true", "");
    const TemporaryFolder folder;
    JobProcess job(folder, hosts.train("n1 slots=1\nn2 slots=1 port=2999\n", "cpu"));
    const int code = job.wait();
    INFO(job.err());
    CHECK(code == 0);
}

TEST_CASE("P34: a host with another NVIDIA driver, or with none, is told before the start") {
    if (!std::filesystem::exists(std::string(test::binary_dir()) + "/libdsl_cuda.so"))
        return report_skipped("P34: hosts whose NVIDIA drivers differ",
                              "the CUDA plugin is not built");
    const MismatchHosts hosts;
    if (!hosts.usable()) return;
    // The script makes a /dev with the node of a GPU, and the driver's files in /proc.
    const std::string gpu = dev_with_gpus("{0}", 1) + " && mount -t tmpfs none /proc/driver";
    const auto driver = [&](const std::string& version) {
        return gpu +
               " && mkdir /proc/driver/nvidia && echo 'NVRM version: NVIDIA UNIX x86_64 "
               "Kernel Module  " +
               version + "  x' >/proc/driver/nvidia/version";
    };
    hosts.serve(1, 3100, driver("580.10"), "");
    hosts.serve(2, 3101, driver("535.7"), "");
    hosts.serve(2, 3102, gpu, "");
    const std::pair<int, std::string> rows[] = {
        {3101, "its NVIDIA driver is 535.7, but most hosts have 580.10"},
        {3102, "no NVIDIA driver is loaded, but most hosts have 580.10"}};
    int found = 0;
    for (const auto& [port, words] : rows) {
        const TemporaryFolder folder;
        JobProcess job(
            folder,
            hosts.train(fmt::format("n1 slots=1 port=3100\nn2 slots=1 port={}\n", port), "cuda"));
        const int code = job.wait();
        INFO(job.err());
        CHECK(code == 67);
        const bool right = names_n2(job.err(), words);
        CHECK(right);
        found += right ? 1 : 0;
    }
    std::printf("P34 NVIDIA drivers that differ: %d of 2 found\n", found);
}

}  // namespace dslaunch::test
