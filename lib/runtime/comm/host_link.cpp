#include "runtime/comm/host_link.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

#include "base/check.h"
#include "base/error.h"
#include "runtime/comm/host/futex.h"

namespace dslaunch::runtime {

namespace {

constexpr uint64_t kRingBytes = 256 << 10;
constexpr int kLinkSpins = 200;
// The time between two checks that the group is not poisoned and the other ranks are alive.
constexpr auto kLinkSleepMax = std::chrono::milliseconds(10);

// Returns the number of rings. A message that waits for its receiver must not block other messages.
// So there is one ring for each node, and one for each of the four lanes by which neighbours send
// (plan/step/step_plan.h): values and gradients, in both directions of a V schedule.
int ring_count(int nodes) {
    return nodes + 4;
}
constexpr int64_t kRingsBegin = 128;  // after the Box

// Calls copy(place in the ring, offset in the buffer, bytes) for bytes [at, at + bytes) of a
// message: once, or twice if they wrap around in the ring.
template <typename Copy>
void for_parts(uint64_t at, uint64_t bytes, Copy&& copy) {
    const uint64_t begin = at % kRingBytes;
    const uint64_t first = std::min(bytes, kRingBytes - begin);
    copy(begin, uint64_t{0}, first);
    if (first < bytes) copy(uint64_t{0}, first, bytes - first);
}

// A ring buffer for one message. All zeros means that it is free. The sender claims it, sets the
// fields and opens it. The receiver claims a ring that is open for it. The ring stays in use until
// the sender sees that the whole message was read.
struct Ring {
    enum State : uint64_t { kFree, kTaken, kOpen, kReading };
    // Returns a key for a message's state, sender and tag. A single word holds it, so that one
    // atomic operation can check that a ring has this message and not a later one.
    [[nodiscard]] static uint64_t key(State state, int from, uint32_t tag) {
        return state << 56U | static_cast<uint64_t>(from) << 32U | tag;
    }

    std::atomic<uint64_t> held_by;  // a key()
    uint64_t bytes;
    alignas(64) std::atomic<uint64_t> written;  // bytes of the message written
    alignas(64) std::atomic<uint64_t> read;
    alignas(64) std::array<std::byte, kRingBytes> data;
};

struct Box {
    // The number of changes to the box. The box's rank may sleep until this number changes.
    std::atomic<uint32_t> changes;
    std::atomic<uint32_t> sleepers;

    void change() {
        changes.fetch_add(1);
        if (sleepers.load() != 0) futex_wake_all(changes);
    }
};

struct RingMessage {
    Ring* ring = nullptr;  // null until the message has a ring
    uint64_t moved = 0;
    bool done = false;
};

class HostLink final : public Link {
  public:
    HostLink(const Arena& arena, SliceId slice, HostGroup& group, HostLinkPlace place,
             Duration time_limit)
        : arena_(arena),
          slice_(slice),
          group_(group),
          place_(std::move(place)),
          time_limit_(time_limit) {
        const auto bytes = static_cast<int64_t>(arena.of_rank(slice, 0).size());
        DSL_CHECK(kRingsBegin + rings() * static_cast<int64_t>(sizeof(Ring)) <= bytes,
                  "{} rings do not fit in {} bytes", rings(), bytes);
        static_assert(sizeof(Box) <= kRingsBegin);
    }

    void abort(std::string_view text) override { group_.poison(text); }

  protected:
    void run(const std::vector<LinkSend>& sends,
             const std::vector<LinkReceive>& receives) override {
        std::vector<RingMessage> outgoing(sends.size());
        std::vector<RingMessage> incoming(receives.size());
        Box& own = box_of(group_.local_rank());
        const SystemClock clock;
        TimePoint deadline = clock.now() + time_limit_;
        // When the other rank has ended, its last messages are already in the rings, so this rank
        // checks once more.
        bool last_look = false;
        for (int idle = 0;;) {
            const uint32_t seen = own.changes.load();
            bool moved = false;
            int waits_for = -1;
            std::string_view what;
            for (size_t i = 0; i < sends.size(); ++i) {
                if (outgoing[i].done) continue;
                moved = push(sends[i], outgoing[i]) || moved;
                if (outgoing[i].done) continue;
                waits_for = sends[i].node;
                what = "receive data from another stage";
            }
            for (size_t i = 0; i < receives.size(); ++i) {
                if (incoming[i].done) continue;
                moved = pull(receives[i], incoming[i]) || moved;
                if (incoming[i].done) continue;
                waits_for = receives[i].node;
                what = "send data to another stage";
            }
            if (waits_for < 0) return;
            if (moved) {
                deadline = clock.now() + time_limit_;
                idle = 0;
                last_look = false;
                continue;
            }
            if (++idle < kLinkSpins) {
                pause_briefly();
                continue;
            }
            group_.check_alive();
            if (group_.has_ended(local_rank_of(waits_for)) || clock.now() >= deadline) {
                if (last_look) give_up(waits_for, what);
                last_look = true;
                continue;
            }
            own.sleepers.fetch_add(1);
            futex_wait(own.changes, seen, kLinkSleepMax);
            own.sleepers.fetch_sub(1);
        }
    }

