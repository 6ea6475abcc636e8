#include "launcher/options/run_options.h"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "launcher/options/option_table.h"
#include "launcher/options/parse_run.h"
#include "launcher/run/build_job.h"
#include "launcher/run/dry_run.h"
#include "launcher/run/host_source.h"
#include "launcher/run/mpi_copies.h"
#include "support/catch.h"
#include "support/temporary_folder.h"
#include "support/text_tools.h"
#include "support/typed_line.h"

using namespace dslaunch;
using namespace dslaunch::launch;
using namespace dslaunch::launcher;
using Words = std::vector<std::string>;

namespace {

std::string run_options_refusal(const std::string& line) {
    return test::error_of(ExitCode::kUsage, [&] { (void)test::typed_options(line); });
}

Machine run_options_machine() {
    Machine machine = test::head_machine();
    machine.environment = {{"NCCL_DEBUG", "INFO"}, {"SECRET", "x"}, {"TOKEN", "y"}};
    return machine;
}

JobSpec job(const std::string& line, const Machine& on = run_options_machine()) {
    return test::typed_job(line, on);
}

const std::string kHostfiles = std::string(test::source_dir()) + "/hostfiles/";

}  // namespace

TEST_CASE("names that other tools have for an option are taken") {
    const RunOptions o = test::typed_options(
        "train.pt --batch-size 4 --num_epochs 2 --train_file a.bin --max_seq_length 64 "
        "--grad-accum 3");
    CHECK(o.set == Words{"train_micro_batch_size_per_gpu=4", "dslaunch.epochs=2",
                         "dslaunch.data.train=\"a.bin\"", "dslaunch.data.context=64",
                         "gradient_accumulation_steps=3"});
}

TEST_CASE("the folder of a job as target is the model that the job made") {
    const test::TemporaryFolder folder;
    const std::string run = folder.path() + "/run";
    std::filesystem::create_directory(run);
    test::write_file(run + "/model.pt", "");
    CHECK(test::typed_options(run + " --steps 2").target == run + "/model.pt");
}

TEST_CASE("a model takes our options before and after it, in every spelling") {
    for (const char* line :
         {"--num_gpus 4 train.pt --deepspeed_config ds.json --save-interval 5",
          "train.pt --num-gpus=4 --config=ds.json --save_interval=5",
          "--save-interval=5 --nproc_per_node 4 --deepspeed-config ds.json --deepspeed train.pt"}) {
        INFO(line);
        const RunOptions o = test::typed_options(line);
        CHECK(o.target == "train.pt");
        CHECK(o.filter.num_gpus == 4);
        CHECK(o.config == "ds.json");
        CHECK(o.set == Words{"dslaunch.save.interval=5"});
        CHECK(o.arguments.empty());
    }
}

TEST_CASE("verify trains two steps of a model, and takes no place for results") {
    const auto verify = [](const std::string& line) {
        return parse_run_options(split(line, ' '), /*verify=*/true);
    };
    const auto told = [&](const std::string& line) {
        return test::error_of(ExitCode::kUsage, [&] { (void)verify(line); });
    };
    CHECK(verify("--num_gpus 2 train.pt").set == Words{"dslaunch.steps=2"});
    // The last value counts.
    CHECK(verify("train.pt --steps 5").set == Words{"dslaunch.steps=2", "dslaunch.steps=5"});
    CHECK(verify("train.pt").timeout_s == 3600.0);
    CHECK(verify("train.pt --timeout 20").timeout_s == 20.0);
    CHECK_THAT(told("train.py"), Catch::Contains("verify needs a model"));
    CHECK_THAT(told("train.pt --output out"), Catch::Contains("saves nothing"));
    CHECK_THAT(told("train.pt --resume"), Catch::Contains("saves nothing"));
}

