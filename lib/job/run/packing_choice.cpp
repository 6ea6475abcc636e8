#include "job/run/packing_choice.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/text/message.h"
#include "job/setup/job_layout.h"
#include "job/setup/job_wire.h"
#include "kernels/packing.h"
#include "runtime/comm/link_probe.h"

namespace dslaunch::job {

namespace {

// The rates that one host has measured.
struct Rates {
    double link_bytes_per_s = 0;                 // to the next host; 0: not measured
    std::array<double, 2> packed_numel_per_s{};  // elements packed and unpacked, in 8 and in 4 bits
};

// The address at which a host's probe waits for the measurement.
struct ProbeAddress {
    static constexpr const char* kWhat = "address of a probe";
    std::string host;
    int64_t port = 0;
};

double packed_numel_per_s(WirePacking packing) {
    std::vector<float> values(1 << 18, 0.5F);
    std::vector<std::byte> packed(static_cast<size_t>(wire_bytes(packing, std::ssize(values), 4)));
    const SystemClock clock;
    double best_s = std::numeric_limits<double>::max();
    for (int turn = 0; turn < 3; ++turn) {
        const TimePoint begin = clock.now();
        kernels::pack_for_wire(packing, values, packed);
        kernels::unpack_from_wire(packing, packed, values);
        best_s = std::min(best_s, to_milliseconds(clock.now() - begin) / 1e3);
    }
    return static_cast<double>(values.size()) / best_s;
}

// Makes the first rank of every host measure the link to the next host, all at the same time, as in
// training. Returns the rates that each host has measured.
std::vector<Rates> measure_links(runtime::JobComm& all) {
    runtime::Collectives& collectives = *all.collectives;
    const runtime::Topology& place = collectives.topology();
    const bool probes = place.local_rank == 0;
    runtime::ProbeToken token{};
    std::random_device random;
    for (uint64_t& word : token) word = uint64_t{random()} << 32 | random();
    token = runtime::gather_values(collectives, token).front();  // rank 0's token
    std::optional<runtime::ProbeServer> server;
    std::string mine;
    if (probes) {
        const std::string host = all.rendezvous->own_address();
        server.emplace(host, token);
        mine = encode(ProbeAddress{host, server->port()});
    }
    const std::vector<std::string> servers = collectives.all_gather(mine);
    Rates measured;
    if (probes) {
        const int next = (place.node_rank + 1) % place.node_count();
        const auto theirs =
            decode<ProbeAddress>(servers[static_cast<size_t>(place.first_rank(next))]);
        runtime::ProbePlace way;
        way.to = theirs.host;
        way.port = static_cast<int>(theirs.port);
        runtime::ProbeLimits limits;
        limits.latency = std::chrono::milliseconds(50);
        limits.burst = std::chrono::milliseconds(500);
        const health::LinkSample sample = runtime::probe_link(way, token, limits).way;
        if (!sample.error.empty())
            log_warn("links", "the link from host {} to host {} could not be measured: {}",
                     place.node_rank, next, sample.error);
        if (sample.wrong > 0)
            log_warn("links",
                     "{} words of 8 bytes from host {} arrived changed at host {}: memory, a "
                     "network card or a switch changes data, and no checksum detects it; `dslaunch "
                     "health` checks every link",
                     sample.wrong, place.node_rank, next);
        if (sample.error.empty())
            measured.link_bytes_per_s = static_cast<double>(sample.bytes_per_second);
        measured.packed_numel_per_s = {packed_numel_per_s(WirePacking::kInt8),
                                       packed_numel_per_s(WirePacking::kInt4)};
    }
    std::vector<Rates> hosts = runtime::gather_values(collectives, measured);
    std::erase_if(hosts, [](const Rates& host) { return host.packed_numel_per_s[0] == 0; });
    return hosts;
}

Rates slowest(const std::vector<Rates>& hosts) {
    Rates least = hosts.front();
    for (const Rates& host : hosts) {
        least.link_bytes_per_s = std::min(least.link_bytes_per_s, host.link_bytes_per_s);
        for (size_t k = 0; k < least.packed_numel_per_s.size(); ++k)
            least.packed_numel_per_s[k] =
                std::min(least.packed_numel_per_s[k], host.packed_numel_per_s[k]);
    }
    return least;
}

}  // namespace

PackingCost packing_cost(WirePacking packing, int64_t element_bytes, double bytes_per_s,
                         double numel_per_s) {
    const auto packed =
        static_cast<double>(wire_bytes(packing, kWireBlockNumel, element_bytes)) / kWireBlockNumel;
    return {1e9 * static_cast<double>(element_bytes) / bytes_per_s,
            1e9 * packed / bytes_per_s + 1e9 / numel_per_s};
}

void choose_packing(JobSetup& setup, runtime::JobComm& all) {
    const config::WireConfig& said = setup.config().zero.wire;
    const bool undecided = std::ranges::any_of(kWireKeys, [&](const WireKey& choice) {
        return said.*choice.said == config::WireChoice::kAuto;
    });
    if (!undecided || setup.on_gpu || all.collectives->topology().node_count() == 1) return;
    const Rates rates = slowest(measure_links(all));
    const bool first = all.collectives->topology().rank() == 0;
    for (const WireKey& choice : kWireKeys) {
        if (said.*choice.said != config::WireChoice::kAuto) continue;
        if (rates.link_bytes_per_s <= 0) {
            if (first) log_info("links", "{} auto: off, because no link was measured", choice.key);
            continue;
        }
        const bool gradients = choice.packing == WirePacking::kInt4;
        const PackingCost cost =
            packing_cost(choice.packing, gradients ? 4 : setup.plan_options.parameter_bytes,
                         rates.link_bytes_per_s, rates.packed_numel_per_s[gradients ? 1 : 0]);
        if (cost.packs()) setup.plan_options.wire.*choice.wire = choice.packing;
        if (first)
            log_info(
                "links",
                "{} auto: {}; the slowest link between hosts carries {:.3g} GB/s: sending an "
                "element takes {:.2f} ns unpacked, and {:.2f} ns in {} bits, including the packing",
                choice.key, cost.packs() ? "on" : "off", rates.link_bytes_per_s / 1e9,
                cost.exact_ns, cost.packed_ns, gradients ? 4 : 8);
    }
    setup.plan = make_plan(setup, setup.own_ranks());
}

}  // namespace dslaunch::job
