// P1 to P3: no process is left after any kill, and the report names the first rank that dies.
// Negative controls, done by hand: if an agent ignores both the end of its stdin and the loss of
// its stdout (Agent::read_input, Agent::watch), the first test finds living workers; without the
// last loop of find_culprit(), the last test blames rank 1.
#include <csignal>
#include <cstdlib>
#include <filesystem>

#include "cluster/promise.h"
#include "support/job_end.h"
#include "support/rig_hosts.h"
#include "support/sanitizer.h"
#include "support/skip.h"

namespace dslaunch::test {

using namespace launch;
namespace {

constexpr int kKillHosts = 8;
constexpr int kSlots = 8;
constexpr int kProcesses = 2 * kKillHosts * kSlots;  // each worker has a grandchild

struct StubbornJob {
    TemporaryFolder folder;
    JobProcess process;
    Steady::time_point began = Steady::now();

    StubbornJob()
        : process(folder, on_pretended_hosts(folder, "h[1-8] slots=8\n") +
                              Words{kStub, "stubborn", folder.path() + "/pids"}) {}
    [[nodiscard]] bool await_all() const {
        return wait_until([&] { return lines_in(folder.path() + "/pids") == kProcesses; });
    }
};

double start_ms() {
    StubbornJob job;
    REQUIRE(job.await_all());
    return milliseconds_since(job.began);
}

void kill_launchers(int runs) {
    adopt_orphans();
    Dice dice;
    const double whole_ms = start_ms();
    REQUIRE(nothing_left(kGoneMaxMs));
    Figures figures;
    for (int run = 0; run < runs; ++run) {
        StubbornJob job;
        // The kill comes at a random moment. In one of three runs, all processes have already
        // started.
        std::this_thread::sleep_for(
            std::chrono::milliseconds(dice.between(0, static_cast<int>(1.5 * whole_ms))));
        const auto began = Steady::now();
        job.process.signal(SIGKILL);
        REQUIRE(job.process.wait() == 128 + SIGKILL);
        REQUIRE(nothing_left(kGoneMaxMs));
        figures.add(milliseconds_since(began));
    }
    figures.print("P1 launcher killed at random moments of a start of " +
                  std::to_string(static_cast<int>(whole_ms)) +
                  " ms, 64 stubborn workers and 64 "
                  "grandchildren: all gone");
    CHECK(figures.at(0.99) < limit_ms(2'000));
}

// Returns the node rank of a worker, from the worker's environment.
int node_rank_of(pid_t pid) {
    const std::string text = process_file(pid, "environ");
    const size_t at = text.find("GROUP_RANK=");
    REQUIRE(at != std::string::npos);
    return std::atoi(text.c_str() + at + 11);
}

pid_t parent_of(pid_t pid) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/status");
    for (std::string line; std::getline(file, line);)
        if (line.rfind("PPid:", 0) == 0) return std::atoi(line.c_str() + 5);
    return -1;
}

bool is_agent(pid_t pid) {
    return mentions(process_file(pid, "cmdline"), "--stdio");
}

void kill_agents(int runs) {
    adopt_orphans();
    Dice dice;
    Figures figures;
    int named = 0;
    for (int run = 0; run < runs; ++run) {
        StubbornJob job;
        REQUIRE(job.await_all());
        std::vector<ProcessName> workers;
        for (const ProcessName& each : recorded_processes(job.folder))
            if (is_agent(parent_of(each.pid))) workers.push_back(each);
        REQUIRE(workers.size() >= kKillHosts * kSlots);
        const auto& victim = workers[dice.between(0, kKillHosts * kSlots - 1)];
        const int node = node_rank_of(victim.pid);
        const auto began = Steady::now();
        REQUIRE(signal_process(name_process(parent_of(victim.pid)), SIGKILL));
        CHECK(job.process.wait() == 67);
        REQUIRE(nothing_left(kGoneMaxMs));
        figures.add(milliseconds_since(began));
        INFO(job.process.err());
        // The launcher sees the end of the agent itself; it does not have to conclude it from
        // silence.
        CHECK_FALSE(mentions(job.process.err(), "has sent nothing"));
        const bool right =
            mentions(job.process.err(), "host h" + std::to_string(node + 1) + " is lost");
        CHECK(right);
        named += right ? 1 : 0;
    }
    figures.print("P2 agent killed, 64 stubborn workers on 8 hosts, host named in " +
                  std::to_string(named) + " of " + std::to_string(runs) + ": all gone");
    CHECK(figures.at(0.99) < limit_ms(2'000));
}

struct Way {
    const char* how;
    int code;
    const char* words;
};

// Returns the time from the rank's death to the launcher's end.
double since_death_ms(const TemporaryFolder& folder, Steady::time_point ended) {
    int64_t death_ns = 0;
    std::ifstream(folder.path() + "/pids.death") >> death_ns;
    REQUIRE(death_ns > 0);
    return std::chrono::duration<double, std::milli>(ended.time_since_epoch() -
                                                     std::chrono::nanoseconds(death_ns))
        .count();
}

// Makes one of 16 ranks on 4 hosts die in WAY. Returns true if the report names exactly this rank.
bool dies_and_is_named(const Way& way, Dice& dice, Figures& figures, const Words& before = {}) {
    const TemporaryFolder folder;
    const int rank = dice.between(0, 15);
    const Words command = before + on_pretended_hosts(folder, "h[1-4] slots=4\n") +
                          Words{kStub,
                                "die",
                                way.how,
                                std::to_string(rank),
                                std::to_string(dice.between(0, 60)),
                                folder.path() + "/pids"};
    JobProcess job(folder, command);
    const int code = job.wait();
    const auto ended = Steady::now();
    INFO(way.how << " of rank " << rank << "\n" << job.err());
    CHECK(code == way.code);
    figures.add(since_death_ms(folder, ended));
    CHECK(nothing_left(kGoneMaxMs));
    const std::string said = "rank " + std::to_string(rank) + " on host h" +
                             std::to_string(rank / 4 + 1) + " failed first: " + way.words;
    const bool named = mentions(job.err(), said);
    CHECK(named);
    return named;
}

void let_ranks_die(int runs) {
    adopt_orphans();
    const Way ways[] = {{"exit3", 3, "exit code 3 (pid "},
                        {"exit255", 255, "exit code 255 (pid "},
                        {"segv", 128 + SIGSEGV, "killed by SIGSEGV"},
                        {"kill", 128 + SIGKILL, "killed by SIGKILL"},
                        {"abort", 128 + SIGABRT, "killed by SIGABRT"}};
    Dice dice;
    Figures figures;
    int named = 0;
    for (const Way& way : ways)
        for (int run = 0; run < runs; ++run) named += dies_and_is_named(way, dice, figures) ? 1 : 0;
    figures.print("P3 one of 16 ranks dies in 5 ways, named in " + std::to_string(named) + " of " +
                  std::to_string(5 * runs) + ": launcher ended");
    CHECK(figures.at(0.99) < limit_ms(5'000));
}

// Makes a memory cgroup, of version 1 or 2, with a limit of LIMIT bytes. Returns its path; empty if
// this is not possible here.
std::string memory_group(const std::string& limit) {
    for (const std::string base : {"/sys/fs/cgroup/memory", "/sys/fs/cgroup"}) {
        const std::string path = base + "/dslaunch-test-" + std::to_string(::getpid());
        std::error_code error;
        if (!std::filesystem::create_directory(path, error)) continue;
        const bool v1 = base.ends_with("/memory");
        std::ofstream(path + (v1 ? "/memory.limit_in_bytes" : "/memory.max")) << limit;
        if (std::filesystem::exists(path + (v1 ? "/memory.limit_in_bytes" : "/memory.max")))
            return path;
        std::filesystem::remove(path, error);
    }
    return {};
}

}  // namespace

TEST_CASE("P1: a launcher that is killed at any moment leaves no worker and no grandchild") {
    kill_launchers(5);
}
TEST_CASE("P1 at 200 random moments", "[.long]") {
    kill_launchers(200);
}

TEST_CASE("P2: a killed agent's host is named, and nothing stays on any host") {
    kill_agents(3);
}
TEST_CASE("P2 with 200 agents", "[.long]") {
    kill_agents(200);
}

namespace {

// Returns the living processes that the launcher itself has started.
std::vector<ProcessName> children_of(pid_t parent) {
    std::vector<ProcessName> found;
    for (const ProcessName& each : descendants(parent))
        if (parent_of(each.pid) == parent) found.push_back(each);
    return found;
}

struct Child {
    std::string launcher;
    std::string program;    // program that must be installed
    bool is_needed = true;  // false: the job continues without it
};

// Kills the launcher's first child while two ranks run on two hosts.
void kill_child(const Child& child, const Words& launch) {
    const TemporaryFolder folder;
    std::ofstream(folder.path() + "/hostfile") << "n[1-2] slots=1\n";
    Words words = launch;
    words.insert(words.end(), {"--hostfile", folder.path() + "/hostfile", "--launcher",
                               child.launcher, kStub, "stubborn", folder.path() + "/pids"});
    JobProcess job(folder, words);
    REQUIRE(wait_until([&] { return recorded_processes(folder).size() == 4; }));
    const auto workers = recorded_processes(folder);
    const auto children = children_of(job.pid());
    REQUIRE(!children.empty());
    const auto began = Steady::now();
    REQUIRE(signal_process(children.front(), SIGKILL));
    if (!child.is_needed) {
        std::this_thread::sleep_for(std::chrono::seconds(2));
        for (const ProcessName& each : workers) CHECK(name_process(each.pid) == each);
        press_twice(job.pid());
    }
    const int code = job.wait();
    INFO(child.launcher << "\n" << job.err());
    CHECK(code > 0);
    CHECK((child.is_needed || code == 76));
    CHECK(wait_until([&] { return all_gone(workers); }, kGoneMaxMs));
    std::printf("P2 the launcher's own child killed, %s: ended with %d after %.0f ms\n",
                child.launcher.c_str(), code, milliseconds_since(began));
}

}  // namespace

TEST_CASE("P2: a job whose launcher loses a child is never a success, and leaves nothing") {
    kill_child({"local", ""}, {kDslaunch, "--quiet"});
    const RigHosts rig(2, "P2: killed children of the launcher over ssh");
    if (!rig.usable()) return;
    // Agents that pdsh has started have connected to the launcher, so they do not need pdsh any
    // more.
    const Child children[] = {
        {"openssh", "ssh"}, {"pdsh", "pdsh", /*is_needed=*/false}, {"openmpi", "mpirun"}};
    for (const Child& child : children) {
        if (!has_program(child.program)) {
            report_skipped("a killed child of --launcher " + child.launcher,
                           child.program + " is missing");
            continue;
        }
        kill_child(child,
                   rig.on(0, {kDslaunch, "--ssh-config", rig.config("good"), "--device", "cpu"}));
    }
}

TEST_CASE("P3: the rank that dies is named, whatever it dies of, and the code is never 0") {
    let_ranks_die(3);
}
TEST_CASE("P3 100 times in each way", "[.long]") {
    let_ranks_die(100);
}

TEST_CASE("P3: a rank that the kernel kills for memory is named with the kernel's evidence") {
    const std::string what = "a rank that the kernel kills for memory";
    if (kSanitized) return report_skipped(what, "the sanitizer's own memory is over the limit");
    const std::string group = memory_group("134217728");
    if (group.empty()) return report_skipped(what, "no memory cgroup can be made here");
    Dice dice;
    Figures figures;
    // The shell joins the control group before it becomes dslaunch.
    CHECK(
        dies_and_is_named({"oom", 128 + SIGKILL, "killed by SIGKILL (Killed); "}, dice, figures,
                          {"sh", "-c", "echo $$ > " + group + "/cgroup.procs; exec \"$@\"", "sh"}));
    std::error_code error;
    std::filesystem::remove(group, error);
}

TEST_CASE(
    "P3: a training rank that ends with 0 while others need it is named, and it is no success") {
    const TemporaryFolder folder;
    JobProcess job(folder,
                   {std::string(test::binary_dir()) + "/launch_probe", "kind=train", "hosts=a,b",
                    "workers=4", "--", kStub, "die", "exit0", "5", "20", folder.path() + "/pids"});
    const int code = job.wait();
    INFO(job.err());
    CHECK(code == 68);
    CHECK(mentions(job.err(), "rank 5 on host b failed first: exit code 0"));
}

}  // namespace dslaunch::test