TEST_CASE("what a trainer's command line says of training is said to a model in its words") {
    const RunOptions o = test::typed_options(
        "t.pt --learning_rate 2e-5 --num_train_epochs 3 --warmup_steps 10 --bf16 "
        "--per_device_train_batch_size 4 --gradient_accumulation_steps 8");
    CHECK(o.set == Words{"optimizer.params.lr=2e-5", "dslaunch.epochs=3",
                         "scheduler.params.warmup_num_steps=10", "bf16.enabled=true",
                         "train_micro_batch_size_per_gpu=4", "gradient_accumulation_steps=8"});
    const RunOptions other = test::typed_options(
        "t.pt --max_steps 5 --output_dir o --save_steps 3 --save_total_limit 2");
    CHECK(other.output == "o");
    CHECK(other.set ==
          Words{"dslaunch.steps=5", "dslaunch.save.interval=3", "dslaunch.save.keep=2"});
    CHECK_THAT(run_options_refusal("t.pt --lr 0"),
               Catch::Contains("--lr: `0` is not a number above 0"));
    CHECK_THAT(run_options_refusal("t.pt --epochs x"), Catch::Contains("not a number above 0"));
}

// Every node runs the same command, and the node that has the endpoint launches, as with torchrun.
TEST_CASE("with an endpoint and no hostfile the same command runs on every node") {
    const auto settled = [](const std::string& line, bool is_here) {
        RunOptions options = test::typed_options(line);
        Machine on = run_options_machine();
        on.has_address = [&](const std::string&) { return is_here; };
        settle_meeting(options, on);
        return options;
    };
    const std::string line =
        "--nnodes 2 --nproc_per_node 2 --rdzv_backend c10d --rdzv_id x --rdzv_endpoint n0:29400 "
        "--rdzv_conf timeout=9 --monitor_interval 5 t.py";
    const RunOptions first = settled(line, true);
    CHECK(first.no_ssh);
    CHECK(first.node_rank == 0);
    CHECK_FALSE(agent_by_hand(first));
    const RunOptions other = settled(line, false);
    CHECK(other.joins);
    const auto request = agent_by_hand(other);
    REQUIRE(request);
    CHECK(request->endpoint.text() == "n0:29400");
    CHECK_FALSE(request->identity.node);
    const auto third = agent_by_hand(settled("--node_rank 1 " + line, false));
    REQUIRE(third);
    CHECK(third->identity.node == 1);
    CHECK_FALSE(settled("--nnodes 1 --rdzv_endpoint n0:1 t.py", false).no_ssh);
    CHECK_FALSE(settled("--hostfile h --nnodes 2 --master_addr n0 t.py", false).no_ssh);
    CHECK_FALSE(settled("--nnodes 2 t.py", false).no_ssh);
}

TEST_CASE("everything after a script or program is its own") {
    const RunOptions o = test::typed_options("-i n1:0 train.py --num_gpus 4 --help -x train.pt");
    CHECK(o.target == "train.py");
    CHECK(o.arguments == Words{"--num_gpus", "4", "--help", "-x", "train.pt"});
    CHECK_FALSE(o.help);
    CHECK_FALSE(o.filter.num_gpus);
    CHECK(test::typed_options("-- --odd a").arguments == Words{"a"});
}

