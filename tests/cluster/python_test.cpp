// Runs Python scripts as users write them for deepspeed and torchrun: a script that checks the
// environment (with the standard library alone), acceptance tests with uneven slots and with taken
// ports, and a real torch.distributed script if python3 has torch.
#include <netinet/in.h>
#include <sys/socket.h>

#include "cluster/promise.h"
#include "support/rig_hosts.h"

namespace dslaunch::test {
namespace {

const std::string kPythonExamples = std::string(test::source_dir()) + "/examples/python";

bool has_python(const std::string& module, const std::string& what) {
    const TemporaryFolder folder;
    JobProcess job(folder, {"python3", "-c", "import " + module});
    if (job.wait() == 0) return true;
    report_skipped(what, "python3 cannot import " + module);
    return false;
}

struct PythonRow {
    const char* what;
    Words options;
    std::string said;  // words expected in stdout
};

}  // namespace

TEST_CASE("a script of deepspeed's or torchrun's gets what it expects, under every flag") {
    if (!has_python("json", "Python scripts under dslaunch")) return;
    const PythonRow rows[] = {
        {"uneven slots", {"meet.py"}, "rank 2 of 3: node 1, local rank 0"},
        {"include", {"--include", "a:1@b", "meet.py"}, "rank 1 of 2: node 1, local rank 0"},
        {"exclude", {"-e", "b", "meet.py"}, "rank 1 of 2: node 0, local rank 1"},
        {"num_nodes", {"--num_nodes=1", "meet.py"}, "rank 1 of 2: node 0, local rank 1"},
        {"num_gpus", {"--num_gpus", "1", "meet.py"}, "rank 1 of 2: node 1, local rank 0"},
        {"no_local_rank", {"--no_local_rank", "meet.py"}, "the ranks agree"},
        {"module", {"--module", "meet"}, "the ranks agree"},
        {"torchrun's module", {"-m", "meet"}, "the ranks agree"},
        {"no_python", {"--no_python", "--no_local_rank", "python3", "meet.py"}, "the ranks agree"},
        {"nproc_per_node", {"--nnodes=2", "--nproc_per_node=1", "meet.py"}, "the ranks agree"},
    };
    for (const PythonRow& row : rows) {
        const TemporaryFolder folder;
        JobProcess job(folder, on_pretended_hosts(folder, "a slots=2\nb slots=1\n") +
                                   Words{"--chdir", kPythonExamples, "--device", "cpu"} +
                                   row.options);
        const int code = job.wait();
        INFO(row.what << "\n" << job.out() << job.err());
        CHECK(code == 0);
        CHECK(mentions(job.out(), row.said));
        CHECK(mentions(job.out(), "the ranks agree"));
    }
}

TEST_CASE("local ranks are exact whichever host has more slots") {
    for (const auto& [hosts, last] : {std::pair{"a slots=2\nb slots=1\n", "2 1 0"},
                                      std::pair{"a slots=1\nb slots=2\n", "2 1 1"}}) {
        const TemporaryFolder folder;
        JobProcess job(folder, on_pretended_hosts(folder, hosts) +
                                   Words{"sh", "-c", "echo $RANK $GROUP_RANK $LOCAL_RANK"});
        CHECK(job.wait() == 0);
        CHECK(mentions(job.out(), last));
        CHECK(mentions(job.out(), "0 0 0"));
    }
}

TEST_CASE("a job starts although deepspeed's port 29500 is taken") {
    const UniqueFd holder(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(29500);
    // If the port cannot be bound here, another process has it. The test works in both cases.
    if (::bind(holder.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0)
        REQUIRE(::listen(holder.get(), 1) == 0);
    if (!has_python("json", "a taken port with a Python script")) return;
    const TemporaryFolder folder;
    JobProcess job(folder,
                   {kDslaunch, "--num_gpus", "2", "--device", "cpu", kPythonExamples + "/meet.py"});
    CHECK(job.wait() == 0);
    CHECK(mentions(job.out(), "the ranks agree"));
}

TEST_CASE("mistakes of deepspeed's users are refused before anything starts") {
    const std::pair<Words, std::string> rows[] = {
        {{"-H", "typo.txt"}, "typo.txt: cannot be opened"},
        {{"--num_gpus", "8"}, "--num_gpus 8 is more than the slots of some hosts: `h1` has 1"},
    };
    for (const auto& [options, said] : rows) {
        const TemporaryFolder folder;
        std::ofstream(folder.path() + "/hostfile") << "h1 slots=1\n";
        Words words = {kDslaunch, "--launcher", "local"};
        if (options.front() != "-H") words = words + Words{"-H", folder.path() + "/hostfile"};
        JobProcess job(folder, words + options + Words{"echo", "ran"});
        CHECK(job.wait() == 64);
        INFO(job.err());
        CHECK(mentions(job.err(), said));
        CHECK(job.out().empty());
    }
}

TEST_CASE("the same script runs over hosts, and meets at a host's name") {
    if (!has_python("json", "Python scripts over ssh")) return;
    const RigHosts rig(2, "Python scripts over ssh");
    if (!rig.usable()) return;
    const TemporaryFolder folder;
    std::ofstream(folder.path() + "/hostfile") << "n1 slots=2\nn2 slots=1\n";
    JobProcess job(folder, rig.on(0, {kDslaunch, "--hostfile=" + folder.path() + "/hostfile",
                                      "--master_addr=n1", "--ssh-config", rig.config("good"),
                                      kPythonExamples + "/meet.py"}));
    const int code = job.wait();
    INFO(job.err());
    CHECK(code == 0);
    CHECK(mentions(job.out(), "[n1:0] rank 2 of 3: node 1, local rank 0"));
    CHECK(mentions(job.out(), "the ranks agree"));
}

TEST_CASE("a torch.distributed script trains under dslaunch as under torchrun", "[.long]") {
    if (!has_python("torch.distributed", "a torch.distributed script")) return;
    const TemporaryFolder folder;
    JobProcess ours(folder, {kDslaunch, "--nproc_per_node", "2", "--standalone", "--device", "cpu",
                             kPythonExamples + "/train_torch.py"});
    CHECK(ours.wait() == 0);
    INFO(ours.err());
    CHECK(mentions(ours.out(), "[0] rank 0 of 2, local rank 0: mean loss 0."));
    CHECK(mentions(ours.out(), "[1] rank 1 of 2, local rank 1: mean loss 0."));
}

}  // namespace dslaunch::test
