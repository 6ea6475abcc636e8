// `dslaunch plan --stages` on a real model: its output is consistent, and wrong requests are
// refused.
#include <fstream>

#include "base/error.h"
#include "plan_runs.h"

namespace dslaunch::test {
namespace {

// Checks that parts tile the segments, that a stage is idle when it is not busy, and that the FLOPs
// are the model's.
void check_schedule_json(const Json& schedule, int64_t segments, int64_t flops, double rate) {
    INFO(schedule.at("schedule"));
    const auto micro_batches = schedule.at("micro_batches").get<double>();
    const auto step_s = schedule.at("step_s").get<double>();
    std::map<int64_t, int64_t> ends;
    int64_t flops_sum = 0;
    double idle_sum = 0;
    for (const Json& stage : schedule.at("by_stage")) {
        int64_t stage_flops = 0;
        for (const Json& part : stage.at("parts")) {
            ends[part.at("begin_segment")] = part.at("end_segment");
            stage_flops += part.at("forward_flops").get<int64_t>();
        }
        flops_sum += stage_flops;
        // The forward, the backward for inputs and the backward for weights take equally long.
        const double busy_s = 3 * micro_batches * static_cast<double>(stage_flops) / rate;
        CHECK(stage.at("idle_share").get<double>() == Approx(1 - busy_s / step_s));
        idle_sum += stage.at("idle_share").get<double>();
        CHECK(stage.at("activation_bytes").get<int64_t>() > 0);
        CHECK(stage.at("state_bytes").get<int64_t>() > 0);
    }
    CHECK(schedule.at("idle_share").get<double>() ==
          Approx(idle_sum / schedule.at("stages").get<double>()));
    CHECK(flops_sum == flops);
    int64_t end = 0;
    while (ends.count(end) == 1) end = ends.at(end);
    CHECK(end == segments);
    CHECK(std::ssize(ends) ==
          schedule.at("stages").get<int64_t>() * schedule.at("chunks").get<int64_t>());
}

// Returns the number of works in the picture at PATH; each work has a title.
size_t works_in(const std::string& path) {
    const std::string svg = content_of(path);
    size_t works = 0;
    for (size_t at = svg.find("<title>"); at != svg.npos; at = svg.find("<title>", at + 1)) ++works;
    return works;
}

}  // namespace

TEST_CASE("a model is planned as a pipeline by every schedule, times from its FLOPs") {
    const TemporaryFolder folder;
    const Json whole = plan_json(folder, {});
    int64_t flops = 0;
    for (const Json& segment : whole.at("segments"))
        flops += segment.at("forward_flops").get<int64_t>();
    const auto segments = static_cast<int64_t>(whole.at("segments").size());
    const Json planned =
        plan_json(folder, {"--stages", "2", "--micro-batches", "8", "--flops-rate", "1e9"});
    REQUIRE(planned.at("schedules").size() == 5);
    for (const Json& schedule : planned.at("schedules")) {
        REQUIRE(!schedule.contains("why_not"));
        check_schedule_json(schedule, segments, flops, 1e9);
    }
    // Each stage holds weights, gradients and Adam's moments: 16 bytes for each parameter that it
    // reads.
    int64_t states = 0;
    for (const Json& stage : planned.at("schedules").at(0).at("by_stage"))
        states += stage.at("state_bytes").get<int64_t>();
    CHECK(states >= 16 * whole.at("parameters").get<int64_t>());
    // With ZeRO stage 1, two ranks of a stage share the moments, so each has half of them.
    const Json sharded = plan_json(folder, {"--stages", "2", "--world-size", "4", "--flops-rate",
                                            "1e9", "--set", "zero_optimization.stage=1"});
    CHECK(sharded.at("copies") == 2);
    int64_t sharded_states = 0;
    for (const Json& stage : sharded.at("schedules").at(0).at("by_stage"))
        sharded_states += stage.at("state_bytes").get<int64_t>();
    CHECK(static_cast<double>(sharded_states) ==
          Approx(0.75 * static_cast<double>(states)).epsilon(0.01));
}

TEST_CASE("a pipeline of measured segments is drawn, and weighed on a thousand ranks") {
    const TemporaryFolder folder;
    const std::string picture = folder.path() + "/pipeline.svg";
    const std::vector<std::string> drawn = {"--stages",        "2", "--schedule", "zb-h1",
                                            "--micro-batches", "4", "--svg",      picture};
    std::vector<std::string> options = drawn;
    options.insert(options.end(),
                   {"--simulate", "1024", "--ranks-per-node", "8", "--world-size", "4"});
    const PlanResult result = plan(folder, options);
    INFO(result.out << result.err);
    REQUIRE(result.code == 0);
    CHECK(result.out.find("times are measured on this machine with ") != std::string::npos);
    CHECK(mentions(result.out, "\n2x512x1x1 "));  // a mesh of 1024 ranks
    CHECK(mentions(result.out, "\ncopies on one host that can shard the states among them: "));
    CHECK(result.out.find("rank  host  shard  pipeline\n") != std::string::npos);
    // On a busy machine the measured time of a stage's weight gradients may be 0. Such a work has
    // no width and is not drawn.
    CHECK(works_in(picture) >= 2 * 4 * 2);
    CHECK(works_in(picture) <= 2 * 4 * 3);
    options = drawn;
    options.insert(options.end(), {"--flops-rate", "1e9"});
    const PlanResult refused = plan(folder, options);
    CHECK(refused.code == 66);
    CHECK(mentions(refused.err, "already exists; use --force to replace it"));
    options.emplace_back("--force");
    REQUIRE(plan(folder, options).code == 0);
    CHECK(works_in(picture) == 2 * 4 * 3);
    const Json measured = plan_json(folder, {"--stages", "2", "--micro-batches", "4"});
    CHECK(measured.at("times") == "measured");
    for (const Json& schedule : measured.at("schedules"))
        CHECK(schedule.at("step_s").get<double>() > 0);
}

TEST_CASE("a mesh of several axes is costed by axis, host and tier") {
    const TemporaryFolder folder;
    const std::vector<std::string> options = {
        "--stages",         "2",    "--tensor",     "2",   "--world-size",    "8",
        "--ranks-per-node", "4",    "--flops-rate", "1e9", "--micro-batches", "4",
        "--schedule",       "1f1b", "--link-rate",  "1e9", "--simulate",      "64"};
    const Json planned = plan_json(folder, options);
    REQUIRE(planned.at("meshes").size() == 1);
    const Json& mesh = planned.at("meshes").at(0);
    CHECK(mesh.at("pipeline") == 2);
    CHECK(mesh.at("data") == 2);
    CHECK(mesh.at("tensor") == 2);
    // Each host holds one stage. The traffic of tensor and data ranks stays inside the host; the
    // traffic between stages does not.
    const Json& axes = mesh.at("bytes_by_axis");
    for (const char* near : {"tensor", "shard"}) {
        CHECK(axes.at(near).at("inside_hosts") > 0);
        CHECK(axes.at(near).at("between_hosts") == 0);
    }
    CHECK(axes.at("pipeline").at("inside_hosts") == 0);
    CHECK(axes.at("pipeline").at("between_hosts") > 0);
    CHECK(mesh.at("by_stage").size() == 2);
    CHECK(mesh.at("step_s").get<double>() >= mesh.at("pipeline_s").get<double>());
    // The batch is 2 rows x 4 micro batches x 2 data ranks.
    CHECK(planned.at("config").at("train_batch_size") == 16);
    CHECK(planned.at("config").at("dslaunch").at("tensor").at("size") == 2);
    CHECK(planned.at("simulated").back().at("data") == 16);
    const PlanResult text = plan(folder, options);
    CHECK(text.out.find("axis      inside hosts  between hosts\n") != std::string::npos);
    CHECK(text.out.find("rank  host  tensor  shard  pipeline\n") != std::string::npos);
}

TEST_CASE("a search ranks the meshes that fit, and says what to put into the config") {
    const TemporaryFolder folder;
    const Json found = plan_json(folder, {"--search", "--world-size", "4", "--micro-batches", "8",
                                          "--flops-rate", "1e9", "--host-memory", "4"});
    CHECK(found.at("fitting") == found.at("looked_at"));
    double before_s = 0;
    std::set<int> tensor_sizes;
    REQUIRE(!found.at("best").empty());
    for (const Json& mesh : found.at("best")) {
        const int data = mesh.at("data").get<int>();
        tensor_sizes.insert(mesh.at("tensor").get<int>());
        CHECK(mesh.at("pipeline").get<int>() * data * mesh.at("tensor").get<int>() == 4);
        CHECK(mesh.at("micro_batches").get<int>() * data == 8);
        CHECK(mesh.at("step_s").get<double>() >= before_s);
        before_s = mesh.at("step_s").get<double>();
        CHECK(mesh.at("host_bytes").get<int64_t>() <= int64_t{4} << 30);
    }
    CHECK(tensor_sizes.size() > 1);  // also shared layers, which the fixture allows
    const Json& best = found.at("best").at(0);
    const Json& config = found.at("config");
    CHECK(config.at("gradient_accumulation_steps") == best.at("micro_batches"));
    CHECK(config.at("train_batch_size") == 2 * 8);
    CHECK(config.at("zero_optimization").at("stage") == best.at("zero_stage"));
}

TEST_CASE("a run takes the config that a search proposes") {
    const TemporaryFolder folder;
    const Json found = plan_json(
        folder, {"--search", "--tensor", "1", "--stages", "2", "--world-size", "4", "--schedule",
                 "1f1b", "--micro-batches", "8", "--flops-rate", "1e9", "--host-memory", "4"});
    Json config = found.at("config");
    CHECK(config.at("dslaunch").at("pipeline") == Json{{"stages", 2}, {"schedule", "1f1b"}});
    const std::string path = folder.path() + "/ds_config.json";
    std::ofstream(path) << config.dump();
    // Plans a run with the pipeline that the config asks for.
    JobProcess process(
        folder, {kDslaunch, "plan", fixture_archive("gpt"), "--context", "16", "--segments", "8",
                 "--config", path, "--world-size", "4", "--json"});
    const int code = process.wait();
    INFO(process.err());
    REQUIRE(code == 0);
    CHECK(Json::parse(process.out()).at("ranks").size() == 4);
}

TEST_CASE("pipelines that cannot be had are refused by what is in the way") {
    const TemporaryFolder folder;
    const auto refusal = [&](const std::vector<std::string>& options, int code,
                             const std::string& why) {
        const PlanResult result = plan(folder, options);
        INFO(result.err);
        CHECK(result.code == code);
        CHECK(result.err.find(why) != std::string::npos);
    };
    const int usage = static_cast<int>(ExitCode::kUsage);
    const int config = static_cast<int>(ExitCode::kConfig);
    refusal({"--svg", "x.svg"}, usage, "--stages");
    refusal({"--stages", "2", "--schedule", "dualpipe"}, usage, "dualpipe");
    refusal({"--stages", "2", "--compare", "shard"}, usage, "--compare");
    refusal({"--stages", "2", "--world-size", "3"}, usage, "a multiple of 2 ranks");
    refusal({"--stages", "2", "--simulate", "7"}, usage, "a multiple of 2 ranks");
    refusal({"--stages", "100", "--flops-rate", "1e9"}, config, "need at least 100 segments");
    refusal({"--stages", "2", "--flops-rate", "1e9", "--rank-memory", "0.00001"}, config,
            "no division into 2 stages fits in 10.5 KiB per rank");
    refusal({"--stages", "2", "--schedule", "1f1b", "--flops-rate", "1e9", "--cuts", "9"}, config,
            "a part cannot begin at segment 9");
    for (const char* option : {"--stages", "--tensor", "--sequence"})
        refusal({option, "2", "--set", "dslaunch.device=cuda"}, config, "data parallelism");
    refusal({"--search", "--stages", "2", "--device", "cuda", "--device-memory", "H100"}, config,
            "data parallelism");
    refusal({"--search", "--device", "cuda", "--flops-rate", "1e9"}, usage,
            "set --device-memory to a size");
    refusal({"--search", "--device", "cuda", "--device-memory", "24GiB"}, usage,
            "name the GPU with --device-memory (H200");
    refusal({"--search", "--device", "cuda", "--device-memory", "H100", "--host-memory", "4"},
            usage, "--host-memory is for ranks that share a host's memory");
    refusal({"--search", "--device", "cuda", "--device-memory", "60MiB", "--flops-rate", "1e9"},
            config, "more memory than a GPU has (60.0 MiB)");
    refusal({"--sequence", "2", "--tensor", "2"}, usage, "--stages or --search");
    refusal({"--search", "--svg", "x.svg"}, usage, "--svg needs");
    refusal({"--search", "--world-size", "2", "--flops-rate", "1e9", "--host-memory", "0.001"},
            config,
            "of 2 ranks need more memory than a host has (1.0 MiB): the smallest mesh, pipeline");
    refusal({"--search", "--world-size", "3", "--stages", "1", "--flops-rate", "1e9",
             "--micro-batches", "7"},
            config, "no mesh of 3 ranks is possible");
}

}  // namespace dslaunch::test
