// Runs `dslaunch health` on four hosts with one fault at a time: a wire delays, drops or changes
// frames. The report must name the right host, link or direction. Without a fault, it must name no
// host, even under load.
#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "support/catch.h"
#include "support/job_process.h"
#include "support/rig_hosts.h"
#include "support/skip.h"

using namespace dslaunch;
using namespace dslaunch::launch;
using namespace dslaunch::test;

namespace {

const std::string kFolder = test::binary_dir();
const std::string kRigScript = std::string(test::source_dir()) + "/tests/cluster/rig.sh";
constexpr int kHosts = 4;

// A process that reads lines and answers each of them.
class WireProcess {
  public:
    explicit WireProcess(const std::string& prefix) : input_(make_pipe()), output_(make_pipe()) {
        pid_ = ::fork();
        if (pid_ == 0) {
            ::dup2(input_.read_end.get(), 0);
            ::dup2(output_.write_end.get(), 1);
            const std::string program = kFolder + "/wire";
            ::execl(program.c_str(), "wire", prefix.c_str(), std::to_string(kHosts).c_str(),
                    static_cast<char*>(nullptr));
            ::_exit(126);
        }
        output_.write_end.reset();
        REQUIRE(answers());
    }
    WireProcess(const WireProcess&) = delete;
    WireProcess& operator=(const WireProcess&) = delete;
    ~WireProcess() {
        input_.write_end.reset();
        ::kill(pid_, SIGKILL);
        ::waitpid(pid_, nullptr, 0);
    }
    void tell(const std::string& line) {
        REQUIRE(write_full(input_.write_end.get(), line + "\n") == 0);
        REQUIRE(answers());
    }

  private:
    bool answers() {
        std::array<std::byte, 3> ok{};
        return read_full(output_.read_end.get(), ok) == 3;
    }
    Pipe input_;
    Pipe output_;
    pid_t pid_ = -1;
};

// Hosts of rig.sh whose bridge is replaced by a wire.
class HealthHosts {
  public:
    HealthHosts()
        : prefix_("dh" + std::to_string(::getpid() % 1000) + "h"),
          folder_("/tmp/dslaunch-rig-" + prefix_) {
        TemporaryFolder folder;
        JobProcess up(folder, {"env", "MAX_STARTUPS=50:30:100", kRigScript, "up", folder_, prefix_,
                               std::to_string(kHosts)});
        const int code = up.wait();
        usable_ = code == 0;
        if (code == 77) report_skipped("health over hosts made of network namespaces", up.out());
        if (code != 0 && code != 77) FAIL("the rig does not stand: " + up.err());
        if (!usable_) return;
        for (int host = 0; host <= kHosts; ++host)
            shell("ip link set " + prefix_ + std::to_string(host) + "v nomaster promisc on");
        shell("for i in 1 2 3 4; do echo n$i slots=1; done >" + folder_ + "/hostfile");
        wire_ = std::make_unique<WireProcess>(prefix_);
    }
    ~HealthHosts() {
        wire_.reset();
        TemporaryFolder folder;
        JobProcess down(folder, {kRigScript, "down", folder_, prefix_});
        down.wait();
    }
    [[nodiscard]] bool usable() const { return usable_; }
    [[nodiscard]] WireProcess& wire() { return *wire_; }
    [[nodiscard]] std::string name(int host) const { return prefix_ + std::to_string(host); }
    [[nodiscard]] std::vector<std::string> command(std::vector<std::string> more = {}) const {
        std::vector<std::string> words = {"ip",
                                          "netns",
                                          "exec",
                                          name(0),
                                          kFolder + "/dslaunch",
                                          "health",
                                          "--hostfile",
                                          folder_ + "/hostfile",
                                          "--ssh_config",
                                          folder_ + "/good",
                                          "--sizes",
                                          "4K,1M",
                                          "--env",
                                          "OMP_NUM_THREADS=1"};
        words.insert(words.end(), more.begin(), more.end());
        return words;
    }
    static void shell(const std::string& line) {
        TemporaryFolder folder;
        JobProcess process(folder, {"sh", "-c", line});
        if (process.wait() != 0) FAIL(line + ": " + process.err());
    }
    // Waits until HOST has a dsworker, and returns it; nothing if it never has one.
    [[nodiscard]] std::optional<ProcessName> worker_of(int host) const {
        std::optional<ProcessName> found;
        (void)wait_until([&] { return (found = look_for_worker(host)).has_value(); });
        return found;
    }
    // Returns true if WORKER has met the other ranks: its host has a connection that is not its
    // sshd's.
    [[nodiscard]] static bool has_met(const ProcessName& worker) {
        for (const char* table : {"tcp", "tcp6"}) {
            std::ifstream file("/proc/" + std::to_string(worker.pid) + "/net/" + table);
            std::string line, number, here, there, state;
            while (std::getline(file, line)) {
                std::istringstream words(line);
                words >> number >> here >> there >> state;
                if (state == "01" && !here.ends_with(":0016")) return true;
            }
        }
        return false;
    }

