#include "launcher/run/dry_run.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "base/path.h"
#include "base/text.h"
#include "base/text/json.h"
#include "base/text/words.h"
#include "launch/machine/machine_topology.h"
#include "launch/plan/secrets.h"
#include "launch/supervise/rank_watch.h"

namespace dslaunch::launcher {
namespace {

const char* name_of(launch::TransportKind kind) {
    static constexpr const char* kNames[] = {"local", "ssh",  "openssh", "join",
                                             "slurm", "pdsh", "openmpi"};
    return kNames[static_cast<size_t>(kind)];
}

// Returns the variables that dslaunch gives to the worker. A later value replaces an earlier one
// without changing the order.
launch::EnvironmentList environment_of(const launch::JobSpec& spec,
                                       const launch::PlannedWorker& worker) {
    launch::EnvironmentList list;
    const auto put = [&](const std::pair<std::string, std::string>& entry) {
        const auto found = std::find_if(list.begin(), list.end(), [&](const auto& known) {
            return known.first == entry.first;
        });
        if (found == list.end()) {
            list.push_back(entry);
        } else {
            found->second = entry.second;
        }
    };
    for (const auto& entry : spec.environment.set) put(entry);
    for (const auto& entry : worker.environment.variables()) put(entry);
    return list;
}

void write_devices(JsonWriter& json, const std::string& devices) {
    json.key("devices").begin_array();
    for (const std::string& device :
         devices.empty() ? std::vector<std::string>{} : split(devices, ',')) {
        if (const auto number = parse_int(device)) {
            json.value(*number);
        } else {
            json.value(device);
        }
    }
    json.end_array();
}

bool network_is_open(const launch::JobSpec& spec) {
    return spec.nodes.size() > 1 && spec.transport != launch::TransportKind::kLocal &&
           spec.master_address.empty();
}

void write_place(JsonWriter& json, const launch::RankPlace& place) {
    json.key("processors").begin_array();
    for (const int number : place.processors) json.value(number);
    json.end_array().field("threads", place.threads).key("memory_node");
    if (place.memory_node < 0) {
        json.null();
    } else {
        json.value(place.memory_node);
    }
}

std::string binding_text(const launch::JobSpec& spec,
                         const std::vector<launch::RankPlace>& places) {
    if (spec.binding.mode == launch::BindMode::kAuto) return {};
    std::string text = fmt::format("binding {}", launch::bind_mode_name(spec.binding.mode));
    if (!spec.binding.core_list.empty()) text += ", processors " + spec.binding.core_list;
    if (spec.binding.mode == launch::BindMode::kNone) return text + "\n";
    if (places.empty()) return text + ": chosen on each host\n";
    text += ":\n";
    for (size_t rank = 0; rank < places.size(); ++rank) {
        const launch::RankPlace& place = places[rank];
        text += fmt::format("{:>5}  processors {}, {}", rank,
                            launch::processor_list_text(place.processors),
                            counted(place.threads, "thread"));
        if (place.memory_node >= 0) text += fmt::format(", memory of node {}", place.memory_node);
        text += "\n";
    }
    return text;
}

}  // namespace

void warn_of_crowd(const launch::JobSpec& spec) {
    if (spec.transport != launch::TransportKind::kLocal ||
        spec.target_kind != launch::TargetKind::kModel)
        return;
    std::ptrdiff_t ranks = 0;
    for (const launch::PlannedNode& node : spec.nodes)
        if (node.workers.front().environment.devices.empty()) ranks += std::ssize(node.workers);
    if (const std::string text =
            launch::crowd_text(ranks, launch::processors_granted(), "this machine");
        !text.empty())
        log_warn("launch", "{}", text);
}

std::vector<launch::RankPlace> places_here(const launch::JobSpec& spec) {
    const bool binds = spec.binding.mode != launch::BindMode::kAuto &&
                       spec.binding.mode != launch::BindMode::kNone;
    if (!binds || spec.transport != launch::TransportKind::kLocal) return {};
    const launch::MachineTopology topology =
        launch::read_machine_topology("", launch::allowed_processors());
    std::vector<launch::RankPlace> places;
    for (const launch::PlannedNode& node : spec.nodes) {
        const std::string& devices = node.workers.front().environment.devices;
        for (launch::RankPlace& place : launch::place_ranks(
                 topology, {spec.binding, launch::rank_gpus(devices, node.workers.size())})) {
            places.push_back(std::move(place));
        }
    }
    return places;
}

std::string dry_run_json(const launch::JobSpec& spec,
                         const std::vector<launch::RankPlace>& places) {
    JsonWriter json;
    json.begin_object().field("world_size", spec.world_size);
    json.field("output", spec.output_directory);
    json.key("workers").begin_array();
    for (const launch::PlannedNode& node : spec.nodes) {
        for (const launch::PlannedWorker& worker : node.workers) {
            const launch::WorkerEnvironment& place = worker.environment;
            json.begin_object().field("rank", place.rank).field("host", node.name);
            json.field("node_rank", place.node_rank).field("local_rank", place.local_rank);
            write_devices(json, place.devices);
            json.key("env").begin_object();
            for (const auto& [name, value] : environment_of(spec, worker))
                json.field(name, launch::shown_value(name, value));
            json.end_object().key("command").begin_array();
            for (const std::string& word : worker.command) json.value(word);
            json.end_array();
            if (!places.empty()) write_place(json, places.at(static_cast<size_t>(place.rank)));
            json.end_object();
        }
    }
    json.end_array().field("bind", launch::bind_mode_name(spec.binding.mode));
    json.field("network_chosen_at_start", network_is_open(spec));
    json.field("transport", name_of(spec.transport));
    json.field("working_directory", spec.working_directory);
    json.field("max_restarts", spec.max_restarts).key("elastic");
    if (spec.elastic.on()) {
        json.begin_object().field("min", spec.elastic.nodes.min);
        json.field("max", spec.elastic.nodes.max).key("hosts").begin_array();
        for (const std::string& host : spec.elastic.hosts) json.value(host);
        json.end_array().end_object();
    } else {
        json.null();
    }
    json.key("hosts").begin_array();
    for (const launch::PlannedNode& node : spec.nodes) {
        json.begin_object()
            .field("name", node.name)
            .field("user", node.user)
            .field("port", node.port);
        json.field("address", node.address).end_object();
    }
    json.end_array().end_object();
    return json.text() + "\n";
}

std::string dry_run_text(const launch::JobSpec& spec,
                         const std::vector<launch::RankPlace>& places) {
    std::string text =
        fmt::format("{} on {}, transport {}, in {}\n", counted(spec.world_size, "worker"),
                    counted(std::ssize(spec.nodes), "host"), name_of(spec.transport),
                    shell_word(spec.working_directory));
    if (!spec.output_directory.empty())
        text += fmt::format("output {}\n", shell_word(path_from_here(spec.output_directory)));
    if (spec.elastic.on())
        text += fmt::format(
            "of {} hosts, each attempt uses those that answer, at least {} and at most {}\n",
            spec.elastic.hosts.size(), spec.elastic.nodes.min, spec.elastic.nodes.max);
    if (spec.max_restarts > 0)
        text += fmt::format("at most {} restarts after a failure\n", spec.max_restarts);
    if (spec.master_port == 0)
        text += "MASTER_PORT 0 means that a free port is chosen when the job starts\n";
    if (network_is_open(spec)) {
        text +=
            "MASTER_ADDR will be an address of the first host that every host can reach.\nIt is "
            "chosen when the job starts, and so are NCCL_SOCKET_IFNAME and\nGLOO_SOCKET_IFNAME "
            "unless you set them\n";
    }
    text += binding_text(spec, places);
    const launch::EnvironmentList first = environment_of(spec, spec.nodes.front().workers.front());
    text += fmt::format("\n{:>5}  {:<20} {:>4}  {:>5}  {:<10} {}\n", "rank", "host", "node",
                        "local", "devices", "command");
    for (const launch::PlannedNode& node : spec.nodes) {
        for (const launch::PlannedWorker& worker : node.workers) {
            const launch::WorkerEnvironment& place = worker.environment;
            std::vector<std::string> words;
            for (const std::string& word : worker.command) words.push_back(shell_word(word));
            text += fmt::format("{:>5}  {:<20} {:>4}  {:>5}  {:<10} {}\n", place.rank, node.name,
                                place.node_rank, place.local_rank,
                                place.devices.empty() ? "cpu" : place.devices, join(words, " "));
        }
    }
    text += "\nenvironment of rank 0 (each rank has its own RANK, LOCAL_RANK, …):\n";
    for (const auto& [name, value] : first)
        text += fmt::format("  {}={}\n", name, shell_word(launch::shown_value(name, value)));
    if (spec.environment.inherit_all) {
        text +=
            fmt::format("  and all variables in the environment of {}\n",
                        spec.transport == launch::TransportKind::kJoin ? "its agent" : "dslaunch");
    }
    return text;
}

}  // namespace dslaunch::launcher
