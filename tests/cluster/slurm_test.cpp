// dslaunch inside allocations of a real Slurm whose nodes are network namespaces: hosts and slots
// without a hostfile, signals that let ranks save, lost nodes, and no processes left.
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "support/catch.h"
#include "support/job_process.h"
#include "support/rig_hosts.h"
#include "support/text_tools.h"

using namespace dslaunch;
using namespace dslaunch::test;

namespace {

using Words = std::vector<std::string>;

class SlurmRig : public RigHosts {
  public:
    explicit SlurmRig(int count)
        : RigHosts({.count = count,
                    .what = "jobs inside a Slurm allocation",
                    .script = "slurm_rig.sh"}) {}
    [[nodiscard]] Words on_head(const Words& words) const { return command("exec", words); }
    // Returns the command with which salloc, with OPTIONS, runs dslaunch with ARGUMENTS on the head
    // node.
    [[nodiscard]] Words allocated(const Words& options, const Words& arguments) const {
        Words words = {"salloc", "-Q"};
        words.insert(words.end(), options.begin(), options.end());
        words.push_back(kDslaunch);
        words.insert(words.end(), arguments.begin(), arguments.end());
        return on_head(words);
    }
    void lose(int number) const { CHECK(run(command("lose", {std::to_string(number)})) == 0); }
};

std::multiset<std::string> lines_of(const std::string& text) {
    std::multiset<std::string> lines;
    for (const std::string& line : split(text, '\n')) {
        if (!line.empty()) lines.insert(line);
    }
    return lines;
}

// Returns the script of a rank that writes its id and ignores every signal except TERM. On TERM, it
// takes a moment to save.
std::string saving_rank(const TemporaryFolder& folder) {
    return fmt::format(
        "trap 'sleep 0.3; echo saved $RANK; exit 0' TERM; trap '' USR1 HUP INT; echo $$ >> "
        "{}/pids; "
        "while :; do sleep 0.05; done",
        folder.path());
}

std::string deaf_rank(const TemporaryFolder& folder) {
    return fmt::format("trap '' TERM HUP INT; echo $$ >> {}/pids; while :; do sleep 0.05; done",
                       folder.path());
}

bool all_up(const TemporaryFolder& folder, size_t count) {
    return wait_until([&] { return recorded_processes(folder).size() == count; });
}

// Returns the process with this name whose command line contains WORD; 0 if there is none.
pid_t find_process(const std::string& name, const std::string& word) {
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
        const auto pid = parse_int(entry.path().filename().string());
        if (!pid) continue;
        if (process_file(static_cast<pid_t>(*pid), "comm") == name + "\n" &&
            mentions(process_file(static_cast<pid_t>(*pid), "cmdline"), word))
            return static_cast<pid_t>(*pid);
    }
    return 0;
}

}  // namespace

// Slurm numbers its tasks in the order of the allocation's nodes; dslaunch numbers ranks in the
// order of the hostfile.
TEST_CASE("rank 0 of a job in an allocation reads what the launcher is given, on whatever node") {
    const SlurmRig rig(3);
    if (!rig.usable()) return;
    const TemporaryFolder files;
    const std::string hostfile = files.path() + "/hostfile";
    write_file(hostfile, fmt::format("{} slots=2\n{} slots=1\n", rig.name(3), rig.name(1)));
    for (const bool reordered : {false, true}) {
        const TemporaryFolder folder;
        const std::string script = "sh -c 'IFS= read -r a; echo \"$(hostname) $RANK <$a>\"; cat'";
        JobProcess job(
            folder, rig.on_head({"salloc", "-Q", "-N3", "--ntasks-per-node=1", "sh", "-c",
                                 fmt::format("printf 'one\\ntwo\\n' | {} -q {} {}", kDslaunch,
                                             reordered ? "--launcher slurm --hostfile " + hostfile
                                                       : std::string("--device cpu"),
                                             script)}));
        CHECK(job.wait() == 0);
        INFO(job.out() << job.err());
        const std::string first = rig.name(reordered ? 3 : 1);
        CHECK(mentions(job.out(), fmt::format("[{}:0] {} 0 <one>\n", first, first)));
        CHECK(mentions(job.out(), fmt::format("[{}:0] two\n", first)));
        CHECK(mentions(job.out(), " 1 <>\n"));
        CHECK(mentions(job.out(), " 2 <>\n"));
    }
}

