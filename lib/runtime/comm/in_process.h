// The in-process backend: a whole world of ranks as threads of one process, any number of them on
// any number of pretended hosts. Each host has a real arena and real host groups. Only the links
// between hosts are made of memory. It replaces the arenas and links of real hosts in tests and in
// the worker's own trials. Threads: one per rank calls enter; a hub takes any.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/clock.h"
#include "runtime/comm/collectives.h"
#include "runtime/comm/host/arena.h"
#include "runtime/comm/host/host_group.h"
#include "runtime/comm/link.h"

namespace dslaunch::runtime {

// A hub brings sends and their receives together. Nothing is buffered, as in Gloo: an order of
// calls that would hang there hangs here.
class InProcessHub {
  public:
    explicit InProcessHub(Duration time_limit) : time_limit_(time_limit) {}

    // Returns the end at NODE. The hub must outlive it.
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
    // The offers of all senders that wait in run(), as many as they have messages.
    std::vector<Offer*> offers_;
    std::string aborted_;
};

struct InProcessOptions {
    std::vector<int> node_sizes = {1};
    Duration time_limit = std::chrono::seconds(60);
};

// One rank's share of the world.
struct InProcessRank {
    std::unique_ptr<HostGroup> group;
    std::unique_ptr<Collectives> collectives;
    const Arena* arena = nullptr;
};

class InProcessWorld {
  public:
    // DESCRIBE adds the slices for a host with that many local ranks. It is called once per host.
    InProcessWorld(InProcessOptions options,
                   const std::function<void(ArenaLayout& layout)>& describe);

    // Waits until the local ranks of the same host have come too. The world must outlive the
    // result.
    [[nodiscard]] InProcessRank enter(int rank);
    [[nodiscard]] int world_size() const;

  private:
    InProcessOptions options_;
    std::vector<std::unique_ptr<Arena>> arenas_;       // one per node
    std::vector<std::unique_ptr<InProcessHub>> hubs_;  // one per bridge
};

}  // namespace dslaunch::runtime
