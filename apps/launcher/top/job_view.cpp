#include "launcher/top/job_view.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/fd.h"
#include "launch/output/run_record.h"
#include "launcher/jobs/file_lines.h"

namespace dslaunch::launcher {
namespace {

using Json = nlohmann::json;

constexpr size_t kViewFileMax = 64U << 20;

// Returns the last whole lines of the file at PATH; empty if there is none.
std::string last_lines_of(const std::string& path) {
    // The last line may be half written.
    return read_file_ends(path, {.last_bytes = JobView::kTailBytes, .keeps_partial = false})
        .value_or("");
}

// Returns the resident memory of process PID on this machine; nothing if it is gone.
std::optional<int64_t> resident_of(int64_t pid) {
    std::ifstream file(fmt::format("/proc/{}/statm", pid));
    int64_t all = 0, resident = 0;
    if (!(file >> all >> resident)) return std::nullopt;
    return resident * ::sysconf(_SC_PAGESIZE);
}

// Throws Json::exception if ENTRY is damaged.
RankView rank_view(const Json& entry, bool is_local) {
    RankView view;
    view.rank = entry.at("rank").get<int64_t>();
    view.host = entry.at("host").get<std::string>();
    view.state = entry.at("state").get<std::string>();
    if (const int64_t code = entry.value("exit_status", int64_t{0}); code != 0)
        view.state = fmt::format("ended ({})", code);
    if (const int64_t number = entry.value("signal", int64_t{0}); number != 0)
        view.state = fmt::format("signal {}", number);
    if (entry.contains("heard_ms")) {
        view.heard_ms = entry.at("heard_ms").get<double>();
        view.where = entry.at("where").get<std::string>();
        view.steps = entry.at("steps").get<double>();
        for (const auto& [lane, busy] : entry.at("busy_ms").items())
            if (view.steps >= 1) view.lanes_ms.emplace_back(lane, busy.get<double>() / view.steps);
    }
    if (is_local && view.state == "running") view.resident_bytes = resident_of(entry.at("pid"));
    return view;
}

void read_ranks(JobView& view) {
    try {
        const Json record = Json::parse(read_file(view.job.folder + "/ranks.json", kViewFileMax));
        const bool is_local = view.job.is_here && view.job.transport == "local";
        for (const Json& entry : record.at("ranks"))
            view.ranks.push_back(rank_view(entry, is_local && view.job.lives));
    } catch (const std::exception&) {  // there is no such file, or it has no ranks
        view.ranks.clear();
    }
}

}  // namespace

std::optional<int64_t> JobView::step() const {
    const MetricSeries* const loss = metrics.find("loss");
    if (loss != nullptr) return static_cast<int64_t>(loss->back().step);
    return job.step;
}

std::optional<double> JobView::left_s() const {
    const auto now = step();
    const auto pace_ms = metrics.median("step_ms");
    if (!now || !pace_ms || !steps || *now > *steps) return std::nullopt;
    return static_cast<double>(*steps - *now) * *pace_ms / 1e3;
}

std::optional<double> JobView::newest_growth(std::string_view name) const {
    const MetricSeries* const sums = metrics.find(name);
    if (sums == nullptr || sums->size() < 2) return std::nullopt;
    return std::max(0.0, sums->back().value - (sums->end() - 2)->value);
}

std::optional<int64_t> PlannedSteps::of(const KnownJob& job) {
    std::error_code failed;
    const auto changed_at = std::filesystem::last_write_time(job.output + "/run.json", failed);
    if (failed) return std::nullopt;
    auto found = known_.find(job.output);
    if (found == known_.end() || found->second.changed_at != changed_at) {
        const auto record = launch::find_run_record(job.output).value_or(launch::RunRecord());
        found = known_.insert_or_assign(job.output, Known{changed_at, record.job_id, record.steps})
                    .first;
    }
    // While a job sets up, the folder may still contain the file of an earlier run. Its steps do
    // not count.
    return found->second.job == job.id ? found->second.steps : std::nullopt;
}

JobView view_job(const KnownJob& job, PlannedSteps& planned) {
    JobView view;
    view.job = job;
    std::string lines;
    // If a job has ended without a step, the lines in its folder belong to an earlier job.
    if (!job.output.empty() && (job.lives || job.step)) {
        lines = last_lines_of(job.output + "/metrics.jsonl");
        view.steps = planned.of(job);
    }
    if (lines.empty()) lines = last_lines_of(job.folder + "/progress.json");
    std::istringstream text(lines);
    view.metrics = read_metrics_table(text);
    read_ranks(view);
    return view;
}

}  // namespace dslaunch::launcher
