#include "launcher/dry_run.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json.h"
#include "base/text.h"

namespace dslaunch {
namespace {

const char* name_of(TransportKind kind) {
    switch (kind) {
        case TransportKind::kLocal:
            return "local";
        case TransportKind::kSsh:
            return "ssh";
        case TransportKind::kOpenSsh:
            return "openssh";
    }
    return "unknown";
}

// What the worker gets from us, later values replacing earlier ones in place.
EnvironmentList environment_of(const JobSpec& spec, const PlannedWorker& worker) {
    EnvironmentList list;
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

// As a shell would need it, so that a reader can copy it.
std::string quoted(const std::string& word) {
    const std::string_view plain =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/=:,+@%";
    if (!word.empty() && word.find_first_not_of(plain) == std::string::npos) return word;
    std::string text = "'";
    for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return printable(text + "'");
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

}  // namespace

std::string dry_run_json(const JobSpec& spec) {
    JsonWriter json;
    json.begin_object().field("world_size", spec.world_size);
    json.key("workers").begin_array();
    for (const PlannedNode& node : spec.nodes) {
        for (const PlannedWorker& worker : node.workers) {
            const WorkerEnvironment& place = worker.environment;
            json.begin_object().field("rank", place.rank).field("host", node.name);
            json.field("node_rank", place.node_rank).field("local_rank", place.local_rank);
            write_devices(json, place.devices);
            json.key("env").begin_object();
            for (const auto& [name, value] : environment_of(spec, worker)) json.field(name, value);
            json.end_object().key("command").begin_array();
            for (const std::string& word : worker.command) json.value(word);
            json.end_array().end_object();
        }
    }
    json.end_array().field("transport", name_of(spec.transport));
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
    for (const PlannedNode& node : spec.nodes) {
        json.begin_object()
            .field("name", node.name)
            .field("user", node.user)
            .field("port", node.port);
        json.field("address", node.address).end_object();
    }
    json.end_array().end_object();
    return json.text() + "\n";
}

std::string dry_run_text(const JobSpec& spec) {
    std::string text =
        fmt::format("{} workers on {} hosts, transport {}, in {}\n", spec.world_size,
                    spec.nodes.size(), name_of(spec.transport), quoted(spec.working_directory));
    if (spec.elastic.on())
        text +=
            fmt::format("each attempt uses those of {} hosts that answer, {} to {} of them\n",
                        spec.elastic.hosts.size(), spec.elastic.nodes.min, spec.elastic.nodes.max);
    if (spec.max_restarts > 0)
        text += fmt::format("at most {} restarts after a failure\n", spec.max_restarts);
    if (spec.master_port == 0)
        text += "MASTER_PORT 0 stands for a free port, chosen at the start\n";
    const EnvironmentList first = environment_of(spec, spec.nodes.front().workers.front());
    text += fmt::format("\n{:>5}  {:<20} {:>4}  {:>5}  {:<10} {}\n", "rank", "host", "node",
                        "local", "devices", "command");
    for (const PlannedNode& node : spec.nodes) {
        for (const PlannedWorker& worker : node.workers) {
            const WorkerEnvironment& place = worker.environment;
            std::vector<std::string> words;
            for (const std::string& word : worker.command) words.push_back(quoted(word));
            text += fmt::format("{:>5}  {:<20} {:>4}  {:>5}  {:<10} {}\n", place.rank, node.name,
                                place.node_rank, place.local_rank,
                                place.devices.empty() ? "cpu" : place.devices, join(words, " "));
        }
    }
    text += "\nenvironment of rank 0 (each rank has its own RANK, LOCAL_RANK, …):\n";
    for (const auto& [name, value] : first) text += fmt::format("  {}={}\n", name, quoted(value));
    if (spec.environment.inherit_all) text += "  and everything in the environment of dslaunch\n";
    return text;
}

}  // namespace dslaunch
