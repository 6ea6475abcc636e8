// The hosts for `dslaunch plan`: they come from a hostfile and the filters of `dslaunch run`, or
// from a number of ranks on equal hosts. Data path: command line -> [here] -> topology, mesh. No
// host is contacted.
#pragma once

#include <string>
#include <vector>

#include "base/text/command_line.h"
#include "launch/hosts/hostfile.h"

namespace dslaunch::worker {

// The hosts of the planned job.
struct PlanHosts {
    int world_size = 1;
    int ranks_per_node = 0;                  // without a hostfile; 0: all on one host
    std::string hostfile;                    // empty: none
    launch::HostFilter filter = {};          // filters of the hostfile
    std::vector<launch::HostSlots> hosts{};  // hosts after the filter; empty without a
                                             // hostfile

    // Returns true if a hostfile names the hosts.
    [[nodiscard]] bool named() const { return !hosts.empty(); }
    // Returns the largest number of ranks: the hostfile's slots, or kPlanRanksMax without a
    // hostfile.
    [[nodiscard]] int ranks_max() const;
    // Returns the number of ranks on each host when RANKS fill the hosts one after the other.
    // REQUIRES: 0 < RANKS <= ranks_max().
    [[nodiscard]] std::vector<int> node_sizes(int ranks) const;
    // Returns a line like "6 ranks on 2 hosts of hostfile: node1 4, node2 2", without a newline.
    // Names at most the first eight hosts. REQUIRES: named().
    [[nodiscard]] std::string text() const;
};

inline constexpr int kPlanRanksMax = 65'536;

// Declares --world-size, --ranks-per-node, --hostfile and the filters for the hostfile.
void add_host_options(CommandLine& app, PlanHosts& hosts);

// Reads the hostfile, if one is given; its slots then become the ranks of the job. Called after
// parsing. Throws the errors of read_hostfile and apply_filter. Throws Error{kUsage} if there is a
// filter without a hostfile, a number of ranks in addition to a hostfile, or too many ranks.
void find_plan_hosts(const CommandLine& app, PlanHosts& hosts);

}  // namespace dslaunch::worker