  private:
    [[nodiscard]] int rings() const {
        return ring_count(static_cast<int>(place_.local_ranks.size()));
    }
    [[nodiscard]] std::span<Ring> rings_of(int local_rank) const {
        std::byte* const first = arena_.of_rank(slice_, local_rank).data() + kRingsBegin;
        return {reinterpret_cast<Ring*>(first), static_cast<size_t>(rings())};
    }
    [[nodiscard]] Box& box_of(int local_rank) const {
        return *reinterpret_cast<Box*>(arena_.of_rank(slice_, local_rank).data());
    }
    [[nodiscard]] int local_rank_of(int node) const {
        const int local_rank = place_.local_ranks.at(static_cast<size_t>(node));
        DSL_CHECK(local_rank >= 0, "stage {} is not on this host", node);
        return local_rank;
    }
    // Sends as many bytes of MESSAGE as it can without waiting. Returns true if it made progress.
    bool push(const LinkSend& send, RingMessage& message) const {
        Box& box = box_of(local_rank_of(send.node));
        bool moved = false;
        if (message.ring == nullptr) {
            for (Ring& ring : rings_of(local_rank_of(send.node))) {
                uint64_t expected = Ring::kFree;
                if (!ring.held_by.compare_exchange_strong(expected, Ring::key(Ring::kTaken, 0, 0)))
                    continue;
                ring.bytes = send.bytes.size();
                ring.written = 0;
                ring.read = 0;
                ring.held_by = Ring::key(Ring::kOpen, place_.node, send.tag);
                message.ring = &ring;
                moved = true;
                break;
            }
            if (message.ring == nullptr) return false;
        }
        Ring& ring = *message.ring;
        const uint64_t read = ring.read.load();
        const uint64_t room = kRingBytes - (message.moved - read);
        const uint64_t bytes = std::min<uint64_t>(room, send.bytes.size() - message.moved);
        if (bytes > 0) {
            const std::byte* const source = send.bytes.data() + message.moved;
            for_parts(message.moved, bytes, [&](uint64_t at, uint64_t offset, uint64_t length) {
                std::memcpy(ring.data.data() + at, source + offset, length);
            });
            message.moved += bytes;
            ring.written = message.moved;
            moved = true;
        }
        if (moved) box.change();
        if (read < send.bytes.size()) return moved;
        message.done = true;
        ring.held_by = Ring::kFree;
        change_all();  // any rank may wait for a ring
        return true;
    }

    bool pull(const LinkReceive& receive, RingMessage& message) const {
        if (message.ring == nullptr) {
            for (Ring& ring : rings_of(group_.local_rank())) {
                uint64_t open = Ring::key(Ring::kOpen, receive.node, receive.tag);
                const uint64_t reading = Ring::key(Ring::kReading, receive.node, receive.tag);
                if (!ring.held_by.compare_exchange_strong(open, reading)) continue;
                message.ring = &ring;
                break;
            }
            if (message.ring == nullptr) return false;
            DSL_CHECK(message.ring->bytes == receive.bytes.size(),
                      "stage {} sends {} bytes, but {} are expected", receive.node,
                      message.ring->bytes, receive.bytes.size());
        }
        Ring& ring = *message.ring;
        const uint64_t bytes = ring.written.load() - message.moved;
        if (bytes == 0) return false;
        std::byte* const target = receive.bytes.data() + message.moved;
        for_parts(message.moved, bytes, [&](uint64_t at, uint64_t offset, uint64_t length) {
            std::memcpy(target + offset, ring.data.data() + at, length);
        });
        message.moved += bytes;
        ring.read = message.moved;
        message.done = message.moved == receive.bytes.size();
        box_of(local_rank_of(receive.node)).change();
        return true;
    }

    void change_all() const {
        for (const int local_rank : place_.local_ranks)
            if (local_rank >= 0) box_of(local_rank).change();
    }
    void give_up(int node, std::string_view what) const {
        const bool ended = group_.has_ended(local_rank_of(node));
        const std::string text =
            ended ? fmt::format("{} has ended while {} waited for it to {}",
                                group_.rank_name(local_rank_of(node)),
                                group_.rank_name(group_.local_rank()), what)
                  : fmt::format("{} did not {} within {:.3f} s; {} waited for it",
                                group_.rank_name(local_rank_of(node)), what,
                                to_milliseconds(time_limit_) / 1000,
                                group_.rank_name(group_.local_rank()));
        group_.poison(text);
        throw Error(ended ? ExitCode::kPeerLost : ExitCode::kHang, text);
    }

    const Arena& arena_;
    SliceId slice_;
    HostGroup& group_;
    HostLinkPlace place_;
    Duration time_limit_;
};

}  // namespace

SliceId add_host_link(ArenaLayout& layout, int nodes) {
    return layout.add_per_rank(
        "messages between stages",
        Bytes{kRingsBegin + ring_count(nodes) * static_cast<int64_t>(sizeof(Ring))});
}

std::unique_ptr<Link> make_host_link(const Arena& arena, SliceId slice, HostGroup& group,
                                     HostLinkPlace place, Duration time_limit) {
    return std::make_unique<HostLink>(arena, slice, group, std::move(place), time_limit);
}

}  // namespace dslaunch::runtime
