// pdsh and Open MPI's mpirun start agents on hosts that are network namespaces. The job runs,
// errors name the host, no secret is visible, and no process is left.
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "base/clock.h"
#include "support/catch.h"
#include "support/figures.h"
#include "support/job_end.h"
#include "support/job_process.h"
#include "support/pty_process.h"
#include "support/rig_hosts.h"
#include "support/skip.h"
#include "support/text_tools.h"

using namespace dslaunch;
using namespace dslaunch::launch;
using namespace dslaunch::test;

namespace {

std::vector<std::string> starter_probe(const RigHosts& rig, const std::string& transport,
                                       const std::string& config, const std::string& hosts,
                                       const std::string& script) {
    return rig.on(0, {kProbe, "transport=" + transport, "ssh_config=" + config, "hosts=" + hosts,
                      "workers=2", "--", "sh", "-c", script});
}

// Returns the names of dslaunch's sockets in /tmp.
std::vector<std::string> left_behind() {
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator("/tmp")) {
        const std::string name = entry.path().filename();
        const bool is_socket = name.starts_with("dslaunch-") && name.size() > 9 + 32;
        if (is_socket) found.push_back(name);
    }
    return found;
}

// Returns the processes on the rig's launching host whose program's name begins with NAME.
std::vector<ProcessName> running(const RigHosts& rig, const std::string& name) {
    const TemporaryFolder folder;
    JobProcess list(folder, {"ip", "netns", "pids", rig.name(0)});
    list.wait();
    std::vector<ProcessName> found;
    std::istringstream pids(list.out());
    for (pid_t pid = 0; pids >> pid;) {
        std::ifstream file("/proc/" + std::to_string(pid) + "/comm");
        std::string comm;
        if (std::getline(file, comm) && comm.starts_with(name)) found.push_back(name_process(pid));
    }
    return found;
}

// Returns the arguments of all processes on the rig's hosts.
std::string all_arguments(const RigHosts& rig, int hosts) {
    std::string text;
    for (int host = 0; host <= hosts; ++host) {
        const TemporaryFolder folder;
        JobProcess list(folder, {"ip", "netns", "pids", rig.on(host, {})[3]});
        list.wait();
        std::istringstream pids(list.out());
        for (pid_t pid = 0; pids >> pid;) text += process_file(pid, "cmdline");
    }
    return text;
}

// Returns true if TEXT contains a token: 64 hexadecimal digits.
bool shows_a_token(const std::string& text) {
    size_t digits = 0;
    for (const char c : text) {
        digits = std::isxdigit(static_cast<unsigned char>(c)) != 0 ? digits + 1 : 0;
        if (digits == 64) return true;
    }
    return false;
}

struct Starter {
    std::string transport;
    std::string program;
    std::string package;
};

const Starter kStarters[] = {{"pdsh", "pdsh", "pdsh"}, {"openmpi", "mpirun", "openmpi-bin"}};

bool is_missing(const Starter& starter) {
    if (has_program(starter.program)) return false;
    report_skipped("--launcher " + starter.transport, "package " + starter.package + " is missing");
    return true;
}

}  // namespace