TEST_CASE("a bad command line is refused with what to do") {
    const std::pair<const char*, const char*> rows[] = {
        {"--hostfiel h train.pt", "did you mean `--hostfile`"},
        {"train.pt --stepz 4", "did you mean `--steps`"},
        {"--steps 4 train.py", "--steps is an option for training a model"},
        {"--config c prog", "--config is an option for training a model"},
        {"--steps 0 train.pt", "--steps: `0` is not a number from 1"},
        {"--steps 1 train.pt --steps 2", "given twice"},
        {"--steps", "needs a value"},
        {"--hostfile --dry-run train.pt", "needs a value"},
        {"--dry-run=1 train.pt", "takes no value"},
        {"--config= train.pt", "the value is empty"},
        {"train.pt other", "unexpected `other`"},
        {"-m train.pt", "cannot be used with a model"},
        {"--json train.pt", "--json needs --dry-run"},
        {"--launcher mpich train.pt", "not supported; use ssh, openssh or openmpi"},
        {"--launcher rsh train.pt", "none of ssh, openssh, pdsh, openmpi, slurm, join, local"},
        {"--launcher_args '-a train.pt", "a quote is not closed"},
        {"--device tpu train.pt", "none of auto, cpu, cuda"},
        {"--device cpu --set dslaunch.device=cuda train.pt", "contradicts --device cpu"},
        {"--set dslaunch.device=\"cpu\" train.pt --device cuda", "contradicts --device cuda"},
        {"--set dslaunch.device=cpu --set dslaunch.device=cuda t.pt", "give only one of them"},
        {"--nnodes 1:4:5 train.py", "neither N nor MIN:MAX"},
        {"--nnodes 4:1 train.py", "the minimum is greater than the maximum"},
        {"--nnodes 0:1 train.py", "not a number from 1"},
        {"--node_rank 1 train.py", "run dslaunch on one machine only"},
        {"--node_rank 1x train.py", "not a number"},
        {"--listen 10.0.0.1 train.py", "has no port"},
        {"--listen 10.0.0.1:70000 train.py", "port from 1 to 65535"},
        {"--connect_timeout 0 train.py", "not a number of seconds"},
        {"--max_restarts -1 train.py", "not a number from 0"},
        {"--rdzv_backend etcd train.py", "not supported"},
        {"--master_port 70000 train.py", "--master_port"},
        {"--master_addr a;b train.py", "--master_addr"},
        {"--expect-sha256 abc train.pt", "64 hexadecimal digits"},
        {"--set lr train.pt", "not KEY=VALUE"},
        {"--standalone --hostfile h train.py", "cannot be used together"},
        {"-z train.py", "unknown option `-z`"},
        {"--in", "needs a value"},
        {"--ix n1 train.py", "unknown option `--ix`"},
        {"--mixed_precision bf16 train.pt", "is refused: for a model use --bf16 or --fp16"},
        {"--config_file a.yaml train.py", "is refused: accelerate's YAML"},
        {"--num_processes 8 train.py", "is refused: accelerate counts workers over all machines"},
        {"--dry-run", "TARGET is missing: give a Hugging Face folder, another model"},
        {"--all train.py", "--all only extends the help"},
        {"--num_gpus 2 --nproc-per-node 3 true", "contradicts --num_gpus"},
        {"--nproc-per-node 3 --num_gpus 2 true", "contradicts --nproc_per_node"},
        {"--num_nodes 2 --nnodes 3 true", "contradicts --num_nodes"},
        {"--nnodes 3 --num_nodes 2 true", "contradicts --nnodes"},
        {"--master_addr a --rdzv_endpoint b:1 true", "contradicts --master_addr"},
        {"--rdzv_endpoint a:2 --master_port 1 true", "contradicts --rdzv_endpoint"},
        {"--data=~/x.bin t.pt",
         "--data: dslaunch does not expand `~`, and a shell expands it only "
         "at the start of a word, outside quotes: write "},
        {"--output=~/run t.pt", "--output: dslaunch does not expand `~`"},
        {"t.pt --log_dir ~", "--log_dir: dslaunch does not expand `~`"},
        {"\xe2\x80\x93num_gpus 2 t.pt", "begins with a typographic dash"},
        {"\xe2\x80\x93-num_gpus 2 t.pt", "write --num_gpus"},
        {"t.pt \xe2\x80\x94steps 5", "write --steps"},
        {"\xe2\x88\x92q t.pt", "write -q"},
        {"t.pt --resume out", "unexpected `out` after the model t.pt; to resume from a folder"},
        {"--resume out t.pt", "to resume from a folder, write --resume=DIR"},
        {"t.pt --data a.bin b.bin", "--data takes only one file, but the shell replaces `*`"},
    };
    for (const auto& [line, message] : rows) {
        INFO(line);
        CHECK_THAT(run_options_refusal(line), Catch::Contains(message));
    }
}

