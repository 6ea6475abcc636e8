#include "worker/plan/plan_hosts.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/check.h"
#include "base/error.h"
#include "base/text.h"
#include "launch/hosts/hostfile.h"

namespace dslaunch::worker {

namespace {

constexpr size_t kNamedHostsMax = 8;  // largest number of hosts named in a text
constexpr std::string_view kNumGpus = "--num-gpus";
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
    app.add("--ranks-per-node N", hosts.ranks_per_node,
            "ranks on each host; default: all on one host")
        .range(1, kPlanRanksMax);
    app.add("-H,--hostfile FILE", hosts.hostfile,
            "instead of the two options above: plan one rank for each slot in FILE; no host is "
            "contacted");
    app.add("-i,--include SPEC", hosts.filter.include,
            "use only these hosts and slots: NODE[:SLOT[,SLOT]][@NODE...]");
    app.add("-e,--exclude SPEC", hosts.filter.exclude,
            "leave out these hosts and slots, written as for --include");
    app.add("--num-nodes N", hosts.filter.num_nodes, "use only the first N hosts of the hostfile");
    app.add(
        "--num-gpus,--num-accelerators N", hosts.filter.num_gpus,
        "use only the first N slots of each host; without a hostfile: the same as --world-size");
}

void find_plan_hosts(const CommandLine& app, PlanHosts& hosts) {
    const bool named = app.count("--hostfile") > 0;
    // Without a hostfile, --num-gpus N means N ranks on this machine, as in `run`.
    if (!named && hosts.filter.num_gpus && app.count("--world-size") == 0) {
        if (*hosts.filter.num_gpus < 1 || *hosts.filter.num_gpus > kPlanRanksMax)
            fail(ExitCode::kUsage, "{} must be from 1 to {}", kNumGpus, kPlanRanksMax);
        hosts.world_size = *hosts.filter.num_gpus;
        hosts.filter.num_gpus.reset();
    }
    for (const char* option : kFilters)
        if (!named && app.count(option) > 0 &&
            (option != kNumGpus || app.count("--world-size") > 0))
            fail(ExitCode::kUsage,
                 "{} selects from a hostfile: add --hostfile, or use --world-size to set the "
                 "number of ranks",
                 option);
    if (!named) return;
    for (const char* option : {"--world-size", "--ranks-per-node"})
        if (app.count(option) > 0)
            fail(ExitCode::kUsage,
                 "{} and --hostfile cannot be used together: the ranks are the hostfile's slots; "
                 "select some of them with --num_nodes, --num_gpus, --include or --exclude",
                 option);
    hosts.hosts = launch::apply_filter(launch::read_hostfile(hosts.hostfile), hosts.filter);
    hosts.world_size = hosts.ranks_max();
    if (hosts.world_size > kPlanRanksMax)
        fail(ExitCode::kUsage,
             "{} has {} slots, but a plan supports at most {} ranks; select hosts with --num_nodes "
             "or --include",
             printable(hosts.hostfile), hosts.world_size, kPlanRanksMax);
}

}  // namespace dslaunch::worker