  private:
    [[nodiscard]] std::optional<ProcessName> look_for_worker(int host) const {
        TemporaryFolder folder;
        JobProcess process(folder, {"ip", "netns", "pids", name(host)});
        process.wait();
        std::istringstream pids(process.out());
        for (pid_t pid = 0; pids >> pid;) {
            std::ifstream file("/proc/" + std::to_string(pid) + "/comm");
            std::string comm;
            std::getline(file, comm);
            if (comm == "dsworker") return name_process(pid);
        }
        return std::nullopt;
    }

    std::string prefix_;
    std::string folder_;
    bool usable_ = false;
    std::unique_ptr<WireProcess> wire_;
};

bool has_worker() {
    if (std::filesystem::exists(kFolder + "/dsworker")) return true;
    report_skipped("health over several hosts", "dsworker is not built (it needs LibTorch)");
    return false;
}

// Returns the line of the report that names the culprit; empty if there is none.
std::string blamed(const std::string& out) {
    const size_t at = out.find("UNHEALTHY ");
    return at == std::string::npos ? "" : out.substr(at, out.find('\n', at) - at);
}

struct Row {
    std::string fault;               // the fault in words
    std::vector<std::string> rules;  // rules of the wire
    std::string named;               // the culprit in the report
    int code = 71;                   // 67: no network connects all hosts; NAMED is in the error
};

std::vector<std::string> lines_with(const std::string& text, const std::string& words) {
    std::vector<std::string> found;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);)
        if (line.find(words) != std::string::npos) found.push_back(line);
    return found;
}

// 17 faults of the network. Tests below add other faults.
const std::vector<Row> kRows = {
    {"rate of a host, both ways", {"set 3 * rate=2e6", "set * 3 rate=2e6"}, "host n3"},
    {"rate of a host, sending", {"set 2 * rate=2e6"}, "host n2, when it sends"},
    {"rate of a host, receiving", {"set * 4 rate=2e6"}, "host n4, when it receives"},
    {"rate of one link", {"set 1 3 rate=2e6", "set 3 1 rate=2e6"}, "between n1 and n3"},
    {"rate of one direction", {"set 4 2 rate=2e6"}, "from n4 to n2"},
    {"delay of a host", {"set 3 * delay_ms=10"}, "host n3"},
    {"delay of one link", {"set 2 4 delay_ms=10"}, "between n2 and n4"},
    {"jitter of a host", {"set 2 * jitter_ms=40"}, "host n2"},
    {"1 % loss of a host, sending", {"set 3 * loss=0.01"}, "host n3"},
    {"5 % loss of one direction", {"set 2 3 loss=0.05"}, "from n2 to n3"},
    {"30 % loss of a host", {"set 4 * loss=0.3"}, "host n4"},
    {"corruption that checksums see", {"set 2 * corrupt=0.02"}, "host n2"},
    {"duplicates of a host", {"set 3 * twice=0.05"}, "host n3"},
    {"large packets dropped on one link",
     {"set 2 4 larger=1000", "set 4 2 larger=1000"},
     "between n2 and n4"},
    {"one link cut", {"set 2 3 loss=1", "set 3 2 loss=1"}, "cannot reach n3's", 67},
    {"changed bytes that no checksum sees", {"set 4 3 change=0.05"}, "from n4 to n3"},
    {"changed bytes in every packet",
     {"set 4 3 change=1"},
     "n4 (from eth0) cannot reach n3's 10.91.7.4: data sent there arrived changed",
     67},
};
constexpr size_t kCutLink = 14;
constexpr size_t kChangedBytes = 15;
constexpr size_t kEveryPacket = 16;
const std::string kChangedWords = "arrived changed";

struct Ran {
    int code = -1;
    std::string out, err;
    double seconds = 0;
};