TEST_CASE("two options for one thing may say it twice") {
    CHECK(test::typed_options("--num_gpus 2 --nproc-per-node 2 true").filter.num_gpus == 2);
    CHECK(test::typed_options("--num_gpus -1 --nproc-per-node 3 true").filter.num_gpus == 3);
    CHECK(test::typed_options("--master_port 7 --rdzv_endpoint a:7 true").master_port == 7);
}

TEST_CASE("every option of the table is in the help, and the refused ones say why") {
    const std::string help = help_text(run_page(true, true));
    for (const OptionRow& row : option_rows()) {
        for (const std::string& name : split(row.names, ',')) {
            INFO(name);
            CHECK(help.find((name.size() == 1 ? " -" : " --") + name) != std::string::npos);
        }
        const std::string name = split(row.names, ',').front();
        INFO(name);
        CHECK((row.apply == nullptr) == (row.group == Group::kRefused));
        if (row.group == Group::kRefused)
            CHECK_THAT(run_options_refusal("--" + name + " 1 x.py"),
                       Catch::Contains("is refused: "));
    }
}

TEST_CASE("every flag of deepspeed is known") {
    for (const char* flag : {"hostfile",
                             "include",
                             "exclude",
                             "num_nodes",
                             "min_elastic_nodes",
                             "max_elastic_nodes",
                             "num_gpus",
                             "num_accelerators",
                             "elastic_training",
                             "master_port",
                             "master_addr",
                             "node_rank",
                             "launcher",
                             "launcher_args",
                             "module",
                             "no_python",
                             "no_local_rank",
                             "no_ssh",
                             "no_ssh_check",
                             "force_multi",
                             "save_pid",
                             "enable_each_rank_log",
                             "autotuning",
                             "bind_cores_to_rank",
                             "bind_core_list",
                             "ssh_port",
                             "venv_script",
                             "log_level",
                             "quiet"}) {
        INFO(flag);
        CHECK_THAT(run_options_refusal(std::string("--") + flag + " 1 x.py"),
                   !Catch::Contains("unknown option"));
    }
}

TEST_CASE("a job runs here unless a hostfile names another machine") {
    CHECK(job("true").transport == TransportKind::kLocal);
    CHECK(job("--hostfile " + kHostfiles + "localhost-2 true").transport == TransportKind::kLocal);
    const test::TemporaryFolder folder;
    test::write_file(folder.path() + "/twice", "localhost slots=1\n127.0.0.1 slots=2\n");
    const auto notes_of = [&](const std::string& options) {
        const auto line = options + "--hostfile " + folder.path() + "/twice true";
        return join(build_job(test::typed_options(line), run_options_machine()).notes, "\n");
    };
    CHECK_THAT(notes_of(""), Catch::Contains("localhost and 127.0.0.1 are names of this machine") &&
                                 Catch::Contains("`localhost slots=3`"));
    CHECK_THAT(notes_of("--force_multi "), !Catch::Contains("names of this machine"));
    CHECK(job("--force_multi --hostfile " + kHostfiles + "localhost-2 true").transport ==
          TransportKind::kSsh);
    CHECK(job("--hostfile " + kHostfiles + "cluster-4 true").transport == TransportKind::kSsh);
    CHECK(job("--launcher openssh --hostfile " + kHostfiles + "cluster-4 true").transport ==
          TransportKind::kOpenSsh);
    CHECK(job("--launcher pdsh --hostfile " + kHostfiles + "cluster-4 true").transport ==
          TransportKind::kPdsh);
    CHECK(job("--launcher openmpi --launcher_args -v --hostfile " + kHostfiles + "cluster-4 true")
              .launcher_args == Words{"-v"});
    CHECK(
        job("--launcher openssh --launcher_args=-oA=b --hostfile " + kHostfiles + "cluster-4 true")
            .launcher_args == Words{"-oA=b"});
    CHECK_THROWS_WITH(
        job("--launcher openssh --launcher_args=-v --hostfile " + kHostfiles + "cluster-4 true"),
        Catch::Contains("`-v` does not have the form `-o NAME=VALUE`"));
    CHECK_THROWS_WITH(job("--launcher_args -v --hostfile " + kHostfiles + "cluster-4 true"),
                      Catch::Contains("the built-in ssh accepts no arguments"));
    CHECK(job("--launcher local --hostfile " + kHostfiles + "cluster-4 true").transport ==
          TransportKind::kLocal);
    CHECK(job("--ssh_port 2200 --hostfile " + kHostfiles + "addresses true").nodes[1].port == 2200);
    CHECK(job("--ssh_port 2200 --hostfile " + kHostfiles + "addresses true").nodes[0].port == 2222);
    CHECK_THROWS_WITH(job("--hostfile /proc/nonexistent/h true"),
                      Catch::Contains("/proc/nonexistent/h"));
    CHECK_THROWS_WITH(job("--num_nodes 2 true"), Catch::Contains("--hostfile"));
    for (const char* list : {"n1:4,n2:4", "n1,n2", "n1:4"}) {
        CHECK_THROWS_WITH(job(std::string("-H ") + list + " true"),
                          Catch::Contains("write the hosts into a file, one per line"));
    }
}

