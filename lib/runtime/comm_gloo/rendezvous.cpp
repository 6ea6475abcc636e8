#include "runtime/comm_gloo/rendezvous.h"

#include <algorithm>
#include <cstdlib>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text/torch_reason.h"
#include "runtime/comm_gloo/address.h"
#include "runtime/comm_gloo/gloo_link.h"
#include "runtime/comm_gloo/gloo_setup.h"

namespace dslaunch::runtime {

namespace {

std::string address_key(int node) {
    return fmt::format("dslaunch/address/{}", node);
}

// Returns the interface that GLOO_SOCKET_IFNAME names; empty if it names none.
std::string named_interface() {
    const char* const interface = std::getenv("GLOO_SOCKET_IFNAME");
    return interface == nullptr ? "" : interface;
}

bool interface_is_named() {
    return !named_interface().empty();
}

constexpr const char* kSaidKey = "dslaunch/streams said";
constexpr const char* kStreamsKey = "dslaunch/streams of a host";

}  // namespace

Rendezvous::Rendezvous(const launch::WorkerEnvironment& environment, Duration time_limit,
                       int streams)
    : environment_(environment),
      topology_(Topology::of_rank(environment.node_sizes, environment.rank)),
      time_limit_(time_limit),
      streams_(streams),
      store_(std::make_unique<JobStore>(JobStore{open_store(environment, time_limit)})) {}

Rendezvous::~Rendezvous() = default;

void Rendezvous::set(const std::string& key, const std::string& value) {
    try {
        store_->store->set(key, value);
    } catch (const std::exception& error) {
        fail(ExitCode::kPeerLost, "rank 0's rendezvous was lost while this rank wrote '{}': {}",
             key, torch_reason(error));
    }
}

std::optional<std::string> Rendezvous::get(const std::string& key, Duration limit) {
    const TimePoint deadline = SystemClock().now() + limit;
    try {
        store_->store->wait({key}, gloo_limit(limit));
        return store_->store->get_to_str(key);
    } catch (const std::exception& error) {
        if (SystemClock().now() + std::chrono::milliseconds(2) >= deadline) return std::nullopt;
        fail(ExitCode::kPeerLost,
             "rank 0's rendezvous was lost while this rank waited for '{}': {}", key,
             torch_reason(error));
    }
}

std::string Rendezvous::get(const std::string& key) {
    std::optional<std::string> value = get(key, time_limit_);
    if (!value)
        fail(ExitCode::kHang, "nobody set '{}' at the rendezvous within {:.3f} s", key,
             to_milliseconds(time_limit_) / 1000);
    return std::move(*value);
}

std::string Rendezvous::own_address() const {
    if (environment_.rendezvous_fd >= 0) {
        const std::string bound = bound_address(environment_.rendezvous_fd);
        if (!bound.empty()) return bound;
    }
    return address_that_reaches(environment_.master_address);
}

std::string Rendezvous::agree_on_addresses() {
    // Bridge 0 chooses the address of its host. On node 0, own_address() finds the address by means
    // of the rendezvous socket, which only bridge 0 has.
    if (topology_.local_rank == 0) set(address_key(topology_.node_rank), own_address());
    std::string mine;
    std::string list;
    int loopbacks = 0;
    for (int node = 0; node < topology_.node_count(); ++node) {
        const std::string address = get(address_key(node));
        if (node == topology_.node_rank) mine = address;
        loopbacks += is_loopback(address) ? 1 : 0;
        list += fmt::format("{}node {}: {}", node == 0 ? "" : ", ", node, address);
    }
    if (loopbacks != 0 && loopbacks != topology_.node_count())
        fail(ExitCode::kSetup,
             "some nodes would use a loopback address that the others cannot reach ({}); give the "
             "master's address as an IP address, or name the network with GLOO_SOCKET_IFNAME",
             list);
    return mine;
}

std::unique_ptr<Link> Rendezvous::open_link() {
    const std::string address = interface_is_named() ? std::string() : agree_on_addresses();
    if (topology_.local_rank == 0) agree_on_streams(address);
    return connect({fmt::format("bridge/{}", topology_.local_rank), topology_.node_rank,
                    topology_.node_count()},
                   address);
}

// Sets the number of streams for all ranks. Node 0's first bridge decides whether the number must
// be measured, since other hosts may have different settings or network devices. The first bridges
// of all hosts then measure it together.
void Rendezvous::agree_on_streams(const std::string& address) {
    if (topology_.node_rank == 0) {
        const bool loopback = is_loopback(address) || named_interface() == "lo";
        set(kSaidKey, std::to_string(given_streams(streams_, loopback)));
    }
    StreamChoice choice{.streams = std::stoi(get(kSaidKey))};
    const bool measures = choice.streams == 0;
    if (measures)
        choice = measure_streams(
            c10::make_intrusive<c10d::PrefixStore>("dslaunch/streams", store_->store),
            {.node = topology_.node_rank,
             .node_count = topology_.node_count(),
             .address = address,
             .time_limit = time_limit_});
    if (topology_.node_rank != 0) return;
    if (measures && choice.streams > 1)
        log_info("links",
                 "using {} connections between two hosts: one alone carries {:.3g} GB/s each way, "
                 "all together {:.3g}",
                 choice.streams, choice.one_bytes_per_s / 1e9, choice.chosen_bytes_per_s / 1e9);
    set(kStreamsKey, std::to_string(choice.streams));
}

std::unique_ptr<Link> Rendezvous::open_link(const LinkPlace& place) {
    return connect(place,
                   interface_is_named() ? std::string() : get(address_key(topology_.node_rank)));
}

std::unique_ptr<Link> Rendezvous::connect(const LinkPlace& place, const std::string& address) {
    const int bridges = topology_.bridge_count();
    const int streams = (std::stoi(get(kStreamsKey)) + bridges - 1) / bridges;
    auto prefixed = c10::make_intrusive<c10d::PrefixStore>("dslaunch/" + place.name, store_->store);
    return make_gloo_link(prefixed, {.node = place.node,
                                     .node_count = place.node_count,
                                     .address = address,
                                     .time_limit = time_limit_,
                                     .streams = streams});
}

}  // namespace dslaunch::runtime
