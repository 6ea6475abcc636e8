// Jobs whose hosts are reached through other hosts: on pretended hosts of this machine, and over
// ssh.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "base/clock.h"
#include "support/catch.h"
#include "support/job_process.h"
#include "support/rig_hosts.h"
#include "support/sanitizer.h"
#include "support/text_tools.h"

using namespace dslaunch;
using namespace dslaunch::launch;
using namespace dslaunch::test;

namespace {

constexpr const char* kTreeWithoutRig = "ssh to hosts made of network namespaces";

using Words = std::vector<std::string>;

// Returns "n1,n2,…".
std::string hosts(int count, const std::string& prefix = "n") {
    std::string list;
    for (int i = 1; i <= count; ++i) {
        list.append(i == 1 ? "" : ",").append(prefix).append(std::to_string(i));
    }
    return list;
}

// Returns PROBE with one worker per host, and with FANOUT.
Words with_fanout(Words probe, int fanout) {
    std::replace(probe.begin(), probe.end(), std::string("workers=2"),
                 "fanout=" + std::to_string(fanout));
    return probe;
}

Words pretended(int hosts_count, int fanout, const std::string& script) {
    return {kProbe,
            "transport=local",
            "hosts=" + hosts(hosts_count),
            "fanout=" + std::to_string(fanout),
            "--",
            "sh",
            "-c",
            script};
}

// Returns the script of a rank that writes its id, ignores every signal that it can ignore, and
// never ends.
std::string stubborn(const TemporaryFolder& folder) {
    return "trap '' TERM HUP INT; echo $$ >> " + folder.path() +
           "/pids; while :; do sleep 0.05; done";
}

size_t tree_count_lines(const std::string& text, const std::string& line) {
    std::istringstream in(text);
    size_t count = 0;
    for (std::string found; std::getline(in, found);) count += found == line ? 1 : 0;
    return count;
}

// Returns the relays below PARENT, recognized by their command lines.
std::vector<pid_t> relays_below(pid_t parent) {
    std::vector<pid_t> found;
    for (const ProcessName& process : descendants(parent)) {
        if (mentions(process_file(process.pid, "cmdline"), std::string("\0relay\0", 7)))
            found.push_back(process.pid);
    }
    return found;
}

// Returns the relays in the network namespace SPACE.
std::vector<pid_t> relays_of_host(const std::string& space) {
    std::vector<pid_t> found;
    FILE* list = ::popen(("ip netns pids " + space).c_str(), "r");
    for (pid_t pid = 0; std::fscanf(list, "%d", &pid) == 1;) {
        if (mentions(process_file(pid, "cmdline"), std::string("\0relay\0", 7)))
            found.push_back(pid);
    }
    ::pclose(list);
    return found;
}

}  // namespace

TEST_CASE("a tree over pretended hosts starts every rank once, whatever its fan-out") {
    for (const int fanout : {2, 3}) {
        for (const int hosts_count : {4, 13}) {
            INFO(hosts_count << " hosts, fan-out " << fanout);
            TemporaryFolder folder;
            JobProcess job(folder, pretended(hosts_count, fanout, "echo $RANK of $WORLD_SIZE"));
            CHECK(job.wait() == 0);
            INFO(job.err());
            for (int rank = 0; rank < hosts_count; ++rank) {
                const std::string line = "[n" + std::to_string(rank + 1) + ":" +
                                         std::to_string(rank) + "] " + std::to_string(rank) +
                                         " of " + std::to_string(hosts_count);
                CHECK(tree_count_lines(job.out(), line) == 1);
            }
        }
    }
}

