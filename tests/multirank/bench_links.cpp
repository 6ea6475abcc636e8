// The rate between hosts of what a training step exchanges, beside a plain socket over the same
// way:
//   bench_links NODE NODES ADDRESS PORT [MIB]
// one process a host; ADDRESS and PORT are those that node 0 serves at. Rates are of fp32 bytes of
// the bucket (an exchange packed in 4 bits sends an eighth), node 0 prints them.
#include <fmt/core.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <vector>

#include "base/clock.h"
#include "runtime/comm/collectives.h"
#include "runtime/comm/host/host_group.h"
#include "runtime/comm/link_probe.h"
#include "runtime/comm_gloo/rendezvous.h"

using namespace dslaunch;
using namespace dslaunch::runtime;

namespace {

constexpr int kTurns = 7;

struct Host {
    Topology topology;
    Arena arena;
    HostGroup group;
    Rendezvous rendezvous;
    std::unique_ptr<Collectives> collectives;

    Host(const launch::WorkerEnvironment& environment, const ArenaLayout& layout)
        : topology(Topology::of_rank(environment.node_sizes, environment.rank)),
          arena(Arena::anonymous(layout)),
          group(arena, {.local_rank = 0, .ranks = {environment.rank}}),
          rendezvous(environment, kHangLimit),
          collectives(make_collectives({.topology = topology,
                                        .arena = &arena,
                                        .group = &group,
                                        .link = rendezvous.open_link()})) {}
};

// The best of some turns, each begun together, in seconds.
double best_of(Collectives& all, const std::function<void()>& work) {
    const SystemClock clock;
    double best = 1e9;
    for (int turn = 0; turn < kTurns; ++turn) {
        all.barrier();
        const TimePoint begin = clock.now();
        work();
        best = std::min(best, to_milliseconds(clock.now() - begin) / 1e3);
    }
    return best;
}

// The rate of link_probe's bursts to the next host, all hosts at once.
double probe(Host& host) {
    Collectives& all = *host.collectives;
    const ProbeToken token{7, 11};
    const ProbeServer server(host.rendezvous.own_address(), token);
    const std::vector<std::string> servers =
        all.all_gather(fmt::format("{} {}", host.rendezvous.own_address(), server.port()));
    const std::string& next =
        servers[static_cast<size_t>((host.topology.node_rank + 1) % host.topology.node_count())];
    ProbePlace place;
    place.to = next.substr(0, next.find(' '));
    place.port = std::atoi(next.c_str() + next.find(' '));
    all.barrier();
    const double rate = static_cast<double>(probe_link(place, token, {}).way.bytes_per_second);
    all.barrier();
    return rate;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 5) return 2;
    const int node = std::atoi(argv[1]), nodes = std::atoi(argv[2]);
    const int64_t numel = (argc > 5 ? std::atoll(argv[5]) : 64) << 18;
    ArenaLayout layout(1);
    const BucketId bucket = layout.add_bucket("gradients", numel);
    const SliceId weights = layout.add_shared("weights", Bytes{numel * 4});
    launch::WorkerEnvironment environment;
    environment.rank = node;
    environment.node_sizes.assign(static_cast<size_t>(nodes), 1);
    environment.master_address = argv[3];
    environment.master_port = std::atoi(argv[4]);
    Host host(environment, layout);
    Collectives& all = *host.collectives;
    host.arena.populate(0);
    std::vector<NodeRange> owners;
    for (int other = 0; other < nodes; ++other)
        owners.push_back({part_range(numel, {other, nodes}), other});
    const std::span<std::byte> shared = host.arena.shared(weights);
    std::ranges::fill(all.bucket(bucket), 0.25F);
    Generation generation = 0;
    const auto reduce = [&](std::span<const NodeRange> to, const ReduceCoding& coding) {
        all.await_free(bucket, ++generation);
        all.post(bucket, generation);
        all.reduce(bucket, generation, 1.0F, to, coding);
        (void)all.await_reduced(bucket, generation);
        all.release(bucket, generation);
    };
    const auto print = [&](const char* what, double sent, double seconds) {
        const double bytes = static_cast<double>(numel) * 4;
        if (node == 0)
            fmt::print(
                "{:<26} {:>8.2f} ms {:>7.2f} GB/s of the bucket, {:>6.3f} GB/s sent by each\n",
                what, seconds * 1e3, bytes / seconds / 1e9, sent * bytes / seconds / 1e9);
    };
    const double part = static_cast<double>(nodes - 1) / nodes;
    const double probed = probe(host);
    if (node == 0)
        fmt::print("{} MiB, {} hosts; sockets: {:.3f} GB/s each way at once\n", numel >> 18, nodes,
                   probed / 1e9);
    print("sum, to all", 2 * part, best_of(all, [&] { reduce({}, {}); }));
    print("sum, to owners", part, best_of(all, [&] { reduce(owners, {}); }));
    print("sum, to owners, 4 bits", part * 132 / 1024, best_of(all, [&] {
              reduce(owners, {WirePacking::kInt4, 1, {}});
          }));
    print("gather", part, best_of(all, [&] { all.gather_ranges(shared, 4, owners); }));
    print("gather, 8 bits", part * 260 / 1024, best_of(all, [&] {
              all.gather_ranges(shared, 4, owners, {WirePacking::kInt8, DType::kF32});
          }));
    all.barrier();
    return 0;
}