// Runs the check while the wire has the fault of ROW.
Ran run_with(HealthHosts& hosts, const Row& row) {
    hosts.wire().tell("clear");
    for (const std::string& rule : row.rules) hosts.wire().tell(rule);
    TemporaryFolder folder;
    const auto began = Steady::now();
    JobProcess job(folder, hosts.command());
    const int code = job.wait();
    return {code, job.out(), job.err(),
            std::chrono::duration<double>(Steady::now() - began).count()};
}

// Returns true if the check names the culprit of ROW; otherwise prints its report.
bool finds(HealthHosts& hosts, const Row& row) {
    const Ran ran = run_with(hosts, row);
    const std::string blame = row.code == 71 ? blamed(ran.out) : ran.err;
    const bool right = ran.code == row.code && blame.find(row.named) != std::string::npos;
    std::printf("%-38s %s code %d, %.1f s: %s\n", row.fault.c_str(), right ? "ok" : "NOT FOUND",
                ran.code, ran.seconds, blame.c_str());
    if (!right) std::printf("%s%s", ran.out.c_str(), ran.err.c_str());
    std::fflush(stdout);
    return right;
}

}  // namespace

// Two of the faults that are found even on a busy machine. Slow or lossy links are recognized by
// measured times, so those tests need the machine for themselves.
TEST_CASE("health names a cut link, changed bytes, and no fault where there is none") {
    if (!has_worker()) return;
    HealthHosts hosts;
    if (!hosts.usable()) return;
    CHECK(finds(hosts, kRows[kCutLink]));
    CHECK(finds(hosts, kRows[kEveryPacket]));
    // Other programs may also make a host of this direction slow. The report then names this host,
    // and lists both faults.
    const Ran changed = run_with(hosts, kRows[kChangedBytes]);
    INFO(changed.out << changed.err);
    CHECK(changed.code == 71);
    CHECK(lines_with(changed.out, kChangedWords).size() == 1);
    for (const std::string& line : lines_with(changed.out, kChangedWords))
        CHECK((line.find("n3") != std::string::npos || line.find("n4") != std::string::npos));
    const Ran healthy = run_with(hosts, {"nothing", {}, "", 0});
    INFO(healthy.out << healthy.err);
    CHECK((healthy.code == 0 || healthy.code == 71));
    for (const std::string& fault : {kChangedWords, std::string("cannot reach")})
        CHECK(lines_with(healthy.out + healthy.err, fault).empty());
}

TEST_CASE("health names the host, link or direction that the wire spoils", "[.long]") {
    if (!has_worker()) return;
    HealthHosts hosts;
    if (!hosts.usable()) return;
    int found = 0;
    for (const Row& row : kRows) {
        const bool right = finds(hosts, row);
        CHECK(right);
        found += right ? 1 : 0;
    }
    std::printf("%d of %zu faults of the wire found\n", found, kRows.size());
}

TEST_CASE("health needs no working directory on the hosts") {
    if (!has_worker()) return;
    const std::string only_here = "/opt/dslaunch-health-" + std::to_string(::getpid());
    {
        const RigHosts hosts(
            {.what = "health from a folder that the hosts lack", .private_folder = only_here});
        if (!hosts.usable()) return;
        std::filesystem::create_directories(only_here + "/work");
        const auto check = [&](const std::vector<std::string>& more) {
            std::vector<std::string> words = {"env",
                                              "--chdir=" + only_here + "/work",
                                              kFolder + "/dslaunch",
                                              "health",
                                              "-w",
                                              "n1,n2",
                                              "--ssh-config",
                                              hosts.config("good"),
                                              "--sizes",
                                              "4K",
                                              "--env",
                                              "OMP_NUM_THREADS=1"};
            words.insert(words.end(), more.begin(), more.end());
            const TemporaryFolder folder;
            JobProcess process(folder, hosts.on(0, words));
            const int code = process.wait();
            return std::pair(code, process.out() + process.err());
        };
        const auto [code, text] = check({});
        INFO(text);
        CHECK_THAT(text, Catch::Contains("n1") && Catch::Contains("n2"));
        // 71: on a busy machine, a host may be slow.
        CHECK((code == 0 || code == 71));
        const auto [refused, why] = check({"--chdir", only_here + "/work"});
        CHECK(refused == 68);
        CHECK_THAT(why, Catch::Contains("cannot enter the working directory " + only_here));
    }
    std::filesystem::remove_all(only_here);
}

