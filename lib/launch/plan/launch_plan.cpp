#include "launch/plan/launch_plan.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "base/check.h"
#include "base/error.h"
#include "base/text.h"

namespace dslaunch::launch {
namespace {

// The unit in which processors are given to ranks: a core, or a single processor if there are too
// few cores.
struct Unit {
    std::vector<Processor> processors;  // by number
    [[nodiscard]] const Processor& first() const { return processors.front(); }
};
using Units = std::vector<Unit>;

std::vector<Processor> chosen_processors(const MachineTopology& topology,
                                         const std::string& core_list) {
    DSL_CHECK(!topology.processors.empty(), "this machine has no usable processor");
    if (core_list.empty()) return topology.processors;
    const auto wanted = parse_processor_list(core_list);
    DSL_CHECK(wanted.has_value(), "the core list is not valid");
    std::vector<int> usable;
    for (const Processor& processor : topology.processors) usable.push_back(processor.number);
    std::vector<Processor> chosen;
    std::vector<int> missing;
    for (const int number : *wanted) {
        const auto found = std::lower_bound(usable.begin(), usable.end(), number);
        if (found == usable.end() || *found != number) {
            missing.push_back(number);
        } else {
            chosen.push_back(topology.processors[found - usable.begin()]);
        }
    }
    if (!missing.empty()) {
        fail(ExitCode::kUsage,
             "--bind_core_list {} contains processors {}, which do not exist or are not available "
             "to this process (usable: {}); give other processors, or leave the option out",
             core_list, processor_list_text(missing), processor_list_text(usable));
    }
    return chosen;
}

// Returns the cores, ordered so that neighbours share as much hardware as possible.
Units cores_of(const std::vector<Processor>& processors) {
    std::map<std::tuple<int, int, int, int>, Unit> cores;
    for (const Processor& p : processors) {
        cores[{p.package, p.node, p.cache, p.core}].processors.push_back(p);
    }
    Units units;
    for (auto& [place, unit] : cores) units.push_back(std::move(unit));
    return units;
}

Units single_processors(const Units& cores) {
    Units units;
    for (const Unit& core : cores) {
        for (const Processor& processor : core.processors) units.push_back({{processor}});
    }
    return units;
}

RankPlace place_on(const Units& units, int threads, bool several_nodes) {
    RankPlace place;
    std::set<int> nodes;
    for (const Unit& unit : units) {
        for (const Processor& processor : unit.processors) {
            place.processors.push_back(processor.number);
            nodes.insert(processor.node);
        }
    }
    std::sort(place.processors.begin(), place.processors.end());
    place.threads = std::max(1, threads);
    if (several_nodes && nodes.size() == 1) place.memory_node = *nodes.begin();
    return place;
}

// Divides CORES into RANKS shares, in order, and returns each share with its number of threads. The
// first shares also get the remaining cores. But all shares have the same number of threads,
// because a step takes as long as its slowest rank.
std::vector<std::pair<Units, int>> shares_of(const Units& cores, size_t ranks) {
    const Units units = ranks > cores.size() ? single_processors(cores) : cores;
    std::vector<std::pair<Units, int>> shares;
    for (size_t rank = 0; rank < ranks; ++rank) {
        if (ranks >= units.size()) {
            shares.push_back({{units[rank * units.size() / ranks]}, 1});
            continue;
        }
        const size_t each = units.size() / ranks;
        const size_t rest = units.size() % ranks;
        const size_t begin = rank * each + std::min(rank, rest);
        const size_t end = begin + each + (rank < rest ? 1 : 0);
        shares.push_back({Units(units.begin() + static_cast<std::ptrdiff_t>(begin),
                                units.begin() + static_cast<std::ptrdiff_t>(end)),
                          static_cast<int>(each)});
    }
    return shares;
}

class Placer {
  public:
    Placer(const MachineTopology& topology, const PlacementRequest& request)
        : topology_(topology),
          mode_(request.binding.mode),
          gpus_(request.gpus),
          cores_(cores_of(chosen_processors(topology, request.binding.core_list))) {
        for (const Unit& core : cores_) nodes_.insert(core.first().node);
    }

    std::vector<RankPlace> place();

  private:
    [[nodiscard]] int node_of(size_t rank) const;
    [[nodiscard]] Units cores_where(int Processor::*member, int value) const;
    void share(const Units& cores, const std::vector<size_t>& ranks);
    void share_complexes(int node, const std::vector<size_t>& ranks);
    void give_all(const Units& cores, const std::vector<size_t>& ranks);

