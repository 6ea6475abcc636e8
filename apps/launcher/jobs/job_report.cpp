// The facts about one job for a bug report: its record, its output folder, dslaunch's messages when
// it ended, and the last lines of its ranks.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/fd.h"
#include "base/text.h"
#include "base/text/text_table.h"
#include "launch/output/run_record.h"
#include "launcher/jobs/report.h"

namespace dslaunch::launcher {
namespace {

using Json = nlohmann::json;

constexpr size_t kFileBytesMax = 64U << 20;
constexpr size_t kLaunchLines = 60;  // dslaunch's last lines: the report of a failure
constexpr size_t kRankLines = 10;    // last lines of each rank
constexpr size_t kRanksShown = 8;

std::string last_lines(const std::string& text, size_t count) {
    std::vector<std::string> lines = split(text, '\n');
    while (!lines.empty() && lines.back().empty()) lines.pop_back();
    if (lines.size() > count) lines.erase(lines.begin(), lines.end() - static_cast<int>(count));
    return join(lines, "\n");
}

// Returns the lines of a job's log that the launcher itself wrote.
std::string launcher_lines(const std::string& folder) {
    std::string text;
    for (const char* file : {"/job.log.1", "/job.log"}) {
        try {
            for (const std::string& line : split(read_file(folder + file, kFileBytesMax), '\n')) {
                if (line.starts_with("-\t\t")) text += line.substr(3) + "\n";
            }
        } catch (const Error&) {
            continue;  // no such file
        }
    }
    return last_lines(text, kLaunchLines);
}

// Returns the last lines of the file at PATH. Reads only its end, because the file may be large.
std::string tail_of(const std::string& path) {
    constexpr uintmax_t kTailBytes = 64U << 10;
    std::error_code error;
    const auto bytes = std::filesystem::file_size(path, error);
    if (error) return "";
    std::ifstream file(path);
    if (bytes > kTailBytes) file.seekg(static_cast<std::streamoff>(bytes - kTailBytes));
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    return last_lines(text, kRankLines);
}

void add_rank_logs(const std::string& folder, std::vector<ReportSection>& sections) {
    size_t shown = 0;
    for (size_t rank = 0; shown < kRanksShown; ++rank, ++shown) {
        const std::string path = fmt::format("{}/logs/rank-{}.log", folder, rank);
        if (!std::filesystem::exists(path)) break;
        sections.push_back({fmt::format("last lines of rank {}", rank), {}, tail_of(path)});
    }
}

std::string text_of(const Json& json) {
    return json.is_string() ? json.get<std::string>() : json.dump();
}

// Returns the texts that NODE has under KEYS. Leaves out empty texts. Shortens each text to 12
// characters, which are enough of a hash.
std::vector<std::string> words_of(const Json& node, std::initializer_list<const char*> keys) {
    std::vector<std::string> words;
    for (const char* key : keys) {
        const std::string word = node.value(key, "").substr(0, 12);
        if (!word.empty()) words.push_back(word);
    }
    return words;
}

// Returns a text about a resolved config: the values that were set, the values derived from them,
// and the notes.
std::string config_text(const Json& config) {
    std::vector<std::vector<std::string>> rows = {{"key", "value", "origin"}};
    for (const Json& value : config.value("values", Json::array())) {
        const std::string origin = value.value("origin", "");
        if (origin != "default")
            rows.push_back({value.value("path", ""), value.value("value", Json()).dump(), origin});
    }
    std::string text = "resolved config (all other keys have their default):\n" + text_table(rows);
    for (const Json& note : config.value("notes", Json::array()))
        text += fmt::format("note: {}\n", text_of(note));
    return text;
}

ReportSection run_section(const Json& run, NameMask& mask) {
    ReportSection section{"run.json", {}, ""};
    for (const char* key : {"dslaunch", "target", "world_size", "restarts", "exit_code"}) {
        if (run.contains(key)) section.facts.emplace_back(key, text_of(run.at(key)));
    }
    for (const Json& node : run.value("nodes", Json::array())) {
        const std::string name = node.value("name", "");
        mask.add(name, "host");
        mask.add(node.value("host_name", ""), "host");
        section.facts.emplace_back(
            "node", fmt::format("{}: dslaunch {}, kernel {}, {}, {}", name,
                                join(words_of(node, {"version", "binary_sha256"}), " "),
                                node.value("kernel", ""), counted(node.value("cores", 0), "core"),
                                counted(node.value("gpus", 0), "GPU")));
    }
    const Json details = run.value("run", Json());
    if (details.is_object() && details.contains("config"))
        section.text = config_text(details.at("config"));
    return section;
}

// Returns the section for a run.json that belongs to a different run.
ReportSection other_run_section() {
    return {"run.json",
            {},
            "not shown, because run.json belongs to another run: this job ended before its first "
            "step, or a later run replaced the file"};
}

}  // namespace

std::vector<ReportSection> job_report(const KnownJob& job, NameMask& mask) {
    for (const launch::HostAddress& host : job.hosts) {
        mask.add(host.name, "host");
        mask.add(host.user, "user");
        mask.add(host.address, "address");
    }
    mask.add(job.machine, "host");
    ReportSection section{"job", {{"id", job.id}, {"state", state_text(job)}}, ""};
    section.facts.emplace_back("exit code",
                               job.exit_code ? std::to_string(*job.exit_code) : "none yet");
    section.facts.emplace_back("target", job.target);
    section.facts.emplace_back("transport", job.transport);
    section.facts.emplace_back("hosts", fmt::format("{} in use", job.hosts_in_use()));
    section.facts.emplace_back("ranks", std::to_string(job.world_size));
    section.facts.emplace_back("restarts", fmt::format("{} of {}", job.restarts, job.max_restarts));
    if (job.step) section.facts.emplace_back("newest step", std::to_string(*job.step));
    std::vector<ReportSection> sections = {
        section, {"last messages of dslaunch", {}, launcher_lines(job.folder)}};
    if (const auto run = launch::find_run_record(job.output); run && !job.output.empty()) {
        sections.push_back(run->job_id == job.id ? run_section(run->json, mask)
                                                 : other_run_section());
        add_rank_logs(job.output, sections);
    }
    return sections;
}

std::vector<ReportSection> folder_report(const std::string& folder, NameMask& mask) {
    const auto run = launch::find_run_record(folder);
    if (!run)
        fail(ExitCode::kInput,
             "{}: cannot read a run.json in this folder; is it the --output folder of a run?",
             printable(folder));
    std::vector<ReportSection> sections = {run_section(run->json, mask)};
    add_rank_logs(folder, sections);
    return sections;
}

}  // namespace dslaunch::launcher
