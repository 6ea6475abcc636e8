// The cases of DeepSpeed 0.19's own launcher tests (tests/unit/launcher: test_run,
// test_ds_arguments, test_multinode_runner, test_user_args), applied to dslaunch one by one. The
// same answer is expected, unless a row gives a reason for another one;
// docs/start/from-deepspeed.md lists these rows.
#include <fmt/ranges.h>

#include <fstream>

#include "base/error.h"
#include "base/text.h"
#include "base/text/words.h"
#include "launch/hosts/hostfile.h"
#include "launch/machine/machine_topology.h"
#include "launcher/options/parse_run.h"
#include "launcher/run/build_job.h"
#include "support/catch.h"
#include "support/temporary_folder.h"
#include "support/text_tools.h"
#include "support/typed_line.h"

using namespace dslaunch;
using namespace dslaunch::launch;
using namespace dslaunch::launcher;
using namespace dslaunch::test;
using Words = std::vector<std::string>;

namespace {

// Returns the job of the command LINE. Quotes in it group words.
JobSpec job_of(const std::string& line, const Machine& on = head_machine()) {
    return build_job(parse_run_options(*split_words(line, Comments::kAreWords)), on).spec;
}

std::string refusal_of(const std::string& line) {
    return error_of([&] { static_cast<void>(job_of(line)); });
}

// Returns "worker-0:1,2 worker-1:0", or the refusal.
std::string chosen(const std::string& hostfile, const std::string& include,
                   const std::string& exclude) {
    HostFilter filter;
    filter.include = include;
    filter.exclude = exclude;
    std::string text;
    try {
        for (const HostSlots& entry : apply_filter(parse_hostfile(hostfile, "hosts"), filter))
            text += fmt::format("{}{}:{}", text.empty() ? "" : " ", entry.host.name,
                                fmt::join(entry.slots, ","));
    } catch (const Error&) {
        return "refused";
    }
    return text;
}

}  // namespace

TEST_CASE("deepspeed's choices of hosts and slots") {
    struct Row {
        std::string include, exclude, expected;
    };
    const std::string one = "worker-0 slots=4\n";
    const Row local[] = {
        {"", "", "worker-0:0,1,2,3"},
        {"A", "B", "refused"},
        {"", "worker-0:1", "worker-0:0,2,3"},
        {"", "worker-0:1,2", "worker-0:0,3"},
        {"worker-0:1", "", "worker-0:1"},
        {"worker-0:1,1", "", "worker-0:1"},
        {"worker-0:1@worker-0:0,1", "", "worker-0:0,1"},
        {"worker-0", "", "worker-0:0,1,2,3"},
        // DeepSpeed has an empty set here and fails later; dslaunch refuses a job without a worker.
        {"", "worker-0", "refused"},
        {"", "worker-0:0,1,2,3", "refused"},
        {"worker-0:4", "", "refused"},
        {"worker-0:99", "", "refused"},
        {"worker-0:0,4", "", "refused"},
        {"", "worker-0:4", "refused"},
        {"jeff", "", "refused"},
    };
    for (const Row& row : local) {
        CAPTURE(row.include, row.exclude);
        CHECK(chosen(one, row.include, row.exclude) == row.expected);
    }
    const std::string two = one + "worker-1 slots=4\n";
    const Row several[] = {
        {"", "", "worker-0:0,1,2,3 worker-1:0,1,2,3"},
        {"worker-1:0,3", "", "worker-1:0,3"},
        {"", "worker-1", "worker-0:0,1,2,3"},
        {"", "worker-0:0,1@worker-1:3", "worker-0:2,3 worker-1:0,1,2"},
        {"worker-0@worker-1:0,2", "", "worker-0:0,1,2,3 worker-1:0,2"},
        {"", "worker-0:1", "worker-0:0,2,3 worker-1:0,1,2,3"},
        {"jeff", "", "refused"},
        {"", "jeff", "refused"},
        {"worker-1:4", "", "refused"},
        {"", "worker-1:4", "refused"},
        {"", "worker-1@worker-0:1@5", "refused"},
    };
    for (const Row& row : several) {
        CAPTURE(row.include, row.exclude);
        CHECK(chosen(two, row.include, row.exclude) == row.expected);
    }
}