TEST_CASE("agents started by pdsh and mpirun run a job and leave nothing") {
    const RigHosts rig(3, "pdsh and mpirun to hosts made of network namespaces");
    if (!rig.usable()) return;
    const std::string good = rig.folder() + "/good";
    for (const Starter& starter : kStarters) {
        if (is_missing(starter)) continue;
        INFO(starter.transport);
        const size_t before = left_behind().size();
        {
            const TemporaryFolder folder;
            const auto began = Steady::now();
            JobProcess job(folder,
                           starter_probe(rig, starter.transport, good, "n3,n1,n2",
                                         "echo $RANK $MASTER_ADDR; env | grep TOKEN; true"));
            CHECK(job.wait() == 0);
            INFO(job.err());
            std::printf("%s: three hosts in %.0f ms\n", starter.transport.c_str(),
                        to_milliseconds(Steady::now() - began));
            CHECK(mentions(job.out(), "[n3:0] 0 10.91.7.4\n"));
            CHECK(mentions(job.out(), "[n2:5] 5 10.91.7.4\n"));
            CHECK_FALSE(mentions(job.out(), "TOKEN"));
        }
        CHECK(left_behind().size() == before);
        {
            const TemporaryFolder folder;
            JobProcess job(folder, starter_probe(rig, starter.transport, good, "n1,n2",
                                                 "test $RANK = 3 && exit 9; sleep 30"));
            CHECK(job.wait() == 9);
            CHECK(mentions(job.err(), "n2"));
        }
        const std::string victims[] = {"launcher", starter.program};
        for (const std::string& victim : victims) {
            const TemporaryFolder folder;
            JobProcess job(folder,
                           starter_probe(rig, starter.transport, good, "n1,n2",
                                         "trap '' TERM HUP INT; echo $$ >> " + folder.path() +
                                             "/pids; while :; do sleep 0.05; done"));
            REQUIRE(wait_until([&] { return recorded_processes(folder).size() == 4; }));
            const auto workers = recorded_processes(folder);
            const std::string arguments = all_arguments(rig, 3);
            CHECK(mentions(arguments, "--node-name"));
            CHECK_FALSE(shows_a_token(arguments));
            const auto program = running(rig, starter.program);
            REQUIRE(program.size() == 1);
            const auto began = Steady::now();
            if (victim == "launcher") {
                job.signal(SIGKILL);
            } else {
                REQUIRE(signal_process(program.front(), SIGKILL));
                // The job does not need pdsh any more, so it runs until it is ended.
                if (starter.program == "pdsh") {
                    CHECK_FALSE(wait_until([&] { return all_gone(workers); }, 500));
                    job.signal(SIGINT);
                    job.signal(SIGTERM);
                }
            }
            REQUIRE(wait_until([&] { return all_gone(workers); }, kGoneMaxMs));
            std::printf("%s: %s killed, all gone after %.0f ms\n", starter.transport.c_str(),
                        victim.c_str(), to_milliseconds(Steady::now() - began));
            CHECK(wait_until([&] { return all_gone(program); }, kGoneMaxMs));
            CHECK(wait_until([&] { return running(rig, "ssh").empty(); }, kGoneMaxMs));
        }
        CHECK(left_behind().size() == before);
    }
}

// mpirun passes its stdin to rank 0, and pdsh passes its stdin to no rank. DeepSpeed's launcher has
// the same behaviour.
TEST_CASE("rank 0 on another host reads what mpirun passes on, also typed answers") {
    if (is_missing(kStarters[1])) return;
    const RigHosts rig(2, "stdin through mpirun");
    if (!rig.usable()) return;
    const std::string reader =
        "printf 'name? '; IFS= read -r a; echo \"rank $RANK read <$a>\"; cat";
    const auto given = [&](const std::string& input, const std::string& transport) {
        std::vector<std::string> words = {"sh", "-c", input + " | exec \"$@\"", "sh"};
        for (std::string& one : starter_probe(rig, transport, rig.config("good"), "n2,n1", reader))
            words.push_back(std::move(one));
        return words;
    };
    {
        const TemporaryFolder folder;
        JobProcess job(folder, given("printf 'one\ntwo\nthree'", "openmpi"));
        CHECK(job.wait() == 0);
        INFO(job.out() << job.err());
        for (const char* line : {"[n2:0] name? rank 0 read <one>\n", "[n2:0] two\n",
                                 "[n2:0] three\n", "[n2:1] name? rank 1 read <>\n",
                                 "[n1:2] name? rank 2 read <>\n", "[n1:3] name? rank 3 read <>\n"})
            CHECK(mentions(job.out(), line));
    }
    {
        // The input is larger than any pipe's buffer, and the reader begins late.
        const TemporaryFolder folder;
        JobProcess job(folder, {"sh", "-c", "seq 1 300000 | exec \"$@\"", "sh", "ip", "netns",
                                "exec", rig.name(0), kProbe, "transport=openmpi",
                                "ssh_config=" + rig.config("good"), "hosts=n1,n2", "workers=1",
                                "--", "sh", "-c", "test $RANK = 1 || { sleep 1; md5sum; }"});
        CHECK(job.wait() == 0);
        INFO(job.out() << job.err());
        const TemporaryFolder own_folder;
        JobProcess alone(own_folder, {"sh", "-c", "seq 1 300000 | md5sum"});
        CHECK(alone.wait() == 0);
        CHECK(job.out() == "[n1:0] " + alone.out());
    }
    {
        PtyProcess job(starter_probe(rig, "openmpi", rig.config("good"), "n2,n1", reader));
        CHECK(job.wait_for("[n2:0] name? "));
        job.type("Ada\n\x04");
        CHECK(job.wait() == 0);
        INFO(job.shown());
        CHECK(mentions(job.shown(), "rank 0 read <Ada>"));
        CHECK(mentions(job.shown(), "[n1:3] name? rank 3 read <>"));
    }
}

