#include "launch/output/environment_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/text.h"
#include "launch/plan/environment_file.h"
#include "launch/plan/secrets.h"

namespace dslaunch::launch {
namespace {

using Value = std::optional<std::string>;  // nullopt: not set

struct Holders {
    std::vector<std::string> hosts;  // each once, in the order of ranks
    std::vector<std::string> ranks;
};

// Groups the ranks by the value that the variable NAME has on them. Groups are sorted by their
// first rank.
std::vector<std::pair<Value, Holders>> holders_of(
    const std::string& name, std::span<const RankVariables> ranks,
    const std::vector<std::map<std::string, std::string>>& values) {
    std::vector<std::pair<Value, Holders>> groups;
    for (size_t i = 0; i < ranks.size(); ++i) {
        const auto found = values[i].find(name);
        const Value value = found == values[i].end() ? Value() : Value(found->second);
        auto group = std::find_if(groups.begin(), groups.end(),
                                  [&](const auto& known) { return known.first == value; });
        if (group == groups.end()) group = groups.insert(groups.end(), {value, {}});
        Holders& holders = group->second;
        holders.ranks.push_back(std::to_string(ranks[i].rank));
        if (holders.hosts.empty() || holders.hosts.back() != ranks[i].host)
            holders.hosts.push_back(ranks[i].host);
    }
    return groups;
}

std::string value_text(const std::string& name, const Value& value) {
    if (!value) return "(not set)";
    return printable(shown_value(name, *value));
}

// Returns true if no host has ranks with different values.
bool differs_by_host(const std::vector<std::pair<Value, Holders>>& groups) {
    std::vector<std::string> seen;
    for (const auto& [value, holders] : groups) {
        for (const std::string& host : holders.hosts) {
            if (std::find(seen.begin(), seen.end(), host) != seen.end()) return false;
            seen.push_back(host);
        }
    }
    return true;
}

}  // namespace

std::string describe_environments(std::span<const RankVariables> ranks) {
    std::vector<std::map<std::string, std::string>> values;
    std::map<std::string, bool> names;
    for (const RankVariables& rank : ranks) {
        values.emplace_back(rank.variables.begin(), rank.variables.end());
        for (const auto& [name, value] : rank.variables) names[name] = true;
    }
    std::string common, different;
    std::vector<std::string> own;
    for (const auto& [name, unused] : names) {
        const auto groups = holders_of(name, ranks, values);
        const std::string shown = printable(name);
        if (groups.size() == 1) {
            common += fmt::format("  {}={}\n", shown, value_text(name, groups.front().first));
            continue;
        }
        if (is_rank_variable(name)) {
            own.push_back(shown);
            continue;
        }
        const bool by_host = differs_by_host(groups);
        for (const auto& [value, holders] : groups) {
            different += fmt::format(
                "  {}={}  on {}\n", shown, value_text(name, value),
                by_host ? join(holders.hosts, ", ") : "ranks " + join(holders.ranks, ", "));
        }
    }
    std::string text = fmt::format(
        "dslaunch: environment of {}:\n{}",
        ranks.size() == 1 ? "the rank" : fmt::format("all {} ranks", ranks.size()), common);
    if (!own.empty()) text += "each rank has its own: " + join(own, " ") + "\n";
    text +=
        different.empty() ? "nothing else differs between hosts\n" : "these differ:\n" + different;
    return text;
}

}  // namespace dslaunch::launch