TEST_CASE("deepspeed's counts beside its filters are refused") {
    for (const std::string counts : {"--num_nodes 1", "--num_nodes 1 --num_gpus 1", "--num_gpus 1"})
        for (const std::string filter : {"-i localhost", "-e localhost"}) {
            CAPTURE(counts, filter);
            CHECK_THAT(refusal_of(counts + " " + filter + " foo.py"),
                       Catch::Contains("cannot be given together with"));
        }
}

TEST_CASE("CUDA_VISIBLE_DEVICES names the slots of this machine, as under deepspeed") {
    Machine four = head_machine();
    four.gpu_count = 4;
    four.environment = {{"CUDA_VISIBLE_DEVICES", "0,2"}};
    const JobSpec spec = job_of("dummy.py", four);
    CHECK(spec.world_size == 2);
    CHECK(spec.nodes[0].workers[0].environment.devices == "0,2");
}

TEST_CASE("deepspeed's good and bad hostfiles") {
    const auto hosts = parse_hostfile(
        "\n    worker-1 slots=2\n    worker-2 slots=2\n\n    localhost slots=1\n"
        "    123.23.12.10 slots=2\n\n    #worker-1 slots=3\n    # this is a comment\n\n    ",
        "hosts");
    REQUIRE(hosts.size() == 4);
    CHECK(hosts[0].name == "worker-1");
    CHECK(hosts[0].slots == 2);
    CHECK(hosts[2].name == "localhost");
    CHECK(hosts[2].slots == 1);
    CHECK(hosts[3].name == "123.23.12.10");
    for (const std::string bad :
         {"worker-1 slots=2\nworker-2 slots=1\nworker-1 slots=1\n", "    this is bad slots=1\n",
          "    missingslots\n", "    \n",
          "worker-1 slots=2\nthis is bad slots=1\nworker-2 slots=4\nmissingslots\n"}) {
        CAPTURE(bad);
        CHECK_THROWS_AS(parse_hostfile(bad, "hosts"), Error);
    }
}

TEST_CASE("deepspeed's arguments of a script and of a model") {
    // A script's arguments are its own, even --deepspeed and --deepspeed_config: they reach the
    // script.
    CHECK(job_of("t.py --num_epochs 2 --deepspeed --deepspeed_config foo.json")
              .nodes[0]
              .workers[0]
              .command == Words{head_machine().python(), "-u", "t.py", "--local_rank=0",
                                "--num_epochs", "2", "--deepspeed", "--deepspeed_config",
                                "foo.json"});
    CHECK(job_of("--no_python run.sh a").nodes[0].workers[0].command ==
          Words{"run.sh", "--local_rank=0", "a"});
    CHECK(job_of("--no_python --no_local_rank run.sh").nodes[0].workers[0].command ==
          Words{"run.sh"});
    for (const std::string line :
         {"m.pt --deepspeed --deepspeed_config foo.json", "m.pt --deepspeed foo.json",
          "m.pt --deepspeed=foo.json", "--deepspeed foo.json m.pt",
          "--deepspeed --deepspeed_config foo.json m.pt"}) {
        CAPTURE(line);
        CHECK(parse_run_options(split(line, ' ')).config == "foo.json");
    }
    // Prompts with quotes of either kind arrive unchanged, because no shell reads them.
    for (const std::string prompt :
         {R"("I am 6' tall")", R"('I am 72" tall')", R"('"translate English to Romanian: "')",
          R"(I'm going to tell them "DeepSpeed is the best")"}) {
        const RunOptions options = parse_run_options(
            Words{"--num_nodes", "1", "--num_gpus", "1", "t.py", "--prompt", prompt});
        CHECK(build_job(options, head_machine()).spec.nodes[0].workers[0].command.back() == prompt);
    }
}

TEST_CASE("deepspeed's lists of processors") {
    CHECK(parse_processor_list("0,2-4,6,8-9") == std::vector<int>{0, 2, 3, 4, 6, 8, 9});
    // DeepSpeed requires rising numbers without repetition; dslaunch takes the list as a set.
    CHECK(parse_processor_list("8,2-6") == std::vector<int>{2, 3, 4, 5, 6, 8});
    CHECK_FALSE(parse_processor_list("1,6-2"));
}

