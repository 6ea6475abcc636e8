#include "launch/plan/launch_plan.h"

#include <algorithm>

#include "base/check.h"
#include "base/error.h"
#include "base/text.h"

namespace dslaunch::launch {
namespace {

// The devices of one node in slot order, as CUDA_VISIBLE_DEVICES writes them.
std::vector<std::string> node_devices(const PlanRequest& request, const HostSlots& entry) {
    const bool by_number = !entry.host.gpus.empty();
    std::vector<std::string> devices;
    if (request.device == DeviceRequest::kCpu) return devices;
    const bool unchecked = !request.local || request.device == DeviceRequest::kAuto;
    if (unchecked && (by_number || !request.local)) {
        for (const int slot : entry.slots) devices.push_back(std::to_string(slot));
    }
    if (unchecked) return devices;
    const auto visible = visible_device_list(request.visible_devices, request.gpu_count);
    const char* source =
        request.visible_devices ? "CUDA_VISIBLE_DEVICES shows" : "this machine has";
    for (const int slot : entry.slots) {
        const std::string number = std::to_string(slot);
        const bool found = by_number
                               ? std::find(visible.begin(), visible.end(), number) != visible.end()
                               : static_cast<size_t>(slot) < visible.size();
        if (!found) {
            fail(ExitCode::kSetup,
                 "host `{}` is asked for GPU {}, but {} {} ({}); ask for fewer, or give --device "
                 "cpu",
                 entry.host.name, slot, source, visible.size(), join(visible, ","));
        }
        devices.push_back(by_number ? number : visible[slot]);
    }
    return devices;
}

std::string default_master(const PlanRequest& request) {
    if (!request.master_address.empty()) return request.master_address;
    const Host& first = request.hosts.front().host;
    if (request.local) return "127.0.0.1";
    const std::string& address = first.address.empty() ? first.name : first.address;
    const bool bracketed = address.front() == '[';
    return bracketed ? address.substr(1, address.size() - 2) : address;
}

std::vector<std::string> command_of(const PlanRequest& request, int local_rank) {
    std::vector<std::string> command = request.command_head;
    if (request.append_local_rank) command.push_back(fmt::format("--local_rank={}", local_rank));
    command.insert(command.end(), request.command_tail.begin(), request.command_tail.end());
    return command;
}

}  // namespace

std::vector<PlannedNode> make_launch_plan(const PlanRequest& request) {
    DSL_CHECK(!request.hosts.empty(), "a plan needs a host");
    WorkerEnvironment common;
    common.node_sizes.clear();
    common.world_size = 0;
    for (const HostSlots& entry : request.hosts) {
        DSL_CHECK(!entry.slots.empty(), "a chosen host has a slot");
        common.node_sizes.push_back(static_cast<int>(entry.slots.size()));
        common.world_size += common.node_sizes.back();
    }
    common.master_address = default_master(request);
    common.master_port = request.master_port;
    common.job_id = request.job_id;
    common.launch_id = request.launch_id;
    common.max_restarts = request.max_restarts;
    std::vector<PlannedNode> nodes;
    int rank = 0;
    for (const HostSlots& entry : request.hosts) {
        PlannedNode node{entry.host.name, entry.host.user, entry.host.port, entry.host.address, {}};
        common.node_rank = static_cast<int>(nodes.size());
        common.local_world_size = static_cast<int>(entry.slots.size());
        common.devices = join(node_devices(request, entry), ",");
        for (int local_rank = 0; local_rank < common.local_world_size; ++local_rank) {
            PlannedWorker worker{common, command_of(request, local_rank)};
            worker.environment.rank = rank++;
            worker.environment.local_rank = local_rank;
            node.workers.push_back(std::move(worker));
        }
        nodes.push_back(std::move(node));
    }
    return nodes;
}

DeviceRequest resolve_local_device(DeviceRequest asked, int gpu_count,
                                   const std::optional<std::string>& visible_devices) {
    if (asked != DeviceRequest::kAuto) return asked;
    const bool any = gpu_count > 0 && !visible_device_list(visible_devices, gpu_count).empty();
    return any ? DeviceRequest::kCuda : DeviceRequest::kCpu;
}

std::vector<std::string> visible_device_list(const std::optional<std::string>& visible_devices,
                                             int gpu_count) {
    std::vector<std::string> list;
    if (visible_devices) {
        for (const std::string& entry : split(*visible_devices, ',')) {
            const std::string_view name = trim(entry);
            if (name == "-1" || name == "NoDevFiles")
                break;  // CUDA: everything from here on is hidden
            if (!name.empty()) list.emplace_back(name);
        }
        return list;
    }
    for (int i = 0; i < gpu_count; ++i) list.push_back(std::to_string(i));
    return list;
}

std::string devices_seen_through(const std::string& devices,
                                 const std::vector<std::string>& visible) {
    if (devices.empty()) return devices;
    std::vector<std::string> names = split(devices, ',');
    for (std::string& name : names) {
        const auto place = parse_int(name);
        if (place && *place >= 0 && *place < static_cast<int64_t>(visible.size())) {
            name = visible[*place];
        }
    }
    return join(names, ",");
}

}  // namespace dslaunch::launch
