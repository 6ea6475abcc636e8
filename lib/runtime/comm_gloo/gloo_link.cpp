#include "runtime/comm_gloo/gloo_link.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <list>
#include <mutex>
#include <span>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "base/error.h"
#include "base/text/torch_reason.h"
#include "runtime/comm/host_exchange.h"
#include "runtime/comm_gloo/gloo_setup.h"

namespace dslaunch::runtime {

namespace {

using c10d::ProcessGroupGloo;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

// A shorter message is sent in one stream, since each part costs some ten microseconds.
constexpr int64_t kPartBytesMin = 256 << 10;
constexpr int64_t kPartAlignment = 64;

// Divides BYTES into parts, and calls use(stream, part) for each part. The sender and the receiver
// of a message divide it in the same way.
template <typename T, typename Use>
void for_parts(std::span<T> bytes, int streams, Use&& use) {
    const int64_t all = std::ssize(bytes);
    const int64_t most = std::max<int64_t>(1, all / kPartBytesMin);
    const int64_t parts = std::min<int64_t>(streams, most);
    const int64_t part_bytes = round_up((all + parts - 1) / parts, kPartAlignment);
    for (int64_t k = 0, begin = 0; begin < all; ++k, begin += part_bytes)
        use(static_cast<size_t>(k),
            bytes.subspan(static_cast<size_t>(begin),
                          static_cast<size_t>(std::min(part_bytes, all - begin))));
}

using Groups = std::vector<c10::intrusive_ptr<ProcessGroupGloo>>;

class GlooLink final : public Link {
  public:
    // GROUPS has one process group for each stream.
    GlooLink(Groups groups, GlooLinkOptions options)
        : groups_(std::move(groups)), options_(std::move(options)) {}

    void abort(std::string_view text) override {
        const std::lock_guard lock(mutex_);
        if (aborted_.empty()) aborted_ = text.empty() ? "a link was cut" : text;
        for (const WorkPtr& work : works_) work->abort();
    }

  protected:
    void run(const std::vector<LinkSend>& sends,
             const std::vector<LinkReceive>& receives) override {
        const TimePoint deadline = SystemClock().now() + options_.time_limit;
        std::vector<Pending> pending;
        try {
            start(sends, receives, deadline, pending);
            for (const Pending& one : pending) wait_for(one, deadline);
        } catch (...) {
            forget(pending);
            throw;
        }
        forget(pending);
    }

  private:
    struct Pending {
        int node = 0;
        std::list<WorkPtr>::iterator place;
    };

    void start(const std::vector<LinkSend>& sends, const std::vector<LinkReceive>& receives,
               TimePoint deadline, std::vector<Pending>& pending) {
        // The tensors are views of the caller's bytes until run() returns. Gloo never writes into a
        // tensor that it sends.
        const auto as_tensor = [](const void* bytes, size_t length) {
            return at::from_blob(const_cast<void*>(bytes), {static_cast<int64_t>(length)},
                                 at::kByte);
        };
        const auto add = [&](int node, auto&& make) {
            const std::lock_guard lock(mutex_);
            if (!aborted_.empty()) throw Error(ExitCode::kPeerLost, aborted_);
            try {
                pending.push_back({node, works_.insert(works_.end(), make())});
            } catch (const std::exception& error) {
                lose(node, error, deadline);
            }
        };
        const int streams = static_cast<int>(groups_.size());
        for (const LinkReceive& receive : receives) {
            for_parts(receive.bytes, streams, [&](size_t stream, std::span<std::byte> part) {
                add(receive.node, [&] {
                    std::vector<at::Tensor> tensors = {as_tensor(part.data(), part.size())};
                    return groups_[stream]->recv(tensors, receive.node,
                                                 static_cast<int>(receive.tag));
                });
            });
        }
        for (const LinkSend& send : sends) {
            for_parts(send.bytes, streams, [&](size_t stream, std::span<const std::byte> part) {
                add(send.node, [&] {
                    std::vector<at::Tensor> tensors = {as_tensor(part.data(), part.size())};
                    return groups_[stream]->send(tensors, send.node, static_cast<int>(send.tag));
                });
            });
        }
    }

    void forget(const std::vector<Pending>& pending) {
        const std::lock_guard lock(mutex_);
        for (const Pending& one : pending) works_.erase(one.place);
    }
    void wait_for(const Pending& pending, TimePoint deadline) {
        bool done = false;
        try {
            const Duration left = deadline - SystemClock().now();
            // A limit of zero would mean no limit.
            done = (*pending.place)->wait(gloo_limit(left));
        } catch (const std::exception& error) {
            throw_if_aborted();
            lose(pending.node, error, deadline);
        }
        if (done) return;
        throw_if_aborted();
        fail(ExitCode::kPeerLost, "node {} ended a transfer with node {} early", pending.node,
             options_.node);
    }