TEST_CASE("a model's OMP_NUM_THREADS is a number of threads, or several for nested regions") {
    const auto job_with = [](const std::string& value, const std::string& line) {
        Machine on = run_options_machine();
        on.environment.emplace_back("OMP_NUM_THREADS", value);
        return job(line, on);
    };
    for (const char* good : {"1", "4", "4,2", " 3"}) CHECK_NOTHROW(job_with(good, "t.pt"));
    for (const char* bad : {"abc", "0", "-2", "", "4,", "2x"})
        CHECK_THROWS_WITH(job_with(bad, "t.pt"), Catch::Contains("is not a number of threads"));
    CHECK_NOTHROW(job_with("abc", "t.py"));
    CHECK_NOTHROW(job_with("abc", "--env OMP_NUM_THREADS=2 t.pt"));
    CHECK_THROWS_WITH(job("--env OMP_NUM_THREADS=x t.pt"), Catch::Contains("OMP_NUM_THREADS=x"));
}

TEST_CASE("a tree is asked for by --fanout, and only hosts over ssh get one unasked") {
    const std::string cluster = "--hostfile " + kHostfiles + "cluster-4 ";
    CHECK(job(cluster + "true").fanout == 256);
    CHECK(job(cluster + "--fanout 0 true").fanout == 0);
    CHECK(job(cluster + "--fanout 2 true").fanout == 2);
    CHECK(job(cluster + "--launcher local true").fanout == 0);
    CHECK(job(cluster + "--launcher local --fanout 3 true").fanout == 3);
    for (const char* bad : {"1", "-1", "x"}) {
        CHECK_THAT(run_options_refusal(std::string("--fanout ") + bad + " true"),
                   Catch::Contains("fanout"));
    }
}

TEST_CASE("Python is the one that the launcher's shell means, at the same path on every host") {
    const test::TemporaryFolder folder;
    const auto make_python = [&](const std::string& prefix) {
        std::filesystem::create_directories(folder.path() + "/" + prefix + "/bin");
        const std::string path = folder.path() + "/" + prefix + "/bin/python3";
        std::ofstream(path) << "#!/bin/sh\n";
        std::filesystem::permissions(path, std::filesystem::perms::owner_all);
        return path;
    };
    const std::string of_venv = make_python("venv");
    const std::string of_conda = make_python("conda");
    const std::string in_path = make_python("usr");
    Machine here = run_options_machine();
    const auto chosen = [&] {
        const JobSpec spec = job("t.py", here);
        const std::string command = spec.nodes[0].workers[0].command[0];
        CHECK(spec.interpreter == (command == "python3" ? "" : command));
        return command;
    };
    CHECK(chosen() == "python3");
    here.environment.emplace_back(
        "PATH", "relative:" + folder.path() + "/none:" + folder.path() + "/usr/bin");
    CHECK(chosen() == in_path);
    here.environment.emplace_back("CONDA_PREFIX", folder.path() + "/conda");
    CHECK(chosen() == of_conda);
    here.environment.emplace_back("VIRTUAL_ENV", folder.path() + "/venv");
    CHECK(chosen() == of_venv);
    std::filesystem::remove(of_venv);
    CHECK(chosen() == of_conda);
    CHECK(job("--no_python t.py", here).interpreter.empty());
}

