// Messages between ranks of one host: any size, any order, any number at the same time; and a rank
// that is lost.
#include "runtime/comm/host_link.h"

#include <cstring>
#include <thread>

#include "base/error.h"
#include "support/catch.h"
#include "support/hang.h"

namespace dslaunch {

using namespace runtime;
namespace {

using namespace std::chrono_literals;

// Ranks that are threads. On the link they are numbered in the reverse order of their places on the
// host. LIMIT is the link's time limit, which leaves the ranks time to start.
class LinkedRanks {
  public:
    explicit LinkedRanks(int ranks, Duration limit = test::kHangTime)
        : layout_(ranks), slice_(add_host_link(layout_, ranks)), arena_(Arena::anonymous(layout_)) {
        groups_.resize(static_cast<size_t>(ranks));
        HostLinkPlace place;
        for (int node = 0; node < ranks; ++node) place.local_ranks.push_back(ranks - 1 - node);
        std::vector<std::jthread> threads;
        for (int rank = 0; rank < ranks; ++rank)
            threads.emplace_back([this, rank] {
                groups_[rank] = std::make_unique<HostGroup>(
                    arena_, HostGroupOptions{.local_rank = rank, .time_limit = test::kHangTime});
            });
        threads.clear();
        for (int node = 0; node < ranks; ++node) {
            place.node = node;
            links_.push_back(
                make_host_link(arena_, slice_, *groups_[ranks - 1 - node], place, limit));
        }
    }

    [[nodiscard]] Link& link(int node) { return *links_[node]; }

  private:
    ArenaLayout layout_;
    SliceId slice_;
    Arena arena_;
    std::vector<std::unique_ptr<HostGroup>> groups_;
    std::vector<std::unique_ptr<Link>> links_;
};

std::vector<std::byte> pattern(size_t bytes, uint32_t seed) {
    std::vector<std::byte> values(bytes);
    uint32_t state = seed * 2654435761U + 1;
    for (std::byte& value : values) {
        state = state * 1664525U + 1013904223U;
        value = static_cast<std::byte>(state >> 24U);
    }
    return values;
}

void send(Link& link, int to, uint32_t tag, const std::vector<std::byte>& bytes) {
    link.transfer({{to, tag, bytes}}, {});
}

std::vector<std::byte> receive(Link& link, int from, uint32_t tag, size_t bytes) {
    std::vector<std::byte> values(bytes);
    link.transfer({}, {{from, tag, values}});
    return values;
}

}  // namespace

TEST_CASE("messages of any size arrive between ranks of a host as they were sent") {
    LinkedRanks ranks(2);
    const std::vector<size_t> sizes = {
        1, 7, 4096, (256 << 10) - 1, 256 << 10, (256 << 10) + 1, 3'000'001};
    std::jthread sender([&] {
        for (size_t i = 0; i < sizes.size(); ++i)
            send(ranks.link(0), 1, 5, pattern(sizes[i], static_cast<uint32_t>(i)));
    });
    for (size_t i = 0; i < sizes.size(); ++i)
        CHECK(receive(ranks.link(1), 0, 5, sizes[i]) ==
              pattern(sizes[i], static_cast<uint32_t>(i)));
    CHECK(ranks.link(1).traffic().all().received.value == 3'000'001 + 3 * (256 << 10) + 4096 + 8);
}

TEST_CASE("a send ends with its receive, so that one sender takes no room from others") {
    LinkedRanks ranks(3);
    std::atomic<int> sent{0};
    std::jthread eager([&] {
        for (uint32_t i = 0; i < 20; ++i) {
            send(ranks.link(0), 2, 9, pattern(100, i));
            ++sent;
        }
    });
    std::this_thread::sleep_for(20ms);
    CHECK(sent == 0);
    std::jthread other([&] { send(ranks.link(1), 2, 9, pattern(100, 77)); });
    CHECK(receive(ranks.link(2), 1, 9, 100) == pattern(100, 77));
    for (uint32_t i = 0; i < 20; ++i) CHECK(receive(ranks.link(2), 0, 9, 100) == pattern(100, i));
}

TEST_CASE("more senders than a rank has rings for are all served") {
    constexpr int kRanks = 14;
    LinkedRanks ranks(kRanks);
    std::vector<std::jthread> senders;
    for (int from = 1; from < kRanks; ++from)
        senders.emplace_back([&ranks, from] {
            send(ranks.link(from), 0, 1, pattern(500'000, static_cast<uint32_t>(from)));
        });
    std::vector<std::vector<std::byte>> received(kRanks, std::vector<std::byte>(500'000));
    std::vector<LinkReceive> receives;
    for (int from = 1; from < kRanks; ++from) receives.push_back({from, 1, received[from]});
    ranks.link(0).transfer({}, receives);
    for (int from = 1; from < kRanks; ++from)
        CHECK(received[from] == pattern(500'000, static_cast<uint32_t>(from)));
}

TEST_CASE("lanes send and receive at once, each by tags of its own, from all sides") {
    constexpr int kRanks = 4;
    constexpr size_t kBytes = 700'000;
    LinkedRanks ranks(kRanks);
    std::atomic<int> wrong{0};
    {
        std::vector<std::jthread> lanes;
        for (int from = 0; from < kRanks; ++from)
            for (int to = 0; to < kRanks; ++to) {
                if (from == to) continue;
                const auto tag = static_cast<uint32_t>(from * 16 + to);
                lanes.emplace_back([&ranks, from, to, tag] {
                    for (uint32_t i = 0; i < 5; ++i)
                        send(ranks.link(from), to, tag, pattern(kBytes, tag + i));
                });
                lanes.emplace_back([&ranks, &wrong, from, to, tag] {
                    for (uint32_t i = 0; i < 5; ++i)
                        if (receive(ranks.link(to), from, tag, kBytes) != pattern(kBytes, tag + i))
                            ++wrong;
                });
            }
    }
    CHECK(wrong == 0);
}

TEST_CASE("two ranks exchange more than a ring holds in one call") {
    LinkedRanks ranks(2);
    const auto exchange = [&](int node) {
        const std::vector<std::byte> mine = pattern(1'000'000, static_cast<uint32_t>(node));
        std::vector<std::byte> theirs(mine.size());
        const int other = 1 - node;
        ranks.link(node).transfer({{other, 3, mine}}, {{other, 3, theirs}});
        return theirs;
    };
    std::vector<std::byte> second;
    {
        std::jthread thread([&] { second = exchange(1); });
        CHECK(exchange(0) == pattern(1'000'000, 1));
    }
    CHECK(second == pattern(1'000'000, 0));
}

TEST_CASE("a receive that nobody answers ends with the time limit and names the rank") {
    LinkedRanks ranks(2, 50ms);
    try {
        static_cast<void>(receive(ranks.link(1), 0, 1, 8));
        FAIL("it came back");
    } catch (const Error& error) {
        CHECK(error.code() == ExitCode::kHang);
        CHECK(std::string(error.what()).find("rank 1 host") != std::string::npos);
    }
}

TEST_CASE("an aborted link ends what waits on it with the reason") {
    LinkedRanks ranks(2);
    std::string what;
    {
        std::jthread waiting([&] {
            try {
                static_cast<void>(receive(ranks.link(1), 0, 1, 8));
            } catch (const Error& error) {
                what = error.what();
            }
        });
        std::this_thread::sleep_for(30ms);
        ranks.link(0).abort("rank 7 is out of memory");
    }
    CHECK(what == "rank 7 is out of memory");
}

}  // namespace dslaunch