TEST_CASE("what pdsh and mpirun say of a host is said of that host") {
    const RigHosts rig(2, "troubles of pdsh and mpirun");
    if (!rig.usable()) return;
    struct Row {
        std::string config, hosts, host, cause;
    };
    const Row rows[] = {
        {"refused", "n1", "n1", "onnection refused"},
        {"wrong_key", "n1", "n1", "ermission denied"},
        {"unknown_host_key", "n1", "n1", "ost key"},
        {"good", "n1,nosuch.invalid", "nosuch.invalid", "ould not resolve hostname"},
    };
    for (const Starter& starter : kStarters) {
        if (is_missing(starter)) continue;
        for (const Row& row : rows) {
            const TemporaryFolder folder;
            const auto began = Steady::now();
            JobProcess job(folder,
                           starter_probe(rig, starter.transport, rig.folder() + "/" + row.config,
                                         row.hosts, "echo ran"));
            CHECK(job.wait() == 67);
            INFO(starter.transport << " " << row.config << "\n" << job.err());
            CHECK(mentions(job.err(), row.host + ": "));
            CHECK(mentions(job.err(), row.cause));
            CHECK(job.out().empty());
            CHECK(milliseconds_since(began) < limit_ms(60'000));
        }
    }
}

TEST_CASE("a missing pdsh or mpirun is said with what to do instead") {
    for (const Starter& starter : kStarters) {
        const TemporaryFolder folder;
        JobProcess job(folder,
                       {"env", "PATH=" + folder.path(), kProbe, "transport=" + starter.transport,
                        "hosts=n1.invalid", "--", "true"});
        CHECK(job.wait() == 67);
        INFO(job.err());
        CHECK(mentions(job.err(), starter.program + " cannot be started here: install"));
        CHECK(mentions(job.err(), "package " + starter.package));
        CHECK(mentions(job.err(), "to use the built-in ssh"));
    }
}

TEST_CASE("copies of dslaunch that mpirun started become one job without a hostfile") {
    if (is_missing(kStarters[1])) return;
    const RigHosts rig(2, "dslaunch under mpirun");
    if (!rig.usable()) return;
    const auto under_mpirun = [&](const std::string& script) {
        return rig.on(0, {"mpirun", "--allow-run-as-root", "--mca", "plm_rsh_args",
                          "-F " + rig.folder() + "/good", "-np", "5", "--host", "n1:2,n2:3",
                          "--bind-to", "none", kDslaunch, "sh", "-c", script});
    };
    {
        const TemporaryFolder folder;
        const auto began = Steady::now();
        JobProcess job(folder, under_mpirun("echo $RANK $LOCAL_RANK $LOCAL_WORLD_SIZE "
                                            "$WORLD_SIZE $MASTER_ADDR $(env | grep -c OMPI_)"));
        CHECK(job.wait() == 0);
        INFO(job.err());
        std::printf("mpirun dslaunch: 5 copies on two hosts in %.0f ms\n",
                    to_milliseconds(Steady::now() - began));
        for (const char* line :
             {"0 0 2 5 10.91.7.2 0\n", "1 1 2 5 10.91.7.2 0\n", "2 0 3 5 10.91.7.2 0\n",
              "3 1 3 5 10.91.7.2 0\n", "4 2 3 5 10.91.7.2 0\n"})
            CHECK(mentions(job.out(), line));
        CHECK(mentions(job.err(), "mpirun started dslaunch on 2 hosts with 5 slots"));
    }
    {
        const TemporaryFolder folder;
        JobProcess job(folder, under_mpirun("test $RANK = 4 && exit 9; sleep 30"));
        CHECK(job.wait() == 9);
    }
    {
        const TemporaryFolder folder;
        JobProcess job(folder, under_mpirun("trap '' TERM HUP INT; echo $$ >> " + folder.path() +
                                            "/pids; while :; do sleep 0.05; done"));
        const bool all_run = wait_until([&] { return recorded_processes(folder).size() == 5; });
        INFO(all_arguments(rig, 2) << "\n" << job.err());
        REQUIRE(all_run);
        const auto workers = recorded_processes(folder);
        job.signal(SIGKILL);
        CHECK(wait_until([&] { return all_gone(workers); }, kGoneMaxMs));
    }
    const TemporaryFolder folder;
    JobProcess alone(folder,
                     {"env", "-u", "PMIX_NAMESPACE", "OMPI_COMM_WORLD_SIZE=2", kDslaunch, "true"});
    CHECK(alone.wait() == 71);
    CHECK(mentions(alone.err(), "start a single copy with --hostfile"));
}