TEST_CASE("deepspeed's launchers") {
    const TemporaryFolder folder;
    const std::string hostfile = folder.path() + "/hostfile";
    std::ofstream(hostfile) << "worker-0 slots=4\nworker-1 slots=4\n";
    const std::string hosts = "--hostfile " + hostfile + " ";
    CHECK(job_of(hosts + "--launcher pdsh t.py").transport == TransportKind::kPdsh);
    CHECK(job_of(hosts + "--launcher OPENMPI t.py").transport == TransportKind::kOpenMpi);
    for (const std::string words :
         {"-mca btl_tcp_if_include eth1", "--mca btl_tcp_if_include eth1"}) {
        const JobSpec spec =
            job_of(hosts + "--launcher openmpi --launcher_arg '" + words + "' t.py");
        CHECK(spec.launcher_args == split(words, ' '));
    }
    // The mpirun of MPICH, Intel and MVAPICH is refused. The error names the way to use instead.
    for (const std::string name : {"mpich", "impi", "mvapich"})
        CHECK_THAT(refusal_of(hosts + "--launcher " + name + " t.py"),
                   Catch::Contains("use ssh, openssh or openmpi"));
    // A launcher that is not needed is not an error.
    CHECK(job_of("--launcher pdsh t.py").transport == TransportKind::kLocal);
    CHECK(job_of("--force_multi --num_nodes 1 --num_gpus 1 t.py").transport == TransportKind::kSsh);
    CHECK(job_of("--hostfile '' t.py").transport == TransportKind::kLocal);
    // Agents can give every host its own devices and a different number of them. srun cannot
    // express this, and DeepSpeed refuses it.
    const JobSpec uneven = job_of(hosts + "--include worker-1:0,2@worker-0:1 t.py");
    CHECK(uneven.world_size == 3);
    CHECK(uneven.nodes[1].workers[0].environment.devices == "0,2");
    CHECK(job_of(hosts + "--exclude worker-1 t.py").nodes.size() == 1);
    CHECK(job_of(hosts + "--num_gpus 2 t.py").world_size == 4);
    CHECK(job_of(hosts + "--num_nodes 1 t.py").world_size == 4);
}

TEST_CASE("the working directory is in PYTHONPATH on every host, and MLFLOW's variables go along") {
    const TemporaryFolder folder;
    const std::string hostfile = folder.path() + "/hostfile";
    std::ofstream(hostfile) << "worker-0 slots=1 max_slots=4\nworker-1 slots=1 max-slots=4\n";
    Machine here = head_machine();
    here.environment = {{"MLFLOW_TRACKING_URI", "http://m"}, {"OTHER", "x"}};
    const std::string hosts = "--hostfile " + hostfile + " ";
    CHECK(job_of(hosts + "t.py", here).environment.set ==
          EnvironmentList{{"MLFLOW_TRACKING_URI", "http://m"}, {"PYTHONPATH", "/home/me"}});
    here.environment.emplace_back("PYTHONPATH", "/lib/of/mine");
    CHECK(job_of(hosts + "t.py", here).environment.set ==
          EnvironmentList{{"MLFLOW_TRACKING_URI", "http://m"},
                          {"PYTHONPATH", "/home/me:/lib/of/mine"}});
    CHECK(job_of("t.py", here).environment.set.empty());
    // Agents that join by themselves have the paths of their own containers.
    here.environment = {{"OTHER", "x"}};
    CHECK(job_of("--launcher join --listen 10.0.0.1:1 --nnodes 2 t.py", here)
              .environment.set.empty());
}

TEST_CASE("names of options may be cut short where one option is meant") {
    CHECK(parse_run_options(split("--num_gpu 2 t.py", ' ')).filter.num_gpus == 2);
    CHECK(parse_run_options(split("--nnode 1 t.py", ' ')).filter.num_nodes == 1);
    CHECK_THAT(refusal_of("--num 2 t.py"),
               Catch::Contains("`--num` is ambiguous, it may be --num-accelerators or"));
    CHECK_THAT(refusal_of("--numx 2 t.py"), Catch::Contains("unknown option `--numx`"));
}
