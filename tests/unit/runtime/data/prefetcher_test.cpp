#include "runtime/data/prefetcher.h"

#include <atomic>
#include <functional>
#include <mutex>
#include <semaphore>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "support/catch.h"

using namespace dslaunch;
using namespace dslaunch::runtime;
using namespace std::chrono_literals;

namespace {

constexpr auto kLong = 60s;  // far more than any machine needs: reaching it is a failure

// Returns true as soon as CONDITION holds, and false after kLong.
template <typename Condition>
bool becomes(Condition condition) {
    const auto end = std::chrono::steady_clock::now() + kLong;
    while (!condition()) {
        if (std::chrono::steady_clock::now() > end) return false;
        std::this_thread::sleep_for(1ms);
    }
    return true;
}

// A clock that advances by a second at each look, and reports the look.
class TellingClock final : public Clock {
  public:
    explicit TellingClock(std::function<void()> tell) : tell_(std::move(tell)) {}
    [[nodiscard]] TimePoint now() const override {
        tell_();
        return TimePoint(std::chrono::seconds(looks_++));
    }
    void sleep_for(Duration) override { FAIL("nobody sleeps by this clock"); }

  private:
    std::function<void()> tell_;
    mutable int64_t looks_ = 0;
};

}  // namespace

TEST_CASE("items come in order, and the thread makes depth of them ahead and no more") {
    for (const int64_t depth : {1, 2, 5}) {
        std::atomic<int64_t> made{0};
        Prefetcher<int64_t> items(
            [&](int64_t index) {
                ++made;
                return 10 * index;
            },
            7, depth);
        REQUIRE(becomes([&] { return made == depth; }));
        for (int64_t i = 0; i < 20; ++i) {
            REQUIRE(items.take(7 + i) == 10 * (7 + i));
            REQUIRE(becomes([&] { return made == depth + i + 1; }));
        }
        std::this_thread::sleep_for(20ms);
        REQUIRE(made == depth + 20);
    }
}

TEST_CASE("only a take that finds nothing ready adds to the time waited") {
    constexpr int64_t kAllItems = 100;
    std::counting_semaphore<kAllItems> allowed{2};
    std::atomic<int64_t> begun{0};
    // The first look comes from a take() that has found no item: the items come only then.
    std::once_flag looked;
    const TellingClock clock(
        [&] { std::call_once(looked, [&] { allowed.release(kAllItems - 2); }); });
    Prefetcher<int64_t> items(
        [&](int64_t index) {
            ++begun;
            allowed.acquire();
            return index;
        },
        0, 3, &clock);
    REQUIRE(becomes([&] { return begun == 3; }));  // items 0 and 1 are ready
    REQUIRE(items.take(0) == 0);
    REQUIRE(items.take(1) == 1);
    REQUIRE(items.waited() == Duration::zero());
    REQUIRE(items.take(2) == 2);
    REQUIRE(items.waited() == 1s);  // one look before the wait and one after it
}

TEST_CASE("an error comes where its item would have come, and each time it is asked for") {
    Prefetcher<std::string> items(
        [](int64_t index) -> std::string {
            if (index == 2) throw Error(ExitCode::kInput, "item 2 is bad");
            return std::to_string(index);
        },
        0, 4);
    REQUIRE(items.take(0) == "0");
    REQUIRE(items.take(1) == "1");
    for (int i = 0; i < 2; ++i) try {
            (void)items.take(2);
            FAIL("no error");
        } catch (const Error& error) {
            REQUIRE(error.code() == ExitCode::kInput);
            REQUIRE(std::string(error.what()) == "item 2 is bad");
        }
    REQUIRE(items.take(3) == "3");
}

TEST_CASE("any place can be taken next, forth and back") {
    Prefetcher<int64_t> items([](int64_t index) { return index; }, 0, 3);
    for (const int64_t index : {0, 1, 50, 51, 3, 4, 4, 0, 1'000'000, 1'000'001})
        REQUIRE(items.take(index) == index);
}

TEST_CASE("the destructor ends a thread that waits for room, makes an item, or has failed") {
    for (int i = 0; i < 200; ++i)
        Prefetcher<int64_t> untouched([](int64_t index) { return index; }, 0, 1 + i % 3);
    {
        Prefetcher<int64_t> failed([](int64_t) -> int64_t { throw std::bad_alloc(); }, 0, 2);
    }
    std::atomic<bool> started{false};
    std::atomic<bool> finished{false};
    {
        Prefetcher<int64_t> busy(
            [&](int64_t index) {
                started = true;
                std::this_thread::sleep_for(20ms);
                finished = true;
                return index;
            },
            0, 1);
        REQUIRE(becomes([&] { return started.load(); }));
    }
    REQUIRE(finished);  // the thread was joined
}