TEST_CASE("a killed relay ends the whole job and is named, and nothing of it is left") {
    TemporaryFolder folder;
    JobProcess job(folder, pretended(13, 3, stubborn(folder)));
    REQUIRE(wait_until([&] { return recorded_processes(folder).size() == 13; }));
    const auto workers = recorded_processes(folder);
    const auto relays = relays_below(job.pid());
    REQUIRE(relays.size() >= 2);
    ::kill(relays.front(), SIGKILL);
    CHECK(job.wait() == 67);
    CHECK(wait_until([&] { return all_gone(workers); }, 5'000));
    CHECK_THAT(job.err(), Catch::Contains(" is lost: its relay on n"));
}

TEST_CASE("a killed launcher leaves nothing of a tree") {
    TemporaryFolder folder;
    JobProcess job(folder, pretended(13, 2, stubborn(folder)));
    REQUIRE(wait_until([&] { return recorded_processes(folder).size() == 13; }));
    const auto workers = recorded_processes(folder);
    auto relays = relays_below(job.pid());
    REQUIRE(relays.size() >= 4);
    const auto began = Steady::now();
    job.signal(SIGKILL);
    CHECK(wait_until([&] { return all_gone(workers); }, 5'000));
    std::printf("tree of 13, 3 levels: launcher killed, all gone after %.0f ms\n",
                to_milliseconds(Steady::now() - began));
    CHECK(wait_until(
        [&] {
            return std::none_of(relays.begin(), relays.end(),
                                [](pid_t pid) { return name_process(pid).start_time != 0; });
        },
        5'000));
}

TEST_CASE("a flood of output waits at its source while the launcher stands still") {
    TemporaryFolder folder;
    // Rank 5 is reached through the second of two relays.
    JobProcess job(folder, pretended(6, 2,
                                     "echo $$ >> " + folder.path() +
                                         "/pids; test $RANK = 5 || exec sleep 60; "
                                         "while :; do head -c 1000000 /dev/zero | tr '\\0' x; "
                                         "echo; done"));
    REQUIRE(wait_until([&] { return recorded_processes(folder).size() == 6; }));
    const auto relays = relays_below(job.pid());
    REQUIRE(relays.size() == 2);
    job.signal(SIGSTOP);
    std::this_thread::sleep_for(std::chrono::seconds(3));
    int64_t peak_kib = 0;
    for (const pid_t relay : relays) peak_kib = std::max(peak_kib, peak_memory_kib(relay));
    job.signal(SIGCONT);
    std::printf("a relay behind a launcher that stood still for 3 s: peak %lld MiB\n",
                static_cast<long long>(peak_kib >> 10));
    // The limit is the sum of windows of 256 KiB for 3 hosts, two buffers of 1 MiB, and some 10 MiB
    // of program.
    if (!kSanitized) CHECK(peak_kib < 24 << 10);
    // The launcher has not given the ranks up meanwhile.
    std::this_thread::sleep_for(std::chrono::seconds(1));
    CHECK_FALSE(all_gone(recorded_processes(folder)));
    job.signal(SIGTERM);
    job.signal(SIGINT);
    CHECK(job.wait() == 76);
    INFO(job.err());
    CHECK_FALSE(mentions(job.err(), "is lost"));
}

TEST_CASE("over ssh a tree runs a job, and tells of every trouble what it is") {
    const RigHosts rig(8, kTreeWithoutRig);
    if (!rig.usable()) return;
    for (const std::string transport : {"ssh", "openssh"}) {
        DYNAMIC_SECTION(transport << " runs a job on eight hosts") {
            for (const int fanout : {2, 3}) {
                TemporaryFolder folder;
                const auto began = Steady::now();
                JobProcess job(folder, with_fanout(rig.probe(transport, "good", hosts(8),
                                                             "echo $RANK $MASTER_ADDR"),
                                                   fanout));
                CHECK(job.wait() == 0);
                INFO(job.err());
                std::printf("%s: eight hosts with fan-out %d in %.0f ms\n", transport.c_str(),
                            fanout, to_milliseconds(Steady::now() - began));
                for (int i = 1; i <= 8; ++i) {
                    const std::string line = "[n" + std::to_string(i) + ":" +
                                             std::to_string(i - 1) + "] " + std::to_string(i - 1) +
                                             " 10.91.7.2";
                    CHECK(tree_count_lines(job.out(), line) == 1);
                }
            }
        }
        DYNAMIC_SECTION(transport << " hides no bad host behind another") {
            TemporaryFolder folder;
            // The first of these hosts would be a relay; each of the others would be reached
            // through a relay.
            JobProcess job(folder, with_fanout(rig.probe(transport, "good",
                                                         "no-a.invalid,n1,n2,no-b.invalid,n3,n4,"
                                                         "no-c.invalid",
                                                         "echo ran"),
                                               2));
            CHECK(job.wait() == 67);
            INFO(job.err());
            CHECK(mentions(job.err(), "3 of 7 hosts"));
            for (const char* host : {"no-a.invalid: ", "no-b.invalid: ", "no-c.invalid: "}) {
                CHECK(mentions(job.err(), host));
            }
            CHECK_FALSE(mentions(job.err(), "--fanout 0"));
            CHECK(job.out().empty());
        }
        DYNAMIC_SECTION(transport << " tells of a host that only its relay does not reach") {
            // n3 knows no other host's name.
            const std::string file = "/etc/netns/" + rig.name(3) + "/hosts";
            std::ofstream(file) << "127.0.0.1 localhost\n";
            TemporaryFolder folder;
            const auto command = rig.probe(transport, "good", "n1,n2,n3,n4,n5", "echo ran");
            JobProcess job(folder, with_fanout(command, 2));
            CHECK(job.wait() == 67);
            INFO(job.err());
            CHECK(mentions(job.err(), "2 of 5 hosts"));
            for (const char* part : {"n4: from n3: ", "n5: from n3: ", "--fanout 0"}) {
                CHECK(mentions(job.err(), part));
            }
            TemporaryFolder other;
            JobProcess flat(other, with_fanout(command, 0));
            CHECK(flat.wait() == 0);
            std::ofstream(file) << std::ifstream("/etc/netns/" + rig.name(1) + "/hosts").rdbuf();
        }
        DYNAMIC_SECTION(transport << " names a killed relay and leaves nothing") {
            TemporaryFolder folder;
            JobProcess job(
                folder, with_fanout(rig.probe(transport, "good", hosts(8), stubborn(folder)), 2));
            REQUIRE(wait_until([&] { return recorded_processes(folder).size() == 8; }));
            const auto workers = recorded_processes(folder);
            const auto relays = relays_of_host(rig.name(1));
            REQUIRE(relays.size() == 1);
            ::kill(relays.front(), SIGKILL);
            CHECK(job.wait() == 67);
            CHECK(wait_until([&] { return all_gone(workers); }, 5'000));
            INFO(job.err());
            CHECK(mentions(job.err(), "host n1 is lost: its relay on n1 is lost: "));
        }
        DYNAMIC_SECTION(transport << " leaves nothing when the launcher is killed") {
            TemporaryFolder folder;
            JobProcess job(
                folder, with_fanout(rig.probe(transport, "good", hosts(8), stubborn(folder)), 2));
            REQUIRE(wait_until([&] { return recorded_processes(folder).size() == 8; }));
            const auto workers = recorded_processes(folder);
            job.signal(SIGKILL);
            CHECK(wait_until([&] { return all_gone(workers); }, 5'000));
        }
    }
}

TEST_CASE("a link that is cut below a relay is told with that relay's name", "[.long]") {
    const RigHosts rig(8, kTreeWithoutRig);
    if (!rig.usable()) return;
    TemporaryFolder folder;
    JobProcess job(folder, with_fanout(rig.probe("ssh", "good", hosts(8), stubborn(folder)), 2));
    REQUIRE(wait_until([&] { return recorded_processes(folder).size() == 8; }));
    const auto workers = recorded_processes(folder);
    const auto began = Steady::now();
    rig.set_link(1, false);
    CHECK(job.wait() == 67);
    INFO(job.err());
    std::printf("the link of a relay was cut: told after %.1f s\n",
                to_milliseconds(Steady::now() - began) / 1000);
    CHECK(mentions(job.err(), "host n1 is lost: its relay on n1 is lost: it has sent nothing"));
    // The ranks that are cut off live until their lease ends.
    CHECK(wait_until([&] { return all_gone(workers); }));
    std::printf("all gone after %.1f s\n", to_milliseconds(Steady::now() - began) / 1000);
}
