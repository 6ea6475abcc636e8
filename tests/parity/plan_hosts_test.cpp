// `dslaunch plan --hostfile`: each slot of the hostfile is a rank on its host, even if the hosts
// have different numbers of slots.
#include <fstream>
#include <set>

#include "base/error.h"
#include "plan/predict/admission.h"
#include "plan_runs.h"

namespace dslaunch::test {
namespace {

std::string write_hosts(const TemporaryFolder& folder, const std::string& text) {
    std::string path = folder.path() + "/hosts";
    std::ofstream(path) << text;
    return path;
}

// Writes a hostfile with three hosts that do not exist: a look-up of their names would fail.
std::string uneven_hosts(const TemporaryFolder& folder) {
    return write_hosts(folder,
                       "nowhere1.invalid slots=3\nnowhere2.invalid gpus=4,6\n"
                       "me@nowhere3.invalid slots=1 port=2222  # alone\n");
}

}  // namespace

TEST_CASE("a plan takes its hosts from a hostfile and the filters of a run") {
    const TemporaryFolder folder;
    const std::string hosts = uneven_hosts(folder);
    const std::vector<std::pair<std::vector<std::string>, std::vector<int>>> table = {
        {{}, {3, 2, 1}},
        {{"--num_nodes", "2"}, {3, 2}},
        {{"--num_gpus", "1"}, {1, 1, 1}},
        {{"--num-nodes=2", "--num_accelerators=2"}, {2, 2}},
        {{"--include", "nowhere3.invalid@nowhere2.invalid:6"}, {1, 1}},
        {{"-e", "nowhere1.invalid:0,2"}, {1, 2, 1}},
    };
    for (const auto& [filter, node_sizes] : table) {
        std::vector<std::string> options = {"--hostfile", hosts};
        options.insert(options.end(), filter.begin(), filter.end());
        const Json planned = plan_json(folder, options);
        INFO(planned.at("node_sizes"));
        CHECK(planned.at("node_sizes").get<std::vector<int>>() == node_sizes);
        const int ranks = std::accumulate(node_sizes.begin(), node_sizes.end(), 0);
        CHECK(planned.at("world_size") == ranks);
        CHECK(planned.at("ranks").size() == static_cast<size_t>(ranks));
        // Admission is about the host with the most ranks.
        CHECK(planned.at("admission").at("ranks") ==
              *std::max_element(node_sizes.begin(), node_sizes.end()));
    }
    const PlanResult text = plan(folder, {"-H", hosts, "--num_nodes", "2"});
    CHECK(text.out.starts_with("5 ranks on 2 hosts of " + hosts +
                               ": nowhere1.invalid 3, nowhere2.invalid 2\n"));
}

TEST_CASE("equal hosts of a hostfile are those that numbers say") {
    const TemporaryFolder folder;
    const std::string hosts = write_hosts(folder, "a[1-2].invalid slots=2\n");
    const std::vector<std::string> named = {"--hostfile", hosts};
    const std::vector<std::string> counted = {"--world-size", "4", "--ranks-per-node", "2"};
    CHECK(plan_json(folder, named).at("ranks") == plan_json(folder, counted).at("ranks"));
    for (const std::vector<std::string>& form :
         {std::vector<std::string>{"--stages", "2", "--simulate", "4"},
          std::vector<std::string>{"--stages", "2", "--tensor", "2", "--schedule", "1f1b"},
          std::vector<std::string>{"--search", "--micro-batches", "8", "--host-memory", "4"}}) {
        std::vector<Json> both;
        for (std::vector<std::string> options : {named, counted}) {
            options.insert(options.end(), form.begin(), form.end());
            options.insert(options.end(), {"--flops-rate", "1e9", "--link-rate", "1e9"});
            Json planned = plan_json(folder, options);
            // host_bytes includes the memory of the program, which differs between two processes.
            for (const char* key : {"meshes", "best", "simulated"})
                if (planned.contains(key))
                    for (Json& mesh : planned.at(key)) mesh.erase("host_bytes");
            both.push_back(std::move(planned));
        }
        CHECK(both[0] == both[1]);
    }
}

TEST_CASE("a mesh lies on uneven hosts so that most is said inside them") {
    const TemporaryFolder folder;
    const std::string hosts = write_hosts(folder, "big.invalid slots=4\nsmall.invalid slots=2\n");
    const Json planned =
        plan_json(folder, {"--hostfile", hosts, "--stages", "3", "--flops-rate", "1e9",
                           "--link-rate", "1e9", "--micro-batches", "4", "--schedule", "1f1b"});
    const Json& mesh = planned.at("meshes").at(0);
    // With two data ranks for each stage, two stages are on the big host and one is on the small
    // host.
    CHECK(mesh.at("data") == 2);
    CHECK(mesh.at("bytes_by_axis").at("shard").at("between_hosts") == 0);
    CHECK(mesh.at("bytes_by_axis").at("pipeline").at("between_hosts") > 0);
    CHECK(mesh.at("bytes_by_axis").at("pipeline").at("inside_hosts") > 0);
    const Json found = plan_json(folder, {"--search", "--hostfile", hosts, "--flops-rate", "1e9",
                                          "--micro-batches", "12", "--host-memory", "4"});
    for (const Json& best : found.at("best"))
        CHECK(best.at("pipeline").get<int>() * best.at("data").get<int>() *
                  best.at("tensor").get<int>() ==
              6);
    const Json forecast = plan_json(folder, {"--hostfile", hosts, "--forecast"}).at("forecast");
    CHECK(forecast.at("step_s").get<double>() > 0);
}

// Forecasts a step on one GPU of which only the FLOP/s are known. A backward takes twice the time
// of its segment's forward.
TEST_CASE("a GPU's step is forecast from the speeds that are said") {
    const TemporaryFolder folder;
    const std::vector<std::string> gpu = {"--device",   "cuda",         "--device-memory",
                                          "24GiB",      "--world-size", "1",
                                          "--forecast", "--flops-rate", "1e9"};
    const Json planned = plan_json(folder, gpu);
    double flops = 0;
    for (const Json& segment : planned.at("segments"))
        flops += segment.at("forward_flops").get<double>() * (segment.at("backward") ? 3 : 1);
    const double steps_s = planned.at("forecast").at("step_s").get<double>();
    CHECK(flops > 0);
    CHECK(steps_s == Approx(flops / 1e9).epsilon(1e-6));
    CHECK(!planned.at("forecast").contains("threads"));
    const PlanResult unknown =
        plan(folder, {"--device", "cuda", "--device-memory", "24GiB", "--forecast"});
    CHECK(unknown.code == static_cast<int>(ExitCode::kUsage));
    CHECK(unknown.err.find("name the GPU with --device-memory (H200") != std::string::npos);
    const PlanResult measured = plan(folder, {"--forecast", "--flops-rate", "1e9"});
    CHECK(measured.code == static_cast<int>(ExitCode::kUsage));
}

// Compares the findings with the plans of the same jobs, by which a run is admitted.
TEST_CASE("a search on GPUs has every ZeRO stage, with the memory of its plan") {
    const TemporaryFolder folder;
    const std::vector<std::string> gpus = {"--device",        "cuda",  "--world-size", "4",
                                           "--device-memory", "24GiB", "--flops-rate", "1e9"};
    std::vector<std::string> options = gpus;
    options.insert(options.end(), {"--search", "--link-rate", "1e8", "--micro-batches", "8"});
    const Json found = plan_json(folder, options);
    CHECK(found.at("device_memory_bytes") == 24 * (int64_t{1} << 30));
    REQUIRE(found.at("best").size() == 4);
    std::set<int> stages;
    double before_s = 0;
    for (const Json& mesh : found.at("best")) {
        CHECK(mesh.at("data") == 4);
        CHECK(mesh.at("micro_batches") == 2);
        CHECK(mesh.at("step_s").get<double>() >= before_s);
        before_s = mesh.at("step_s").get<double>();
        const int stage = mesh.at("zero_stage").get<int>();
        stages.insert(stage);
        options = gpus;
        options.insert(options.end(), {"--set", "zero_optimization.stage=" + std::to_string(stage),
                                       "--set", "gradient_accumulation_steps=2", "--forecast"});
        const Json admission = plan_json(folder, options).at("admission");
        const int64_t planned = admission.at("device_bytes").get<int64_t>();
        INFO("stage " << stage << ": " << mesh.at("host_bytes") << " beside " << planned);
        // Both numbers include this memory, which does not depend on the model. It would hide a
        // difference, so it is subtracted.
        const int64_t fixed =
            (plan::kDeviceWorkspaces + plan::kDeviceBlocks + plan::kDeviceGroup).value;
        CHECK(mesh.at("host_bytes").get<int64_t>() - fixed ==
              Approx(static_cast<double>(planned - fixed)).epsilon(0.05));
    }
    CHECK(stages == std::set<int>{0, 1, 2, 3});
    options = {"--device", "cuda", "--world-size", "4", "--device-memory", "l4", "--search"};
    const PlanResult text = plan(folder, options);
    INFO(text.err);
    CHECK(text.out.find("of a GPU") != std::string::npos);
    CHECK(text.out.find("times are lower bounds from the peak rates of l4") != std::string::npos);
}

TEST_CASE("hosts of a plan that cannot be are refused by what is wrong") {
    const TemporaryFolder folder;
    const std::string hosts = uneven_hosts(folder);
    const auto refusal = [&](const std::vector<std::string>& options, const std::string& why) {
        const PlanResult result = plan(folder, options);
        INFO(result.err);
        CHECK(result.code == static_cast<int>(ExitCode::kUsage));
        CHECK(result.err.find(why) != std::string::npos);
    };
    refusal({"--hostfile", hosts, "--world-size", "6"},
            "--world-size and --hostfile cannot be used together");
    refusal({"--hostfile", hosts, "--ranks-per-node", "2"}, "--ranks-per-node and --hostfile");
    for (const char* option : {"--include", "--exclude", "--num-nodes"})
        refusal({option, "1"}, std::string(option) + " selects from a hostfile");
    refusal({"--num-gpus", "2", "--world-size", "2"}, "--num-gpus selects from a hostfile");
    refusal({"--num-gpus", "0"}, "--num-gpus must be from 1 to");
    refusal({"--hostfile", folder.path() + "/none"}, "/none");
    refusal({"--hostfile", ""}, "hostfile");
    refusal({"--hostfile", hosts, "--num_nodes", "4"}, "there are only 3 hosts");
    refusal({"--hostfile", hosts, "--num_nodes", "0"}, "--num_nodes must be at least 1");
    refusal({"--hostfile", hosts, "--num_gpus", "2"}, "`nowhere3.invalid` has 1");
    refusal({"--hostfile", hosts, "--include", "nowhere4.invalid"}, "did you mean `nowhere");
    refusal({"--hostfile", hosts, "--include", "nowhere2.invalid:5"}, "its slots are 4,6");
    refusal({"--hostfile", hosts, "--include", "a", "--exclude", "b"}, "cannot be combined");
    refusal({"--hostfile", hosts, "--stages", "4"}, "/hosts are 6: 4 stages x tensor 1 x");
    refusal({"--hostfile", hosts, "--stages", "2", "--simulate", "12"}, "has only 6 slots");
    const std::string bad = write_hosts(folder, "one slots=2\ntwo slots=\n");
    refusal({"--hostfile", bad}, "hosts:2:");
    const std::string many = write_hosts(folder, "big[1-32] slots=4096\n");
    refusal({"--hostfile", many}, "131072 slots, but a plan supports at most 65536 ranks");
}

}  // namespace dslaunch::test
