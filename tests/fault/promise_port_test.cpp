// P12, the port at which dsworkers meet: strangers send noise or half a message, or keep
// connections open, from before the ranks meet until they train. They do not end a job.
// docs/guide/launchers.md describes the limits of c10d's store itself.
#include <arpa/inet.h>
#include <sys/socket.h>

#include <atomic>
#include <filesystem>
#include <random>
#include <set>
#include <sstream>

#include "endless_job.h"
#include "support/catch.h"
#include "support/listener.h"

namespace dslaunch::test {

using namespace launch;
namespace {

// Returns the inodes of the sockets that PROCESS has open.
std::set<std::string> sockets_of(const ProcessName& process) {
    std::set<std::string> found;
    std::error_code error;
    std::filesystem::directory_iterator entry("/proc/" + std::to_string(process.pid) + "/fd",
                                              error);
    for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
        std::error_code gone;
        const std::string target = std::filesystem::read_symlink(entry->path(), gone).string();
        if (target.starts_with("socket:[")) found.insert(target.substr(8, target.size() - 9));
    }
    return found;
}

// Returns the TCP ports of IPv4 on which a process below PARENT listens.
std::set<int> ports_below(pid_t parent) {
    std::set<std::string> inodes;
    for (const ProcessName& each : descendants(parent)) inodes.merge(sockets_of(each));
    std::set<int> ports;
    std::ifstream table("/proc/net/tcp");
    for (std::string line; std::getline(table, line);) {
        std::istringstream words(line);
        std::vector<std::string> fields;
        for (std::string word; words >> word;) fields.push_back(word);
        if (fields.size() < 10 || fields[3] != "0A" || !inodes.contains(fields[9])) continue;
        ports.insert(std::stoi(fields[1].substr(fields[1].rfind(':') + 1), nullptr, 16));
    }
    return ports;
}

// Connects again and again to every port on which the job listens, until leave() is called.
class Stranger {
  public:
    explicit Stranger(pid_t job) : thread_([this, job] { pester(job); }) {}
    Stranger(const Stranger&) = delete;
    Stranger& operator=(const Stranger&) = delete;
    ~Stranger() { leave(); }
    void leave() {
        left_ = true;
        if (thread_.joinable()) thread_.join();
    }
    [[nodiscard]] int connections() const { return connections_; }

  private:
    void pester(pid_t job) {
        std::mt19937 dice(12);
        std::vector<UniqueFd> staying;
        while (!left_) {
            for (const int port : ports_below(job)) {
                for (int i = 0; i < 20; ++i) visit(port, dice, staying);
            }
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
        }
    }
    void visit(int port, std::mt19937& dice, std::vector<UniqueFd>& staying) {
        UniqueFd socket = connect_to(port);
        if (!socket.valid()) return;
        ++connections_;
        std::string bytes(std::uniform_int_distribution<size_t>(0, 300)(dice), '\0');
        for (char& byte : bytes)
            byte = static_cast<char>(std::uniform_int_distribution<int>(0, 255)(dice));
        static_cast<void>(::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL));
        if (staying.size() < 200 && connections_ % 5 == 0) staying.push_back(std::move(socket));
    }
    std::atomic<bool> left_ = false;
    std::atomic<int> connections_ = 0;
    std::thread thread_;
};

}  // namespace

TEST_CASE("P12: noise at the port where dsworkers meet neither ends nor stops a training job") {
    int trained = 0, connections = 0;
    constexpr int kRuns = 3;
    for (int run = 0; run < kRuns; ++run) {
        EndlessJob job({"--timeout", "20"});
        Stranger stranger(job.process.pid());
        const bool stepped = wait_until([&] { return job.metrics().size() >= 5; });
        stranger.leave();
        connections += stranger.connections();
        job.process.signal(SIGINT);
        const int code = job.process.wait();
        INFO(job.process.err());
        CHECK(stepped);
        CHECK(code == 76);
        trained += stepped && code == 76 ? 1 : 0;
    }
    std::printf("P12 %d connections with noise where dsworkers meet: %d of %d jobs trained\n",
                connections, trained, kRuns);
    CHECK(connections > 20 * kRuns);
}

}  // namespace dslaunch::test