TEST_CASE("each kind of target gets its command") {
    CHECK(job("t.py a").nodes[0].workers[0].command ==
          Words{"python3", "-u", "t.py", "--local_rank=0", "a"});
    CHECK(job("--no_local_rank t.py").nodes[0].workers[0].command ==
          Words{"python3", "-u", "t.py"});
    CHECK(job("--nproc_per_node 2 t.py").nodes[0].workers[1].command ==
          Words{"python3", "-u", "t.py"});
    CHECK(job("-m pkg.train").nodes[0].workers[0].command ==
          Words{"python3", "-u", "-m", "pkg.train", "--local_rank=0"});
    CHECK(job("--no_python t.py").nodes[0].workers[0].command == Words{"t.py", "--local_rank=0"});
    CHECK(job("run.sh").nodes[0].workers[0].command == Words{"run.sh"});
    CHECK(job("t.pt --steps 3 --data d --device cpu").nodes[0].workers[0].command ==
          Words{"/opt/bin/dsworker", "train", "t.pt", "--set=--steps:dslaunch.steps=3",
                "--set=--data:dslaunch.data.train=\"d\"", "--set=dslaunch.device=\"cpu\""});
}

TEST_CASE("without a hostfile the GPUs decide, and a machine without any takes CPU workers") {
    CHECK(job("true").world_size == 1);
    CHECK(job("--num_gpus 3 true").world_size == 3);
    CHECK(job("--include localhost:0,1 true").world_size == 2);
    CHECK(job("--include localhost:0 true").world_size == 1);
    CHECK(job("--include localhost:2@localhost:1,0 true").world_size == 3);
    for (const char* gap : {"localhost:5", "localhost:1", "localhost:1,3", "localhost:0,2"})
        CHECK_THROWS_WITH(job(fmt::format("--include {} true", gap)),
                          Catch::Contains("so slots are CPU workers"));
    CHECK_THROWS_WITH(job("--include other:1 true"), Catch::Contains("`other` is not"));
    Machine with_gpus = run_options_machine();
    with_gpus.gpu_count = 4;
    CHECK_THROWS_WITH(job("--include localhost:5 true", with_gpus),
                      Catch::Contains("has no slot 5"));
    CHECK(job("true", with_gpus).world_size == 4);
    CHECK(job("--include localhost:1,3 true", with_gpus).nodes[0].workers[0].environment.devices ==
          "1,3");
    CHECK_THROWS_AS(job("--num_gpus 5 true", with_gpus), Error);
    CHECK(job("--num_gpus 5 --device cpu true", with_gpus).world_size == 5);
    with_gpus.environment = {{"CUDA_VISIBLE_DEVICES", "2,3"}};
    CHECK(job("true", with_gpus).nodes[0].workers[1].environment.devices == "2,3");
    CHECK_THROWS_AS(job("--device cuda true"), Error);
}

TEST_CASE("a device that --set names decides as --device does") {
    Machine with_gpus = run_options_machine();
    with_gpus.gpu_count = 2;
    CHECK(job("--set dslaunch.device=cuda t.pt", with_gpus).device == DeviceRequest::kCuda);
    CHECK(job("--set dslaunch.device=cpu t.pt", with_gpus).device == DeviceRequest::kCpu);
    CHECK(job("--set dslaunch.device=cpu --num_gpus 3 t.pt", with_gpus).world_size == 3);
    CHECK(job("--set dslaunch.device=cpu --device cpu t.pt", with_gpus).device ==
          DeviceRequest::kCpu);
    CHECK_THROWS_AS(job("--set dslaunch.device=\"cuda\" t.pt"), Error);
}