    const MachineTopology& topology_;
    BindMode mode_;
    const std::vector<int>& gpus_;
    Units cores_;
    std::set<int> nodes_;
    std::vector<RankPlace> places_;
};

// Returns the NUMA node of the rank's GPU; ranks without a GPU are spread over the nodes in order.
int Placer::node_of(size_t rank) const {
    const int gpu = gpus_[rank];
    if (gpu >= 0 && static_cast<size_t>(gpu) < topology_.gpu_nodes.size()) {
        const int node = topology_.gpu_nodes[gpu];
        if (nodes_.contains(node)) return node;
    }
    const auto step = static_cast<std::ptrdiff_t>(rank * nodes_.size() / gpus_.size());
    return *std::next(nodes_.begin(), step);
}

Units Placer::cores_where(int Processor::*member, int value) const {
    Units units;
    for (const Unit& core : cores_) {
        if (core.first().*member == value) units.push_back(core);
    }
    return units;
}

void Placer::share(const Units& cores, const std::vector<size_t>& ranks) {
    const auto shares = shares_of(cores, ranks.size());
    for (size_t i = 0; i < ranks.size(); ++i) {
        places_[ranks[i]] = place_on(shares[i].first, shares[i].second, nodes_.size() > 1);
    }
}

void Placer::give_all(const Units& cores, const std::vector<size_t>& ranks) {
    const int threads = static_cast<int>(cores.size() / ranks.size());
    for (const size_t rank : ranks) {
        places_[rank] = place_on(cores, threads, nodes_.size() > 1);
    }
}

// Gives each rank one core complex, the largest complexes first. If there are more ranks than
// complexes, several ranks share a complex.
void Placer::share_complexes(int node, const std::vector<size_t>& ranks) {
    std::map<int, Units> by_cache;
    for (const Unit& core : cores_where(&Processor::node, node)) {
        by_cache[core.first().cache].push_back(core);
    }
    std::vector<Units> complexes;
    for (auto& [cache, cores] : by_cache) complexes.push_back(std::move(cores));
    std::stable_sort(complexes.begin(), complexes.end(),
                     [](const Units& a, const Units& b) { return a.size() > b.size(); });
    for (size_t i = 0; i < complexes.size(); ++i) {
        std::vector<size_t> mine;
        for (size_t rank = i; rank < ranks.size(); rank += complexes.size()) {
            mine.push_back(ranks[rank]);
        }
        if (!mine.empty()) give_all(complexes[i], mine);
    }
}

std::vector<RankPlace> Placer::place() {
    places_.resize(gpus_.size());
    std::vector<size_t> all;
    std::map<int, std::vector<size_t>> by_group;
    std::map<int, int> package_of_node;
    for (const Unit& core : cores_) package_of_node[core.first().node] = core.first().package;
    for (size_t rank = 0; rank < gpus_.size(); ++rank) {
        all.push_back(rank);
        const int node = node_of(rank);
        by_group[mode_ == BindMode::kSocket ? package_of_node[node] : node].push_back(rank);
    }
    if (mode_ == BindMode::kCore) share(cores_, all);
    for (const auto& [group, ranks] : by_group) {
        switch (mode_) {
            case BindMode::kNuma:
                give_all(cores_where(&Processor::node, group), ranks);
                break;
            case BindMode::kSocket:
                give_all(cores_where(&Processor::package, group), ranks);
                break;
            case BindMode::kExclusive:
                share(cores_where(&Processor::node, group), ranks);
                break;
            case BindMode::kCoreComplex:
                share_complexes(group, ranks);
                break;
            default:
                break;
        }
    }
    if (topology_.cores_max > 0) {
        const int granted = std::max(1, topology_.cores_max / static_cast<int>(gpus_.size()));
        for (RankPlace& place : places_) place.threads = std::min(place.threads, granted);
    }
    return std::move(places_);
}

// Returns the devices of one node in slot order, in the form of CUDA_VISIBLE_DEVICES.
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
                 "host `{}` needs GPU {} for a slot, but {} {} ({}); use fewer slots, or give "
                 "--device cpu",
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

const char* bind_mode_name(BindMode mode) {
    static constexpr const char* kNames[] = {"auto",   "none",      "core",        "numa",
                                             "socket", "exclusive", "core-complex"};
    return kNames[static_cast<size_t>(mode)];
}

std::vector<int> rank_gpus(const std::string& devices, size_t ranks) {
    constexpr int64_t kGpusMax = 65'536;
    const std::vector<std::string> visible = visible_device_list(devices, 0);
    std::vector<int> gpus(ranks, -1);
    for (size_t rank = 0; rank < std::min(ranks, visible.size()); ++rank) {
        const auto number = parse_int(visible[rank]);
        if (number && *number >= 0 && *number < kGpusMax) gpus[rank] = static_cast<int>(*number);
    }
    return gpus;
}

std::vector<RankPlace> place_ranks(const MachineTopology& topology,
                                   const PlacementRequest& request) {
    const BindMode mode = request.binding.mode;
    if (mode == BindMode::kAuto || mode == BindMode::kNone || request.gpus.empty()) return {};
    return Placer(topology, request).place();
}

std::vector<PlannedNode> make_launch_plan(const PlanRequest& request) {
    DSL_CHECK(!request.hosts.empty(), "a plan needs at least one host");
    WorkerEnvironment common;
    common.node_sizes.clear();
    common.world_size = 0;
    for (const HostSlots& entry : request.hosts) {
        DSL_CHECK(!entry.slots.empty(), "a chosen host has no slot");
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
                break;  // CUDA hides this entry and all later entries
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
