// The address at which the ranks of several hosts meet, on hosts with more than one network: ssh
// uses eth0; eth1 connects only some hosts; docker0 has the same address on every host.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <deque>
#include <filesystem>
#include <fstream>
#include <map>
#include <new>

#include "base/fd.h"
#include "base/text.h"
#include "support/catch.h"
#include "support/listener.h"
#include "support/rig_hosts.h"
#include "support/text_tools.h"

using namespace dslaunch;
using namespace dslaunch::test;

namespace {

const std::string kNetworkRigScript = std::string(test::source_dir()) + "/tests/cluster/rig.sh";
const std::string kSayNetwork = "echo $RANK $MASTER_ADDR $NCCL_SOCKET_IFNAME $GLOO_SOCKET_IFNAME";

struct NetworkOutcome {
    int code = -1;
    std::string out;
    std::string err;
};

class Networks {
  public:
    explicit Networks(int count)
        : rig_(count, "the choice of a network between hosts made of network namespaces") {
        if (!rig_.usable()) return;
        const TemporaryFolder folder;
        JobProcess more(folder,
                        {kNetworkRigScript, "more-networks", rig_.folder(), std::to_string(count)});
        if (more.wait() != 0) FAIL("no more networks: " + more.err());
    }
    [[nodiscard]] const RigHosts& rig() const { return rig_; }
    // Runs dslaunch over HOSTS ("n1,n2"), with one rank on each.
    [[nodiscard]] NetworkOutcome run(const std::string& hosts,
                                     const std::vector<std::string>& options,
                                     const std::string& script) const {
        const TemporaryFolder folder;
        std::ofstream file(folder.path() + "/hostfile");
        for (const std::string& host : split(hosts, ',')) file << host << " slots=1\n";
        file.close();
        std::vector<std::string> words = {
            kDslaunch,      "--hostfile",        folder.path() + "/hostfile",
            "--ssh-config", rig_.config("good"), "--device",
            "cpu"};
        words.insert(words.end(), options.begin(), options.end());
        words.insert(words.end(), {"sh", "-c", script});
        JobProcess job(folder, rig_.on(0, words));
        NetworkOutcome outcome;
        outcome.code = job.wait();
        outcome.out = job.out();
        outcome.err = job.err();
        return outcome;
    }

