#include "launch/hosts/filter.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace dslaunch::launch {
namespace {

struct NodeSpec {
    std::string node;
    std::vector<int> slots;  // empty: all
};

std::vector<NodeSpec> parse_spec(const std::string& text, const char* option) {
    std::vector<NodeSpec> specs;
    for (const std::string& piece : split(text, '@')) {
        // An IPv6 name holds colons inside its brackets.
        const size_t bracket = piece.find(']');
        const size_t colon = piece.find(':', bracket == std::string::npos ? 0 : bracket);
        NodeSpec spec{piece.substr(0, colon), {}};
        if (!is_host_name(spec.node)) {
            fail(ExitCode::kUsage,
                 "{} `{}`: `{}` is not a host name; write NODE[:SLOT[,SLOT]][@NODE…]", option,
                 printable(text), printable(spec.node));
        }
        if (colon != std::string::npos) {
            for (const std::string& slot : split(piece.substr(colon + 1), ',')) {
                const auto number = parse_int(slot);
                if (!number || *number < 0 || *number >= kSlotsMax) {
                    fail(ExitCode::kUsage, "{} `{}`: `{}` is not a slot number", option,
                         printable(text), printable(slot));
                }
                spec.slots.push_back(static_cast<int>(*number));
            }
        }
        specs.push_back(std::move(spec));
    }
    return specs;
}

std::vector<int> all_slots(const Host& host) {
    std::vector<int> slots = host.gpus;
    for (int i = 0; host.gpus.empty() && i < host.slots; ++i) slots.push_back(i);
    std::sort(slots.begin(), slots.end());
    return slots;
}

std::string list_text(const std::vector<int>& numbers) {
    return fmt::format("{}", fmt::join(numbers, ","));
}

const Host& find_host(const std::vector<Host>& hosts, const std::string& name, const char* option) {
    const auto found = std::find_if(hosts.begin(), hosts.end(),
                                    [&](const Host& host) { return host.name == name; });
    if (found != hosts.end()) return *found;
    std::vector<std::string> names;
    for (const Host& host : hosts) names.push_back(host.name);
    const auto guess = nearest(name, names);
    fail(ExitCode::kUsage, "{}: host `{}` is not in the hostfile{}", option, name,
         guess ? fmt::format(", did you mean `{}`?", *guess) : "");
}

// Every name and slot exists.
void check_spec(const std::vector<Host>& hosts, const std::vector<NodeSpec>& specs,
                const char* option) {
    for (const NodeSpec& spec : specs) {
        const std::vector<int> known = all_slots(find_host(hosts, spec.node, option));
        for (const int slot : spec.slots) {
            if (!std::binary_search(known.begin(), known.end(), slot)) {
                fail(ExitCode::kUsage, "{}: host `{}` has no slot {}; its slots are {}", option,
                     spec.node, slot, list_text(known));
            }
        }
    }
}

// A host that is named several times is meant with all the slots together.
bool is_named(const std::vector<NodeSpec>& specs, const std::string& node, int slot) {
    return std::any_of(specs.begin(), specs.end(), [&](const NodeSpec& spec) {
        return spec.node == node &&
               (spec.slots.empty() || std::count(spec.slots.begin(), spec.slots.end(), slot) > 0);
    });
}

void check_exclusions(const HostFilter& filter) {
    if (!filter.include.empty() && !filter.exclude.empty()) {
        fail(ExitCode::kUsage, "--include and --exclude exclude each other; give one");
    }
    const bool named = !filter.include.empty() || !filter.exclude.empty();
    if (named && (filter.num_nodes || filter.num_gpus)) {
        fail(ExitCode::kUsage, "--{} cannot be given together with --{}",
             filter.num_nodes ? "num_nodes" : "num_gpus",
             filter.include.empty() ? "exclude" : "include");
    }
    if (filter.num_nodes && *filter.num_nodes < 1)
        fail(ExitCode::kUsage, "--num_nodes must be at least 1");
    if (filter.num_gpus && *filter.num_gpus < 1)
        fail(ExitCode::kUsage, "--num_gpus must be at least 1");
}

std::vector<HostSlots> first_ones(const std::vector<Host>& hosts, const HostFilter& filter) {
    const size_t nodes = filter.num_nodes ? static_cast<size_t>(*filter.num_nodes) : hosts.size();
    if (nodes > hosts.size()) {
        fail(ExitCode::kUsage, "--num_nodes {}: there are only {} hosts", nodes, hosts.size());
    }
    std::vector<HostSlots> chosen;
    std::vector<std::string> short_hosts;
    for (size_t i = 0; i < nodes; ++i) {
        HostSlots entry{hosts[i], all_slots(hosts[i])};
        if (filter.num_gpus) {
            const auto wanted = static_cast<size_t>(*filter.num_gpus);
            if (wanted > entry.slots.size()) {
                short_hosts.push_back(
                    fmt::format("`{}` has {}", entry.host.name, entry.slots.size()));
            }
            entry.slots.resize(std::min(wanted, entry.slots.size()));
        }
        chosen.push_back(std::move(entry));
    }
    if (!short_hosts.empty()) {
        fail(ExitCode::kUsage, "--num_gpus {} is more than the slots of: {}", *filter.num_gpus,
             join(short_hosts, ", "));
    }
    return chosen;
}

}  // namespace

std::vector<HostSlots> apply_filter(const std::vector<Host>& hosts, const HostFilter& filter) {
    check_exclusions(filter);
    if (filter.include.empty() && filter.exclude.empty()) return first_ones(hosts, filter);
    const bool including = !filter.include.empty();
    const char* option = including ? "--include" : "--exclude";
    const std::vector<NodeSpec> specs =
        parse_spec(including ? filter.include : filter.exclude, option);
    check_spec(hosts, specs, option);
    std::vector<HostSlots> chosen;
    for (const Host& host : hosts) {
        HostSlots entry{host, {}};
        for (const int slot : all_slots(host))
            if (is_named(specs, host.name, slot) == including) entry.slots.push_back(slot);
        if (!entry.slots.empty()) chosen.push_back(std::move(entry));
    }
    if (chosen.empty())
        fail(ExitCode::kUsage, "--exclude `{}` leaves no slot for a worker", filter.exclude);
    return chosen;
}

int named_slots(const std::string& include, const std::string& host) {
    if (include.empty()) return 0;
    int count = 0;
    for (const NodeSpec& spec : parse_spec(include, "--include")) {
        if (spec.node != host) continue;
        for (const int slot : spec.slots) count = std::max(count, slot + 1);
    }
    return count;
}

}  // namespace dslaunch::launch
