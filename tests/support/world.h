// A world of ranks that are threads of one process: any number of ranks on any number of simulated
// hosts. Also runs a function once for each rank. Each host has a real arena and real host groups;
// only the links between hosts are replaced by memory. Threads: one per rank calls enter; any
// thread may use a hub.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/error.h"
#include "runtime/comm/collectives.h"
#include "runtime/comm/host/arena.h"
#include "runtime/comm/host/host_group.h"
#include "runtime/comm/link.h"

namespace dslaunch::testing {

using namespace runtime;

// A hub brings sends and their receives together. It buffers nothing, like Gloo: an order of calls
// that would hang with Gloo also hangs here.
class InProcessHub {
  public:
    explicit InProcessHub(Duration time_limit) : time_limit_(time_limit) {}

    // Returns the end of the link at NODE. The hub must outlive it.
    [[nodiscard]] std::unique_ptr<Link> link_of(int node);

  private:
    friend class InProcessLink;
    struct Offer {
        int from = 0;
        const LinkSend* send = nullptr;
        bool taken = false;
    };

    void run(int node, const std::vector<LinkSend>& sends,
             const std::vector<LinkReceive>& receives);
    void abort(std::string_view text);
    void withdraw(const std::vector<Offer>& offers);
    [[nodiscard]] bool take(int node, const LinkReceive& receive);

    Duration time_limit_;
    std::mutex mutex_;
    std::condition_variable changed_;
    // The offers of all senders that wait in run(). A sender has one offer for each of its
    // messages.
    std::vector<Offer*> offers_;
    std::string aborted_;
};

struct InProcessOptions {
    std::vector<int> node_sizes = {1};
    Duration time_limit = std::chrono::seconds(60);
};

// One rank's part of the world.
struct InProcessRank {
    std::unique_ptr<HostGroup> group;
    std::unique_ptr<Collectives> collectives;
    const Arena* arena = nullptr;
};

class InProcessWorld {
  public:
    // DESCRIBE adds the slices for a host to its layout, which has the host's number of local
    // ranks. It is called once for each host.
    InProcessWorld(InProcessOptions options,
                   const std::function<void(ArenaLayout& layout)>& describe);

    // Waits until all local ranks of the same host have entered. The world must outlive the result.
    [[nodiscard]] InProcessRank enter(int rank);
    [[nodiscard]] int world_size() const;

  private:
    InProcessOptions options_;
    std::vector<std::unique_ptr<Arena>> arenas_;       // one for each node
    std::vector<std::unique_ptr<InProcessHub>> hubs_;  // one for each bridge
};

class InProcessLink final : public Link {
  public:
    InProcessLink(InProcessHub& hub, int node) : hub_(hub), node_(node) {}
    void abort(std::string_view text) override { hub_.abort(text); }

  protected:
    void run(const std::vector<LinkSend>& sends,
             const std::vector<LinkReceive>& receives) override {
        hub_.run(node_, sends, receives);
    }