TEST_CASE("remote workers get what was asked for and nothing else") {
    const std::string remote = "--hostfile " + kHostfiles + "cluster-4 ";
    const JobSpec spec = job(remote + "--env TOKEN --env A=b=c true");
    CHECK_FALSE(spec.environment.inherit_all);
    CHECK(spec.environment.set ==
          EnvironmentList{
              {"NCCL_DEBUG", "INFO"}, {"PYTHONPATH", "/home/me"}, {"TOKEN", "y"}, {"A", "b=c"}});
    CHECK(job(remote + "t.pt").environment.set == EnvironmentList{{"NCCL_DEBUG", "INFO"}});
    CHECK(job("true").environment.inherit_all);
    CHECK_THROWS_WITH(job(remote + "--env UNSET true"), Catch::Contains("not set here"));
    CHECK_THROWS_WITH(job(remote + "--env RANK=3 true"), Catch::Contains("RANK"));
}

TEST_CASE("a dry run as JSON holds each worker's place, environment and command") {
    const auto json =
        nlohmann::json::parse(dry_run_json(job("--hostfile " + kHostfiles + "uneven prog x")));
    CHECK(json["world_size"] == 6);
    REQUIRE(json["workers"].size() == 6);
    const auto& last = json["workers"][5];
    CHECK(last["rank"] == 5);
    CHECK(last["host"] == "te3");
    CHECK(last["node_rank"] == 2);
    CHECK(last["local_rank"] == 2);
    CHECK(last["devices"] == nlohmann::json::array({0, 1, 2}));
    CHECK(last["env"]["LOCAL_RANK"] == "2");
    CHECK(last["env"]["NCCL_DEBUG"] == "INFO");
    CHECK(last["command"] == nlohmann::json::array({"prog", "x"}));
}

TEST_CASE("agents that come by themselves are counted by --nnodes or named by a hostfile") {
    const JobSpec spec =
        job("--launcher join --listen 10.0.0.1:29400 --nnodes 3 --num_gpus 2 true");
    CHECK(spec.transport == TransportKind::kJoin);
    CHECK(spec.listen == "10.0.0.1:29400");
    CHECK(spec.world_size == 6);
    CHECK(spec.nodes[2].name == "node2");
    CHECK(spec.connect_max == std::chrono::seconds(300));
    CHECK_FALSE(spec.serves_node_0);
    CHECK(job("--launcher join --listen a:1 --hostfile " + kHostfiles + "cluster-4 true")
              .nodes.size() == 4);
    CHECK(job("--connect_timeout 5 --hostfile " + kHostfiles + "cluster-4 true").connect_max ==
          std::chrono::seconds(5));
    for (const auto& [line, message] : std::vector<std::pair<std::string, std::string>>{
             {"--launcher join --nnodes 2 true", "needs --listen"},
             {"--launcher join --listen a:1 true", "--nnodes"},
             {"--listen a:1 true", "is only for --launcher join"},
             {"--token_file t true", "is only for --launcher join"},
             {"--env DSLAUNCH_TOKEN=x true", "which workers never get"},
             {"--no_ssh --nnodes 2 --master_addr a true", "needs --node_rank"},
             {"--no_ssh --nnodes 2 --node_rank 0 true", "needs --master_addr"},
             {"--no_ssh --nnodes 2 --node_rank 0 --master_addr a --launcher ssh true",
              "cannot be used together"}}) {
        INFO(line);
        CHECK_THROWS_WITH(job(line), Catch::Contains(message));
    }
}

