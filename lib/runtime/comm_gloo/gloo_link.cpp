#include "runtime/comm_gloo/gloo_link.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <list>
#include <mutex>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/text/torch_reason.h"
#include "runtime/comm_gloo/gloo_setup.h"

namespace dslaunch::runtime {

namespace {

using c10d::ProcessGroupGloo;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

class GlooLink final : public Link {
  public:
    GlooLink(c10::intrusive_ptr<ProcessGroupGloo> group, GlooLinkOptions options)
        : group_(std::move(group)), options_(std::move(options)) {}

    void abort(std::string_view text) override {
        const std::lock_guard lock(mutex_);
        if (aborted_.empty()) aborted_ = text.empty() ? "a link was cut" : text;
        for (const WorkPtr& work : works_) work->abort();
    }

  protected:
    void run(const std::vector<LinkSend>& sends, const std::vector<LinkReceive>& receives) override;

  private:
    struct Pending {
        int node = 0;
        std::list<WorkPtr>::iterator place;
    };

    void start(const std::vector<LinkSend>& sends, const std::vector<LinkReceive>& receives,
               TimePoint deadline, std::vector<Pending>& pending);
    void forget(const std::vector<Pending>& pending);
    void wait_for(const Pending& pending, TimePoint deadline);
    void throw_if_aborted();
    [[noreturn]] void lose(int node, const std::exception& error, TimePoint deadline);

    c10::intrusive_ptr<ProcessGroupGloo> group_;
    GlooLinkOptions options_;
    std::mutex mutex_;          // guards the members below
    std::list<WorkPtr> works_;  // all transfers under way
    std::string aborted_;
};

void GlooLink::run(const std::vector<LinkSend>& sends, const std::vector<LinkReceive>& receives) {
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

void GlooLink::forget(const std::vector<Pending>& pending) {
    const std::lock_guard lock(mutex_);
    for (const Pending& one : pending) works_.erase(one.place);
}

void GlooLink::start(const std::vector<LinkSend>& sends, const std::vector<LinkReceive>& receives,
                     TimePoint deadline, std::vector<Pending>& pending) {
    // Tensors view the caller's bytes until run() returns. Gloo never writes into the sent ones.
    const auto as_tensor = [](const void* bytes, size_t length) {
        return at::from_blob(const_cast<void*>(bytes), {static_cast<int64_t>(length)}, at::kByte);
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
    for (const LinkReceive& receive : receives) {
        add(receive.node, [&] {
            std::vector<at::Tensor> tensors = {
                as_tensor(receive.bytes.data(), receive.bytes.size())};
            return group_->recv(tensors, receive.node, static_cast<int>(receive.tag));
        });
    }
    for (const LinkSend& send : sends) {
        add(send.node, [&] {
            std::vector<at::Tensor> tensors = {as_tensor(send.bytes.data(), send.bytes.size())};
            return group_->send(tensors, send.node, static_cast<int>(send.tag));
        });
    }
}

void GlooLink::wait_for(const Pending& pending, TimePoint deadline) {
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

void GlooLink::throw_if_aborted() {
    const std::lock_guard lock(mutex_);
    if (!aborted_.empty()) throw Error(ExitCode::kPeerLost, aborted_);
}

void GlooLink::lose(int node, const std::exception& error, TimePoint deadline) {
    // Gloo throws one kind of exception for both cases, so the clock tells them apart.
    if (SystemClock().now() + std::chrono::milliseconds(2) >= deadline)
        fail(ExitCode::kHang, "node {} did not answer node {} within {:.3f} s: {}", node,
             options_.node, to_milliseconds(options_.time_limit) / 1000, torch_reason(error));
    fail(ExitCode::kPeerLost, "the connection of node {} to node {} was lost: {}", options_.node,
         node, torch_reason(error));
}

}  // namespace

std::unique_ptr<Link> make_gloo_link(const c10::intrusive_ptr<c10d::Store>& store,
                                     const GlooLinkOptions& options) {
    const TimePoint deadline = SystemClock().now() + options.time_limit;
    try {
        // Its one thread is of Gloo's own collectives, which a link does not use.
        auto group = c10::make_intrusive<ProcessGroupGloo>(
            store, options.node, options.node_count,
            gloo_options(options.address, /*threads=*/1, options.time_limit));
        return std::make_unique<GlooLink>(std::move(group), options);
    } catch (const std::exception& error) {
        const bool late = SystemClock().now() >= deadline;
        fail(late ? ExitCode::kHang : ExitCode::kPeerLost,
             "node {} could not connect to the other {} nodes from address {}: {}; a firewall "
             "between the hosts, or the wrong network (name the right one by GLOO_SOCKET_IFNAME)",
             options.node, options.node_count - 1, options.address, torch_reason(error));
    }
}

}  // namespace dslaunch::runtime
