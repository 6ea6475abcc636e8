// A Link between ranks of one host: messages pass through rings in the host's arena, copied in by
// the sender and out by the receiver. Data path: arena, host group -> host link -> stage link.
// Threads: as for Link.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "runtime/comm/host/arena.h"
#include "runtime/comm/host/host_group.h"
#include "runtime/comm/link.h"

namespace dslaunch::runtime {

struct HostLinkPlace {
    int node = 0;                  // this rank's number on the link
    std::vector<int> local_ranks;  // the local rank of each number; -1: not on this host
};

class HostLink final : public Link {
  public:
    // Adds the memory by which each local rank receives on a link of NODES.
    [[nodiscard]] static SliceId add_slice(ArenaLayout& layout, int nodes);

    // ARENA and GROUP are those of all local ranks and must outlive the link. A rank has one end.
    HostLink(const Arena& arena, SliceId slice, HostGroup& group, HostLinkPlace place,
             Duration time_limit);

    // Poisons the group.
    void abort(std::string_view text) override;

  protected:
    void run(const std::vector<LinkSend>& sends, const std::vector<LinkReceive>& receives) override;

  private:
    struct Box;
    struct Ring;
    struct Message;
    [[nodiscard]] int rings() const;
    [[nodiscard]] std::span<Ring> rings_of(int local_rank) const;
    [[nodiscard]] Box& box_of(int local_rank) const;
    [[nodiscard]] int local_rank_of(int node) const;
    bool push(const LinkSend& send, Message& message) const;
    bool pull(const LinkReceive& receive, Message& message) const;
    void change_all() const;
    void give_up(int node, std::string_view what) const;

    const Arena& arena_;
    SliceId slice_;
    HostGroup& group_;
    HostLinkPlace place_;
    Duration time_limit_;
};

}  // namespace dslaunch::runtime