  private:
    RigHosts rig_;
};

// Returns the sockets in TABLE, the text of /proc/net/tcp, that listen, except sshd's: the port of
// each, by its address as the table writes it (hexadecimal, in the byte order of the network).
std::map<std::string, uint16_t> listening_in(const std::string& table) {
    std::map<std::string, uint16_t> found;
    for (const std::string& line : split(table, '\n')) {
        std::vector<std::string> fields = split(line, ' ');
        std::erase(fields, "");
        if (fields.size() < 4 || fields[3] != "0A") continue;
        const auto port = std::stoul(fields[1].substr(fields[1].rfind(':') + 1), nullptr, 16);
        if (port != 22 && port != 2222) found[fields[1]] = static_cast<uint16_t>(port);
    }
    return found;
}

// Returns the same for host NUMBER.
std::map<std::string, uint16_t> listeners(const RigHosts& rig, int number) {
    const TemporaryFolder folder;
    JobProcess cat(folder, rig.on(number, {"cat", "/proc/net/tcp", "/proc/net/tcp6"}));
    REQUIRE(cat.wait() == 0);
    return listening_in(cat.out());
}

// A process of another user. It listens on PORT of ADDRESS on host NUMBER until it is killed.
class Holder {
  public:
    Holder(const RigHosts& rig, int number, uint32_t address, uint16_t port) {
        const std::string space = "/run/netns/" + rig.on(number, {}).back();
        const Pipe ready = make_pipe();
        pid_ = ::fork();
        if (pid_ == 0) {
            const int fd = ::open(space.c_str(), O_RDONLY | O_CLOEXEC);
            const bool moved = ::setns(fd, CLONE_NEWNET) == 0 && ::setuid(65'534) == 0;
            const int holder = ::socket(AF_INET, SOCK_STREAM, 0);
            sockaddr_in where{};
            where.sin_family = AF_INET;
            where.sin_port = htons(port);
            where.sin_addr.s_addr = htonl(address);
            const bool listens =
                moved && ::bind(holder, reinterpret_cast<sockaddr*>(&where), sizeof where) == 0 &&
                ::listen(holder, 1) == 0;
            static_cast<void>(write_full(ready.write_end.get(), listens ? "y" : "n"));
            ::pause();
            ::_exit(0);
        }
        char answer = 'n';
        static_cast<void>(
            read_full(ready.read_end.get(), std::as_writable_bytes(std::span(&answer, 1))));
        REQUIRE(answer == 'y');
    }
    ~Holder() {
        ::kill(pid_, SIGKILL);
        ::waitpid(pid_, nullptr, 0);
    }
    [[nodiscard]] pid_t pid() const { return pid_; }

  private:
    pid_t pid_ = -1;
};

}  // namespace

TEST_CASE("ranks meet on the network that connects all hosts, whatever else they have") {
    const Networks networks(3);
    if (!networks.rig().usable()) return;
    const RigHosts& rig = networks.rig();
    // On n3, the interface of the same network gets another name.
    REQUIRE(rig.run(3, {"sh", "-c",
                        "ip link set eth0 down && ip link set eth0 name ens7 && ip link set ens7 "
                        "up"}) == 0);
    SECTION("where ssh arrived, with each host's own name for it") {
        const NetworkOutcome job = networks.run("n1,n2,n3", {}, kSayNetwork);
        INFO(job.err);
        CHECK(job.code == 0);
        for (const char* line :
             {"[n1:0] 0 10.91.7.2 =eth0 eth0\n", "[n2:1] 1 10.91.7.2 =eth0 eth0\n",
              "[n3:2] 2 10.91.7.2 =ens7 ens7\n"})
            CHECK(mentions(job.out, line));
        CHECK(mentions(
            job.err,
            ", on eth0 of n1 (reason: the ssh connection arrived there); the 3 hosts can reach "
            "each other there"));
    }
    SECTION("what the user has set stays") {
        const NetworkOutcome job = networks.run(
            "n1,n2", {"--env", "NCCL_SOCKET_IFNAME=eth", "--env", "GLOO_SOCKET_IFNAME=eth1"},
            kSayNetwork);
        CHECK(job.code == 0);
        CHECK(mentions(job.out, " 0 10.91.7.2 eth eth1\n"));
    }
    SECTION("--master_addr decides the interfaces") {
        const NetworkOutcome job =
            networks.run("n1,n2", {"--master_addr", "10.92.7.2", "--master_port", "4711"},
                         kSayNetwork + " $MASTER_PORT");
        INFO(job.err);
        CHECK(job.code == 0);
        CHECK(mentions(job.out, " 1 10.92.7.2 =eth1 eth1 4711\n"));
        CHECK(mentions(job.err, "--master_addr says so"));
    }
    SECTION("a --master_addr that not all hosts reach is told, way by way") {
        const NetworkOutcome job =
            networks.run("n1,n2,n3", {"--master_addr", "10.92.7.2"}, "echo ran");
        CHECK(job.code == 67);
        CHECK(job.out.empty());
        INFO(job.err);
        CHECK(mentions(job.err, "no network connects the hosts at the address of --master_addr"));
        CHECK(mentions(job.err, "n3 (from eth1) cannot reach n1's 10.92.7.2: "));
        CHECK_FALSE(mentions(job.err, "n2 (from"));
    }
    SECTION("where ssh's network is closed between the hosts, another one is found") {
        REQUIRE(rig.run(1, {"ip", "route", "add", "blackhole", "10.91.7.3/32"}) == 0);
        const NetworkOutcome open = networks.run("n1,n2", {}, kSayNetwork);
        INFO(open.err);
        CHECK(open.code == 0);
        CHECK(mentions(open.out, " 1 10.92.7.2 =eth1 eth1\n"));
        // The third host is not connected to the other network.
        const NetworkOutcome closed = networks.run("n1,n2,n3", {}, "echo ran");
        CHECK(closed.code == 67);
        CHECK(closed.out.empty());
        INFO(closed.err);
        CHECK(mentions(closed.err, "no network connects the hosts;"));
        CHECK(mentions(closed.err,
                       "n2 (from eth0) cannot reach n1's 10.91.7.2: no answer within 3 s"));
        CHECK(mentions(closed.err, "n3 (from eth1) cannot reach n1's 10.92.7.2: "));
    }
    SECTION("a port that is taken is named with its holder, on another host too") {
        const Holder holder(rig, 1, INADDR_ANY, 4711);
        const NetworkOutcome job = networks.run("n1,n2", {"--master_port", "4711"}, "echo ran");
        INFO(job.err);
        CHECK(job.code == 71);
        CHECK(job.out.empty());
        CHECK(mentions(job.err, "n1: cannot listen on 10.91.7.2:4711 where the ranks meet"));
        CHECK(mentions(job.err, "by process " + std::to_string(holder.pid()) + " ("));
    }
    SECTION("while ranks run nothing of ours listens but at the chosen place") {
        for (const std::string kind : {"program", "train"}) {
            const TemporaryFolder folder;
            JobProcess job(
                folder, rig.on(0, {kProbe, "transport=ssh", "hosts=n1,n2",
                                   "ssh_config=" + rig.config("good"), "kind=" + kind, "--", "sh",
                                   "-c", "echo $$ >>" + folder.path() + "/pids; sleep 30"}));
            REQUIRE(wait_until([&] { return recorded_processes(folder).size() == 2; }));
            for (int snapshot = 0; snapshot < 5; ++snapshot) {
                const auto first = listeners(rig, 1);
                // This is 10.91.7.2 in the byte order of /proc/net/tcp. The process `sleep` has
                // inherited dsworker's socket.
                const auto is_chosen = [](const auto& listener) {
                    return listener.first.starts_with("02075B0A:");
                };
                CHECK(first.size() == (kind == "train" ? 1U : 0U));
                CHECK(std::all_of(first.begin(), first.end(), is_chosen));
                CHECK(listeners(rig, 2).empty());
            }
            job.signal(SIGKILL);
        }
    }
}

TEST_CASE("a port that another user takes between the check and rank 0 ends the job") {
    if (::geteuid() != 0)
        return report_skipped("another user at MASTER_PORT", "only root can be two users");
    const int port = listen_on_loopback().port;  // the port is free again
    const TemporaryFolder folder;
    const auto job_on = [&](const std::string& script) {
        return std::vector<std::string>{kDslaunch,       "--standalone",       "--device", "cpu",
                                        "--master_port", std::to_string(port), "sh",       "-c",
                                        script};
    };
    // After the ranks have begun, tries to bind the port until the agent releases it.
    const std::string begun = folder.path() + "/pids";
    std::filesystem::permissions(folder.path(), std::filesystem::perms(0755));
    const pid_t stranger = ::fork();
    if (stranger == 0) {
        const bool other = ::setgid(65'534) == 0 && ::setuid(65'534) == 0;
        sockaddr_in where{};
        where.sin_family = AF_INET;
        where.sin_port = htons(static_cast<uint16_t>(port));
        where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        while (other && ::access(begun.c_str(), F_OK) != 0) ::usleep(1'000);
        const int holder = ::socket(AF_INET, SOCK_STREAM, 0);
        while (::bind(holder, reinterpret_cast<sockaddr*>(&where), sizeof where) != 0)
            ::usleep(1'000);
        ::listen(holder, 1);
        for (;;) ::pause();
    }
    JobProcess job(folder, job_on("echo $$ >> " + begun + "; sleep 600"));
    const int code = job.wait();
    ::kill(stranger, SIGKILL);
    ::waitpid(stranger, nullptr, 0);
    INFO(job.err());
    CHECK(code == 67);
    CHECK_THAT(job.err(), Catch::Contains("(MASTER_PORT) was taken by user nobody"));
    // If this user's rank 0 binds the port, or no process does, this is not a fault.
    const TemporaryFolder other;
    JobProcess fine(other, job_on("sleep 1"));
    CHECK(fine.wait() == 0);
}

namespace {

// The counts of a Crowd, in memory that its process shares with the test.
struct CrowdCounts {
    std::atomic<int64_t> connections{0};
    std::atomic<int64_t> open_ns{0};  // the time in which a port was open
    std::atomic<int64_t> held{0};     // silent connections that are open now
};

// A separate process on host n2 that connects to each port on which n1 listens at eth1, 2,000 times
// a second while there is such a port. It keeps 300 silent connections open.
class Crowd {
  public:
    explicit Crowd(const RigHosts& rig)
        : counts_(
              static_cast<CrowdCounts*>(::mmap(nullptr, sizeof(CrowdCounts), PROT_READ | PROT_WRITE,
                                               MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {
        REQUIRE(counts_ != MAP_FAILED);
        new (counts_) CrowdCounts;
        const std::string listening = "/run/netns/" + rig.on(1, {}).back();
        const std::string connecting = "/run/netns/" + rig.on(2, {}).back();
        pid_ = ::fork();
        if (pid_ != 0) return;
        const UniqueFd first(::open(listening.c_str(), O_RDONLY | O_CLOEXEC));
        const UniqueFd second(::open(connecting.c_str(), O_RDONLY | O_CLOEXEC));
        for (bool was_open = false;; std::this_thread::sleep_for(std::chrono::milliseconds(1))) {
            const auto before = looked_at_;
            looked_at_ = Steady::now();
            if (was_open) counts_->open_ns += std::chrono::nanoseconds(looked_at_ - before).count();
            if (::setns(first.get(), CLONE_NEWNET) != 0) ::_exit(1);
            const auto listeners = listening_in(read_file("/proc/self/net/tcp", 64U << 20));
            if (::setns(second.get(), CLONE_NEWNET) != 0) ::_exit(1);
            was_open = press(listeners);
        }
    }
    Crowd(const Crowd&) = delete;
    Crowd& operator=(const Crowd&) = delete;
    ~Crowd() {
        ::kill(pid_, SIGKILL);
        ::waitpid(pid_, nullptr, 0);
        ::munmap(counts_, sizeof *counts_);
    }
    [[nodiscard]] const CrowdCounts& counts() const { return *counts_; }

  private:
    static constexpr double kPerSecond = 2'000;
    static constexpr size_t kHeld = 300;

    // Makes the connections that are due by now, including delayed ones if the process did not run
    // for a while. Returns false if there is no port for them.
    bool press(const std::map<std::string, uint16_t>& listeners) {
        const double due = kPerSecond * 1e-9 * static_cast<double>(counts_->open_ns) + 20;
        const int64_t last = std::min(static_cast<int64_t>(due), counts_->connections + 500);
        bool found = false;
        for (const auto& [place, port] : listeners) {
            // Tries at least one connection, to see if the port is open.
            for (bool more = true; more && connect_once(port);) {
                found = true;
                more = ++counts_->connections < last;
            }
        }
        while (held_.size() > kHeld) held_.pop_front();
        counts_->held = std::ssize(held_);
        return found;
    }
    // Returns true if a connection was made. A full queue must not block this process, so such a
    // connection does not count.
    bool connect_once(uint16_t port) {
        UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
        sockaddr_in where{};
        where.sin_family = AF_INET;
        where.sin_port = htons(port);
        ::inet_pton(AF_INET, "10.92.7.2", &where.sin_addr);
        const int status =
            ::connect(socket.get(), reinterpret_cast<sockaddr*>(&where), sizeof where);
        if (status != 0 && errno != EINPROGRESS) return false;
        pollfd entry{socket.get(), POLLOUT, 0};
        if (::poll(&entry, 1, 10) != 1 || (entry.revents & (POLLERR | POLLHUP)) != 0) return false;
        held_.push_back(std::move(socket));
        return true;
    }

    CrowdCounts* counts_;
    std::deque<UniqueFd> held_;  // only the crowd's own process uses this and the next member
    Steady::time_point looked_at_ = Steady::now();
    pid_t pid_ = -1;
};

}  // namespace

TEST_CASE("jobs start while a crowd of strangers connects to every port that is open", "[.long]") {
    const Networks networks(2);
    if (!networks.rig().usable()) return;
    // ssh's network is closed between the hosts. The search for a network needs 3 s to notice this;
    // during this time, the ports of the other network are open to the crowd before a host
    // connects.
    REQUIRE(networks.rig().run(1, {"ip", "route", "add", "blackhole", "10.91.7.3/32"}) == 0);
    Crowd crowd(networks.rig());
    constexpr int kJobs = 10;
    int failures = 0;
    for (int i = 0; i < kJobs; ++i) {
        const TemporaryFolder folder;
        JobProcess job(folder, networks.rig().on(0, {kProbe, "transport=ssh", "hosts=n1,n2",
                                                     "ssh_config=" + networks.rig().config("good"),
                                                     "kind=train", "--", "sh", "-c", kSayNetwork}));
        const int code = job.wait();
        if (code != 0) UNSCOPED_INFO("code " << code << ": " << job.err());
        failures += code == 0 ? 0 : 1;
    }
    const int64_t connections = crowd.counts().connections;
    const double seconds = 1e-9 * static_cast<double>(crowd.counts().open_ns);
    std::printf(
        "%d starts under %lld connections of strangers, %.0f a second while a port was open: %d "
        "failures\n",
        kJobs, static_cast<long long>(connections), static_cast<double>(connections) / seconds,
        failures);
    // Without this load, the success of the test would mean nothing.
    CHECK(static_cast<double>(connections) >= 1'000 * seconds);
    CHECK(connections >= 1'000);
    CHECK(crowd.counts().held == 300);
    CHECK(failures == 0);
}

TEST_CASE("200 launches at once never stumble over a port", "[.long]") {
    constexpr int kLaunches = 200;
    struct Row {
        const char* what;
        std::vector<std::string> target;
    };
    const Row rows[] = {{"do nothing", {"/bin/true"}},
                        {"bind MASTER_PORT",
                         {"--no_python", "python3", "-c",
                          "import os,socket,time; s=socket.socket(); s.bind(('127.0.0.1', "
                          "int(os.environ['MASTER_PORT']))); s.listen(); time.sleep(0.2)"}}};
    for (const Row& row : rows) {
        std::vector<std::unique_ptr<TemporaryFolder>> folders;
        std::vector<std::unique_ptr<JobProcess>> jobs;
        for (int i = 0; i < kLaunches; ++i) {
            folders.push_back(std::make_unique<TemporaryFolder>());
            std::vector<std::string> words = {kDslaunch, "--standalone", "--device", "cpu"};
            words.insert(words.end(), row.target.begin(), row.target.end());
            jobs.push_back(std::make_unique<JobProcess>(*folders.back(), words));
        }
        int failures = 0;
        std::string reports;
        for (auto& job : jobs) {
            const int code = job->wait();
            if (code == 0) continue;
            ++failures;
            reports += fmt::format("code {}: {}\n", code, job->err());
        }
        std::printf("%d launches that %s: %d failures\n", kLaunches, row.what, failures);
        INFO(reports);
        CHECK(failures == 0);
    }
}
