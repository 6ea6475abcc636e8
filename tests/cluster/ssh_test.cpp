// Both ssh transports with the same hosts and the same faults: each names the host and the cause,
// asks no question, and returns.
#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

#include "base/clock.h"
#include "support/catch.h"
#include "support/job_process.h"
#include "support/rig_hosts.h"
#include "support/text_tools.h"

using namespace dslaunch;
using namespace dslaunch::launch;
using namespace dslaunch::test;

namespace {

constexpr const char* kWithoutRig = "ssh to hosts made of network namespaces";
}  // namespace

TEST_CASE("both ssh transports run a job, and say the same of the same troubles") {
    const RigHosts rig(3, kWithoutRig);
    if (!rig.usable()) return;
    for (const std::string transport : {"ssh", "openssh"}) {
        DYNAMIC_SECTION(transport << " runs a job on three hosts") {
            TemporaryFolder folder;
            const auto began = Steady::now();
            JobProcess job(folder,
                           rig.probe(transport, "good", "n1,n2,n3", "echo $RANK $MASTER_ADDR"));
            CHECK(job.wait() == 0);
            INFO(job.err());
            std::printf("%s: three hosts in %.0f ms\n", transport.c_str(),
                        to_milliseconds(Steady::now() - began));
            for (const char* line : {"[n1:0] 0 10.91.7.2\n", "[n3:5] 5 10.91.7.2\n"})
                CHECK(mentions(job.out(), line));
        }
        DYNAMIC_SECTION(transport << " leaves nothing when the launcher is killed") {
            TemporaryFolder folder;
            JobProcess job(folder, rig.probe(transport, "good", "n1,n2",
                                             "trap '' TERM HUP INT; echo $$ >> " + folder.path() +
                                                 "/pids; while :; do sleep 0.05; done"));
            REQUIRE(wait_until([&] { return recorded_processes(folder).size() == 4; }));
            const auto workers = recorded_processes(folder);
            const auto began = Steady::now();
            job.signal(SIGKILL);
            REQUIRE(wait_until([&] { return all_gone(workers); }, 5'000));
            std::printf("%s: launcher killed, all gone after %.0f ms\n", transport.c_str(),
                        to_milliseconds(Steady::now() - began));
        }
        struct Row {
            std::string config, hosts, cause;
        };
        const Row rows[] = {
            {"unknown_host_key", "n1", "ost key verification failed"},
            {"changed_host_key", "n1", "ost key verification failed"},
            {"refused", "n1", "onnection refused"},
            {"wrong_key", "n1", "ermission denied"},
            {"good", "nosuch.invalid", "nosuch.invalid"},
            // With BatchMode, the ssh program does not report this cause.
            {"locked_key", "n1",
             transport == "ssh" ? "one key needs a passphrase: load it with ssh-add"
                                : "ermission denied"},
        };
        for (const Row& row : rows) {
            DYNAMIC_SECTION(transport << " names host and cause: " << row.config << " "
                                      << row.hosts) {
                TemporaryFolder folder;
                JobProcess job(folder, rig.probe(transport, row.config, row.hosts, "echo ran"));
                CHECK(job.wait() == 67);
                INFO(job.err());
                CHECK(mentions(job.err(), row.cause));
                CHECK(mentions(job.err(), row.hosts + ": "));
                CHECK(job.out().empty());
            }
        }
        DYNAMIC_SECTION(transport << " lists every bad host and starts nothing on the good ones") {
            TemporaryFolder folder;
            JobProcess job(
                folder, rig.probe(transport, "good", "n1,no-a.invalid,no-b.invalid", "echo ran"));
            CHECK(job.wait() == 67);
            CHECK(mentions(job.err(), "2 of 3 hosts"));
            CHECK(mentions(job.err(), "no-a.invalid: "));
            CHECK(mentions(job.err(), "no-b.invalid: "));
            CHECK(job.out().empty());
        }
        DYNAMIC_SECTION(transport << " names the host of a killed agent and leaves nothing") {
            TemporaryFolder folder;
            JobProcess job(folder,
                           rig.probe(transport, "good", "n1,n2",
                                     "trap '' TERM HUP INT; echo $$ $PPID >> " + folder.path() +
                                         "/both; echo $$ >> " + folder.path() +
                                         "/pids; while :; do sleep 0.05; done"));
            REQUIRE(wait_until([&] { return recorded_processes(folder).size() == 4; }));
            const auto workers = recorded_processes(folder);
            std::istringstream both(folder.read("both"));
            pid_t worker = 0;
            pid_t agent = 0;
            both >> worker >> agent;
            REQUIRE(agent > 1);
            REQUIRE(signal_process(name_process(agent), SIGKILL));
            REQUIRE(wait_until([&] { return all_gone(workers); }, 5'000));
            CHECK(job.wait() == 67);
            INFO(job.err());
            CHECK(mentions(job.err(), " is lost: "));
        }
        DYNAMIC_SECTION(transport << " and a way that leads over another host") {
            TemporaryFolder folder;
            JobProcess job(folder, rig.probe(transport, "jump", "n2", "echo ran"));
            CHECK(job.wait() == 0);
            INFO(job.err());
            CHECK(mentions(job.out(), "ran"));
        }
        DYNAMIC_SECTION(transport << " names a host without dslaunch") {
            TemporaryFolder folder;
            // This program exists only in the launcher's own mount namespace.
            auto command =
                rig.probe(transport, "good", "n1", "echo ran", folder.path() + "/m/probe");
            const std::string mount = "mkdir -p " + folder.path() + "/m && mount -t tmpfs tmpfs " +
                                      folder.path() + "/m && cp " + kProbe + " " + folder.path() +
                                      "/m/probe && exec \"$@\"";
            std::vector<std::string> wrapped(command.begin(), command.begin() + 4);
            wrapped.insert(wrapped.end(), {"sh", "-c", mount, "sh"});
            wrapped.insert(wrapped.end(), command.begin() + 4, command.end());
            JobProcess job(folder, wrapped);
            CHECK(job.wait() == 67);
            INFO(job.err());
            CHECK(mentions(job.err(), "n1: there is no dslaunch at"));
            CHECK(mentions(job.err(), "exit 127"));
        }
    }
}

TEST_CASE("connections that a busy sshd drops at the door are tried again") {
    const RigHosts rig({.count = 1, .what = kWithoutRig, .max_startups = "2:50:4"});
    if (!rig.usable()) return;
    std::string hosts = "n1";
    for (int i = 1; i < 8; ++i) hosts += ",n1";
    for (const std::string transport : {"ssh", "openssh"}) {
        DYNAMIC_SECTION(transport) {
            TemporaryFolder folder;
            JobProcess job(folder, rig.probe(transport, "good", hosts, "echo ran"));
            CHECK(job.wait() == 0);
            INFO(job.err());
            const std::string out = job.out();
            size_t count = 0;
            for (size_t at = out.find("ran"); at != std::string::npos; at = out.find("ran", at + 1))
                ++count;
            CHECK(count == 16);
        }
    }
}