    void throw_if_aborted() {
        const std::lock_guard lock(mutex_);
        if (!aborted_.empty()) throw Error(ExitCode::kPeerLost, aborted_);
    }
    [[noreturn]] void lose(int node, const std::exception& error, TimePoint deadline) {
        // Gloo throws the same exception for a late peer and a lost one, so the clock tells them
        // apart.
        if (SystemClock().now() + std::chrono::milliseconds(2) >= deadline)
            fail(ExitCode::kHang, "node {} did not answer node {} within {:.3f} s: {}", node,
                 options_.node, to_milliseconds(options_.time_limit) / 1000, torch_reason(error));
        fail(ExitCode::kPeerLost, "the connection of node {} to node {} was lost: {}",
             options_.node, node, torch_reason(error));
    }

    Groups groups_;  // one for each stream
    GlooLinkOptions options_;
    std::mutex mutex_;          // guards the members below
    std::list<WorkPtr> works_;  // all transfers under way
    std::string aborted_;
};

// Returns the largest VALUE over all nodes.
double largest(Link& link, const GlooLinkOptions& options, uint32_t tag, double value) {
    std::vector<double> all(static_cast<size_t>(options.node_count), value);
    std::vector<LinkSend> sends;
    std::vector<LinkReceive> receives;
    for (int node = 0; node < options.node_count; ++node) {
        if (node == options.node) continue;
        sends.push_back({node, tag, std::as_bytes(std::span(&value, 1))});
        receives.push_back({node, tag, std::as_writable_bytes(std::span(&all[node], 1))});
    }
    link.transfer(sends, receives);
    return *std::ranges::max_element(all);
}

// Returns the rate in bytes per second when each node sends messages to the next, all at the same
// time.
double ring_rate(Link& link, const GlooLinkOptions& options) {
    constexpr double kEnough_s = 0.06;
    constexpr double kTurnsMax = 32;
    std::vector<std::byte> out(static_cast<size_t>(kChunkNumel) * sizeof(float));
    std::vector<std::byte> in(out.size());
    const int next = (options.node + 1) % options.node_count;
    const int before = (options.node + options.node_count - 1) % options.node_count;
    uint32_t tag = 0;
    const auto seconds_of = [&](int turns, size_t bytes) {
        const SystemClock clock;
        const TimePoint begin = clock.now();
        for (int turn = 0; turn < turns; ++turn, ++tag)
            link.transfer({{next, tag, std::span(out).first(bytes)}},
                          {{before, tag, std::span(in).first(bytes)}});
        return largest(link, options, tag++, to_milliseconds(clock.now() - begin) / 1e3);
    };
    // The first message is shorter, in case the path is slow. It also opens the TCP windows.
    const size_t short_bytes = out.size() / 8;
    const double first_s = seconds_of(1, short_bytes);
    if (first_s >= kEnough_s) return static_cast<double>(short_bytes) / first_s;
    const int turns = static_cast<int>(std::clamp(kEnough_s / (8 * first_s), 2.0, kTurnsMax));
    return turns * static_cast<double>(out.size()) / seconds_of(turns, out.size());
}

}  // namespace

StreamChoice measure_streams(const c10::intrusive_ptr<c10d::Store>& store,
                             const GlooLinkOptions& options) {
    return choose_streams(streams_max(options.node_count - 1), [&](int streams) {
        GlooLinkOptions tried = options;
        tried.streams = streams;
        const auto place =
            c10::make_intrusive<c10d::PrefixStore>(fmt::format("try/{}", streams), store);
        return ring_rate(*make_gloo_link(place, tried), options);
    });
}

std::unique_ptr<Link> make_gloo_link(const c10::intrusive_ptr<c10d::Store>& store,
                                     const GlooLinkOptions& options) {
    const TimePoint deadline = SystemClock().now() + options.time_limit;
    try {
        Groups groups;
        for (int stream = 0; stream < options.streams; ++stream) {
            const auto place =
                c10::make_intrusive<c10d::PrefixStore>(fmt::format("stream/{}", stream), store);
            // One thread is enough: it runs only Gloo's own collectives, which a link does not use.
            groups.push_back(c10::make_intrusive<ProcessGroupGloo>(
                place, options.node, options.node_count,
                gloo_options(options.address, /*threads=*/1, deadline - SystemClock().now())));
        }
        return std::make_unique<GlooLink>(std::move(groups), options);
    } catch (const std::exception& error) {
        const bool late = SystemClock().now() >= deadline;
        fail(late ? ExitCode::kHang : ExitCode::kPeerLost,
             "node {} could not connect to the other {} nodes from address {}: {}; there may be a "
             "firewall between the hosts, or this is the wrong network (set GLOO_SOCKET_IFNAME to "
             "the right one)",
             options.node, options.node_count - 1, options.address, torch_reason(error));
    }
}

}  // namespace dslaunch::runtime
