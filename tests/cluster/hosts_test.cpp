// Runs the commands on hosts, as a user types them, against hosts that do not have dslaunch: in the
// place where dslaunch is on the launcher's machine, each host has an empty folder of its own.
#include <sys/stat.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "support/catch.h"
#include "support/job_process.h"
#include "support/rig_hosts.h"
#include "support/sanitizer.h"
#include "support/skip.h"
#include "support/text_tools.h"

using namespace dslaunch;
using namespace dslaunch::test;

namespace {

const std::string kHostsRigScript = std::string(test::source_dir()) + "/tests/cluster/rig.sh";

void shell(const std::string& line) {
    INFO(line);
    REQUIRE(std::system(line.c_str()) == 0);
}

// The hosts n1 and n2 do not have dslaunch; n0 has it at place()/bin/dslaunch.
class BareHosts {
  public:
    BareHosts()
        : prefix_("dh" + std::to_string(::getpid() % 1000) + "x"),
          folder_("/tmp/dslaunch-rig-" + prefix_),
          place_("/opt/dslaunch-test-" + prefix_) {
        if (kSanitized) {
            report_skipped("commands on hosts without dslaunch",
                           "a program built with a sanitizer is 180 MB to send");
            return;
        }
        TemporaryFolder folder;
        JobProcess up(folder,
                      {"env", "PRIVATE=" + place_, kHostsRigScript, "up", folder_, prefix_, "2"});
        const int code = up.wait();
        usable_ = code == 0;
        if (code == 77) report_skipped("commands on hosts made of network namespaces", up.out());
        if (code != 0 && code != 77) FAIL("the rig does not stand: " + up.err());
        if (!usable_) return;
        shell("mkdir -p " + place_ + "/bin && cp " + test::binary_dir() + "/dslaunch " + place_ +
              "/bin/ && printf 'n[1-2] slots=1\n' >" + folder_ + "/hostfile");
    }
    ~BareHosts() {
        TemporaryFolder folder;
        JobProcess down(folder, {kHostsRigScript, "down", folder_, prefix_});
        down.wait();
        const int status = std::system(("rm -rf '" + place_ + "'").c_str());
        static_cast<void>(status);
    }
    [[nodiscard]] bool usable() const { return usable_; }
    [[nodiscard]] const std::string& place() const { return place_; }
    // Returns the path of HOST's own folder PLACE, as seen from outside of the host.
    [[nodiscard]] std::string inside(int host) const {
        return folder_ + "/private/" + prefix_ + std::to_string(host);
    }
    // Returns the command `dslaunch WORDS`, run in DIRECTORY. The options with the hosts follow the
    // first word (for `hosts check`, the second word).
    [[nodiscard]] std::vector<std::string> command(std::vector<std::string> words,
                                                   const std::string& directory = "/") const {
        std::vector<std::string> all = {"ip",
                                        "netns",
                                        "exec",
                                        prefix_ + "0",
                                        "env",
                                        "--chdir=" + directory,
                                        place_ + "/bin/dslaunch"};
        const size_t head = words.front() == "hosts" ? 2 : 1;
        const std::vector<std::string> hosts = {"--hostfile", folder_ + "/hostfile", "--ssh-config",
                                                folder_ + "/good"};
        words.insert(words.begin() + static_cast<std::ptrdiff_t>(head), hosts.begin(), hosts.end());
        all.insert(all.end(), words.begin(), words.end());
        return all;
    }

  private:
    std::string prefix_, folder_, place_;
    bool usable_ = false;
};

}  // namespace

TEST_CASE("who holds GPUs is asked on all hosts at once, and a process is ended over ssh") {
    const RigHosts hosts(3, "ps --devices over ssh");
    if (!hosts.usable()) return;
    const auto dslaunch = [&](std::vector<std::string> words) {
        words.insert(words.begin(), {std::string(test::binary_dir()) + "/dslaunch"});
        words.insert(words.end(), {"--ssh-config", hosts.config("good")});
        return run_program(hosts.on(0, words));
    };
    hosts.cut(3);
    const ProgramEnd listed = dslaunch({"ps", "--devices", "--hosts", "n1,n2,n3", "--json"});
    INFO(listed.err);
    CHECK(listed.code == 67);
    CHECK_THAT(listed.err, Catch::Contains("n3: cannot ask this host: "));
    CHECK_THAT(listed.out, Catch::Contains("\"host\": \"n1\", \"error\": \"\"") &&
                               Catch::Contains("\"host\": \"n2\", \"error\": \"\""));
    const TemporaryFolder folder;
    const JobProcess sleeper(folder, hosts.on(2, {"sleep", "600"}));
    REQUIRE(wait_until([&] { return process_file(sleeper.pid(), "comm") == "sleep\n"; }));
    const std::string pid = std::to_string(sleeper.pid());
    const ProgramEnd ended = dslaunch({"stop", "--pid", "n2:" + pid, "--yes"});
    INFO(ended.err);
    CHECK(ended.code == 0);
    CHECK(ended.out == "n2: process " + pid + ": ended as asked\n");
}

