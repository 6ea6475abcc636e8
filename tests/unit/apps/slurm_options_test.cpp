// Hosts, slots and copies from Slurm's variables, and the GPUs of this machine from CUDA's.
#include <string>
#include <vector>

#include "launcher/run/build_job.h"
#include "launcher/run/host_source.h"
#include "support/catch.h"
#include "support/places.h"
#include "support/typed_line.h"

using namespace dslaunch;
using namespace dslaunch::launch;
using namespace dslaunch::launcher;
using namespace dslaunch::test;

namespace {

const std::string kHostfileFolder = std::string(test::source_dir()) + "/hostfiles/";

}  // namespace

TEST_CASE("inside a Slurm allocation its hosts are the job's, unless other hosts are named") {
    Machine node = head_machine();
    node.environment.insert(node.environment.end(), {{"SLURM_JOB_ID", "12"},
                                                     {"SLURM_JOB_NODELIST", "ts[1-4]"},
                                                     {"SLURM_NTASKS", "8"},
                                                     {"SLURM_TASKS_PER_NODE", "2(x4)"}});
    const BuiltJob built = build_job(typed_options("--exclude ts2 true"), node);
    CHECK(built.notes.front() == "Slurm job 12: 4 hosts, 8 slots");
    CHECK(built.spec.transport == TransportKind::kSlurm);
    CHECK(built.spec.world_size == 6);
    CHECK(built.spec.nodes[1].name == "ts3");
    CHECK(built.spec.environment.inherit_all);
    CHECK(typed_job("--num_nodes 2 --num_gpus 1 true", node).world_size == 2);
    CHECK(typed_job("--launcher ssh true", node).transport == TransportKind::kSsh);
    CHECK(typed_job("--standalone true", node).transport == TransportKind::kLocal);
    CHECK(typed_job("--hostfile " + kHostfileFolder + "cluster-4 true", node).transport ==
          TransportKind::kSsh);
    CHECK(typed_job("--launcher slurm --hostfile " + kHostfileFolder + "cluster-4 true", node)
              .transport == TransportKind::kSlurm);
    CHECK_THROWS_WITH(typed_job("--include ts9 true", node), Catch::Contains("ts9"));
    CHECK_THROWS_WITH(typed_job("--launcher slurm true"),
                      Catch::Contains("inside a Slurm allocation"));
    // The only node is this one, so srun is not needed.
    node.host_name = "ts1";
    CHECK(typed_job("--num_nodes 1 true", node).transport == TransportKind::kLocal);
    CHECK(typed_job("--num_nodes 1 --launcher slurm true", node).transport ==
          TransportKind::kSlurm);
}

TEST_CASE("without tasks and GPUs Slurm's hosts get one worker each, or --num_gpus of them") {
    Machine node = head_machine();
    node.environment = {{"SLURM_JOB_ID", "7"}, {"SLURM_JOB_NODELIST", "a,b"}};
    const BuiltJob one = build_job(typed_options("true"), node);
    CHECK(one.spec.world_size == 2);
    CHECK_THAT(one.notes[1], Catch::Contains("one worker per host"));
    CHECK(typed_job("--num_gpus 3 true", node).world_size == 6);
}

TEST_CASE(
    "of the copies that srun starts only the first launches, unless they are told otherwise") {
    Machine copy = head_machine();
    copy.environment = {{"SLURM_JOB_ID", "7"},
                        {"SLURM_JOB_NODELIST", "a,b"},
                        {"SLURM_STEP_NUM_TASKS", "2"},
                        {"SLURM_PROCID", "1"}};
    const auto launches = [](const std::string& line, const Machine& one) {
        const auto found = SlurmCopy::find(typed_options(line), one);
        return !found || found->launches();
    };
    CHECK_FALSE(launches("true", copy));
    CHECK(launches("--standalone true", copy));
    CHECK(launches("--hostfile h true", copy));
    CHECK(launches("true", head_machine()));
}