TEST_CASE("health names the rank that is stopped, killed or cut off while it runs") {
    if (!has_worker()) return;
    HealthHosts hosts;
    if (!hosts.usable()) return;
    struct End {
        std::string fault;
        std::function<void(const ProcessName&)> act;
        int code;
        std::string named;
    };
    const std::string cut = "ip -n " + hosts.name(3) + " link set eth0 down";
    const End ends[] = {
        {"rank stopped", [](const ProcessName& p) { signal_process(p, SIGSTOP); }, 69, "rank 2"},
        {"rank killed", [](const ProcessName& p) { signal_process(p, SIGKILL); }, 68,
         "rank 2 on host n3 failed first: killed by SIGKILL"},
        {"link down", [&](const ProcessName&) { HealthHosts::shell(cut); }, -1, "n3"},
    };
    for (const End& end : ends) {
        TemporaryFolder folder;
        const auto began = Steady::now();
        JobProcess job(folder, hosts.command());
        const auto worker = hosts.worker_of(3);
        REQUIRE(worker);
        REQUIRE(wait_until([&] { return HealthHosts::has_met(*worker); }));
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
        end.act(*worker);
        const int code = job.wait();
        const std::string all = job.out() + job.err();
        const bool right = all.find(end.named) != std::string::npos;
        std::printf("%-38s %s code %d, %.1f s\n", end.fault.c_str(), right ? "ok" : "NOT FOUND",
                    code, std::chrono::duration<double>(Steady::now() - began).count());
        std::fflush(stdout);
        INFO(end.fault << "\n" << all);
        CHECK(right);
        // A report about a host or a link is an additional finding. It explains a hang, so its exit
        // code is used. There are two reasons for such a finding: other programs make a host slow,
        // or the rank was stopped while a link to it was tested.
        bool has_finding = false;
        for (const char* finding : {"UNHEALTHY host", "UNHEALTHY from", "UNHEALTHY between"})
            has_finding = has_finding || job.out().find(finding) != std::string::npos;
        if (end.code > 0) {
            CHECK(code == (end.code == 69 && has_finding ? 71 : end.code));
        } else {
            CHECK(code > 0);
        }
    }
}

TEST_CASE("health names the host whose processor is mostly taken away", "[.long]") {
    if (!has_worker()) return;
    HealthHosts hosts;
    if (!hosts.usable()) return;
    TemporaryFolder folder;
    JobProcess job(folder, hosts.command());
    const auto worker = hosts.worker_of(3);
    REQUIRE(worker);
    // The worker runs for 4 of every 100 ms, as under a tight quota of its control group.
    std::jthread throttle([&](const std::stop_token& stop) {
        while (!stop.stop_requested()) {
            signal_process(*worker, SIGSTOP);
            std::this_thread::sleep_for(std::chrono::milliseconds(96));
            signal_process(*worker, SIGCONT);
            std::this_thread::sleep_for(std::chrono::milliseconds(4));
        }
    });
    const int code = job.wait();
    std::printf("processor taken away: code %d: %s\n", code, blamed(job.out()).c_str());
    INFO(job.out() << job.err());
    CHECK(code == 71);
    CHECK(blamed(job.out()).find("host n3") != std::string::npos);
}

TEST_CASE("healthy hosts are called healthy, also beside other work", "[.long]") {
    if (!has_worker()) return;
    HealthHosts hosts;
    if (!hosts.usable()) return;
    for (int run = 0; run < 10; ++run) {
        TemporaryFolder folder;
        // From the sixth run on, four busy processes compete for the processors.
        std::vector<std::unique_ptr<TemporaryFolder>> folders;
        std::vector<std::unique_ptr<JobProcess>> load;
        for (int i = 0; i < (run < 5 ? 0 : 4); ++i) {
            folders.push_back(std::make_unique<TemporaryFolder>());
            load.push_back(std::make_unique<JobProcess>(
                *folders.back(), std::vector<std::string>{"sh", "-c", "while :; do :; done"}));
        }
        const auto began = Steady::now();
        JobProcess job(folder, hosts.command());
        const int code = job.wait();
        std::printf("healthy run %d%s: code %d, %.1f s %s\n", run, load.empty() ? "" : ", loaded",
                    code, std::chrono::duration<double>(Steady::now() - began).count(),
                    blamed(job.out()).c_str());
        std::fflush(stdout);
        INFO(job.out() << job.err());
        CHECK(code == 0);
        CHECK(blamed(job.out()).empty());
    }
}