TEST_CASE("exec takes hosts and -S as pdsh does, and ends with the highest code") {
    const RigHosts hosts(2, "exec with pdsh's options over ssh");
    if (!hosts.usable()) return;
    const auto exec = [&](std::vector<std::string> words) {
        words.insert(words.begin(), {std::string(test::binary_dir()) + "/dslaunch", "exec",
                                     "--ssh-config", hosts.config("good")});
        return run_program(hosts.on(0, words));
    };
    // The exit code on each host is the last number of its address: 2 and 3.
    const std::string own = "ip -4 -o addr show dev eth0 | sed 's/.*10.91.7.\\([0-9]*\\).*/\\1/'";
    const ProgramEnd apart = exec({"-w", "n1,n2", "-S", "sh", "-c", "exit $(" + own + ")"});
    INFO(apart.err);
    CHECK(apart.code == 3);
    CHECK(mentions(apart.err, "failed on 2 of 2 hosts:\n  n1: exit code 2\n  n2: exit code 3\n"));
    const ProgramEnd well = exec({"-S", "-w", "n[1-2]", "--", "echo", "-S"});
    INFO(well.err);
    CHECK(well.code == 0);
    CHECK(well.out == "n[1-2] (2 hosts):\n-S\n");
}

TEST_CASE("hosts without dslaunch are named, get it by push, and serve from then on") {
    const BareHosts hosts;
    if (!hosts.usable()) return;
    const ProgramEnd before = run_program(hosts.command({"exec", "--", "hostname"}));
    CHECK(before.code == 67);
    CHECK(mentions(before.err, "n[1-2] (2 hosts): there is no dslaunch at " + hosts.place()));
    CHECK(mentions(before.err, "dslaunch push"));

    for (const std::string launcher : {"ssh", "openssh"}) {
        shell("rm -rf " + hosts.inside(1) + "/* " + hosts.inside(2) + "/*");
        const auto began = Steady::now();
        const ProgramEnd pushed = run_program(hosts.command({"push", "--launcher", launcher}));
        INFO(pushed.err);
        CHECK(pushed.code == 0);
        CHECK(mentions(pushed.out, "n[1-2] (2 hosts): dslaunch installed; "));
        std::printf("%s: dslaunch on two bare hosts in %.0f ms\n", launcher.c_str(),
                    std::chrono::duration<double, std::milli>(Steady::now() - began).count());
        // push has created only the files of dslaunch.
        shell("test \"$(ls -A " + hosts.inside(1) + " | tr '\n' ' ')\" = 'bin lib '");
        shell("cmp " + hosts.place() + "/bin/dslaunch " + hosts.inside(2) + "/bin/dslaunch");
    }
    const ProgramEnd checked = run_program(hosts.command({"hosts", "check"}));
    INFO(checked.out << checked.err);
    CHECK(checked.code == 0);
    CHECK(mentions(checked.out, "10.91.7.3"));
    // A folder that only the launcher's host has is a fault only if --chdir names it.
    const std::string here = hosts.place() + "/only-here";
    shell("mkdir " + here);
    const ProgramEnd apart = run_program(hosts.command({"hosts", "check"}, here));
    INFO(apart.out << apart.err);
    CHECK(apart.code == 0);
    CHECK(mentions(apart.out, " no folder "));
    const ProgramEnd needed = run_program(hosts.command({"hosts", "check", "--chdir", here}));
    CHECK(needed.code == 67);
    CHECK(mentions(needed.err, "n1: the directory " + here + ": No such file or directory"));
    const ProgramEnd again = run_program(hosts.command({"push"}));
    CHECK(mentions(again.out, "(2 hosts): 0 files sent, 0 B;"));

    // push replaces another version of dslaunch, as it adds a missing one.
    const std::string program = hosts.inside(1) + "/bin/dslaunch";
    shell("cp " + program + " " + program + ".x && printf x >>" + program + ".x && mv " + program +
          ".x " + program);
    const ProgramEnd different = run_program(hosts.command({"hosts", "check"}));
    CHECK(different.code == 67);
    CHECK(mentions(different.err, "1 of 2 hosts has problems:\n  n1: its dslaunch"));
    CHECK(mentions(run_program(hosts.command({"push"})).out, "n1: dslaunch installed; "));
    CHECK(run_program(hosts.command({"hosts", "check"})).code == 0);
}

