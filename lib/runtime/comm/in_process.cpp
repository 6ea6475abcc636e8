#include "runtime/comm/in_process.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/error.h"

namespace dslaunch::runtime {

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

std::unique_ptr<Link> InProcessHub::link_of(int node) {
    return std::make_unique<InProcessLink>(*this, node);
}

void InProcessHub::run(int node, const std::vector<LinkSend>& sends,
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

bool InProcessHub::take(int node, const LinkReceive& receive) {
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

void InProcessHub::withdraw(const std::vector<Offer>& offers) {
    std::erase_if(offers_, [&](const Offer* offer) {
        return offer >= offers.data() && offer < offers.data() + offers.size();
    });
}

void InProcessHub::abort(std::string_view text) {
    const std::lock_guard lock(mutex_);
    if (aborted_.empty()) aborted_ = text.empty() ? "a link was cut" : text;
    changed_.notify_all();
}

InProcessWorld::InProcessWorld(InProcessOptions options,
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

int InProcessWorld::world_size() const {
    return Topology::of_rank(options_.node_sizes, 0).world_size();
}

InProcessRank InProcessWorld::enter(int rank) {
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

}  // namespace dslaunch::runtime
