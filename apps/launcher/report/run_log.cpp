#include "launcher/report/run_log.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string_view>

#include "base/text.h"
#include "launch/plan/secrets.h"

namespace dslaunch::launcher {
namespace {

constexpr std::streamoff kPartBytes = 256 << 10;
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

// Takes "train: memory of a rank: 182.0 MiB estimated, 184.4 MiB measured at most, …".
void take_memory(std::string_view said, RunFolder& run) {
    const size_t estimated = said.find(" estimated, ");
    const size_t measured = said.find(" measured at most");
    if (!said.starts_with("train: memory of a ") || estimated == said.npos ||
        measured == said.npos || measured < estimated)
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
    std::ifstream file(run.path + "/logs/rank-0.log", std::ios::binary);
    if (!file) {
        run.problems.emplace_back("logs/rank-0.log: cannot be read");
        return;
    }
    std::string text(static_cast<size_t>(kPartBytes), '\0');
    file.read(text.data(), kPartBytes);
    text.resize(static_cast<size_t>(file.gcount()));
    file.clear();
    file.seekg(0, std::ios::end);
    const std::streamoff length = file.tellg();
    if (length > 2 * kPartBytes) {
        // Both parts end within a line, which is left out. The byte before the second part tells
        // whether a line begins there.
        text.erase(text.rfind('\n') + 1);
        file.seekg(length - kPartBytes - 1);
        const std::string tail(std::istreambuf_iterator<char>(file), {});
        text.append(tail, tail.find('\n') + 1);
    } else if (length > kPartBytes) {
        file.seekg(kPartBytes);
        text.append(std::istreambuf_iterator<char>(file), {});
    }
    const std::vector<std::string> lines = split(text, '\n');
    for (const std::string& line : lines) take_line(line, run);
    run.last_lines = end_of_log(lines);
}

}  // namespace dslaunch::launcher
