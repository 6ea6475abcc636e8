// Chosen slots -> nodes and ranks with their environment and command: which worker runs where, and
// on which processors. Pure; no threads.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launch/hosts/hostfile.h"
#include "launch/machine/machine_topology.h"
#include "launch/plan/job_spec.h"

namespace dslaunch::launch {

struct RankPlace {
    std::vector<int> processors;  // by number, never empty
    int threads = 1;              // for operators: its cores, shared with whom it shares them
    int memory_node = -1;         // NUMA node that its memory should come from; -1: any

    bool operator==(const RankPlace&) const = default;
};

struct PlacementRequest {
    BindingRequest binding;
    // GPU of each local rank, by the order of MachineTopology::gpu_nodes; -1: none. Its length is
    // the number of ranks.
    std::vector<int> gpus;
};

// Returns the GPUs of RANKS workers that all see DEVICES (CUDA_VISIBLE_DEVICES), each with the one
// at its local rank; -1 for a missing GPU, or one that is not written as a number.
[[nodiscard]] std::vector<int> rank_gpus(const std::string& devices, size_t ranks);

// Returns the places by local rank; empty for kAuto and kNone. Gives whole cores, with all their
// usable processors; with more ranks than cores it gives processors, and with more ranks than
// processors several ranks share one. Throws Error{kUsage} when the core list names a processor
// that may not be used here. REQUIRES: topology.processors not empty, a core list that
// parse_processor_list() reads.
[[nodiscard]] std::vector<RankPlace> place_ranks(const MachineTopology& topology,
                                                 const PlacementRequest& request);

struct PlanRequest {
    std::vector<HostSlots> hosts;           // not empty
    std::vector<std::string> command_head;  // up to and with the target
    std::vector<std::string> command_tail;  // the target's arguments
    bool append_local_rank = false;         // --local_rank=N between the two, as under deepspeed
    DeviceRequest device = DeviceRequest::kAuto;
    std::string master_address;  // empty: loopback when `local`, else the first host's address or
                                 // name
    int master_port = 0;         // 0: chosen at start
    std::string job_id, launch_id;  // see JobSpec
    int max_restarts = 0;
    bool local = false;  // every node is this machine
    // Local runs: the launcher's CUDA_VISIBLE_DEVICES; if unset, this machine's GPUs. A slot is
    // then an index into the visible devices; a gpus= entry must be one of them.
    std::optional<std::string> visible_devices;
    int gpu_count = 0;
};

// Makes the plan. Node rank = place among HOSTS, local rank = 0,1,… on its host, rank = node by
// node: exact for uneven slots. Every worker of a node sees all its node's devices and picks the
// one at LOCAL_RANK, as deepspeed and torchrun scripts expect. With kCpu it sees no device, except
// that gpus= of the hostfile is kept on a machine without GPUs. Throws Error{kSetup} when a local
// run on kCuda asks for devices that this machine or CUDA_VISIBLE_DEVICES lacks.
[[nodiscard]] std::vector<PlannedNode> make_launch_plan(const PlanRequest& request);

// Returns the meaning of `auto` on this machine: kCuda when it has a GPU that CUDA_VISIBLE_DEVICES
// shows, else kCpu.
[[nodiscard]] DeviceRequest resolve_local_device(DeviceRequest asked, int gpu_count,
                                                 const std::optional<std::string>& visible_devices);

// Returns the entries of CUDA_VISIBLE_DEVICES, or 0..GPU_COUNT-1 without it. Drops blank entries.
[[nodiscard]] std::vector<std::string> visible_device_list(
    const std::optional<std::string>& visible_devices, int gpu_count);

// Returns DEVICES ("0,2", places among visible devices) by the names in VISIBLE, the agent's list:
// a scheduler gave it some of the machine's GPUs. Keeps entries that are not a place.
[[nodiscard]] std::string devices_seen_through(const std::string& devices,
                                               const std::vector<std::string>& visible);

}  // namespace dslaunch::launch
