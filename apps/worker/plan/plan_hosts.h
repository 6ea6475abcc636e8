// The hosts of `dslaunch plan`: from a hostfile and the filters of `dslaunch run`, or from a number
// of ranks on equal hosts. Data path: command line -> [here] -> topology, mesh. No host is
// contacted.
#pragma once

#include <string>
#include <vector>

#include "base/text/command_line.h"
#include "launch/hosts/hostfile.h"

namespace dslaunch::worker {

struct PlanHosts {
    int world_size = 1;
    int ranks_per_node = 0;                  // only without a hostfile; 0: all on one host
    std::string hostfile;                    // empty: none
    launch::HostFilter filter = {};          // filters of the hostfile
    std::vector<launch::HostSlots> hosts{};  // hosts that the filter leaves; empty without a
                                             // hostfile

    [[nodiscard]] bool named() const { return !hosts.empty(); }
    // Returns the largest number of ranks: the hostfile's slots, or kPlanRanksMax without one.
    [[nodiscard]] int ranks_max() const;
    // Returns the ranks of each host when the hosts are filled with RANKS one after the other.
    // REQUIRES: 0 < RANKS <= ranks_max().
    [[nodiscard]] std::vector<int> node_sizes(int ranks) const;
    // Returns "6 ranks on 2 hosts of hostfile: node1 4, node2 2", without newline. Names at most
    // the first eight hosts. REQUIRES: named().
    [[nodiscard]] std::string text() const;
};

inline constexpr int kPlanRanksMax = 65'536;

// Adds --world-size, --ranks-per-node, --hostfile and its filters.
void add_host_options(CommandLine& app, PlanHosts& hosts);

// Called after parsing: reads the hostfile, whose slots are then the ranks of the job. Throws
// Error{kUsage} as read_hostfile and apply_filter do, and for a filter without a hostfile, for both
// ways of giving the number of ranks, and for more ranks than a plan takes.
void find_plan_hosts(const CommandLine& app, PlanHosts& hosts);

}  // namespace dslaunch::worker
