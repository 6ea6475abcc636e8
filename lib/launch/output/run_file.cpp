#include "launch/output/run_file.h"

#include <algorithm>
#include <chrono>

#include "base/text/json.h"
#include "launch/plan/environment_file.h"
#include "launch/plan/secrets.h"
#include "launch/process/timing.h"

namespace dslaunch::launch {
namespace {

int64_t now_s() {
    return std::chrono::duration_cast<std::chrono::seconds>(wall_clock()).count();
}

}  // namespace

RunFile::RunFile(const JobSpec& spec)
    : spec_(spec), started_at_s_(now_s()), started_(static_cast<size_t>(spec.world_size)) {}

void RunFile::add_node(const AgentHello& hello, const std::string& name,
                       const MachineFacts* facts) {
    nodes_.push_back({name, hello, facts == nullptr ? std::nullopt : std::optional(*facts)});
}

std::vector<RankVariables> RunFile::environments() const {
    std::vector<RankVariables> got;
    for (const PlannedNode& node : spec_.nodes) {
        for (const PlannedWorker& worker : node.workers) {
            const int rank = worker.environment.rank;
            const WorkerStarted& started = started_.at(static_cast<size_t>(rank));
            if (started.pid != 0) got.push_back({rank, node.name, started.environment});
        }
    }
    std::ranges::sort(got, {}, &RankVariables::rank);
    return got;
}

std::string RunFile::text(int exit_code) const {
    JsonWriter json;
    json.begin_object();
    json.field("dslaunch", DSL_VERSION).field("job_id", spec_.job_id);
    json.field("target", spec_.target).field("working_directory", spec_.working_directory);
    json.field("world_size", spec_.world_size).field("restarts", restarts_);
    json.key("exit_code");
    exit_code < 0 ? json.null() : json.value(exit_code);
    json.field("started_at", started_at_s_).key("ended_at");
    exit_code < 0 ? json.null() : json.value(now_s());
    json.key("nodes").begin_array();
    for (const Node& node : nodes_) {
        json.begin_object().field("name", node.name).field("host_name", node.hello.host_name);
        json.field("version", node.hello.version).field("binary_sha256", node.hello.binary_hash);
        json.field("kernel", node.hello.kernel).field("processor", node.hello.processor);
        json.field("cores", node.hello.cores);
        json.field("gpus", node.hello.gpus);
        if (node.machine) json.key("machine").raw(machine_json(*node.machine));
        json.end_object();
    }
    json.end_array().key("ranks").begin_array();
    for (const PlannedNode& node : spec_.nodes) {
        for (const PlannedWorker& worker : node.workers) {
            const WorkerStarted& started =
                started_.at(static_cast<size_t>(worker.environment.rank));
            json.begin_object().field("rank", worker.environment.rank).field("host", node.name);
            json.field("pid", started.pid).key("command").begin_array();
            for (const std::string& word : hide_in_command(worker.command)) json.value(word);
            json.end_array().key("environment").begin_object();
            for (const auto& [name, value] : started.environment) {
                json.field(name, is_shown_in_files(name) ? shown_value(name, value)
                                                         : std::string(kHiddenValue));
            }
            json.end_object().end_object();
        }
    }
    json.end_array().key("run");
    run_info_.empty() ? json.null() : json.raw(run_info_);
    json.key("result");
    run_result_.empty() ? json.null() : json.raw(run_result_);
    json.end_object();
    return json.text() + "\n";
}

}  // namespace dslaunch::launch
