#include "launcher/report/run_folder.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/text.h"
#include "launch/output/run_record.h"
#include "launch/plan/secrets.h"
#include "launcher/report/run_log.h"
#include "launcher/report/run_trace.h"

namespace dslaunch::launcher {
namespace {

using Json = nlohmann::json;

constexpr size_t kRanksListed = 256;

std::string shown_text(const Json& value) {
    return launch::hide_secrets(value.is_string() ? value.get<std::string>() : value.dump());
}

// Returns member KEY of OBJECT as text; empty if it is null or missing.
std::string text_at(const Json& object, const char* key) {
    if (!object.is_object() || !object.contains(key) || object.at(key).is_null()) return "";
    return shown_text(object.at(key));
}

std::optional<int64_t> integer_at(const Json& object, const char* key) {
    if (!object.is_object() || !object.contains(key) || !object.at(key).is_number_integer())
        return std::nullopt;
    return object.at(key).get<int64_t>();
}

// Returns member KEY of OBJECT, or an empty list if it is not a list.
Json list_at(const Json& object, const char* key) {
    return object.is_object() && object.contains(key) && object.at(key).is_array() ? object.at(key)
                                                                                   : Json::array();
}

// Returns the local time of SECONDS of Unix time: "2026-11-29 20:30:00".
std::string date_text(int64_t seconds) {
    const std::time_t time = seconds;
    std::tm local{};
    if (seconds <= 0 || ::localtime_r(&time, &local) == nullptr) return "";
    return fmt::format("{:%Y-%m-%d %H:%M:%S}", local);
}

std::string exit_text(std::optional<int64_t> exit_code) {
    if (!exit_code) return "still running, or its launcher was killed";
    KnownJob ended;
    ended.state = "ended";
    ended.exit_code = exit_code;
    return state_text(ended);
}

// Sets RUN's start, duration and way of ending from JOB or, if JOB is null, from RECORD. RECORD is
// the content of run.json, or null if there is none.
void read_end(const Json& record, const KnownJob* job, RunFolder& run) {
    int64_t started = integer_at(record, "started_at").value_or(0);
    int64_t ended = integer_at(record, "ended_at").value_or(0);
    if (job != nullptr) {
        started = job->started_at_s;
        ended = job->ended_at_s;
        run.end = state_text(*job);
    } else if (record.is_object()) {
        run.end = exit_text(integer_at(record, "exit_code"));
    }
    run.started = date_text(started);
    if (started > 0 && ended >= started) run.took = age_text(ended - started);
    if (const int64_t restarts = integer_at(record, "restarts").value_or(0); restarts > 0)
        run.end += fmt::format(", after {}", counted(restarts, "restart"));
}

void read_hosts(const Json& record, RunFolder& run) {
    run.hosts.head = {"host", "host name", "processors", "GPUs", "processor", "kernel", "dslaunch"};
    for (const Json& node : list_at(record, "nodes")) {
        const Json machine = node.is_object() ? node.value("machine", Json()) : Json();
        std::string gpus = text_at(node, "gpus");
        if (const Json names = list_at(machine, "gpu_names"); !names.empty())
            gpus += " x " + shown_text(names.front());
        run.hosts.rows.push_back({text_at(node, "name"), text_at(node, "host_name"),
                                  text_at(node, "cores"), gpus, text_at(machine, "cpu_model"),
                                  text_at(node, "kernel"), text_at(node, "version")});
    }
    run.ranks.head = {"rank", "host", "process"};
    for (const Json& rank : list_at(record, "ranks")) {
        if (run.ranks.rows.size() == kRanksListed) {
            run.problems.push_back(fmt::format("only the first {} ranks are listed", kRanksListed));
            break;
        }
        run.ranks.rows.push_back(
            {text_at(rank, "rank"), text_at(rank, "host"), text_at(rank, "pid")});
    }
}

// Takes the config and the model's facts from DETAILS, rank 0's description of its run.
void read_details(const Json& details, RunFolder& run) {
    run.parameters = integer_at(details, "parameters");
    if (!details.is_object() || !details.contains("config")) {
        run.problems.emplace_back(
            "run.json: contains no config, because rank 0 ended before it wrote the config");
        return;
    }
    for (const Json& value : list_at(details.at("config"), "values")) {
        const std::string path = text_at(value, "path");
        if (path.empty()) continue;
        const std::string text = value.contains("value") ? value.at("value").dump() : "";
        run.config.push_back({path, launch::shown_value(path, text), text_at(value, "origin")});
    }
}

// Sets the predicted and the measured memory of a rank. RESULT is the report that rank 0 writes at
// the end of the job, or null if rank 0 has not ended.
void read_result(const Json& result, RunFolder& run) {
    const Json memory = result.is_object() ? result.value("memory", Json()) : Json();
    const auto estimated = integer_at(memory, "estimated_bytes");
    const auto measured = integer_at(memory, "measured_bytes");
    if (!estimated || !measured) return;
    run.predicted_memory = to_text(Bytes{*estimated});
    run.measured_memory = to_text(Bytes{*measured});
}

// Adds a problem if RECORD, the content of run.json, belongs to a different job than JOB. Returns
// null in this case, otherwise JOB.
const KnownJob* job_of_record(const Json& record, const KnownJob* job, RunFolder& run) {
    const std::string owner = text_at(record, "job_id");
    if (job == nullptr || owner.empty() || owner == job->id) return job;
    run.problems.push_back(
        fmt::format("run.json belongs to job {0}, not to job {1} ({2}): job {1} ended before its "
                    "first step, or job {0} replaced the file later",
                    owner, job->id, state_text(*job)));
    return nullptr;
}

void read_run_file(const KnownJob* job, RunFolder& run) {
    Json record;
    try {
        record = launch::read_run_record(run.path).json;
        run.target = text_at(record, "target");
        run.world_size = integer_at(record, "world_size").value_or(0);
        read_hosts(record, run);
        read_details(record.value("run", Json()), run);
        read_result(record.value("result", Json()), run);
    } catch (const std::exception& error) {
        run.problems.push_back(fmt::format("run.json: cannot be read: {}", error.what()));
    }
    read_end(record, job_of_record(record, job, run), run);
}

void read_metrics_file(RunFolder& run) {
    std::ifstream file(run.path + "/metrics.jsonl");
    if (!file) {
        run.problems.emplace_back("metrics.jsonl: missing, so there are no curves");
        return;
    }
    run.metrics = read_metrics_table(file);
    const MetricsTable& metrics = run.metrics;
    if (metrics.series.empty()) run.problems.emplace_back("metrics.jsonl: has no step yet");
    if (metrics.damaged_lines > 0)
        run.problems.push_back(fmt::format("metrics.jsonl: skipped {} (no JSON, or no step)",
                                           counted(metrics.damaged_lines, "damaged line")));
    if (metrics.has_more_names)
        run.problems.push_back(fmt::format("metrics.jsonl: only the first {} numbers are read",
                                           MetricsTable::kNamesMax));
    if (std::filesystem::exists(run.path + "/metrics-1.jsonl"))
        run.problems.emplace_back(
            "metrics-1.jsonl and similar files belong to earlier runs in this folder and are not "
            "shown");
}

void read_checkpoints(RunFolder& run) {
    run.checkpoints.head = {"checkpoint", "size"};
    std::error_code error;
    for (const auto& entry :
         std::filesystem::directory_iterator(run.path + "/checkpoints", error)) {
        const std::string name = entry.path().filename().string();
        if (!entry.is_directory(error) || !name.starts_with("step-")) continue;
        int64_t bytes = 0;
        for (const auto& file : std::filesystem::directory_iterator(entry.path(), error)) {
            std::error_code unreadable;
            if (!file.is_regular_file(unreadable)) continue;
            const uintmax_t size = file.file_size(unreadable);
            if (!unreadable) bytes += static_cast<int64_t>(size);
        }
        run.checkpoints.rows.push_back({name, to_text(Bytes{bytes})});
    }
    std::ranges::sort(run.checkpoints.rows, {}, [](const std::vector<std::string>& row) {
        return parse_int(std::string_view(row[0]).substr(5)).value_or(0);
    });
}

}  // namespace

RunFolder read_run_folder(const std::string& path, const KnownJob* job) {
    std::error_code unreadable;
    if (!std::filesystem::is_directory(path, unreadable))
        fail(ExitCode::kInput, "{}: is not a folder; give the --output folder of a run",
             printable(path));
    const auto has = [&](const char* part) {
        return std::filesystem::exists(path + part, unreadable);
    };
    if (!has("/run.json") && !has("/metrics.jsonl") && !has("/logs"))
        fail(
            ExitCode::kInput,
            "{}: has neither run.json nor metrics.jsonl nor logs, so it is not the --output folder "
            "of a run; `dslaunch ps --all` lists the folders of your jobs",
            printable(path));
    RunFolder run;
    run.path = path;
    run.name = std::filesystem::absolute(path, unreadable).lexically_normal().string();
    while (run.name.size() > 1 && run.name.ends_with('/')) run.name.pop_back();
    run.name = std::filesystem::path(run.name).filename().string();
    read_run_file(job, run);
    read_metrics_file(run);
    read_run_log(run);
    if (has("/trace.json")) read_run_trace(run);
    read_checkpoints(run);
    return run;
}

}  // namespace dslaunch::launcher
