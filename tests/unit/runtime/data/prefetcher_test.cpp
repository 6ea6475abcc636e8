#include "runtime/data/prefetcher.h"

#include <atomic>
#include <semaphore>
#include <stdexcept>
#include <string>

#include "support/catch.h"

using namespace dslaunch;
using namespace dslaunch::runtime;
using namespace std::chrono_literals;

namespace {

constexpr auto kLong = 10s;  // far more than any machine needs: reaching it is a failure

// True as soon as CONDITION holds; false after kLong.
template <typename Condition>
bool becomes(Condition condition) {
    const auto end = std::chrono::steady_clock::now() + kLong;
    while (!condition()) {
        if (std::chrono::steady_clock::now() > end) return false;
        std::this_thread::sleep_for(1ms);
    }
    return true;
}

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
    std::counting_semaphore<100> allowed{2};
    std::atomic<int64_t> begun{0};
    Prefetcher<int64_t> items(
        [&](int64_t index) {
            ++begun;
            allowed.acquire();
            return index;
        },
        0, 3);
    REQUIRE(becomes([&] { return begun == 3; }));  // items 0 and 1 are ready
    REQUIRE(items.take(0) == 0);
    REQUIRE(items.take(1) == 1);
    REQUIRE(items.waited() == Duration::zero());
    std::thread later([&] {
        std::this_thread::sleep_for(100ms);
        allowed.release(100 - 2);
    });
    REQUIRE(items.take(2) == 2);
    later.join();
    REQUIRE(items.waited() > 10ms);
    REQUIRE(items.waited() < kLong);
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
    REQUIRE(finished);  // the thread was joined, not left behind
}