TEST_CASE("inside a Slurm allocation a job needs no hostfile and no ssh") {
    const SlurmRig rig(4);
    if (!rig.usable()) return;
    SECTION("hosts, slots and filters come from the allocation, and every rank runs on its node") {
        const TemporaryFolder folder;
        const auto began = Steady::now();
        JobProcess job(folder, rig.allocated({"-N4", "--ntasks-per-node=2"},
                                             {"--exclude", rig.name(2), "sh", "-c",
                                              "echo $RANK $(hostname) ${DSLAUNCH_TOKEN-none}"}));
        CHECK(job.wait() == 0);
        std::printf("slurm: salloc, 3 hosts, 6 ranks in %.0f ms\n",
                    to_milliseconds(Steady::now() - began));
        INFO(job.err());
        CHECK(mentions(job.err(), ": 4 hosts, 8 slots"));
        std::multiset<std::string> expected;
        for (const int rank : {0, 1, 2, 3, 4, 5}) {
            const std::string host = rig.name(rank < 2 ? 1 : rank < 4 ? 3 : 4);
            expected.insert(fmt::format("[{}:{}] {} {} none", host, rank, rank, host));
        }
        CHECK(lines_of(job.out()) == expected);
    }
    SECTION("one task per node starts as many ranks there as the command says") {
        for (const bool by_srun : {false, true}) {
            CAPTURE(by_srun);
            const TemporaryFolder folder;
            Words words = {"salloc", "-Q", "-N2", "--ntasks-per-node=1", "--cpus-per-task=2"};
            // srun kills the rest of a step 1 s after its first task has ended.
            if (by_srun) words.insert(words.end(), {"srun", "--wait=1", "--kill-on-bad-exit=1"});
            words.insert(
                words.end(),
                {"sh", "-c",
                 fmt::format("exec {} --nnodes $SLURM_NNODES --nproc_per_node 3 --rdzv_id "
                             "$SLURM_JOB_ID --rdzv_backend c10d --rdzv_endpoint {}:9901 sh "
                             "-c 'sleep 3; echo $RANK/$WORLD_SIZE $(hostname) "
                             "$LOCAL_RANK ${{DSL_HELD_NAME-none}}'",
                             kDslaunch, rig.name(1))});
            JobProcess job(folder, rig.on_head(words));
            CHECK(job.wait() == 0);
            INFO(job.err());
            std::multiset<std::string> expected;
            for (const int rank : {0, 1, 2, 3, 4, 5}) {
                const std::string host = rig.name(1 + rank / 3);
                expected.insert(fmt::format("[{0}:{1}] {1}/6 {0} {2} none", host, rank, rank % 3));
            }
            CHECK(lines_of(job.out()) == expected);
            CHECK(mentions(job.err(), "task 0 of this step starts this job") == by_srun);
        }
    }
    SECTION("of commands that srun starts node by node one launches, and the others wait") {
        for (const std::string& place : {"--node_rank $i --master_addr " + rig.name(1),
                                         "--rdzv_backend c10d --rdzv_endpoint " + rig.name(2)}) {
            CAPTURE(place);
            const TemporaryFolder folder;
            const std::string loop = fmt::format(
                "for i in 0 1; do srun -N1 -n1 -w {}$((i + 1)) {} --nnodes 2 --nproc_per_node 2 {} "
                "sh -c 'sleep 1; echo $RANK/$WORLD_SIZE $(hostname)' & done; wait",
                rig.name(1).substr(0, rig.name(1).size() - 1), kDslaunch, place);
            JobProcess job(folder, rig.on_head({"salloc", "-Q", "-N2", "--ntasks-per-node=1", "sh",
                                                "-c", loop}));
            CHECK(job.wait() == 0);
            INFO(job.err());
            std::multiset<std::string> expected;
            for (const int rank : {0, 1, 2, 3}) {
                const std::string host = rig.name(1 + rank / 2);
                expected.insert(fmt::format("[{0}:{1}] {1}/4 {0}", host, rank));
            }
            CHECK(lines_of(job.out()) == expected);
            CHECK(mentions(job.err(), "this copy of dslaunch only waits until the job ends"));
        }
    }
    SECTION("of the copies that srun starts the first launches and the others wait") {
        const TemporaryFolder folder;
        JobProcess job(folder,
                       rig.on_head({"salloc", "-Q", "-N2", "--ntasks-per-node=2", "srun",
                                    "--ntasks-per-node=2", kDslaunch, "sh", "-c", "echo $RANK"}));
        CHECK(job.wait() == 0);
        INFO(job.err());
        std::multiset<std::string> expected;
        for (const int rank : {0, 1, 2, 3}) {
            expected.insert(fmt::format("[{}:{}] {}", rig.name(1 + rank / 2), rank, rank));
        }
        CHECK(lines_of(job.out()) == expected);
    }
    SECTION("a rank that fails ends the job with its code, and is named") {
        const TemporaryFolder folder;
        JobProcess job(folder,
                       rig.allocated({"-N3"}, {"sh", "-c", "[ $RANK = 1 ] && exit 3; sleep 30"}));
        CHECK(job.wait() == 3);
        CHECK(mentions(job.err(), "rank 1 on host " + rig.name(2) + " failed first: exit code 3"));
    }
    SECTION("a node without dslaunch is named with the cause") {
        const TemporaryFolder folder;
        // This program exists only in the launcher's own mount namespace.
        const std::string mount = fmt::format(
            "mkdir {0}/m && mount -t tmpfs tmpfs {0}/m && cp {1} {0}/m/dslaunch && "
            "exec salloc -Q -N2 {0}/m/dslaunch true",
            folder.path(), kDslaunch);
        JobProcess job(folder, rig.on_head({"unshare", "--mount", "sh", "-c", mount}));
        CHECK(job.wait() == 67);
        INFO(job.err());
        CHECK(mentions(job.err(), "cannot start an agent on 2 of 2 hosts"));
        CHECK(mentions(job.err(), "No such file or directory"));
    }
}