TEST_CASE("options of ssh are refused where no ssh goes") {
    const std::string join = "--launcher join --listen a:1 --nnodes 2 ";
    for (const char* option : {"--fanout 4", "--ssh_port 2222", "--ssh_config f"}) {
        INFO(option);
        CHECK_THROWS_WITH(
            job(join + option + " true"),
            Catch::Contains("has no effect here") && Catch::StartsWith(split(option, ' ').front()));
    }
    CHECK(job(join + "--fanout 0 true").fanout == 0);
    const std::string cluster = "--hostfile " + kHostfiles + "cluster-4 ";
    CHECK_THROWS_WITH(job(cluster + "--launcher pdsh --fanout 4 true"),
                      Catch::Contains("has no effect here"));
    CHECK(job(cluster + "--launcher pdsh --ssh_port 2222 true").nodes[0].port == 2222);
    CHECK_THROWS_WITH(job(cluster + "--launcher openssh --launcher_args=-oA=b --fanout 4 true"),
                      Catch::Contains("has no effect here"));
    Machine node = run_options_machine();
    node.environment = {{"SLURM_JOB_ID", "7"}, {"SLURM_JOB_NODELIST", "a,b"}};
    CHECK_THROWS_WITH(job("--ssh_config f true", node), Catch::Contains("has no effect here"));
    CHECK(job("--ssh_config f --launcher ssh true", node).transport == TransportKind::kSsh);
}

TEST_CASE("the copies that mpirun starts take no listener and no token of the user's") {
    for (const char* option : {"--token_file t", "--listen a:1"}) {
        CHECK_THROWS_WITH(MpiCopies::check(test::typed_options(std::string(option) + " true")),
                          Catch::Contains("the copies that mpirun starts"));
    }
    MpiCopies::check(test::typed_options("--num_gpus 2 true"));
}

TEST_CASE("--no_ssh makes node 0 the launcher and every other node its agent") {
    const std::string line = "--no_ssh --nnodes 2 --master_addr a.site --master_port 29400 ";
    const JobSpec first = job(line + "--node_rank 0 true");
    CHECK(first.serves_node_0);
    CHECK(first.listen == "a.site:29400");
    CHECK(first.master_port == 0);  // the ranks meet elsewhere
    CHECK(first.nodes[0].workers[0].environment.master_port == 0);
    CHECK_FALSE(agent_by_hand(test::typed_options(line + "--node_rank 0 true")));
    const auto agent =
        agent_by_hand(test::typed_options(line + "--node_rank 1 --connect_timeout 9 true"));
    REQUIRE(agent);
    CHECK(agent->endpoint.text() == "a.site:29400");
    CHECK(agent->identity.node == 1U);
    CHECK(agent->connect_max == std::chrono::seconds(9));
    const auto usual =
        agent_by_hand(test::typed_options("--no_ssh --node_rank 1 --master_addr a true"));
    CHECK(usual->endpoint.port == 29500);  // deepspeed's default
}

TEST_CASE("hosts named as pdsh names them are those, or these of the hostfile") {
    struct Row {
        std::string hosts, left_out, hostfile, wanted;
    };
    const Row rows[] = {
        {"h1,h2", "", "", "h1 h2"},
        {"te[01,03-05],gw", "", "", "te01 te03 te04 te05 gw"},
        {"me@n[1-2].lan,[::1]", "", "", "n1.lan n2.lan [::1]"},
        {"te[1-5]", "te[2,4]", "", "te1 te3 te5"},
        {"b,a", "", "a slots=2\nb slots=3\nc slots=1\n", "a b"},
        {"", "b", "a slots=2\nb slots=3\nc slots=1\n", "a c"},
        {"d", "", "a slots=2\n", "-w d: this host is not in the list of hosts"},
        {"a", "b", "", "-x b: this host is not in the list of hosts"},
        {"a", "a", "", "-x a: no host is left"},
        {"a b", "", "", "-w:1:3"},
        {"$(id)", "", "", "-w:1:1"},
        {"a,,b", "", "", "-w:2:2"},
    };
    for (const Row& row : rows) {
        INFO(row.hosts << " " << row.left_out);
        RunOptions options;
        options.host_list = row.hosts;
        options.left_out_list = row.left_out;
        std::vector<std::string> names;
        try {
            for (const Host& host : listed_hosts(
                     options, row.hostfile.empty() ? std::vector<Host>{}
                                                   : parse_hostfile(row.hostfile, "hostfile")))
                names.push_back(host.name);
            CHECK(join(names, " ") == row.wanted);
        } catch (const Error& error) {
            CHECK(error.code() == ExitCode::kUsage);
            CHECK_THAT(error.what(), Catch::Contains(row.wanted));
        }
    }
}
