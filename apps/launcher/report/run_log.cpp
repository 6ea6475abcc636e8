#include "launcher/report/run_log.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "launch/plan/secrets.h"
#include "launcher/jobs/file_lines.h"

namespace dslaunch::launcher {
namespace {

constexpr int64_t kPartBytes = 256 << 10;
constexpr std::ptrdiff_t kLastLines = 20;
constexpr size_t kWarningsMax = 50;
constexpr std::string_view kTimeForm = "00:00:00.000 ";

// Returns what follows the time at the beginning of LINE; empty if there is no time.
std::string_view after_time(std::string_view line) {
    if (line.size() <= kTimeForm.size()) return {};
    for (size_t i = 0; i < kTimeForm.size(); ++i) {
        const bool fits = kTimeForm[i] == '0' ? is_digit(line[i]) : line[i] == kTimeForm[i];
        if (!fits) return {};
    }
    return line.substr(kTimeForm.size());
}

// Sets the memory of a rank from the log's line "train: memory of a rank: 182.0 MiB estimated,
// 184.4 MiB measured at most, …", unless run.json has given the memory. Versions before 0.1 wrote
// the memory only into the log.
void take_memory(std::string_view said, RunFolder& run) {
    const size_t estimated = said.find(" estimated, ");
    const size_t measured = said.find(" measured at most");
    if (!run.measured_memory.empty() || !said.starts_with("train: memory of a ") ||
        estimated == said.npos || measured == said.npos || measured < estimated)
        return;
    const size_t begin = said.rfind(": ", estimated) + 2;
    const size_t middle = estimated + std::string_view(" estimated, ").size();
    run.predicted_memory = said.substr(begin, estimated - begin);
    run.measured_memory = said.substr(middle, measured - middle);
}

void take_line(std::string_view line, RunFolder& run) {
    const std::string_view said = after_time(line);
    if (said.starts_with("warning ") || said.starts_with("error ")) {
        if (run.warnings.size() < kWarningsMax) run.warnings.push_back(launch::hide_secrets(line));
        return;
    }
    for (const std::string_view name : {"model", "data", "run"}) {
        if (!said.starts_with(name) || !said.substr(name.size()).starts_with(": ")) continue;
        const bool is_known =
            std::ranges::any_of(run.said, [&](const RunFact& fact) { return fact.first == name; });
        if (!is_known)
            run.said.emplace_back(name, launch::hide_secrets(said.substr(name.size() + 2)));
    }
    take_memory(said, run);
}

std::string end_of_log(std::vector<std::string> lines) {
    while (!lines.empty() && lines.back().empty()) lines.pop_back();
    if (std::ssize(lines) > kLastLines) lines.erase(lines.begin(), lines.end() - kLastLines);
    return launch::hide_secrets(join(lines, "\n"));
}

}  // namespace

void read_run_log(RunFolder& run) {
    const std::optional<std::string> text = read_file_ends(
        run.path + "/logs/rank-0.log", {.first_bytes = kPartBytes, .last_bytes = kPartBytes});
    if (!text) {
        run.problems.emplace_back("logs/rank-0.log: cannot be read");
        return;
    }
    const std::vector<std::string> lines = split(*text, '\n');
    for (const std::string& line : lines) take_line(line, run);
    run.last_lines = end_of_log(lines);
}

}  // namespace dslaunch::launcher