TEST_CASE("Slurm's signals let the ranks save, and killed launchers leave nothing") {
    const SlurmRig rig(3);
    if (!rig.usable()) return;
    const TemporaryFolder folder;
    // The batch script replaces itself by dslaunch. If it stayed as a shell, the signal would end
    // the shell, and Slurm would then kill the shell's children.
    const auto submit = [&] {
        const std::string script = fmt::format(
            "trap 'sleep 0.3; echo saved \\$RANK; exit 0' TERM; echo \\$\\$ >> {}/pids; "
            "while :; do sleep 0.05; done",
            folder.path());
        const std::string line = fmt::format("exec {} --grace 8 sh -c \"{}\"", kDslaunch, script);
        const TemporaryFolder own;
        JobProcess process(own, rig.on_head({"sbatch", "--parsable", "-N3", "-o",
                                             folder.path() + "/out", "--wrap", line}));
        REQUIRE(process.wait() == 0);
        REQUIRE(all_up(folder, 3));
        return std::string(trim(process.out()));
    };
    const auto all_have_saved = [&] {
        CHECK(wait_until([&] { return mentions(folder.read("out"), "every rank has ended"); }));
        INFO(folder.read("out"));
        for (const char* line : {"saved 0", "saved 1", "saved 2"}) {
            CHECK(mentions(folder.read("out"), line));
        }
    };
    SECTION("scancel --signal=USR1 reaches the agents, which ask the launcher") {
        CHECK(rig.run(rig.on_head({"scancel", "--signal=USR1", submit()})) == 0);
        all_have_saved();
        CHECK(mentions(folder.read("out"), " received SIGUSR1"));
    }
    SECTION("scancel --batch --signal=USR1 reaches the launcher alone") {
        CHECK(rig.run(rig.on_head({"scancel", "--batch", "--signal=USR1", submit()})) == 0);
        all_have_saved();
        CHECK(mentions(folder.read("out"), "dslaunch: asked to end; the ranks have 8 s"));
    }
    SECTION("scancel: every agent and the launcher get TERM, which is one wish") {
        const std::string id = submit();
        const auto workers = recorded_processes(folder);
        CHECK(rig.run(rig.on_head({"scancel", id})) == 0);
        all_have_saved();
        CHECK(wait_until([&] { return all_gone(workers); }, 5'000));
    }
    SECTION("a launcher that is killed takes every rank on every node along") {
        JobProcess job(folder, rig.allocated({"-N3"}, {"sh", "-c", deaf_rank(folder)}));
        REQUIRE(all_up(folder, 3));
        const auto workers = recorded_processes(folder);
        const pid_t launcher =
            find_process("dslaunch", "trap '' TERM HUP INT; echo $$ >> " + folder.path());
        REQUIRE(launcher > 0);
        const auto began = Steady::now();
        REQUIRE(::kill(launcher, SIGKILL) == 0);
        CHECK(wait_until([&] { return all_gone(workers); }, 5'000));
        std::printf("slurm: launcher killed, all gone after %.0f ms\n",
                    to_milliseconds(Steady::now() - began));
    }
    SECTION("an srun that is killed ends the job and is named") {
        JobProcess job(folder, rig.allocated({"-N3"}, {"sh", "-c", deaf_rank(folder)}));
        REQUIRE(all_up(folder, 3));
        const auto workers = recorded_processes(folder);
        const pid_t srun = find_process("srun", "--join");
        REQUIRE(srun > 0);
        REQUIRE(::kill(srun, SIGKILL) == 0);
        CHECK(job.wait() == 67);
        INFO(job.err());
        CHECK(mentions(job.err(), " is lost: "));
        CHECK(wait_until([&] { return all_gone(workers); }, 5'000));
    }
}

TEST_CASE("a Slurm node whose plug is pulled is named", "[.long]") {
    const SlurmRig rig(3);
    if (!rig.usable()) return;
    const TemporaryFolder folder;
    JobProcess job(folder, rig.allocated({"-N3"}, {"sh", "-c", saving_rank(folder)}));
    REQUIRE(all_up(folder, 3));
    const auto workers = recorded_processes(folder);
    const auto began = Steady::now();
    rig.lose(3);
    CHECK(job.wait() == 67);
    std::printf("slurm: node lost, job over after %.1f s\n",
                to_milliseconds(Steady::now() - began) / 1000);
    INFO(job.err());
    CHECK(mentions(job.err(), "host " + rig.name(3) + " is lost: "));
    CHECK(wait_until([&] { return all_gone(workers); }, 5'000));
}