  private:
    InProcessHub& hub_;
    int node_;
};

inline std::unique_ptr<Link> InProcessHub::link_of(int node) {
    return std::make_unique<InProcessLink>(*this, node);
}

inline void InProcessHub::run(int node, const std::vector<LinkSend>& sends,
                              const std::vector<LinkReceive>& receives) {
    const TimePoint deadline = SystemClock().now() + time_limit_;
    std::vector<Offer> mine;
    mine.reserve(sends.size());
    for (const LinkSend& send : sends) mine.push_back({node, &send, false});
    std::vector<const LinkReceive*> wanted;
    for (const LinkReceive& receive : receives) wanted.push_back(&receive);

    std::unique_lock lock(mutex_);
    for (Offer& offer : mine) offers_.push_back(&offer);
    changed_.notify_all();
    for (;;) {
        std::erase_if(wanted, [&](const LinkReceive* receive) { return take(node, *receive); });
        const bool sent =
            std::all_of(mine.begin(), mine.end(), [](const Offer& o) { return o.taken; });
        if (sent && wanted.empty()) return;
        if (!aborted_.empty()) {
            withdraw(mine);
            throw Error(ExitCode::kPeerLost, aborted_);
        }
        if (changed_.wait_until(lock, deadline) == std::cv_status::no_timeout) continue;
        withdraw(mine);
        const int silent = wanted.empty() ? sends.front().node : wanted.front()->node;
        fail(ExitCode::kHang, "node {} did not answer node {} within {:.3f} s", silent, node,
             to_milliseconds(time_limit_) / 1000);
    }
}

inline bool InProcessHub::take(int node, const LinkReceive& receive) {
    const auto found = std::find_if(offers_.begin(), offers_.end(), [&](const Offer* offer) {
        return offer->from == receive.node && offer->send->node == node &&
               offer->send->tag == receive.tag;
    });
    if (found == offers_.end()) return false;
    Offer& offer = **found;
    DSL_CHECK(offer.send->bytes.size() == receive.bytes.size(),
              "node {} sends {} bytes by tag {}, node {} receives {}", offer.from,
              offer.send->bytes.size(), receive.tag, node, receive.bytes.size());
    std::memcpy(receive.bytes.data(), offer.send->bytes.data(), receive.bytes.size());
    offer.taken = true;
    offers_.erase(found);
    changed_.notify_all();
    return true;
}

inline void InProcessHub::withdraw(const std::vector<Offer>& offers) {
    std::erase_if(offers_, [&](const Offer* offer) {
        return offer >= offers.data() && offer < offers.data() + offers.size();
    });
}

inline void InProcessHub::abort(std::string_view text) {
    const std::lock_guard lock(mutex_);
    if (aborted_.empty()) aborted_ = text.empty() ? "a link was cut" : text;
    changed_.notify_all();
}

inline InProcessWorld::InProcessWorld(InProcessOptions options,
                                      const std::function<void(ArenaLayout& layout)>& describe)
    : options_(std::move(options)) {
    for (const int local_world_size : options_.node_sizes) {
        ArenaLayout layout(local_world_size);
        describe(layout);
        arenas_.push_back(std::make_unique<Arena>(Arena::anonymous(std::move(layout))));
    }
    const int bridges = Topology::of_rank(options_.node_sizes, 0).bridge_count();
    for (int bridge = 0; bridge < bridges; ++bridge)
        hubs_.push_back(std::make_unique<InProcessHub>(options_.time_limit));
}

inline int InProcessWorld::world_size() const {
    return Topology::of_rank(options_.node_sizes, 0).world_size();
}

inline InProcessRank InProcessWorld::enter(int rank) {
    const Topology topology = Topology::of_rank(options_.node_sizes, rank);
    InProcessRank result;
    result.arena = arenas_[topology.node_rank].get();
    result.group = std::make_unique<HostGroup>(
        *result.arena, HostGroupOptions{.local_rank = topology.local_rank,
                                        .ranks = topology.local_ranks(),
                                        .host = fmt::format("node{}", topology.node_rank),
                                        .time_limit = options_.time_limit});
    std::unique_ptr<Link> link;
    if (topology.is_bridge()) link = hubs_[topology.local_rank]->link_of(topology.node_rank);
    result.collectives = make_collectives({.topology = topology,
                                           .arena = result.arena,
                                           .group = result.group.get(),
                                           .link = std::move(link)});
    return result;
}

inline std::string world_name(const std::vector<int>& node_sizes) {
    return fmt::format("{}", fmt::join(node_sizes, "+"));
}

// Runs BODY once for each rank. Returns the error of each rank, by rank; nothing for a rank that
// ended well.
inline std::vector<std::optional<Error>> outcomes(
    InProcessWorld& world, const std::function<void(InProcessRank& self, int rank)>& body) {
    std::vector<std::optional<Error>> result(static_cast<size_t>(world.world_size()));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < world.world_size(); ++rank) {
        threads.emplace_back([&, rank] {
            try {
                InProcessRank self = world.enter(rank);
                body(self, rank);
            } catch (const Error& error) {
                result[rank] = error;
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    return result;
}

// Runs BODY once for each rank. Throws the error of the first rank that has one.
inline void run_world(InProcessWorld& world,
                      const std::function<void(InProcessRank& self, int rank)>& body) {
    for (const std::optional<Error>& error : outcomes(world, body)) {
        if (error) throw *error;
    }
}

}  // namespace dslaunch::testing
