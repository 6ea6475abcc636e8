// The rules of a job that follow from --nnodes MIN:MAX, --max-restarts and deepspeed's elastic
// flags.
#include "base/error.h"
#include "support/catch.h"
#include "support/job_process.h"
#include "support/text_tools.h"
#include "support/typed_line.h"

using namespace dslaunch;
using namespace dslaunch::launch;
using namespace dslaunch::launcher;
using namespace dslaunch::test;

namespace {

// Four hosts with two slots each.
class Hosts {
  public:
    Hosts() {
        std::ofstream(folder_.path() + "/hosts") << "te[1-4] slots=2\n";
        machine_.environment = {{"HOME", "/home/me"}};
    }
    [[nodiscard]] JobSpec job(const std::string& line) const {
        return test::typed_job(line, machine_);
    }
    [[nodiscard]] std::string refusal(const std::string& line) const {
        return test::error_of(ExitCode::kUsage, [&] { static_cast<void>(job(line)); });
    }

  private:
    TemporaryFolder folder_;
    Machine machine_ = test::head_machine(folder_.path());
};

}  // namespace

TEST_CASE(
    "the range of hosts and the number of restarts come from torchrun's and deepspeed's flags") {
    struct Row {
        std::string line;
        int min, max, restarts;
        int world_size;  // ranks of the first plan
    };
    const std::vector<Row> rows = {
        {"--nnodes 2:3 x.py", 2, 3, 0, 6},
        {"--nnodes 1:64 --max-restarts 7 x.py", 1, 4, 7, 8},
        {"--elastic_training x.py", 1, 4, 100, 8},
        {"--elastic_training --min_elastic_nodes -1 --max_elastic_nodes -1 x.py", 1, 4, 100, 8},
        {"--elastic_training --min_elastic_nodes 2 --max_elastic_nodes 3 --max_restarts 5 x.py", 2,
         3, 5, 6},
        {"--nnodes 1:4 --exclude te2 x.py", 1, 3, 0, 6},
        {"--nnodes 1:4 --num_gpus 1 x.py", 1, 4, 0, 4},
    };
    const Hosts hosts;
    for (const Row& row : rows) {
        INFO(row.line);
        const JobSpec spec = hosts.job("--hostfile hosts " + row.line);
        CHECK(spec.elastic.on());
        CHECK(spec.elastic.nodes.min == row.min);
        CHECK(spec.elastic.nodes.max == row.max);
        CHECK(spec.max_restarts == row.restarts);
        CHECK(spec.world_size == row.world_size);
        CHECK(spec.nodes.size() == static_cast<size_t>(row.max));
    }
}

TEST_CASE("ranks are planned anew for the hosts that are left") {
    const Hosts hosts;
    const JobSpec spec = hosts.job("--hostfile hosts --nnodes 1:4 --max-restarts 3 x.py");
    CHECK(spec.elastic.hosts == std::vector<std::string>{"te1", "te2", "te3", "te4"});
    const auto nodes = spec.elastic.plan({1, 3});
    REQUIRE(nodes.size() == 2);
    CHECK(nodes[0].name == "te2");
    CHECK(nodes[1].name == "te4");
    int rank = 0;
    for (const PlannedNode& node : nodes) {
        for (const PlannedWorker& worker : node.workers) {
            CHECK(worker.environment.rank == rank++);
            CHECK(worker.environment.world_size == 4);
            CHECK(worker.environment.node_sizes == std::vector<int>{2, 2});
            CHECK(worker.environment.max_restarts == 3);
            CHECK(worker.environment.master_address == "te2");
        }
    }
    CHECK(rank == 4);
}

TEST_CASE("without a range every host is needed, restarts or not") {
    const Hosts hosts;
    for (const char* line : {"--nnodes 3 --max-restarts 2 x.py", "--max_restarts 2 x.py", "x.py"}) {
        const JobSpec spec = hosts.job(std::string("--hostfile hosts ") + line);
        CHECK_FALSE(spec.elastic.on());
    }
    CHECK(hosts.job("--hostfile hosts --max_restarts 2 x.py").max_restarts == 2);
    CHECK(hosts.job("--hostfile hosts x.py").max_restarts == 0);
}

TEST_CASE("contradictions about the number of hosts are refused") {
    const Hosts hosts;
    const std::vector<std::pair<std::string, std::string>> rows = {
        {"--hostfile hosts --nnodes 5:8 x.py", "needs at least 5 hosts, but there are only 4"},
        {"--nnodes 1:2 x.py", "needs a --hostfile"},
        {"--hostfile hosts --min_elastic_nodes 2 x.py", "need --elastic_training"},
        {"--hostfile hosts --elastic_training --nnodes 1:2 x.py", "cannot be used together"},
        {"--hostfile hosts --elastic_training --num_nodes 2 x.py", "cannot be used together"},
        {"--hostfile hosts --elastic_training --min_elastic_nodes 3 --max_elastic_nodes 2 x.py",
         "is greater than"},
    };
    for (const auto& [line, message] : rows) {
        INFO(line);
        CHECK_THAT(hosts.refusal(line), Catch::Contains(message));
    }
    CHECK(hosts.job("--elastic_training x.py").nodes.size() == 1);
}

TEST_CASE("jobs are recorded below the home folder") {
    CHECK(Hosts().job("x.py").state_directory == "/home/me/.local/state/dslaunch");
}
