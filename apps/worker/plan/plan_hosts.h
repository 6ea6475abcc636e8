// The hosts of `dslaunch plan`: from a hostfile and the filters of `dslaunch run`, or so many ranks
// on equal hosts. Data path: command line -> [here] -> topology, mesh. No host is contacted.
#pragma once

#include <string>
#include <vector>

#include "base/text/command_line.h"
#include "launch/hosts/filter.h"

namespace dslaunch::worker {

struct PlanHosts {
    int world_size = 1;
    int ranks_per_node = 0;                  // 0: all on one host; without a hostfile
    std::string hostfile;                    // empty: none
    launch::HostFilter filter = {};          // of the hostfile
    std::vector<launch::HostSlots> hosts{};  // that it leaves, empty without a hostfile

    [[nodiscard]] bool named() const { return !hosts.empty(); }
    // How many ranks there can be: the hostfile's slots, without one any number.
    [[nodiscard]] int ranks_max() const;
    // The ranks of each host when the hosts are filled with RANKS one after the other. REQUIRES:
    // 0 < RANKS <= ranks_max().
    [[nodiscard]] std::vector<int> node_sizes(int ranks) const;
    // "6 ranks on 2 hosts of hostfile: node1 4, node2 2", one line without its end; of more than
    // eight hosts the first ones. REQUIRES: named().
    [[nodiscard]] std::string text() const;
};

inline constexpr int kPlanRanksMax = 65'536;

// --world-size, --ranks-per-node, --hostfile and its filters.
void add_host_options(CommandLine& app, PlanHosts& hosts);

// After parsing: reads the hostfile, whose slots are then the ranks of the job. Throws
// Error{kUsage}: what read_hostfile and apply_filter refuse, a filter without a hostfile, both ways
// of saying how many ranks there are, more ranks than a plan takes.
void find_plan_hosts(const CommandLine& app, PlanHosts& hosts);

}  // namespace dslaunch::worker
