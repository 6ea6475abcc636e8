// Makes the launch plan: chosen slots -> nodes and ranks with their environment and command. It
// determines which worker runs where, and on which processors. Pure; no threads.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launch/hosts/hostfile.h"
#include "launch/machine/machine_topology.h"
#include "launch/plan/job_spec.h"

namespace dslaunch::launch {

// The processors and the memory of one rank.
struct RankPlace {
    std::vector<int> processors;  // by number, never empty
    int threads = 1;              // threads of an operator: the rank's share of its cores
    int memory_node = -1;         // NUMA node that its memory should come from; -1: any

    bool operator==(const RankPlace&) const = default;
};

// The arguments of place_ranks(), about the ranks of one host.
struct PlacementRequest {
    BindingRequest binding;
    // The GPU of each local rank, as an index into MachineTopology::gpu_nodes; -1: none. The length
    // of the vector is the number of ranks.
    std::vector<int> gpus;
};

// Returns the GPUs of RANKS workers that all see DEVICES (CUDA_VISIBLE_DEVICES): each worker gets
// the entry at its local rank. -1 stands for a missing GPU, and for an entry that is not a number.
[[nodiscard]] std::vector<int> rank_gpus(const std::string& devices, size_t ranks);

// Returns the processors of each rank, by local rank; empty for kAuto and kNone. Each rank gets
// whole cores, with all their usable processors; with more ranks than cores it gets single
// processors, and with more ranks than processors several ranks share a processor. Throws
// Error{kUsage} if the core list names a processor that may not be used here. REQUIRES:
// topology.processors is not empty, and parse_processor_list() accepts the core list.
[[nodiscard]] std::vector<RankPlace> place_ranks(const MachineTopology& topology,
                                                 const PlacementRequest& request);

// The facts from which the launch plan is made.
struct PlanRequest {
    std::vector<HostSlots> hosts;           // not empty
    std::vector<std::string> command_head;  // the command, up to and including the target
    std::vector<std::string> command_tail;  // the target's arguments
    bool append_local_rank = false;         // true: --local_rank=N follows command_head, as under
                                            // deepspeed
    DeviceRequest device = DeviceRequest::kAuto;
    std::string master_address;  // empty: loopback when `local`, else the first host's address or
                                 // name
    int master_port = 0;         // 0: chosen at start
    std::string job_id, launch_id;  // see JobSpec
    int max_restarts = 0;
    bool local = false;  // every node is this machine
    // Local runs: the launcher's CUDA_VISIBLE_DEVICES; if unset, this machine's GPUs. A slot is
    // then an index into the visible devices, and a gpus= entry must be one of them.
    std::optional<std::string> visible_devices;
    int gpu_count = 0;
};

// Makes the plan. The node rank is the index in HOSTS, and the local rank counts from 0 on each
// host. Ranks are numbered node by node, even if hosts have different numbers of slots. Every
// worker of a node sees all devices of the node and takes the device with the number LOCAL_RANK, as
// deepspeed and torchrun scripts expect. With kCpu a worker sees no device. With kAuto in a local
// run, it sees the devices of gpus= in the hostfile, which are not checked. Throws Error{kSetup} if
// a local run on kCuda asks for devices that this machine or CUDA_VISIBLE_DEVICES lacks.
[[nodiscard]] std::vector<PlannedNode> make_launch_plan(const PlanRequest& request);

// Returns ASKED, or the device that kAuto stands for on this machine: kCuda if it has a GPU that
// CUDA_VISIBLE_DEVICES shows, else kCpu.
[[nodiscard]] DeviceRequest resolve_local_device(DeviceRequest asked, int gpu_count,
                                                 const std::optional<std::string>& visible_devices);

// Returns the entries of CUDA_VISIBLE_DEVICES, or 0..GPU_COUNT-1 if it is not set. Drops blank
// entries.
[[nodiscard]] std::vector<std::string> visible_device_list(
    const std::optional<std::string>& visible_devices, int gpu_count);

// Translates DEVICES ("0,2", indices of visible devices) into the names in VISIBLE, the agent's
// list. This is needed if a scheduler gave the agent only some of the machine's GPUs. Keeps entries
// that are not an index.
[[nodiscard]] std::string devices_seen_through(const std::string& devices,
                                               const std::vector<std::string>& visible);

}  // namespace dslaunch::launch
