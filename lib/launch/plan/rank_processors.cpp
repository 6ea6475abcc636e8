#include "launch/plan/rank_processors.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "base/check.h"
#include "base/error.h"
#include "base/text.h"
#include "launch/plan/launch_plan.h"

namespace dslaunch::launch {
namespace {

// A rank is given units: cores, or single processors where cores do not suffice.
struct Unit {
    std::vector<Processor> processors;  // by number
    [[nodiscard]] const Processor& first() const { return processors.front(); }
};
using Units = std::vector<Unit>;

std::vector<Processor> chosen_processors(const MachineTopology& topology,
                                         const std::string& core_list) {
    DSL_CHECK(!topology.processors.empty(), "a machine has a processor");
    if (core_list.empty()) return topology.processors;
    const auto wanted = parse_processor_list(core_list);
    DSL_CHECK(wanted.has_value(), "the core list was checked with the command line");
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
             "--bind_core_list {} names processors {}, which are not there or not ours to use "
             "(usable: {}); name others, or leave it out",
             core_list, processor_list_text(missing), processor_list_text(usable));
    }
    return chosen;
}

// The cores in the order in which neighbours share most.
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

// RANKS equal shares of CORES, in order; what is left over goes to the first ones, whose threads
// stay as many as everybody's: a step takes as long as its slowest rank.
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

// A rank's node is that of its GPU; ranks without one are spread over the nodes in order.
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

// The largest complexes come first; they are used again when there are more ranks.
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

}  // namespace

const char* bind_mode_name(BindMode mode) {
    switch (mode) {
        case BindMode::kAuto:
            return "auto";
        case BindMode::kNone:
            return "none";
        case BindMode::kCore:
            return "core";
        case BindMode::kNuma:
            return "numa";
        case BindMode::kSocket:
            return "socket";
        case BindMode::kExclusive:
            return "exclusive";
        case BindMode::kCoreComplex:
            return "core-complex";
    }
    return "unknown";
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

}  // namespace dslaunch::launch
