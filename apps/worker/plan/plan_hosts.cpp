#include "worker/plan/plan_hosts.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/check.h"
#include "base/error.h"
#include "base/text.h"
#include "launch/hosts/hostfile.h"

namespace dslaunch::worker {

namespace {

constexpr size_t kNamedHostsMax = 8;  // the most hosts named in a text
constexpr const char* kFilters[] = {"--include", "--exclude", "--num-nodes", "--num-gpus"};

int ranks_on(const launch::HostSlots& host) {
    return static_cast<int>(host.slots.size());
}

}  // namespace

int PlanHosts::ranks_max() const {
    if (!named()) return kPlanRanksMax;
    int ranks = 0;
    for (const launch::HostSlots& host : hosts) ranks += ranks_on(host);
    return ranks;
}

std::vector<int> PlanHosts::node_sizes(int ranks) const {
    DSL_CHECK(ranks > 0 && ranks <= ranks_max(), "{} ranks on hosts for {}", ranks, ranks_max());
    std::vector<int> sizes;
    for (int left = ranks; left > 0; left -= sizes.back()) {
        int slots = ranks_per_node > 0 ? ranks_per_node : ranks;
        if (named()) slots = ranks_on(hosts[sizes.size()]);
        sizes.push_back(std::min(slots, left));
    }
    return sizes;
}

std::string PlanHosts::text() const {
    DSL_CHECK(named(), "hosts without a hostfile");
    std::vector<std::string> parts;
    for (size_t h = 0; h < std::min(hosts.size(), kNamedHostsMax); ++h)
        parts.push_back(fmt::format("{} {}", hosts[h].host.name, ranks_on(hosts[h])));
    if (hosts.size() > kNamedHostsMax)
        parts.push_back(fmt::format("and {} more", hosts.size() - kNamedHostsMax));
    const int ranks = ranks_max();
    return fmt::format("{} {} on {} {} of {}: {}", ranks, ranks == 1 ? "rank" : "ranks",
                       hosts.size(), hosts.size() == 1 ? "host" : "hosts", printable(hostfile),
                       join(parts, ", "));
}

void add_host_options(CommandLine& app, PlanHosts& hosts) {
    app.add("--world-size N", hosts.world_size, "ranks of the job").range(1, kPlanRanksMax);
    app.add("--ranks-per-node N", hosts.ranks_per_node, "ranks on each host; default: all on one")
        .range(1, kPlanRanksMax);
    app.add("-H,--hostfile FILE", hosts.hostfile,
            "instead of both: a rank for each slot of its hosts, none of which is contacted");
    app.add("-i,--include SPEC", hosts.filter.include,
            "of the hostfile only these: NODE[:SLOT[,SLOT]][@NODE...]");
    app.add("-e,--exclude SPEC", hosts.filter.exclude, "all but these, written as --include");
    app.add("--num-nodes N", hosts.filter.num_nodes, "the first N hosts of the hostfile");
    app.add("--num-gpus,--num-accelerators N", hosts.filter.num_gpus,
            "the first N slots of each host of the hostfile");
}

void find_plan_hosts(const CommandLine& app, PlanHosts& hosts) {
    const bool named = app.count("--hostfile") > 0;
    for (const char* option : kFilters)
        if (!named && app.count(option) > 0)
            fail(ExitCode::kUsage,
                 "{} chooses from a hostfile; give --hostfile too, or --world-size for a number of "
                 "ranks",
                 option);
    if (!named) return;
    for (const char* option : {"--world-size", "--ranks-per-node"})
        if (app.count(option) > 0)
            fail(ExitCode::kUsage,
                 "{} and --hostfile exclude each other: the hostfile's slots are the ranks; "
                 "--num_nodes, --num_gpus, --include and --exclude choose among them",
                 option);
    hosts.hosts = launch::apply_filter(launch::read_hostfile(hosts.hostfile), hosts.filter);
    hosts.world_size = hosts.ranks_max();
    if (hosts.world_size > kPlanRanksMax)
        fail(ExitCode::kUsage,
             "{} has {} slots, and a plan is made for {} ranks at most; choose "
             "hosts by --num_nodes or --include",
             printable(hosts.hostfile), hosts.world_size, kPlanRanksMax);
}

}  // namespace dslaunch::worker