TEST_CASE("Slurm's usual script, one task per node, starts as many ranks there as it is told") {
    Machine node = head_machine();
    node.environment = {{"SLURM_JOB_ID", "7"},
                        {"SLURM_JOB_NODELIST", "ts[1-2]"},
                        {"SLURM_NTASKS", "2"},
                        {"SLURM_NTASKS_PER_NODE", "1"},
                        {"SLURM_TASKS_PER_NODE", "1(x2)"}};
    for (const char* ranks : {"--num_gpus 3", "--nproc_per_node 3", "--nnodes 2 --nproc_per_node 3",
                              "--include ts1:0,1,2@ts2:0,2,1"}) {
        CAPTURE(ranks);
        const JobSpec spec = typed_job(std::string(ranks) + " true", node);
        CHECK(spec.world_size == 6);
        CHECK(spec.nodes[1].workers.size() == 3);
    }
    CHECK(typed_job("--include ts2:4 true", node).world_size == 1);
    // torchrun's launchers may meet on any node; its ranks meet on the first node.
    CHECK(typed_job("--nnodes 2 --rdzv_endpoint ts1:9901 true", node).master_address == "ts1");
    CHECK(typed_job("--nnodes 2 --rdzv_endpoint ts2:9901 true", node).master_address.empty());
    CHECK(typed_job("--nnodes 2 --rdzv_endpoint ts2:9901 true", node).master_port == 0);
    CHECK(typed_job("--nnodes 2 --rdzv_endpoint 10.0.0.7:9901 true", node).master_address ==
          "10.0.0.7");
    const BuiltJob alone = build_job(typed_options("true"), node);
    CHECK(alone.spec.world_size == 2);
    CHECK_THAT(alone.notes[1], Catch::Contains("--num_gpus N"));
    CHECK(typed_job("--nnodes 1 --nproc_per_node 2 true", node).world_size == 2);
    // Slurm's number of GPUs does not limit the number of workers.
    node.environment.emplace_back("SLURM_GPUS_ON_NODE", "2");
    CHECK(typed_job("--num_gpus 2 true", node).world_size == 4);
    CHECK_THROWS_WITH(typed_job("--num_gpus 3 true", node), Catch::Contains("`ts1` has 2"));
    CHECK(typed_job("--num_gpus 3 --device cpu true", node).world_size == 6);
}

TEST_CASE("of the commands that srun starts node by node one launches, by rank or by endpoint") {
    const auto copy_of = [](const std::string& line, const char* tasks, const char* task) {
        Machine node = head_machine();
        node.environment = {{"SLURM_JOB_ID", "7"},          {"SLURM_JOB_NODELIST", "ts[1-2]"},
                            {"SLURM_STEP_ID", "3"},         {"SLURM_STEP_NUM_TASKS", tasks},
                            {"SLURM_STEP_NODELIST", "ts1"}, {"SLURM_STEP_TASKS_PER_NODE", tasks},
                            {"SLURM_STEP_NUM_NODES", "1"},  {"SLURM_PROCID", task}};
        node.has_address = [](const std::string& host) { return host == "ts1"; };
        return SlurmCopy::find(typed_options(line), node);
    };
    const std::string meets = "--nnodes 2 --rdzv_endpoint ts1:9901 ";
    const std::string elsewhere = "--nnodes 2 --rdzv_endpoint ts2:9901 ";
    REQUIRE(copy_of(meets + "true", "1", "0"));
    CHECK(copy_of(meets + "true", "1", "0")->launches());
    CHECK_FALSE(copy_of(elsewhere + "true", "1", "0")->launches());
    CHECK(copy_of(elsewhere + "--node_rank 0 true", "1", "0")->launches());
    CHECK_FALSE(copy_of(meets + "--node_rank 1 true", "1", "0")->launches());
    // The name is the same in every step of a job, and different in another job.
    CHECK(copy_of(meets + "--node_rank 1 true", "1", "0")->held_name() ==
          copy_of(meets + "--node_rank 0 true", "1", "0")->held_name());
    CHECK(copy_of(meets + "true", "1", "0")->held_name() !=
          copy_of("--nnodes 2 --rdzv_endpoint ts1:9902 true", "1", "0")->held_name());
    // One command in a shell that srun has started launches on all hosts.
    CHECK_FALSE(copy_of("true", "1", "0"));
    CHECK_FALSE(copy_of("--nproc_per_node 2 true", "1", "0"));
    // In a step of several tasks, the first task launches.
    CHECK_FALSE(copy_of(meets + "true", "2", "1")->launches());
    CHECK(copy_of(meets + "true", "2", "0")->launches());
}

TEST_CASE("--include beside CUDA_VISIBLE_DEVICES counts the machine's GPUs, as deepspeed does") {
    Machine one = head_machine();
    one.gpu_count = 8;
    one.environment.emplace_back("CUDA_VISIBLE_DEVICES", "2,3");
    const auto devices = [&](const std::string& line) {
        return typed_job(line, one).nodes.front().workers.front().environment.devices;
    };
    CHECK(devices("true") == "2,3");
    CHECK(devices("--num_gpus 1 true") == "2");
    CHECK(devices("--include localhost:4 true") == "4");
    CHECK(devices("--include localhost:0,7 true") == "0,7");
    CHECK(devices("--exclude localhost:0,1,2,3,4,5 true") == "6,7");
    CHECK_THROWS_WITH(devices("--include localhost:8 true"), Catch::Contains("no slot 8"));
    const BuiltJob built = build_job(typed_options("--include localhost:4 true"), one);
    REQUIRE_FALSE(built.notes.empty());
    CHECK_THAT(built.notes.front(), Catch::Contains("CUDA_VISIBLE_DEVICES=2,3 is ignored"));
    // Without GPUs, a slot is only a number.
    one.gpu_count = 0;
    CHECK(typed_job("--include localhost:0 true", one).world_size == 1);
    CHECK(typed_job("--include localhost:1,0,1 true", one).world_size == 2);
    CHECK_THROWS_WITH(typed_job("--include localhost:4 true", one), Catch::Contains("no slot 4"));
}
