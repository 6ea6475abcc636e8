#include "launch/plan/environment_file.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>

#include "base/error.h"
#include "base/text.h"
#include "launch/plan/join_token.h"

namespace dslaunch::launch {
namespace {

constexpr std::array<std::string_view, 10> kForwardedPrefixes = {
    "NCCL_", "GLOO_", "TORCH_", "OMP_", "MKL_", "KMP_", "PYTHON", "UCX_", "HF_", "MLFLOW_"};

// The text inside double quotes; nothing when it does not end with an unescaped quote at the end of
// TEXT.
std::optional<std::string> unquote_double(std::string_view text) {
    std::string value;
    for (size_t i = 1; i < text.size(); ++i) {
        if (text[i] == '"') return i + 1 == text.size() ? std::optional(value) : std::nullopt;
        if (text[i] != '\\' || i + 1 == text.size()) {
            value += text[i];
            continue;
        }
        const char next = text[++i];
        if (next == 'n' || next == 't') {
            value += next == 'n' ? '\n' : '\t';
        } else {
            if (next != '"' && next != '\\') value += '\\';
            value += next;
        }
    }
    return std::nullopt;
}

std::optional<std::string> value_of(std::string_view text) {
    text = trim(text);
    if (text.empty()) return std::string();
    if (text.front() == '"') return unquote_double(text);
    if (text.front() != '\'') return std::string(text);
    const size_t end = text.find('\'', 1);
    if (end == std::string_view::npos || end + 1 != text.size()) return std::nullopt;
    return std::string(text.substr(1, end - 1));
}

}  // namespace

EnvironmentList parse_environment_file(std::string_view text, const std::string& file_name) {
    EnvironmentList list;
    std::vector<std::string> problems;
    int number = 0;
    for (const std::string& raw : split(text, '\n')) {
        ++number;
        std::string_view line = trim(raw);
        if (line.empty() || line.front() == '#') continue;
        if (line.starts_with("export ")) line = trim(line.substr(7));
        const size_t equals = line.find('=');
        const std::string_view name = trim(line.substr(0, equals));
        if (equals == std::string_view::npos) {
            problems.push_back(
                fmt::format("{}:{}: `{}` is not NAME=VALUE", file_name, number, printable(line)));
        } else if (!is_variable_name(name)) {
            problems.push_back(fmt::format("{}:{}: `{}` is not a variable name", file_name, number,
                                           printable(name)));
        } else if (name == kTokenVariable) {
            problems.push_back(
                fmt::format("{}:{}: {} is dslaunch's own secret, no worker may have it", file_name,
                            number, name));
        } else if (is_rank_variable(name)) {
            problems.push_back(
                fmt::format("{}:{}: {} is set by dslaunch for each rank", file_name, number, name));
        } else if (line.find('\0') != std::string_view::npos) {
            problems.push_back(
                fmt::format("{}:{}: a NUL byte in the value of {}", file_name, number, name));
        } else if (auto value = value_of(line.substr(equals + 1))) {
            list.emplace_back(name, std::move(*value));
        } else {
            problems.push_back(
                fmt::format("{}:{}: the quoted value of {} does not end where the line ends",
                            file_name, number, name));
        }
    }
    if (!problems.empty()) throw Error(ExitCode::kUsage, join(problems, "\n"));
    return list;
}

bool is_variable_name(std::string_view name) {
    if (name.empty() || std::isdigit(static_cast<unsigned char>(name[0])) != 0) return false;
    return std::all_of(name.begin(), name.end(), [](char c) {
        return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
               (c >= 'A' && c <= 'Z');
    });
}

bool is_rank_variable(std::string_view name) {
    if (name.starts_with("DSL_")) return true;
    const EnvironmentList list = WorkerEnvironment().variables();
    return std::any_of(list.begin(), list.end(),
                       [&](const auto& entry) { return entry.first == name; });
}

bool has_forwarded_prefix(std::string_view name) {
    return std::any_of(kForwardedPrefixes.begin(), kForwardedPrefixes.end(),
                       [&](std::string_view prefix) { return name.starts_with(prefix); });
}

}  // namespace dslaunch::launch
