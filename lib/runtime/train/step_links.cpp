#include "runtime/train/step_links.h"

#include <fmt/format.h>

namespace dslaunch::runtime {

namespace {

std::string peer_text(int host) {
    return host == kOtherDevices ? "other GPUs" : fmt::format("host {}", host);
}

}  // namespace

StepLinks& StepLinks::operator+=(const StepLinks& more) {
    moved += more.moved;
    for (size_t kind = 0; kind < planned.size(); ++kind) planned[kind] += more.planned[kind];
    return *this;
}

bool is_planned(TrafficKind kind) {
    return kind != TrafficKind::kTensor && kind != TrafficKind::kControl;
}

void links_json(const StepLinks& links, JsonWriter& json) {
    const auto add = [&](std::string_view name, const Traffic& traffic) -> JsonWriter& {
        json.key(name).begin_object().field("sent", traffic.sent.value);
        return json.field("received", traffic.received.value);
    };
    json.begin_object().key("by_kind").begin_object();
    for (int k = 0; k < kTrafficKinds; ++k) {
        const auto kind = static_cast<TrafficKind>(k);
        const Traffic traffic = links.moved.of(kind);
        const Bytes planned = links.planned[static_cast<size_t>(k)];
        if (traffic == Traffic{} && planned.value == 0) continue;
        add(traffic_kind_name(kind), traffic);
        if (is_planned(kind)) json.field("planned", planned.value);
        json.end_object();
    }
    json.end_object().key("by_host").begin_object();
    for (const auto& [host, row] : links.moved.by_host)
        add(host == kOtherDevices ? "devices" : std::to_string(host), links.moved.of_host(host))
            .end_object();
    json.end_object().end_object();
}

std::string links_text(const StepLinks& links, int64_t steps) {
    if (links.moved.all().sent.value == 0) return {};
    const auto a_step = [&](Bytes bytes) { return to_text(Bytes{bytes.value / steps}); };
    std::string kinds;
    for (int k = 0; k < kTrafficKinds; ++k) {
        const auto kind = static_cast<TrafficKind>(k);
        const Bytes sent = links.moved.of(kind).sent;
        const Bytes planned = links.planned[static_cast<size_t>(k)];
        if (sent.value == 0 && planned.value == 0) continue;
        kinds += fmt::format("{}{} {}", kinds.empty() ? "" : ", ", traffic_kind_name(kind),
                             a_step(sent));
        if (is_planned(kind))
            kinds +=
                sent == planned ? " as planned" : fmt::format(" (planned: {})", a_step(planned));
    }
    std::string peers;
    for (const auto& [host, row] : links.moved.by_host)
        peers += fmt::format("{}{} to {}", peers.empty() ? "" : ", ",
                             a_step(links.moved.of_host(host).sent), peer_text(host));
    return fmt::format("{}; {}", kinds, peers);
}

}  // namespace dslaunch::runtime