TEST_CASE("push brings files and folders to all hosts, and names what stands in the way") {
    const BareHosts hosts;
    if (!hosts.usable()) return;
    TemporaryFolder folder;
    shell("mkdir -p " + folder.path() + "/m/sub && seq 3000000 >" + folder.path() +
          "/m/weights && echo two >" + folder.path() + "/m/sub/two && chmod 750 " + folder.path() +
          "/m/sub/two");
    const std::string to = hosts.place() + "/data";
    const ProgramEnd pushed =
        run_program(hosts.command({"push", "--to", to, folder.path() + "/m"}));
    INFO(pushed.err);
    CHECK(pushed.code == 0);
    for (const int host : {1, 2}) {
        shell("diff -r " + folder.path() + "/m " + hosts.inside(host) + "/data/m");
        shell("test $(stat -c %a " + hosts.inside(host) + "/data/m/sub/two) = 750");
    }
    // On n2, a folder and a link block two files. The other host still gets both files.
    shell("echo changed >>" + folder.path() + "/m/weights; echo changed >>" + folder.path() +
          "/m/sub/two; rm -rf " + hosts.inside(2) + "/data/m/weights; mkdir " + hosts.inside(2) +
          "/data/m/weights; ln -sf /etc/passwd " + hosts.inside(2) + "/data/m/sub/two");
    const ProgramEnd blocked =
        run_program(hosts.command({"push", "--to", to, folder.path() + "/m"}));
    CHECK(blocked.code == 67);
    CHECK(mentions(blocked.err, "n2: " + to + "/m/sub/two: the path is a symbolic link"));
    CHECK(mentions(blocked.err, to + "/m/weights: the path is a folder"));
    CHECK(mentions(blocked.out, "n1: 2 files sent"));
    shell("diff -r " + folder.path() + "/m " + hosts.inside(1) + "/data/m");
}

TEST_CASE("exec groups equal output, tells the codes apart, and leaves nothing behind") {
    const BareHosts hosts;
    if (!hosts.usable()) return;
    REQUIRE(run_program(hosts.command({"push"})).code == 0);
    const ProgramEnd same = run_program(hosts.command({"exec", "echo", "one;", "$HOME"}));
    CHECK(same.code == 0);
    CHECK(same.out == "n[1-2] (2 hosts):\none; $HOME\n");
    // Only n2 has this file.
    shell("touch " + hosts.inside(2) + "/mark");
    const std::string place = hosts.place();
    const ProgramEnd apart =
        run_program(hosts.command({"exec", "--", "test", "!", "-e", place + "/mark"}));
    CHECK(apart.code == 1);
    CHECK(mentions(apart.err, "failed on 1 of 2 hosts:\n  n2: exit code 1\n"));
    const ProgramEnd killed =
        run_program(hosts.command({"exec", "--stream", "--", "sh", "-c", "echo a; kill $$"}));
    CHECK(killed.code == 128 + SIGTERM);
    CHECK(mentions(killed.out, "n1: a\n"));
    CHECK(mentions(killed.out, "n2: a\n"));
    TemporaryFolder folder;
    JobProcess job(folder, hosts.command({"exec", "--timeout", "100", "sh", "-c",
                                          "trap '' TERM; echo $$ >>" + folder.path() +
                                              "/pids; while :; do sleep 0.05; done"}));
    REQUIRE(wait_until([&] { return recorded_processes(folder).size() == 2; }));
    const auto workers = recorded_processes(folder);
    job.signal(SIGINT);
    CHECK(job.wait() == 76);
    CHECK(wait_until([&] { return all_gone(workers); }, 5'000));
}

TEST_CASE("a word that is nearly a subcommand starts nothing, unless run or a path is written") {
    const std::string dslaunch = std::string(test::binary_dir()) + "/dslaunch";
    const TemporaryFolder folder, programs;
    // A program with this name is in PATH, and would leave a trace if it were run.
    for (const std::string name : {"tap", "ls", "stpo", "runn"}) {
        std::ofstream(programs.path() + "/" + name) << "#!/bin/sh\ntouch $TRACE\n";
        ::chmod((programs.path() + "/" + name).c_str(), 0700);
        const std::string trace = folder.path() + "/trace-" + name;
        const auto run = [&](const std::vector<std::string>& words) {
            std::vector<std::string> command = {"env", "PATH=" + programs.path() + ":/usr/bin:/bin",
                                                "TRACE=" + trace, dslaunch};
            command.insert(command.end(), words.begin(), words.end());
            JobProcess job(folder, command);
            const int code = job.wait();
            INFO(job.err());
            if (code == 64) CHECK_THAT(job.err(), Catch::Contains("did you mean `"));
            return code;
        };
        INFO(name);
        CHECK(run({name}) == 64);
        CHECK(run({"--num_gpus", "1", name, "-x"}) == 64);
        CHECK_FALSE(std::filesystem::exists(trace));
        CHECK(run({"run", "--num_gpus", "1", "--env", "TRACE", name}) == 0);
        CHECK(std::filesystem::remove(trace));
        CHECK(run({"--num_gpus", "1", "--env", "TRACE", programs.path() + "/" + name}) == 0);
        CHECK(std::filesystem::exists(trace));
    }
}
